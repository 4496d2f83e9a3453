"""Tells whether a wrong answer is that of the same graph in a narrower type: float64 in float32.

Some runtimes compute every double in single precision. That is one finding, not one an operator.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from verax.base.errors import VeraxError
from verax.hunt.opinions import is_wrong
from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType

Values = Mapping[str, np.ndarray]
IN_SINGLE = "float64 computed in float32"


def is_of_single_precision(graph: Graph, inputs: Values, answer: Values) -> bool:
    """True if `answer` is wrong in float64, and right where the graph's float64 is float32."""
    if not any(np.asarray(a).dtype == np.float64 for a in (*inputs.values(), *answer.values())):
        return False
    try:
        single = in_single(graph, inputs)
        return not is_wrong(single, _narrowed(inputs), _narrowed(answer))
    except (VeraxError, ValueError, TypeError, KeyError):  # it casts, or makes no graph
        return False


def in_single(graph: Graph, inputs: Values) -> Graph:
    """The graph with inputs and constants of float32 in the place of float64."""
    builder = Builder(graph.name)
    for name, array in _narrowed(inputs).items():
        builder.input(name, TensorType.of(array))
    for name, array in _narrowed(graph.constants).items():
        builder.constant(array, name)
    for node in graph.nodes:
        builder.add_all(node.op, node.inputs, node.outputs, node.name)
    return builder.graph(graph.outputs)


def _narrowed(arrays: Values) -> dict[str, np.ndarray]:
    return {
        name: np.asarray(a).astype(np.float32) if np.asarray(a).dtype == np.float64 else a
        for name, a in arrays.items()
    }
