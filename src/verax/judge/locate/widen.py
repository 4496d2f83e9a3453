"""Widening: was a value that its own node cannot explain computed from other inputs than shown?

A runtime that fuses nodes keeps the values between them in registers, in another rounding or none;
what it shows of them when it is asked was computed on the side. Then a node's shown output does not
follow from its shown inputs, and judged by itself it looks guilty. So an accusation has to survive
wider views: the node together with those before it, further and further back, up to the network's
inputs. The narrowest view in which the value is within rounding tells what must have been fused.

Two things keep real mistakes from hiding in a wide view, where more rounding is allowed for:
- a subject that runs parts of a network is asked for the node alone, on the inputs that it showed.
  If that gives the shown bits, they were computed from the shown inputs: the accusation stands. So
  it does when the node is wrong by itself;
- no view reaches past a value that was found guilty: what comes behind starts from what was given.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from verax.base.deadline import OutOfTime
from verax.base.errors import VeraxError
from verax.ir.cut import cut
from verax.ir.graph import Graph, Node, reinfer, same_bits
from verax.ir.types import TensorType
from verax.judge.decide.local import check_node, conform
from verax.judge.decide.ties import UNDEFINED, rounds_freely
from verax.judge.locate.truncate import truncates
from verax.judge.locate.wider_power import WIDENED, limit_by_wider_views
from verax.judge.protocol import Runner, Stepwise, renamed_answers
from verax.judge.regions.budget import needs, why_too_large
from verax.judge.regions.network import Progress, Survey, fits
from verax.judge.regions.region import check_region
from verax.judge.regions.sampler import Region
from verax.numerics import statistics as st
from verax.records.verdict import Finding, Kind, Power

ACCEPTED = (Kind.identical, Kind.rounding, Kind.precision)
FULLY = 8
"""Guilty values after which further ones are looked at in near views only: the answer is clear."""
NEAR = 8
"""Steps back of those."""
SINGLES = 16
"""Nodes that are run one by one when the subject refuses to run them side by side."""
ROUNDS = 4
"""Runs of the subject on single nodes; nodes that feed each other need more than one."""
Arrays = Mapping[str, np.ndarray]


def is_stepwise(subject: Runner) -> bool:
    """Whether what the subject shows is what its next node read: it says that it never fuses."""
    return isinstance(subject, Stepwise) and subject.stepwise


def widen(
    graph: Graph,
    found: Survey,
    shown: Arrays,
    subject: Runner,
    *,
    seed: int = 0,
    winograd: bool = True,
    progress: Progress | None = None,
) -> None:
    """Take back, in `found`, accusations that only the narrow view makes.

    shown: the network's inputs, and every value that the subject showed, by name. A finding that
    is taken back becomes `rounding` (or `undecided`, where no view accepts and some cannot tell)
    and lists the nodes of the view; `found.power` gets what that view could still have seen.
    """
    typed = {v: conform(np.asarray(a), graph.types[v].dtype) for v, a in shown.items()}
    known = {**graph.constants, **{v: a for v, a in typed.items() if fits(graph.types[v], a)}}
    accused = [f for f in found.findings if f.kind is Kind.mistake and f.test != "type"]
    if accused:
        _take_back(graph, found, accused, known, subject, seed, winograd, progress)
    guilty = any(f.kind is Kind.mistake for f in found.findings)
    if not (guilty or is_stepwise(subject) or truncates(subject)):
        limit_by_wider_views(graph, found, known, seed)


def _take_back(
    graph: Graph,
    found: Survey,
    accused: Sequence[Finding],
    known: Arrays,
    subject: Runner,
    seed: int,
    winograd: bool,
    progress: Progress | None,
) -> None:
    """Put what the wider views say in the place of what they do not accuse."""
    undefined = {f.value for f in found.findings if f.test == UNDEFINED}
    proven = _computed_from_shown(graph, accused, known, subject, winograd)
    guilty: set[str] = set()
    changed: dict[str, Finding] = {}
    for i, finding in enumerate(accused):
        if progress is not None:
            progress(i, len(accused), f"looking at {finding.node} in wider views")
        behind = [v for v in graph.producers[finding.value].inputs if v in undefined]
        if behind and not graph.types[finding.value].dtype.is_float:
            undefined.add(finding.value)
            reason = f"{finding.reason}; it was computed from {behind[0]!r}, parts of which nothing"
            changed[finding.value] = dataclasses.replace(
                finding, kind=Kind.undecided, test=UNDEFINED, reason=f"{reason} defines"
            )
            continue
        if finding.value in proven:
            guilty.add(finding.value)
            continue
        try:
            most = NEAR if len(guilty) > FULLY else 0
            wider = _accepted(graph, finding, known, guilty, seed, most)
        except OutOfTime as error:
            reason = f"{finding.reason}; wider views of it were not looked at: {error}"
            wider = dataclasses.replace(finding, kind=Kind.undecided, reason=reason)
        if wider is None:
            guilty.add(finding.value)
            continue
        changed[finding.value] = wider
        if wider.kind in ACCEPTED:
            found.power.append(_power_left(graph, wider, known[finding.value]))
    found.findings[:] = [
        changed.get(f.value, f) if f.kind is Kind.mistake else f for f in found.findings
    ]


def _accepted(
    graph: Graph, narrow: Finding, known: Arrays, guilty: set[str], seed: int, most: int
) -> Finding | None:
    """The finding of the narrowest view that does not accuse; None when all of them do.

    most: steps back to go; 0 goes back to the network's inputs.
    """
    doubtful: Finding | None = None
    for region in _views(graph, narrow, known.keys(), guilty, most):
        large = why_too_large(needs(graph, region, known))
        if large:
            return doubtful or dataclasses.replace(
                narrow,
                kind=Kind.undecided,
                reason=f"alone, {narrow.reason}; whether it was fused with the "
                f"{len(region.nodes) - 1} nodes before it was not looked at: {large}",
            )
        (wide,), _ = check_region(
            graph,
            region,
            known,
            seed,
            winograd=False,
            measure_power=False,
            find_precision=False,
        )
        if wide.kind in ACCEPTED:
            return _taken_back(narrow, wide, region, known[narrow.value])
        if wide.kind is Kind.undecided and doubtful is None:
            doubtful = dataclasses.replace(
                wide,
                reason=f"alone, {narrow.reason}; together with {_listed(region, narrow)}, which "
                f"may have been fused with it: {wide.reason}",
            )
    return doubtful


def _taken_back(narrow: Finding, wide: Finding, region: Region, given: np.ndarray) -> Finding:
    left = _visible(wide, given)
    if wide.kind is Kind.precision:
        return dataclasses.replace(
            wide, reason=f"together with {_listed(region, narrow)}, {wide.reason}"
        )
    return dataclasses.replace(
        wide,
        kind=Kind.rounding,
        test=wide.test + WIDENED,
        reason=f"rounding, not computed from the shown inputs: alone, {narrow.reason}; but "
        f"together with {_listed(region, narrow)}, which must have been fused with it, the "
        f"difference is {wide.statistic:.2g} of what honest rounding shows (there a relative error "
        f"of {left:.1g} would still show)",
    )


def _listed(region: Region, narrow: Finding) -> str:
    before = [n for n in region.names if n != narrow.node]
    listed = ", ".join(before[-4:])
    return listed if len(before) <= 4 else f"{len(before)} nodes before it ({listed} the last)"


def _visible(finding: Finding, given: np.ndarray) -> float:
    """Relative error, spread over the value, that the view would have called a mistake."""
    size = st.root_mean_square(np.nan_to_num(given.astype(np.float64)))
    limit = st.SUSPICIOUS_T * st.group_limit(finding.elements)
    return limit * finding.sigma / size if size > 0 else np.inf


def _power_left(graph: Graph, finding: Finding, given: np.ndarray) -> Power:
    visible = _visible(finding, given) if graph.types[finding.value].dtype.is_float else np.inf
    return Power(finding.value, finding.node, float(visible))


def _views(
    graph: Graph, narrow: Finding, known: Iterable[str], guilty: set[str], most: int
) -> Iterator[Region]:
    """The value's nodes with more and more of those before them, each view once.

    Integers and truth values that were shown are read as they are at first; the last view computes
    them as well, but for quantised ones: an integer has no other rounding.
    """
    shown = set(known)
    choices = {v for v in shown if not graph.types[v].dtype.is_float}
    quantised = {
        v for v in choices if v in graph.producers and rounds_freely(graph.producers[v].op)
    }
    last = frozenset(n.outputs[0] for n in graph.nodes if (n.name or n.outputs[0]) in narrow.region)
    for steps, exact in _depths(most):
        stops = guilty | (quantised if exact else choices)
        members = _back(graph, narrow, shown, stops, steps)
        names = frozenset(n.outputs[0] for n in members)
        if len(members) < 2 or names <= last:
            continue
        last = names
        ordered = tuple(n for n in graph.nodes if n.outputs[0] in names)
        made = {v for n in ordered for v in n.outputs}
        yield Region(ordered, frozenset(made - {narrow.value}), (narrow.value,))


def _depths(most: int) -> Iterator[tuple[int | None, bool]]:
    """Steps back (None: as far as it goes), and whether shown integers are computed as well."""
    step, following = 1, 2
    while step <= (most or 64):
        yield step, False
        step, following = following, step + following
    if not most:
        yield None, False
        yield None, True


def _back(
    graph: Graph, narrow: Finding, shown: set[str], stops: set[str], steps: int | None
) -> list[Node]:
    """Nodes that lead to the value within so many steps, hidden ones without counting."""
    members: dict[str, Node] = {}
    level = [graph.producers[narrow.value]]
    depth = 0
    while level:
        following: list[Node] = []
        for node in level:
            if node.outputs[0] in members:
                continue
            members[node.outputs[0]] = node
            for value in node.inputs:
                producer = graph.producers.get(value) if value is not None else None
                if producer is None or value in stops or producer.outputs[0] in members:
                    continue
                if value in shown and steps is not None and depth >= steps:
                    continue
                following.append(producer)
        level = following
        depth += 1
    return list(members.values())


def _computed_from_shown(
    graph: Graph,
    accused: Sequence[Finding],
    known: Arrays,
    subject: Runner,
    winograd: bool,
) -> set[str]:
    """Accused values that the subject, given nothing but what it showed before them, computes to
    the same bits or wrongly again. A subject that never fuses proves all of them."""
    if is_stepwise(subject):
        return {f.value for f in accused}
    if not truncates(subject) or subject.stored_inputs is not None:
        return set()
    proven: set[str] = set()
    singles = [f.value for f in accused if not f.region]
    for value, again in _alone(graph, singles, known, subject):
        if same_bits(again, known[value]) or _is_wrong(graph, value, again, known, winograd):
            proven.add(value)
    return proven


def without_fused_shapes(
    graph: Graph, subject: Runner, inputs: Arrays, values: Arrays, notes: list[str]
) -> dict[str, np.ndarray]:
    """`values` without inner ones of a wrong type that a fusion shows under their names.

    A fused kernel may give its result the name of a value that lies inside it. If the subject gives
    the right type for the node alone, nothing is wrong with the node, and the value is left out,
    with a note. A subject that runs no nodes alone is taken at its word.
    """
    misfits = [
        v
        for v, a in values.items()
        if v not in graph.outputs and not fits(graph.types[v], conform(a, graph.types[v].dtype))
    ]
    if not misfits or is_stepwise(subject) or not truncates(subject):
        return dict(values)
    known = {**graph.constants, **inputs, **{v: a for v, a in values.items() if v not in misfits}}
    testable = [
        v for v in misfits if all(i is None or i in known for i in graph.producers[v].inputs)
    ]
    right = {v for v, a in _alone(graph, testable, known, subject) if fits(graph.types[v], a)}
    if not right or any(v not in right for v in testable):
        return dict(values)
    first = misfits[0]
    given = f"{values[first].dtype}[{', '.join(map(str, values[first].shape))}]"
    notes.append(
        f"{subject.name} shows {given} under the name {first!r}, which is {graph.types[first]}, "
        "and computes the right type when it runs the node alone: the result of a fusion, not used"
        + (f" (so are {len(misfits) - 1} more)" if len(misfits) > 1 else "")
    )
    return {v: a for v, a in values.items() if v not in misfits}


def _alone(
    graph: Graph, values: Sequence[str], known: Arrays, subject: Runner
) -> list[tuple[str, np.ndarray]]:
    """What the subject gives for the nodes of `values`, each on what it showed before it."""
    found: list[tuple[str, np.ndarray]] = []
    waiting = list(values)
    for _ in range(ROUNDS):
        batch = _independent(graph, waiting)
        if not batch:
            break
        waiting = [v for v in waiting if v not in batch]
        answers = _run_alone(graph, batch, known, subject)
        if not answers and len(batch) > 1:  # one of them is refused: each by itself
            singles = (_run_alone(graph, [v], known, subject) for v in batch[:SINGLES])
            answers = [answer for single in singles for answer in single]
        found += answers
    return found


def _independent(graph: Graph, values: Sequence[str]) -> list[str]:
    """Values whose nodes do not read each other, as many as come first."""
    chosen: list[str] = []
    taken: set[str] = set()
    read: set[str | None] = set()
    for value in values:
        node = graph.producers[value]
        if taken.isdisjoint(v for v in node.inputs if v) and read.isdisjoint(node.outputs):
            chosen.append(value)
            taken.update(node.outputs)
            read.update(node.inputs)
    return chosen


def _run_alone(
    graph: Graph, batch: Sequence[str], known: Arrays, subject: Runner
) -> list[tuple[str, np.ndarray]]:
    """The nodes of the values side by side in one network, on what was shown before them: what
    the subject gives, nothing when it refuses."""
    nodes = [graph.producers[v] for v in batch]
    read = dict.fromkeys(
        v for n in nodes for v in n.inputs if v is not None and v not in graph.constants
    )
    try:
        part = cut(graph, read, batch)
        types = {v: TensorType.of(known[v]) for v in part.inputs}
        part = reinfer(part, types)
        answers = subject.run(part, {v: known[v] for v in part.inputs})
        values, _ = renamed_answers(part, {k: np.asarray(v) for k, v in answers.items()})
    except (VeraxError, KeyError):
        return []  # the wider views decide
    return [(v, conform(values[v], graph.types[v].dtype)) for v in batch if v in values]


def _is_wrong(graph: Graph, value: str, again: np.ndarray, known: Arrays, winograd: bool) -> bool:
    """Whether a node's answer, run alone, is a mistake by itself."""
    node = graph.producers[value]
    judged = check_node(
        node,
        [None if v is None else known[v] for v in node.inputs],
        [again if v == value else None for v in node.outputs],
        graph.output_types(node),
        winograd=winograd,
    )
    return any(f.kind is Kind.mistake for f in judged)
