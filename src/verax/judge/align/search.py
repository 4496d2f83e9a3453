"""An input on which two networks part that agree on ordinary ones.

Where the operators of two networks are not shown to be the same, inputs are looked for that bring
numbers to where they differ: inputs scaled, turned, shifted, sparse and saturated, and then, along
the derivative, inputs that push what comes to an open place past the corners of its operators.
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
from verax.judge.align.corners import Sides, margins
from verax.judge.align.drives import of_inputs
from verax.judge.align.proof import Place
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
    """What a search found. words: the input that tells the networks apart, "" for none; sides: both
    networks on it; tried: inputs that were tried; seen: how far the numbers at open places of
    either network went; drawn: inputs that were drawn, those that cannot be evaluated too."""

    words: str = ""
    inputs: Values = field(default_factory=dict)
    sides: tuple[Side, Side] | None = None
    tried: int = 0
    seen: tuple[Sides, Sides] = field(default_factory=lambda: (Sides(), Sides()))
    drawn: int = 0


def search(
    first: Side,
    places: Sequence[Place],
    run: Run,
    parts: Parts,
    seed: int,
    most: int | None = None,
    so_far: Search | None = None,
) -> Search:
    """Look for an input that tells the networks apart, nearest to the inputs at hand first, as long
    as there is time.

    most: how many of the inputs at hand, changed, are tried, before the open places are known; all,
    and pushed ones, where it is None. so_far: a search with the same seed, which goes on behind the
    inputs that it tried."""
    found, run = so_far or Search(), _remembering(run)
    watched = None
    if most is None:
        watched = [n for p in places for part in p.trial.nodes for n in part]
    start = {v: first.values[v] for v in first.graph.inputs}
    for words, arrays in itertools.islice(_inputs(first.graph, start, seed), found.drawn, most):
        found.drawn += 1
        if clock().is_up or _tells(found, words, arrays, run, parts, watched):
            return found
    for place in places[: PUSHED if most is None else 0]:
        for words, arrays in _pushed(place, first, run):
            if _tells(found, words, arrays, run, parts, watched) or clock().is_up:
                return found
    return found


def _remembering(run: Run) -> Run:
    """The same, but the last inputs are not evaluated twice."""
    last: list[tuple[Values, tuple[Side, Side]]] = []

    def act(arrays: Values) -> tuple[Side, Side]:
        if not last or last[0][0] is not arrays:
            last[:] = [(arrays, run(arrays))]
        return last[0][1]

    return act


def _tells(
    found: Search,
    words: str,
    arrays: Values,
    run: Run,
    parts: Parts,
    watched: Sequence[Node] | None,
) -> bool:
    """watched: nodes of either network whose corners are noted, None for all."""
    try:
        a, b = run(arrays)
        found.tried += 1
        for side, seen in zip((a, b), found.seen):
            for node in side.graph.nodes if watched is None else watched:
                if side.graph.producers.get(node.outputs[0]) is node:
                    read = [None if v is None else side.values[v] for v in node.inputs]
                    seen.add(side.graph, node, read)
        if not parts(a, b):
            return False
    except (VeraxError, ValueError, IndexError):
        return False
    found.words, found.inputs, found.sides = words, arrays, (a, b)
    return True


def _inputs(graph: Graph, start: Values, seed: int) -> Iterator[tuple[str, Values]]:
    random = np.random.default_rng(seed)
    for drive in of_inputs():
        yield drive.words, {v: drive.draw(start[v], random) for v in graph.inputs}


def _pushed(place: Place, side: Side, run: Run) -> Iterator[tuple[str, Values]]:
    """Inputs that move what comes to the corners of a place, up and down, step by step."""
    seen: set[str] = set()
    for node in place.trial.nodes[0]:
        target = node.inputs[0]
        if target is None or target in seen or target not in side.values:
            continue
        if not margins(node, [None if v is None else side.values[v] for v in node.inputs]):
            continue
        seen.add(target)
        for sign, words in ((1.0, "up"), (-1.0, "down")):
            yield from _ascent(target, sign, words, side, run)
    if not seen:
        leaf = place.first
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
        moved = dict(at)
        for name, slope in slopes.items():
            size = st.root_mean_square(start[name]) or 1.0
            moved[name] = at[name] + sign * step * size * np.sign(slope)
        at = moved
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
