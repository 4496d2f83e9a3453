"""Whether agreement on the inputs at hand means the same function, or only no difference found.

The operators are compared piece by piece (`proof`); where some are not shown to be the same, an
input is looked for that tells the networks apart (`search`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from verax.judge.align.corners import Missing, kinds
from verax.judge.align.inputs import InputConversions
from verax.judge.align.permutations import Arrangement
from verax.judge.align.proof import Evidence, OpenPair, prove
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
class OperatorJudgement:
    """The comparison of operators. search: the other inputs that were tried; divergences: of the
    operators that were not shown to be the same; hidden: weights and branches that differ without
    effect on the inputs at hand."""

    evidence: Evidence
    hidden: Sequence[Divergence] = ()
    search: Search = field(default_factory=Search)
    divergences: tuple[Divergence, ...] = ()

    @property
    def same(self) -> bool:
        """Whether all operators were shown to be the same."""
        return self.search.sides is None and not self.evidence.open_pairs and not self.hidden


def judge_operators(
    first: Side,
    second: Side,
    conversions: InputConversions,
    outputs: Sequence[OutputMatch],
    run: Run,
    *,
    hidden: Sequence[Divergence],
    sizes_open: bool,
    seed: int,
    searches: bool = True,
) -> OperatorJudgement:
    """Compare the operators of two networks whose `outputs` agree on the inputs at hand.

    run: both networks on other inputs. sizes_open: whether both take other sizes too. searches:
    whether inputs that tell them apart are looked for; else they are only shown to be the same.
    """

    def differ(a: Side, b: Side) -> bool:
        return any(_outputs_differ(a, b, o, run, seed) for o in outputs)

    result = None
    if searches and kinds(first.graph) != kinds(second.graph):
        result = search(first, (), run, differ, seed, limit=FIRST)
        if result.sides is not None:
            return OperatorJudgement(Evidence(), hidden, result)
    output_pairs = [(o.first, o.second) for o in outputs]
    evidence = prove(first, second, conversions, output_pairs, sizes_open=sizes_open, seed=seed)
    if not searches or not (evidence.open_pairs or hidden):
        return OperatorJudgement(evidence)
    result = search(first, evidence.open_pairs, run, differ, seed, so_far=result)
    divergences = tuple(_record(first, second, p, result) for p in evidence.open_pairs)
    return OperatorJudgement(evidence, hidden, result, divergences)


def evidence_notes(judged: OperatorJudgement) -> list[str]:
    """Notes on the evidence for SAME; [] for other relations."""
    if not judged.same:
        return []
    e = judged.evidence
    return [
        f"by their operators: {e.structure} values are the same by structure, {e.movement} by "
        f"movement of numbers, {e.trial} by trial on both sides of every corner"
    ]


def _outputs_differ(first: Side, second: Side, output: OutputMatch, run: Run, seed: int) -> bool:
    """Whether a pair of outputs differs by more than rounding of weights and of float64."""
    a, b = first.values[output.first], second.values[output.second]
    if a.size != b.size or a.dtype.kind != b.dtype.kind:
        return True
    arrangement = _arrangement(a, b, output)
    b = arrangement.apply(b)
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
        total = total + np.square(arrangement.apply(sigma) if second_one else sigma)
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
        sigma = spreads(side.graph, side.values, seed, [name], SAMPLES).get(name)
        if sigma is not None:
            yield sigma, is_second
    random = np.random.default_rng(seed)
    disturbed = {}
    for v in first.graph.inputs:
        x = first.values[v]
        factor = 1 + NOISE * random.standard_normal(x.shape)
        disturbed[v] = x * factor if x.dtype.kind == "f" else x
    for side, disturbed_side, name, is_second in zip(
        (first, second), run(disturbed), (output.first, output.second), (False, True)
    ):
        yield (
            np.abs(np.nan_to_num(disturbed_side.values[name] - side.values[name], posinf=0.0)),
            is_second,
        )


def _arrangement(a: np.ndarray, b: np.ndarray, output: OutputMatch) -> Arrangement:
    squeeze = bool(output.axes) and len(output.axes) != b.ndim
    return Arrangement(a.shape, output.axes, squeeze, output.axis, output.channels)


def _record(first: Side, second: Side, open_pair: OpenPair, result: Search) -> Divergence:
    trial = open_pair.trial
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
    if trial.obstacle:
        words.append(trial.obstacle)
    if trial.differs:
        own = [{n.outputs[0] for n in group} for group in trial.nodes]
        reached = [m for s, v in zip(result.seen, own) for m in s.missing() if m.value in v]
        words += [_say_missing(m, "inputs") for m in reached[:CAUSES_SAID]]
    return Divergence(
        sides[0],
        sides[1],
        "; ".join(dict.fromkeys(words)),
        trial.changes,
        bridged=True,
    )


def _say_missing(m: Missing, kind: str) -> str:
    return (
        f"none of the {kind} that were tried brought a number {m.side} {m.corner} to {m.value!r}: "
        f"the nearest was {m.gap:.3g} away"
    )


def _chain(kinds: Sequence[str]) -> str:
    text = " -> ".join(kinds[:CHAIN]) or "nothing"
    return f"{text} and {len(kinds) - CHAIN} more" if len(kinds) > CHAIN else text
