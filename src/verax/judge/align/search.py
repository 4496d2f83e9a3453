"""Searches for an input on which two networks differ that agree on ordinary ones.

Where the operators of two networks are not shown to be the same, inputs are tried that reach the
numbers at which they differ: scaled, negated, shifted, sparse and saturated ones, and then, along
the derivative, inputs that push the operands of an open pair past the corners of its operators.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from verax.base.deadline import clock
from verax.base.errors import VeraxError
from verax.ir.graph import Graph, Node
from verax.ir.operator import Evaluation
from verax.ir.types import TensorType
from verax.judge.align.corners import CornerCoverage, margins
from verax.judge.align.drives import of_inputs
from verax.judge.align.proof import OpenPair
from verax.judge.align.values import Side, Values, ancestors
from verax.judge.regions.adjoint import NoRule, Tape
from verax.numerics import statistics as st
from verax.ops.pointwise.identity import Identity

PUSHED = 3
"""Open places towards which inputs are pushed along the derivative."""
FIRST = 3
"""Inputs that are tried before the operators are compared where these differ in kind."""
STEPS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""Steps of a push, in sizes of the input."""
Run = Callable[[Values], tuple[Side, Side]]
"""Both networks on inputs of the first, in the working dtype."""
Parts = Callable[[Side, Side], bool]
"""Whether their outputs differ by more than rounding."""


@dataclass
class Search:
    """Result of a search. words: description of the input on which the networks differ, "" for
    none; sides: both networks on it; tried_count: inputs that were evaluated; seen: corner sides
    reached at open pairs of either network; drawn: inputs that were drawn, also those that fail."""

    words: str = ""
    inputs: Values = field(default_factory=dict)
    sides: tuple[Side, Side] | None = None
    tried_count: int = 0
    seen: tuple[CornerCoverage, CornerCoverage] = field(
        default_factory=lambda: (CornerCoverage(), CornerCoverage())
    )
    drawn: int = 0


def search(
    first: Side,
    open_pairs: Sequence[OpenPair],
    run: Run,
    differ: Parts,
    seed: int,
    limit: int | None = None,
    so_far: Search | None = None,
) -> Search:
    """Search for an input on which the networks differ, nearest to the inputs at hand first, as
    long as there is time.

    limit: number of changed inputs to try before the open pairs are known; all, and pushed ones,
    where it is None. so_far: a search with the same seed, to be continued after its inputs."""
    result, run = so_far or Search(), _cached(run)
    watched = None
    if limit is None:
        watched = [n for p in open_pairs for group in p.trial.nodes for n in group]
    start = {v: first.values[v] for v in first.graph.inputs}
    for words, arrays in itertools.islice(_inputs(first.graph, start, seed), result.drawn, limit):
        result.drawn += 1
        if clock().is_up or _tells(result, words, arrays, run, differ, watched):
            return result
    for open_pair in open_pairs[: PUSHED if limit is None else 0]:
        for words, arrays in _pushed(open_pair, first, run):
            if _tells(result, words, arrays, run, differ, watched) or clock().is_up:
                return result
    return result


def _cached(run: Run) -> Run:
    """`run` with the result for the last inputs cached."""
    last: list[tuple[Values, tuple[Side, Side]]] = []

    def act(arrays: Values) -> tuple[Side, Side]:
        if not last or last[0][0] is not arrays:
            last[:] = [(arrays, run(arrays))]
        return last[0][1]

    return act


def _tells(
    result: Search,
    words: str,
    arrays: Values,
    run: Run,
    differ: Parts,
    watched: Sequence[Node] | None,
) -> bool:
    """True if the networks differ on `arrays`, which `result` then holds.

    watched: nodes of either network whose corners are recorded, None for all."""
    try:
        a, b = run(arrays)
        result.tried_count += 1
        for side, seen in zip((a, b), result.seen):
            for node in side.graph.nodes if watched is None else watched:
                if side.graph.producers.get(node.outputs[0]) is node:
                    read = [None if v is None else side.values[v] for v in node.inputs]
                    seen.add(side.graph, node, read)
        if not differ(a, b):
            return False
    except (VeraxError, ValueError, IndexError):
        return False
    result.words, result.inputs, result.sides = words, arrays, (a, b)
    return True


def _inputs(graph: Graph, start: Values, seed: int) -> Iterator[tuple[str, Values]]:
    random = np.random.default_rng(seed)
    for drive in of_inputs():
        yield drive.words, {v: drive.draw(start[v], random) for v in graph.inputs}


def _pushed(open_pair: OpenPair, side: Side, run: Run) -> Iterator[tuple[str, Values]]:
    """Yield inputs that move the operands at the corners of a pair up and down, step by step."""
    seen: set[str] = set()
    for node in open_pair.trial.nodes[0]:
        target = node.inputs[0]
        if target is None or target in seen or target not in side.values:
            continue
        if not margins(node, [None if v is None else side.values[v] for v in node.inputs]):
            continue
        seen.add(target)
        for sign, words in ((1.0, "up"), (-1.0, "down")):
            yield from _ascent(target, sign, words, side, run)
    if not seen:
        leaf = open_pair.first
        for sign, words in ((1.0, "up"), (-1.0, "down")):
            yield from _ascent(leaf, sign, words, side, run)


def _ascent(
    target: str, sign: float, words: str, side: Side, run: Run
) -> Iterator[tuple[str, Values]]:
    start = {v: side.values[v] for v in side.graph.inputs}
    at = start
    for step in STEPS:
        try:
            side = side if at is start else run(at)[0]
            slopes = _slopes(side, target, sign)
        except (NoRule, VeraxError, ValueError):
            return
        if not slopes or not any(g.any() for g in slopes.values()):
            return
        pushed = dict(at)
        for name, slope in slopes.items():
            size = st.root_mean_square(start[name]) or 1.0
            pushed[name] = at[name] + sign * step * size * np.sign(slope)
        at = pushed
        yield f"pushed so that {target!r} goes {words} (step {step:g})", at


def _slopes(side: Side, target: str, sign: float) -> dict[str, np.ndarray]:
    """Derivatives of the target's farthest element by the inputs."""
    graph, values = side.graph, side.values
    y = values[target]
    if y.dtype.kind != "f" or not y.size:
        return {}
    within = ancestors(graph, target)
    floats = [v for v in graph.inputs if v in within and values[v].dtype.kind == "f"]
    before = {v: v + "'" for v in floats}  # inputs as nodes: the tape gives slopes of results only
    tape = Tape(frozenset((within - set(graph.constants)) | set(before.values())))
    for name in floats:
        type_ = TensorType.of(values[name]).with_dtype(graph.types[name].dtype)
        identity = Node(Identity(), (before[name],), (name,))
        tape.add(identity, Evaluation((type_,), (type_,)), [values[name]], [values[name]])
    for node in graph.nodes:
        if within.isdisjoint(node.outputs):
            continue
        arrays = [None if v is None else values[v] for v in node.inputs]
        ev = Evaluation(_types(graph, node.inputs, values), graph.output_types(node))
        tape.add(node, ev, arrays, [values[v] for v in node.outputs])
    seed = np.zeros(y.shape)
    seed.reshape(-1)[int(np.argmax(sign * np.nan_to_num(y)))] = 1.0
    return {v: g for v, g in tape.pull_back({target: seed}) if v in floats}


def _types(
    graph: Graph, names: Sequence[str | None], values: Mapping[str, Any]
) -> tuple[TensorType | None, ...]:
    return tuple(
        None if v is None else TensorType(graph.types[v].dtype, values[v].shape) for v in names
    )
