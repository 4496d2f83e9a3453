"""The result of an alignment in sentences, the most important first."""

from __future__ import annotations

from verax.judge.align.divergence import Divergences
from verax.judge.align.reasons import MOVES
from verax.judge.align.values import Side, unit_of
from verax.judge.align.weights import CAUSES_SAID
from verax.numerics import statistics as st
from verax.records.alignment import Divergence, OutputMatch, Relation


def reasons_of(
    names: tuple[str, str],
    relation: Relation,
    outputs: tuple[OutputMatch, ...],
    divergences: Divergences,
    first: Side,
    second: Side,
) -> list[str]:
    """Sentences on why two networks have this relation, the most important first.

    names: of the networks; first, second: them on their inputs.
    """
    count = (
        f"{len(divergences.matches)} of {len(first.names)} values of the first found in the second"
    )
    if relation is Relation.same:
        exact = all(o.statistic == 0.0 for o in outputs)
        precision = (
            "in every digit that float64 has" if exact else "up to the rounding of their weights"
        )
        return [
            f"both compute the same function, {precision}; {count}",
            *_units(names, first, second),
        ]
    differences = [f"{o.first or o.second}: {o.reason}" for o in outputs if o.reason]
    if relation is Relation.undecided:
        return [*differences, count]
    if relation is Relation.no_difference:
        return [*map(_say_open, divergences.locations[:CAUSES_SAID]), count]
    locations = divergences.locations
    reasons = [_say_place(p) for p in locations[:1]]
    if divergences.everywhere:
        d = locations[0].attributes[0]
        reasons.append(
            f"with the same {d.attribute} in every {d.operator}, the two are the same function"
        )
    elif len(locations) > 1:
        more = "" if divergences.complete else " or more"
        plural = "s" * (len(locations) > 2 or bool(more))
        reasons.append(f"they part again at {len(locations) - 1}{more} other place{plural}")
    elif locations and locations[0].bridged and differences:
        reasons.append("this is the only place: with it bridged, everything after it agrees")
    return [*reasons, *differences, count]


def _say_place(divergence: Divergence) -> str:
    nodes = []
    for side in (divergence.first, divergence.second):
        displayed = [layer for layer in side if layer.operator not in MOVES] or side
        nodes.append(", ".join(layer.node for layer in displayed) or "nothing")
    if not (divergence.first and divergence.second):
        return f"as far as both go they agree; {divergence.reason}"
    location = f" ({divergence.where})" if divergence.where else ""
    return f"they part at {nodes[0]} (first) and {nodes[1]} (second): {divergence.reason}{location}"


def _say_open(divergence: Divergence) -> str:
    nodes = [
        ", ".join(x.node for x in side) or "nothing"
        for side in (divergence.first, divergence.second)
    ]
    return f"at {nodes[0]} (first) and {nodes[1]} (second): {divergence.reason}"


def _units(names: tuple[str, str], first: Side, second: Side) -> list[str]:
    """A sentence when one file holds coarser weights."""
    coarse = [n for n, s in zip(names, (first, second)) if unit_of(s.graph) == st.FLOAT16_UNIT]
    if len(coarse) != 1:
        return []
    return [f"the weights of {coarse[0]} were rounded to float16"]
