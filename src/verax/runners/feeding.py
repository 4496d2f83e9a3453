"""Inputs to and outputs from a subject whose model may call them by other names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from verax.base.errors import UnsupportedError, UsageError
from verax.ir.graph import Graph
from verax.ir.types import NARROW
from verax.judge.protocol import Shape, matched_names, shape_of


def feed(
    input_shapes: Mapping[str, Shape], inputs: Mapping[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """`inputs` under the names that a subject's model takes, and notes on renames for
    `describe`.

    input_shapes: the model's, by input name. Raises `UsageError` when names and shapes leave it
    open which input is which.
    """
    model_names = matched_names(
        input_shapes, {k: v.shape for k, v in inputs.items()}, by_order=True
    )
    if model_names is None or len(model_names) != len(input_shapes):
        raise UsageError(
            f"the subject's model takes the inputs {_listed(input_shapes)}, the network judged "
            f"takes {', '.join(inputs)}",
            next_step="give the subject a model with the same input names",
        )
    renamed = [
        f"{graph_name} as {name}" for graph_name, name in model_names.items() if graph_name != name
    ]
    notes = {"inputs renamed": ", ".join(renamed)} if renamed else {}
    return {name: inputs[graph_name] for graph_name, name in model_names.items()}, notes


def require_numpy_types(named: Mapping[str, np.ndarray]) -> None:
    """Raises `UnsupportedError` for inputs of types that NumPy lacks: ONNX Runtime's Python
    interface takes none of them, in whichever process it is."""
    for name, array in named.items():
        if array.dtype.name == "bfloat16" or array.dtype.name in NARROW:
            raise UnsupportedError(
                f"ONNX Runtime's Python interface takes no {array.dtype.name}",
                place=f"input {name!r}",
            )


def _listed(shapes: Mapping[str, Shape]) -> str:
    return ", ".join(shapes) or "none"


def collect(
    graph: Graph, values: Mapping[str, np.ndarray], declared: Sequence[str]
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """`values` with outputs under the network's names, and notes on renames for `describe`.

    declared: the subject's outputs in their order, which decides when no name agrees and all
    shapes do. Nothing is renamed when it is not clear.
    """
    if not declared or any(v in graph.types for v in declared):
        return dict(values), {}
    expected = {v: shape_of(graph, v) for v in graph.outputs}
    declared_shapes = {v: values[v].shape for v in declared if v in values}
    graph_names = matched_names(expected, declared_shapes, by_order=True) or {}
    renamed = ", ".join(f"{name} as {meant}" for name, meant in graph_names.items())
    named = {graph_names.get(name, name): array for name, array in values.items()}
    return named, {"outputs renamed": renamed} if renamed else {}
