"""Which values of one network are those of another, so that a run of the second can be judged by
the first: inputs by their layouts, outputs and inner values by the numbers that they hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from verax.ir.graph import Graph, specialise
from verax.judge.align.divergence import find_divergences, match_all
from verax.judge.align.inputs import Ways, match_inputs, pair_names, second_inputs
from verax.judge.align.permutations import Arrangement, likeliest
from verax.judge.align.values import Found, Side, evaluate_all, with_spread
from verax.reference.evaluate import bind_symbols, to_work

Pairs = Mapping[str, tuple[str, Arrangement]]
"""Value of the first network -> the second's, and how that is read as the first's."""


@dataclass(frozen=True)
class Pairing:
    """What two networks have in common. outputs: every output of the first that has a counterpart;
    inner: values inside that hold the same numbers and are made by the same operator; where outputs
    differ, also those that would once the places before them were mended, and these places."""

    ways: Ways
    outputs: Pairs
    inner: Pairs

    def feed(self, second: Graph, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Inputs of the second network, in its types, from those of the first."""
        made = second_inputs(second, inputs, self.ways)
        return {v: a.astype(second.types[v].dtype.numpy) for v, a in made.items()}

    def read(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The second network's values under the first's names and in its layouts."""
        pairs = {**self.inner, **self.outputs}
        found = {v: (values[w], how) for v, (w, how) in pairs.items() if w in values}
        return {v: np.ascontiguousarray(how.apply(a)) for v, (a, how) in found.items()}

    @property
    def said(self) -> dict[str, str]:
        """What was assumed, in words by topic."""
        turned = [f"{v} is {own}, {way.arrangement}" for v, (own, way) in self.ways.items()]
        count = f"{len(self.inner)} values inside hold the same numbers in both files"
        return {"aligned by value": "; ".join([*turned, count])}


def pair(first: Graph, second: Graph, inputs: Mapping[str, np.ndarray]) -> Pairing:
    """How a run of the second network is judged by the first. inputs: of the first, by name.

    Raises `InputError` when the networks take inputs that cannot be made of each other, and
    whatever `VeraxError` the evaluation of either meets.
    """
    fixed = specialise(first, bind_symbols(first, inputs))
    work = {
        v: to_work(np.asarray(inputs[v]), fixed.types[v].dtype, np.dtype(np.float64))
        for v in fixed.inputs
    }
    a = Side(fixed, evaluate_all(fixed, work))
    ways = match_inputs(a, second, pair_names(first, second))
    b = Side(second, evaluate_all(second, second_inputs(second, a.values, ways)))
    found = match_all(a, b)
    if any(v not in found or not found[v].exact for v in fixed.outputs):
        # Weights that a converter folded were rounded anew: equal is what that may do, too.
        a, b = with_spread(a, 0), with_spread(b, 1)
        found = match_all(a, b)
    bridges: Pairs = {}
    if any(v not in found for v in fixed.outputs):
        # The files part: what comes behind is to be judged on what it was given.
        parted = find_divergences(a, b)
        found, bridges = parted.carried, parted.bridges
    same = {v: f for v, f in found.items() if not f.arrangement.shuffled}
    inner = {
        v: (f.second, f.arrangement)
        for v, f in same.items()
        if v in fixed.producers
        and f.second in second.producers
        and fixed.producers[v].op.kind == second.producers[f.second].op.kind
        and v not in fixed.outputs
    }
    parts = {v: p for v, p in bridges.items() if v not in fixed.outputs and not p[1].shuffled}
    return Pairing(ways, _outputs(a, b, same), {**inner, **parts})


def _outputs(a: Side, b: Side, same: Mapping[str, Found]) -> Pairs:
    """Outputs by the numbers that they hold, by their names, and then in order, where shapes fit:
    an output that differs is to be judged, not left out."""
    free, found = list(b.graph.outputs), {}

    def take(value: str, other: str) -> None:
        how = likeliest(np.asarray(b.values[other]), np.asarray(a.values[value]))
        if how is not None and not how.shuffled:
            found[value] = (other, how)
            free.remove(other)

    for value in a.graph.outputs:
        match = same.get(value)
        if match is not None and match.second in free:
            found[value] = (match.second, match.arrangement)
            free.remove(match.second)
    for value in a.graph.outputs:
        if value not in found and value in free:
            take(value, value)
    for value in a.graph.outputs:
        for other in list(free):
            if value not in found:
                take(value, other)
    return found
