"""Bodies of control flow: graphs that are attributes of an operator, kept as their text form.

A body holds no constants: what it needs of its surroundings is among its inputs, so that weights
lie in the outer graph alone and a text says everything. It is evaluated here in whatever arithmetic
its operator is: by meaning, by promised bits, or with the noise that rounding makes.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from verax.base.errors import GraphError, VeraxError
from verax.ir.graph import Builder, Graph, Node
from verax.ir.operator import Evaluation, Inference, as_tuple
from verax.ir.text import parse_graph
from verax.ir.types import HALVES, DType, TensorType
from verax.numerics.error_model import KAPPA
from verax.ops.common import unit_roundoff


@functools.lru_cache(maxsize=512)
def body_of(text: str) -> Graph:
    """The graph of a text form. Raises `GraphError` unless it is one without constants or state."""
    graph = parse_graph(text)
    if graph.constants or graph.updates or not graph.outputs:
        raise GraphError("a body has constants or state, or no outputs")
    defined = set(graph.inputs)
    for node in graph.nodes:
        if not {v for v in node.inputs if v is not None} <= defined:
            raise GraphError("a body reads what it does not define", place=node.place)
        if not defined.isdisjoint(node.outputs):
            raise GraphError("a body defines a value twice", place=node.place)
        defined.update(node.outputs)
    if not set(graph.outputs) <= defined:
        raise GraphError("a body does not define its outputs")
    return graph


def instantiated(
    ctx: Inference,
    text: str,
    types: Sequence[TensorType],
    contents: Sequence[np.ndarray | None],
    description: str,
) -> Builder:
    """The graph of `text` built again for inputs of these types.

    contents: of each input, its value where it is constant, else None. description: what messages
    call the graph. `ctx` fails where the graph does not fit the types."""
    try:
        body = body_of(text)
    except VeraxError as error:
        ctx.fail(f"{description} cannot be read: {error.cause}")
    if len(body.inputs) != len(types):
        ctx.fail(f"{description} takes {len(body.inputs)} values, {len(types)} are given")
    built = Builder(body.name)
    for name, type_, content in zip(body.inputs, types, contents):
        if type_.dtype is not body.types[name].dtype:
            ctx.fail(f"{description} takes {body.types[name].dtype} as {name!r}, given is {type_}")
        built.input(name, type_)
        if content is not None:
            built.known[name] = content
    try:
        for node in body.nodes:
            built.add_all(node.op, node.inputs, node.outputs, node.name)
    except GraphError as error:
        ctx.fail(f"{description} does not fit its inputs: {error.cause} ({error.place})")
    return built


class Repeating(Protocol):
    """An operator that has bodies (`control.Control`)."""

    def run_bodies(self, runner: SubgraphEvaluator, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Outputs, the bodies evaluated by `runner`."""


@dataclasses.dataclass
class Noise:
    """So many times what rounding does to every result inside, by chance."""

    scale: float
    random: np.random.Generator


@dataclasses.dataclass
class SubgraphEvaluator:
    """Evaluates bodies. work: dtype that carries floats; is_promised: with the promised bits, in
    declared dtypes. decisions: every choice that was made, in order."""

    work: np.dtype
    is_promised: bool = False
    noise: Noise | None = None
    decisions: list[bool] = dataclasses.field(default_factory=list)
    runs: int = 0  # of the body of the loop that ended last
    total_runs: int = 0  # of all bodies of loops, those in each other among them
    evaluations: int = 0  # of nodes of bodies

    def decide(self, condition: Any) -> bool:
        """`condition` as a bool, which is appended to `decisions`."""
        truth = bool(np.asarray(condition).reshape(-1)[0])
        self.decisions.append(truth)
        return truth

    def evaluate(self, body: Graph, inputs: Sequence[Any]) -> list[Any]:
        """Outputs of a body."""
        values = dict(zip(body.inputs, inputs, strict=True))
        for node in body.nodes:
            arrays = [None if v is None else values[v] for v in node.inputs]
            results = self._node(body, node, arrays)
            values.update(zip(node.outputs, results, strict=True))
        return [values[v] for v in body.outputs]

    def _node(self, body: Graph, node: Node, arrays: Sequence[Any]) -> list[Any]:
        types = tuple(
            None if v is None or a is None else TensorType(body.types[v].dtype, np.shape(a))
            for v, a in zip(node.inputs, arrays)
        )
        declared = body.output_types(node)
        ev = Evaluation(types, declared, self.work)
        self.evaluations += 1
        try:
            if hasattr(node.op, "run_bodies"):
                results: Any = node.op.run_bodies(self, arrays)
            elif self.is_promised:
                results = as_tuple(node.op.canonical(ev, *arrays))
            else:
                results = as_tuple(node.op.reference(ev, *arrays))
        except VeraxError as error:
            location = f"{node.place}, {error.place}" if error.place else node.place
            raise type(error)(error.cause, place=location, next_step=error.next_step) from error
        result_dtypes = [t.dtype.numpy if self.is_promised else ev.dtype(t.dtype) for t in declared]
        arranged = [
            np.asarray(r).astype(d, copy=False) for r, d in zip(results, result_dtypes, strict=True)
        ]
        if self.noise is None or hasattr(node.op, "run_bodies"):
            return arranged
        return self._with_noise(node, types, declared, arrays, arranged)

    def _with_noise(
        self,
        node: Node,
        types: Sequence[TensorType | None],
        declared: Sequence[TensorType],
        arrays: Sequence[Any],
        results: list[Any],
    ) -> list[Any]:
        """Results of a node with noise of the size of their rounding."""
        assert self.noise is not None
        shaped = [TensorType(t.dtype, r.shape) for t, r in zip(declared, results)]
        ev = Evaluation(
            tuple(None if t is None else _in_float32(t) for t in types),
            tuple(map(_in_float32, shaped)),
        )
        noisy = []
        for type_, y, rounding in zip(shaped, results, node.op.error(ev, arrays, results)):
            if rounding is None or not type_.dtype.is_float:
                noisy.append(y)
                continue
            sigma = np.broadcast_to(np.nan_to_num(rounding.sigma, posinf=0.0), y.shape)
            if type_.dtype in HALVES:
                sigma = np.hypot(sigma, KAPPA * unit_roundoff(type_.dtype) * np.abs(y))
            noise = self.noise.random.standard_normal(y.shape)
            noisy.append(y + self.noise.scale * sigma * noise)
        return noisy


def _in_float32(type_: TensorType) -> TensorType:
    return type_.with_dtype(DType.float32) if type_.dtype.is_float else type_
