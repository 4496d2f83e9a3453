"""What agreement on the inputs at hand is worth: the same function, or only no difference found.

The operators are compared piece by piece (`proof`); where some are not shown to be the same, an
input is looked for that tells the networks apart (`search`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from verax.judge.align.corners import Missing, kinds
from verax.judge.align.inputs import Ways
from verax.judge.align.permutations import Arrangement
from verax.judge.align.proof import Evidence, Place, prove
from verax.judge.align.reasons import layers, say_attribute
from verax.judge.align.search import FIRST, Run, Search, search
from verax.judge.align.values import Side, spreads
from verax.judge.align.weights import CAUSES_SAID
from verax.numerics import statistics as st
from verax.records.alignment import Divergence, OutputMatch

NOISE = 2.0**-50
"""Relative disturbance of inputs by which the noise of float64 itself is measured."""
SAMPLES = 2
"""Evaluations with jittered weights for each input that is tried."""
CHAIN = 6
"""Operators of a piece that a sentence lists."""
Seconds = Callable[[Side], Side]
"""The second network on what the first was evaluated on."""


@dataclass
class Judged:
    """same: every operator has its counterpart; else `search` says what else was tried, and places
    are the operators that have none; hidden: weights and branches that differ without effect on
    the inputs at hand."""

    evidence: Evidence
    hidden: Sequence[Divergence] = ()
    search: Search = field(default_factory=Search)
    places: tuple[Divergence, ...] = ()

    @property
    def same(self) -> bool:
        """Whether all operators were shown to be the same."""
        return self.search.sides is None and not self.evidence.places and not self.hidden


def judge_operators(
    first: Side,
    second: Side,
    ways: Ways,
    outputs: Sequence[OutputMatch],
    run: Run,
    *,
    hidden: Sequence[Divergence],
    sizes_open: bool,
    seed: int,
    searches: bool = True,
) -> Judged:
    """Compare the operators of two networks whose `outputs` agree on the inputs at hand.

    run: both networks on other inputs. sizes_open: whether both take other sizes too. searches:
    whether inputs that tell them apart are looked for; else they are only shown to be the same.
    """

    def parts(a: Side, b: Side) -> bool:
        return any(_parts(a, b, o, run, seed) for o in outputs)

    found = None
    if searches and kinds(first.graph) != kinds(second.graph):
        found = search(first, (), run, parts, seed, most=FIRST)
        if found.sides is not None:
            return Judged(Evidence(), hidden, found)
    pairs = [(o.first, o.second) for o in outputs]
    evidence = prove(first, second, ways, pairs, sizes_open=sizes_open, seed=seed)
    if not searches or not (evidence.places or hidden):
        return Judged(evidence)
    found = search(first, evidence.places, run, parts, seed, so_far=found)
    places = tuple(_record(first, second, p, found) for p in evidence.places)
    return Judged(evidence, hidden, found, places)


def told_by_operators(judged: Judged) -> list[str]:
    """On what the word SAME rests."""
    if not judged.same:
        return []
    e = judged.evidence
    return [
        f"by their operators: {e.structure} values are the same by structure, {e.movement} by "
        f"movement of numbers, {e.trial} by trial on both sides of every corner"
    ]


def _parts(first: Side, second: Side, output: OutputMatch, run: Run, seed: int) -> bool:
    """Whether a pair of outputs differs by more than rounding of weights and of float64."""
    a, b = first.values[output.first], second.values[output.second]
    if a.size != b.size or a.dtype.kind != b.dtype.kind:
        return True
    how = _arrangement(a, b, output)
    b = how.apply(b)
    if a.dtype.kind != "f":
        return not np.array_equal(a, b)
    finite = np.isfinite(a) & np.isfinite(b)
    if not finite.any():
        return False
    a, b = np.where(finite, a, 0.0), np.where(finite, b, 0.0)
    size = st.root_mean_square(a)
    if st.root_mean_square(a - b) <= st.group_limit(a.size) * st.FLOAT64_NOISE * size:
        return False
    total = np.full(a.shape, st.FLOAT64_NOISE * size) ** 2
    # As soon as what was measured allows the difference, nothing more is.
    for sigma, second_one in _allowances(first, second, output, run, seed):
        sigma = np.nan_to_num(sigma, posinf=0.0)
        total = total + np.square(how.apply(sigma) if second_one else sigma)
        z = st.standardised(b - a, np.sqrt(total))
        if st.group_test(z).statistic <= st.SUSPICIOUS_T:
            return False
    return True


def _allowances(
    first: Side, second: Side, output: OutputMatch, run: Run, seed: int
) -> Iterator[tuple[np.ndarray, bool]]:
    """How far rounding of weights, then of float64, moves the output; whether it is the second
    network's."""
    for side, name, is_second in ((first, output.first, False), (second, output.second, True)):
        found = spreads(side.graph, side.values, seed, [name], SAMPLES).get(name)
        if found is not None:
            yield found, is_second
    random = np.random.default_rng(seed)
    moved = {}
    for v in first.graph.inputs:
        x = first.values[v]
        factor = 1 + NOISE * random.standard_normal(x.shape)
        moved[v] = x * factor if x.dtype.kind == "f" else x
    for side, other, name, is_second in zip(
        (first, second), run(moved), (output.first, output.second), (False, True)
    ):
        yield np.abs(np.nan_to_num(other.values[name] - side.values[name], posinf=0.0)), is_second


def _arrangement(a: np.ndarray, b: np.ndarray, output: OutputMatch) -> Arrangement:
    squeeze = bool(output.axes) and len(output.axes) != b.ndim
    return Arrangement(a.shape, output.axes, squeeze, output.axis, output.channels)


def _record(first: Side, second: Side, place: Place, found: Search) -> Divergence:
    trial = place.trial
    sides = [layers(s, nodes) for s, nodes in zip((first, second), trial.nodes)]
    chains = [_chain([x.operator for x in side]) for side in sides]
    words = []
    if trial.changes:
        words += [say_attribute(c) for c in trial.changes[:CAUSES_SAID]]
    elif chains[0] != chains[1]:
        words.append(f"the first computes {chains[0]}, the second {chains[1]}")
    if trial.differs:
        words.append(f"{trial.differs} coming in there would tell them apart")
    elif trial.changes:
        words.append("no numbers that were tried there tell them apart")
    words += [_say_missing(m, "numbers of ours") for m in trial.missing[:CAUSES_SAID]]
    if trial.other:
        words.append(trial.other)
    if trial.differs:
        own = [{n.outputs[0] for n in part} for part in trial.nodes]
        reached = [m for s, v in zip(found.seen, own) for m in s.missing() if m.value in v]
        words += [_say_missing(m, "inputs") for m in reached[:CAUSES_SAID]]
    return Divergence(
        sides[0],
        sides[1],
        "; ".join(dict.fromkeys(words)),
        trial.changes,
        bridged=True,
    )


def _say_missing(m: Missing, what: str) -> str:
    return (
        f"none of the {what} that were tried brought a number {m.side} {m.corner} to {m.value!r}: "
        f"the nearest was {m.gap:.3g} away"
    )


def _chain(kinds: Sequence[str]) -> str:
    shown = " -> ".join(kinds[:CHAIN]) or "nothing"
    return f"{shown} and {len(kinds) - CHAIN} more" if len(kinds) > CHAIN else shown
