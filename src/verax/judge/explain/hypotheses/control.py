"""Branches and loops: the other branch, a condition negated, a run too few or too many, values
handed on in the wrong order or not at all."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import numpy as np

from verax.ir.graph import Graph, Node
from verax.ir.printer import print_graph
from verax.ir.types import DType, TensorType
from verax.judge.explain.hypotheses.base import (
    Arrays,
    Edit,
    Hypothesis,
    Prior,
    Suspect,
    edited,
    hypotheses_of,
)
from verax.ops.control.control import If, Loop
from verax.ops.control.subgraphs import SubgraphEvaluator, body_of
from verax.ops.pointwise.comparison import Equal

MOST_PAIRS = 12
"""Pairs of carried values that are tried as exchanged."""


@hypotheses_of("If")
def branch(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield hypotheses on If."""
    op = suspect.op
    assert isinstance(op, If)
    if op.then_branch and op.else_branch and op.then_branch != op.else_branch:
        ran = "then" if bool(np.asarray(suspect.inputs[0]).reshape(-1)[0]) else "else"
        yield Hypothesis(
            "the other branch",
            f"the {'else' if ran == 'then' else 'then'} branch ran where the condition chooses "
            f"the {ran} branch",
            Prior.usual,
            inputs=edited(0, np.logical_not),
            attributes={"condition": "negated, or the branches swapped"},
        )


@hypotheses_of("Loop")
def loop(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield hypotheses on Loop."""
    op = suspect.op
    assert isinstance(op, Loop)
    runs = _runs(suspect, op)
    for by, words in ((-1, "once too few"), (1, "once too many"), (-2, "twice too few")):
        if runs + by >= 0:
            yield Hypothesis(
                f"run {words}",
                f"the body ran {runs + by} instead of {runs} times: {words}",
                Prior.usual,
                op=_endless(op),
                inputs=_counted(runs + by),
                attributes={"runs": str(runs + by)},
            )
    if runs > 0 and suspect.inputs[0] is not None:
        yield Hypothesis(
            "condition ignored",
            "the body ran as often as the limit allows, whatever its condition said",
            Prior.common,
            op=_endless(op),
        )
    body = body_of(op.body)
    types = [body.types[v] for v in body.inputs[1 : 1 + op.carried]]
    for index, (i, j) in enumerate(itertools.combinations(range(op.carried), 2)):
        if types[i] == types[j] and index < MOST_PAIRS:
            outputs = list(body.outputs)
            outputs[1 + i], outputs[1 + j] = outputs[1 + j], outputs[1 + i]
            yield Hypothesis(
                f"carried values {i} and {j} swapped",
                f"the carried values {i} and {j} were exchanged after every run",
                Prior.usual,
                op=_with_outputs(op, outputs),
                attributes={"carried": f"{i} and {j} exchanged"},
            )
    for i in range(op.carried):
        if body.outputs[1 + i] != body.inputs[1 + i] and op.carried > 1:
            outputs = list(body.outputs)
            outputs[1 + i] = body.inputs[1 + i]
            yield Hypothesis(
                f"carried value {i} kept",
                f"the carried value {i} was not handed on from run to run",
                Prior.common,
                op=_with_outputs(op, outputs),
            )


def _runs(suspect: Suspect, op: Loop) -> int:
    """How often the body runs by its meaning."""
    runner = SubgraphEvaluator(np.dtype(np.float64))
    wide = [
        None if x is None else x.astype(np.float64) if x.dtype.kind == "f" else x
        for x in suspect.inputs
    ]
    op.run_bodies(runner, wide)
    return runner.runs


def _counted(runs: int) -> Edit:
    """The inputs for so many runs."""

    def edit(arrays: Arrays) -> Arrays:
        return [np.array(runs, np.int64), np.array(True), *arrays[2:]]

    return edit


def _endless(op: Loop) -> Loop:
    """The loop that only its limit ends."""
    body = body_of(op.body)
    iteration = body.inputs[0]
    always = Node(Equal(), (iteration, iteration), (f"{body.outputs[0]}.always",))
    types = {**body.types, always.outputs[0]: TensorType(DType.bool_, ())}
    outputs = (always.outputs[0], *body.outputs[1:])
    graph = Graph(body.inputs, outputs, (*body.nodes, always), {}, types, body.name)
    return dataclasses.replace(op, body=print_graph(graph))


def _with_outputs(op: Loop, outputs: list[str]) -> Loop:
    body = body_of(op.body)
    graph = Graph(body.inputs, tuple(outputs), body.nodes, {}, body.types, body.name)
    return dataclasses.replace(op, body=print_graph(graph))
