"""What a planted mistake is: a change of one node, as a rewritten node or as changed numbers.

A `Rewrite` (another operator, other attributes, other constants) can be evaluated in NumPy and can
be written into an ONNX file. `Numbers` is a change of what came out, such as a row that was never
computed. `Plant` is a kind of mistake: to which operators it applies, how to make it at a `Site`,
and whether any rival meaning could explain it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from verax.base.errors import GraphError
from verax.ir.graph import Graph, Node, infer_node
from verax.ir.operator import Inference, Operator
from verax.ir.types import DType, TensorType
from verax.judge.decide.local import meaning
from verax.numerics import statistics as st
from verax.numerics.error_model import TINY
from verax.reference.evaluate import evaluate_node

Numbers = Callable[[list[Any], np.ndarray], np.ndarray]
"""From a node's input arrays and its honest output to the planted output."""


@dataclass(frozen=True)
class NodeRewrite:
    """A rival node: its operator and its inputs (names of values, new constants, or None)."""

    op: Operator
    inputs: tuple[str | np.ndarray | None, ...]

    def node(self, node: Node) -> tuple[Node, dict[str, np.ndarray]]:
        """The rival node in place of `node`, and the constants that it brings along."""
        label = node.name or node.outputs[0]
        constants = {
            f"{label}.planted{i}": v for i, v in enumerate(self.inputs) if isinstance(v, np.ndarray)
        }
        names = tuple(
            f"{label}.planted{i}" if isinstance(v, np.ndarray) else v
            for i, v in enumerate(self.inputs)
        )
        return Node(self.op, names, node.outputs, node.name), constants


Change = NodeRewrite | Numbers


@dataclass(frozen=True)
class Site:
    """A node, on the arrays that honest float32 gives it.

    arrays: its inputs; output: its first output; random: the source of choices of this placement.
    """

    graph: Graph
    node: Node
    arrays: tuple[Any, ...]
    output: np.ndarray
    random: np.random.Generator

    def constant(self, position: int) -> np.ndarray | None:
        """The constant at an input, None when it is omitted or computed."""
        inputs = self.node.inputs
        name = inputs[position] if position < len(inputs) else None
        return None if name is None else self.graph.constants.get(name)

    @cached_property
    def windows(self) -> Any:
        """`Windows` of a convolution, a transposed convolution or a pool, in numbers."""
        op: Any = self.node.op
        types = [TensorType.of(a) for a in self.arrays[:2] if a is not None]
        return op.spatial(*types[:1]) if op.kind.endswith("Pool") else op.spatial(*types)

    def rewrite(
        self,
        inputs: Mapping[int, Any] | None = None,
        op: Operator | None = None,
        keep: int | None = None,
        **attributes: Any,
    ) -> NodeRewrite | None:
        """The node with some inputs replaced and other attributes; None when it no longer fits.

        inputs: position -> array, name of a value, or None. op: another operator. keep: how many
        of the inputs are kept.
        """
        operator: Any = op or self.node.op
        listed: list[Any] = list(self.node.inputs)
        for position, value in (inputs or {}).items():
            listed[position] = _ready(value) if isinstance(value, np.ndarray) else value
        rewrite = NodeRewrite(dataclasses.replace(operator, **attributes), tuple(listed[:keep]))
        return rewrite if self._fits(rewrite) else None

    def _fits(self, rewrite: NodeRewrite) -> bool:
        """Whether the rival is a valid node of the same output type."""
        node, constants = rewrite.node(self.node)
        types = {**self.graph.types, **{k: TensorType.of(v) for k, v in constants.items()}}
        try:
            types_inferred, _ = infer_node(node, types, {**self.graph.constants, **constants})
        except GraphError:
            return False
        return types_inferred[0] == self.graph.types[self.node.outputs[0]]

    def effect(self, change: Change) -> float:
        """How far the change moves the true outcome: T of its float64 difference in sigmas.

        Infinite when an exact operator's outcome changes; 0 when nothing does.
        """
        node, graph = self.node, self.graph
        declared = graph.output_types(node)
        own = meaning(node, self.arrays, graph.input_types(node), declared)
        expected, rounding = own.outputs[0], own.roundings[0]
        wide = [None if a is None else _wide(a) for a in self.arrays]
        if isinstance(change, NodeRewrite):
            faulty = evaluate_rewrite(change, node, wide)
        else:
            faulty = np.asarray(change(wide, expected.copy()), np.float64)
        difference = faulty - expected
        if not difference.any():
            return 0.0
        if rounding is None:
            return np.inf
        z = st.standardised(difference, rounding.sigma + TINY)
        return st.group_test(z).statistic


@dataclass(frozen=True)
class Fault:
    """A kind of mistake.

    operators: kinds of nodes that it applies to; make: the change at a site, None where it does not
    apply; outside: it has no rival meaning (noise, a few elements), so that an explanation of it
    would be wrong.
    """

    name: str
    operators: tuple[str, ...]
    make: Callable[[Site], Change | None]
    outside: bool = False


def _ready(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array)


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def evaluate_rewrite(rewrite: NodeRewrite, node: Node, arrays: Sequence[Any]) -> np.ndarray:
    """First output of the rival of `node`, on the node's arrays (float32 or float64)."""
    by_name = dict(zip(node.inputs, arrays))
    kinds = (a.dtype for a in arrays if a is not None and a.dtype.kind == "f")
    floats = next(kinds, np.dtype(np.float64))
    values: list[Any] = []
    for i, v in enumerate(rewrite.inputs):
        if isinstance(v, np.ndarray):
            values.append(v.astype(floats) if v.dtype.kind == "f" else v)
        else:
            same = i < len(node.inputs) and node.inputs[i] == v
            values.append(arrays[i] if same else None if v is None else by_name[v])
    return apply(rewrite.op, values)


def apply(op: Operator, arrays: Sequence[Any]) -> np.ndarray:
    """First output of an operator on float32 arrays, or on their values in float64."""
    types = tuple(None if a is None else _declared(a) for a in arrays)
    outputs = tuple(op.infer(Inference(types, tuple(arrays))))
    kinds = (a.dtype for a in arrays if a is not None and a.dtype.kind == "f")
    work = next(kinds, np.dtype(np.float64))
    names = tuple(map(str, range(len(arrays))))
    node = Node(op, names, tuple(f"y{i}" for i in range(len(outputs))))
    return evaluate_node(node, arrays, types, outputs, work)[0]


def _declared(array: np.ndarray) -> TensorType:
    type_ = TensorType.of(array)
    return type_.with_dtype(DType.float32) if array.dtype == np.float64 else type_
