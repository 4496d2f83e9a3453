"""How much of a network a check could see, and what follows for the verdict as a whole.

A verdict speaks of what was seen: agreement at the outputs says little about a value whose errors
hardly reach them. The coverage says how many nodes a relative error of a stated size would have
shown in, and which it would not. Who needs more asks for it (`require_power`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from verax.ir.graph import Graph
from verax.judge.decide.blindness import limits
from verax.judge.regions.network import Survey, survey
from verax.numerics import statistics as st
from verax.records.verdict import Coverage, Finding, Kind, Power

ACCEPTED = (Kind.identical, Kind.rounding, Kind.precision)
SEVERITY = (*ACCEPTED, Kind.undecided, Kind.mistake)
"""Kinds from best to worst: a network is as bad as its worst value."""
NOTED = 6
"""Undecided inner values that notes describe one by one."""
Arrays = Mapping[str, np.ndarray]


def coverage(graph: Graph, result: Survey) -> Coverage:
    """Number of nodes in which a relative error of `visible_from` would have been detected, and
    the names of the others.

    The size is that of the node's type, or of a coarser type that its result is rounded to before a
    value is observed. A node judged on its own inputs counts as visible unless its own rounding
    hides the error; a node judged in a region counts by its `Power`, in the best of the regions
    that it was judged in. Errors are drawn for each element; a factor common to all elements, which
    a later norm may remove, is reported separately.
    """
    best, factors = _smallest_visible(result), _smallest_visible(result, factor=True)
    observed = {f.value for f in result.findings}
    limit = limits(graph.nodes, observed, graph.types, st.visible_from)
    steps = {p.value: p.step for p in result.power}
    thresholds = {v: max(limit.get(v, st.VISIBLE), steps.get(v, 0.0)) for v in best}
    blind = [v for v in best if not best[v] <= thresholds[v]]
    nodes = {v: graph.producers[v].name or v for v in best}
    named = {nodes[v] for v in blind}
    hidden = [nodes[v] for v in best if not factors[v] <= thresholds[v] and nodes[v] not in named]
    return Coverage(
        max(thresholds.values(), default=st.VISIBLE),
        len({nodes[v] for v in best} - named),
        len(set(nodes.values())),
        tuple(dict.fromkeys(nodes[v] for v in blind)),
        max(best.values(), default=0.0),
        len(graph.nodes),
        tuple(dict.fromkeys(hidden)),
    )


def _smallest_visible(result: Survey, *, factor: bool = False) -> dict[str, float]:
    """By value, the smallest relative error that would have shown, in the best of its views.

    factor: of errors that are one factor of the value; else of those drawn for each element."""
    best: dict[str, float] = {}
    for power in result.power:
        smallest = power.smallest_factor if factor else None
        own = power.smallest_visible if smallest is None else smallest
        best[power.value] = min(own, best.get(power.value, np.inf))
    for finding in result.findings:
        if finding.kind is not Kind.undecided:
            best.setdefault(finding.value, finding.visible)
    return best


def lacking(graph: Graph, result: Survey, required: float) -> str:
    """Why the check has less power than `required` (a relative error in every node); "" if not."""
    best = _smallest_visible(result)
    weak = [v for v, visible in best.items() if not visible <= required]
    unseen = [graph.producers[v].name or v for v in weak] + list(result.unchecked)
    if not unseen:
        return ""
    listed = ", ".join(dict.fromkeys(unseen[:8])) + (" ..." if len(unseen) > 8 else "")
    return f"a relative error of {required:g} was required to show everywhere; not in {listed}"


def settle(
    graph: Graph,
    inputs: Arrays,
    outputs: Arrays,
    result: Survey,
    *,
    seed: int,
) -> tuple[Survey, tuple[Finding, ...], tuple[str, ...]]:
    """Let the outputs decide where values inside are ambiguous: the survey, findings on the outputs
    that decide, and notes.

    When nothing is a mistake and something is undecided, the outputs are judged against the
    reference of the whole network on its inputs. If all of them are accepted, what was undecided
    inside becomes notes, and is left out of the findings.
    """
    kinds = {f.kind for f in result.findings}
    ambiguous = [f for f in result.findings if f.kind is Kind.undecided]
    # What the outputs do not show (a blind check) they cannot decide either.
    if all(f.test == "power" for f in ambiguous) or Kind.mistake in kinds or not outputs:
        return result, (), ()
    computed = {v: a for v, a in outputs.items() if v in graph.producers}
    end_to_end = survey(
        graph,
        inputs,
        computed,
        seed=seed,
        measure_power=False,
        find_precision=False,
    )
    if not end_to_end.findings or any(f.kind not in ACCEPTED for f in end_to_end.findings):
        return result, (), ()
    notes = [
        f"not decided inside, at {finding.node} ({finding.operator}): {finding.reason}; the "
        "outputs are within rounding of the whole network's meaning"
        for finding in ambiguous[:NOTED]
    ]
    if len(ambiguous) > NOTED:
        notes.append(f"{len(ambiguous) - NOTED} more values inside could not be decided")
    by_value = {f.value: f for f in end_to_end.findings}
    decided = [
        f for f in result.findings if f.kind is not Kind.undecided and f.value not in by_value
    ]
    own = [f for f in result.findings if f.kind is not Kind.undecided and f.value in by_value]
    replaced = [f for v, f in by_value.items() if v not in {o.value for o in own}]
    order = {value: i for i, node in enumerate(graph.nodes) for value in node.outputs}
    resolved = dataclasses.replace(
        result,
        findings=sorted([*decided, *own, *replaced], key=lambda f: order[f.value]),
        power=[*result.power, *(Power(f.value, f.node, np.inf) for f in ambiguous)],
    )
    return resolved, tuple(end_to_end.findings), tuple(notes)


def worst(findings: Sequence[Finding]) -> Kind:
    """The worst kind; undecided when there is nothing."""
    return max((f.kind for f in findings), key=SEVERITY.index, default=Kind.undecided)


def carried(own: Finding, before: Sequence[Finding]) -> Finding:
    """An output's own finding, or a mistake where an earlier finding is one."""
    faulty = next((f for f in before if f.kind is Kind.mistake), None)
    if faulty is None or own.kind is Kind.mistake:
        return own
    reason = f"carried on from {faulty.node} ({faulty.operator}): {faulty.reason}"
    return dataclasses.replace(own, kind=Kind.mistake, reason=reason)
