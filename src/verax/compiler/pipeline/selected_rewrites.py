"""Running a pass so that it does some of its rewrites and not others.

A search for two steps that are wrong together has to leave out single ones, also in the middle.
Passes know nothing of that. What a rewrite would take away is made an output of the graph while the
pass runs, which every pass leaves there; a node that would still be rewritten in its place is
hidden: it becomes an operator that no pass knows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any, ClassVar

from verax.base.errors import UsageError
from verax.compiler.passes.base import Pass
from verax.ir.gains import InputGain
from verax.ir.graph import Graph
from verax.ir.operator import Evaluation, Inference, Operator
from verax.ir.types import TensorType
from verax.records.trace import Rewrite, Trace

ATTEMPTS = 8
"""How often more is protected: what a pass may no longer do here it may try elsewhere."""


@dataclasses.dataclass(frozen=True)
class Hidden(Operator):
    """An operator that a pass shall not recognize. It lives no longer than the pass runs."""

    min_inputs: ClassVar[int] = 0
    max_inputs: ClassVar[int | None] = None
    op: Operator

    @property
    def output_count(self) -> int:
        return self.op.output_count

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        return self.op.infer(ctx)

    def gain(self, ctx: Inference, index: int) -> InputGain:
        return self.op.gain(ctx, index)

    def moved_axes(
        self, ctx: Inference, index: int, axes: frozenset[int], output: TensorType
    ) -> frozenset[int] | None:
        return self.op.moved_axes(ctx, index, axes, output)

    def reference(self, ev: Evaluation, *inputs: Any) -> Any:
        return self.op.reference(ev, *inputs)

    def canonical(self, ev: Evaluation, *inputs: Any) -> Any:
        return self.op.canonical(ev, *inputs)


def run_selected(
    step: Pass,
    graph: Graph,
    limit: int | None,
    selected: Collection[str],
    keep_exact: tuple[str, ...] = (),
) -> tuple[Graph, Trace]:
    """Run a pass that does no rewrite but those whose ids are in `selected`.

    Raises `UsageError` when one cannot be left out without others that are wanted.
    """
    added_outputs: set[str] = set()
    hidden: set[str] = set()
    for _ in range(ATTEMPTS):
        new, trace = step.apply(_protected(graph, added_outputs, hidden), limit, keep_exact)
        unwanted = [one for one in trace.records if not one.is_in(selected)]
        if not unwanted:
            return _uncovered(new, len(graph.outputs)), trace
        touched = {v for one in unwanted for v in _touched(graph, one)}
        more = touched - added_outputs - {*graph.outputs}
        if not more:
            covered = touched & graph.producers.keys() - hidden
            hidden |= covered
            if not covered:
                break
        added_outputs |= more
    raise UsageError(
        f"{str(unwanted[0])!r} cannot be left out by itself",
        place=step.name,
        next_step=f"disable {step.name} as a whole",
    )


def _touched(graph: Graph, rewrite: Rewrite) -> list[str]:
    """Values of `graph` that a rewrite replaces: the outputs of its nodes, else its values. A pass
    that rewrites several times may name nodes as it called them in between."""
    names = {*rewrite.nodes}
    outputs = [v for node in graph.nodes if node.name in names for v in node.outputs]
    return outputs or [v for v in rewrite.values if v in graph.types]


def _protected(graph: Graph, added_outputs: set[str], hidden: set[str]) -> Graph:
    nodes = tuple(
        dataclasses.replace(n, op=Hidden(n.op)) if hidden & {*n.outputs} else n for n in graph.nodes
    )
    outputs = (*graph.outputs, *sorted(added_outputs))
    return dataclasses.replace(graph, nodes=nodes, outputs=outputs)


def _uncovered(graph: Graph, outputs: int) -> Graph:
    nodes = tuple(
        dataclasses.replace(n, op=n.op.op) if isinstance(n.op, Hidden) else n for n in graph.nodes
    )
    return dataclasses.replace(graph, nodes=nodes, outputs=graph.outputs[:outputs])
