"""`Sketch`: a graph builder that evaluates as it goes, so that random weights fit their inputs.

A random network whose activations die or explode proves nothing about the judge: its output no
longer depends on what lies inside. With every value at hand, statistics can be drawn that belong to
it, and values that left the ordinary range are not built upon.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import verax.ops  # noqa: F401  (registers the operators)
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY, Operator
from verax.ir.types import TensorType
from verax.reference.evaluate import evaluate_node

LARGEST = 1e4
"""Root mean square beyond which a value is not built upon."""


def op(kind: str, **attributes: Any) -> Operator:
    """An operator by name."""
    return REGISTRY[kind](**attributes)


class Sketch:
    """A graph under construction with one float32 sample of each of its values.

    values: array by value name, constants included; random: the source of every choice.
    """

    def __init__(self, name: str, random: np.random.Generator) -> None:
        self.builder, self.random = Builder(name), random
        self.values: dict[str, np.ndarray] = {}
        self.inputs: dict[str, np.ndarray] = {}

    def input(self, name: str, array: np.ndarray) -> str:
        """An input of the network, and the array that it will be judged on."""
        self.inputs[name] = self.values[name] = array
        return self.builder.input(name, TensorType.of(array))

    def constant(self, array: np.ndarray | Sequence[int], dtype: type = np.float32) -> str:
        """A constant; its name is chosen."""
        stored: np.ndarray = np.ascontiguousarray(array, dtype)
        name = self.builder.constant(stored, self.builder.fresh("w"))
        self.values[name] = stored
        return name

    def normal(self, *shape: int, scale: float = 1.0) -> str:
        """A constant of normal numbers."""
        return self.constant(self.random.standard_normal(shape) * scale)

    def uniform(self, low: float, high: float, *shape: int) -> str:
        """A constant of uniform numbers."""
        return self.constant(self.random.uniform(low, high, shape))

    def add(self, op: Operator, inputs: Sequence[str | None], name: str = "") -> str:
        """Append a node and evaluate it. Raises `GraphError` when the types do not fit.

        The node is named after its operator and its position ("Conv7") unless `name` is given.
        Inputs omitted at the end are left away: OpenVINO refuses ConvTranspose with an empty name.
        """
        while inputs and inputs[-1] is None:
            inputs = inputs[:-1]
        b = self.builder
        label = name or f"{op.kind}{len(b.nodes)}"
        outputs = b.add_all(op, inputs, (label,), label)
        node = b.nodes[-1]
        arrays = [None if v is None else self.values[v] for v in inputs]
        types = tuple(None if a is None else TensorType.of(a) for a in arrays)
        declared = tuple(b.types[v] for v in outputs)
        results = evaluate_node(node, arrays, types, declared, np.float32)
        self.values.update(zip(outputs, results))
        return outputs[0]

    def shape(self, value: str) -> tuple[int, ...]:
        return self.values[value].shape

    def made_by(self, value: str) -> str:
        """The kind of operator that made a value, "" for inputs and constants."""
        return next((n.op.kind for n in self.builder.nodes if value in n.outputs), "")

    def tame(self, value: str) -> bool:
        """Whether a value is finite, not constant, and of ordinary size."""
        array = self.values[value].astype(np.float64)
        if array.size == 0 or not np.isfinite(array).all():
            return False
        return bool(np.sqrt(np.mean(array * array)) < LARGEST and array.std() > 1 / LARGEST)

    def sinks(self) -> list[str]:
        """Values that nothing reads yet, in order."""
        read = {v for node in self.builder.nodes for v in node.inputs}
        return [v for node in self.builder.nodes for v in node.outputs if v not in read]

    def graph(self, outputs: Sequence[str] = ()) -> Graph:
        """The finished graph; its outputs are the values that nothing reads unless given."""
        return self.builder.graph(outputs or self.sinks())
