"""Which values of one network are those of another, so that a run of the second can be judged by
the first: inputs by their layouts, outputs and inner values by the numbers that they hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from verax.ir.graph import Graph, specialize
from verax.judge.align.divergence import find_divergences, match_all
from verax.judge.align.inputs import InputConversions, match_inputs, pair_names, second_inputs
from verax.judge.align.permutations import Arrangement, likeliest
from verax.judge.align.values import Side, ValueMatch, evaluate_all, with_spread
from verax.reference.evaluate import bind_symbols, to_work

Pairs = Mapping[str, tuple[str, Arrangement]]
"""Value of the first network -> the second's, and how that is read as the first's."""


@dataclass(frozen=True)
class Pairing:
    """Corresponding values of two networks. outputs: every output of the first that has a
    counterpart; inner: inner values that hold the same numbers and are made by the same operator;
    where outputs differ, also those that match once earlier divergences are bridged, and the
    bridged values."""

    conversions: InputConversions
    outputs: Pairs
    inner: Pairs

    def feed(self, second: Graph, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Inputs of the second network, in its types, from those of the first."""
        arrays = second_inputs(second, inputs, self.conversions)
        return {v: a.astype(second.types[v].dtype.numpy) for v, a in arrays.items()}

    def read(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The second network's values under the first's names and in its layouts."""
        counterparts = {**self.inner, **self.outputs}
        readings = {
            v: (values[w], arrangement)
            for v, (w, arrangement) in counterparts.items()
            if w in values
        }
        return {
            v: np.ascontiguousarray(arrangement.apply(a))
            for v, (a, arrangement) in readings.items()
        }

    @property
    def notes(self) -> dict[str, str]:
        """Texts by topic on what was assumed."""
        layouts = [
            f"{v} is {own}, {conversion.arrangement}"
            for v, (own, conversion) in self.conversions.items()
        ]
        count = f"{len(self.inner)} values inside hold the same numbers in both files"
        return {"aligned by value": "; ".join([*layouts, count])}


def pair(first: Graph, second: Graph, inputs: Mapping[str, np.ndarray]) -> Pairing:
    """The correspondence by which a run of the second network is judged by the first.

    inputs: of the first, by name.

    Raises `InputError` when the networks take inputs that cannot be made of each other, and
    whatever `VeraxError` the evaluation of either meets.
    """
    fixed = specialize(first, bind_symbols(first, inputs))
    work = {
        v: to_work(np.asarray(inputs[v]), fixed.types[v].dtype, np.dtype(np.float64))
        for v in fixed.inputs
    }
    a = Side(fixed, evaluate_all(fixed, work))
    conversions = match_inputs(a, second, pair_names(first, second))
    b = Side(second, evaluate_all(second, second_inputs(second, a.values, conversions)))
    matches = match_all(a, b)
    if any(v not in matches or not matches[v].exact for v in fixed.outputs):
        # Weights that a converter folded were rounded anew: equal is what that may do, too.
        a, b = with_spread(a, 0), with_spread(b, 1)
        matches = match_all(a, b)
    bridges: Pairs = {}
    if any(v not in matches for v in fixed.outputs):
        # The files part: what comes behind is to be judged on what it was given.
        divergences = find_divergences(a, b)
        matches, bridges = divergences.carried, divergences.bridges
    same = {v: f for v, f in matches.items() if not f.arrangement.shuffled}
    inner = {
        v: (f.second, f.arrangement)
        for v, f in same.items()
        if v in fixed.producers
        and f.second in second.producers
        and fixed.producers[v].op.kind == second.producers[f.second].op.kind
        and v not in fixed.outputs
    }
    bridged = {v: p for v, p in bridges.items() if v not in fixed.outputs and not p[1].shuffled}
    return Pairing(conversions, _outputs(a, b, same), {**inner, **bridged})


def _outputs(a: Side, b: Side, same: Mapping[str, ValueMatch]) -> Pairs:
    """Outputs by the numbers that they hold, by their names, and then in order, where shapes fit:
    an output that differs is to be judged, not left out."""
    free, counterparts = list(b.graph.outputs), {}

    def take(value: str, candidate: str) -> None:
        arrangement = likeliest(np.asarray(b.values[candidate]), np.asarray(a.values[value]))
        if arrangement is not None and not arrangement.shuffled:
            counterparts[value] = (candidate, arrangement)
            free.remove(candidate)

    for value in a.graph.outputs:
        match = same.get(value)
        if match is not None and match.second in free:
            counterparts[value] = (match.second, match.arrangement)
            free.remove(match.second)
    for value in a.graph.outputs:
        if value not in counterparts and value in free:
            take(value, value)
    for value in a.graph.outputs:
        for candidate in list(free):
            if value not in counterparts:
                take(value, candidate)
    return counterparts
