"""Enlarges regions: checks whether a wrong value was computed from other inputs than observed.

A runtime that fuses nodes keeps the values between them in registers, in another rounding or none;
the ones that it gives on request were computed separately. Then a node's observed output does not
follow from its observed inputs, and judged by itself it looks faulty. So a mistake has to persist
in larger regions: the node together with those before it, further and further back, up to the
network's inputs. The smallest region in which the value is within rounding tells which nodes were
fused.

Two rules keep real mistakes from hiding in a large region, where more rounding is allowed:
- a subject that runs parts of a network runs the node alone, on the observed inputs. If that gives
the observed bits, they were computed from the observed inputs: the mistake is confirmed. So it is
when the node is wrong by itself;
- no region extends past a faulty value: later nodes start from its actual numbers.
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
from verax.judge.decide.possible import using
from verax.judge.decide.ties import UNDEFINED, rounds_to_integers
from verax.judge.locate.wider_power import WIDENED, limit_by_wider_views
from verax.judge.protocol import Runner, renamed_answers
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


def enlarge_regions(
    graph: Graph,
    result: Survey,
    observed: Arrays,
    subject: Runner,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> Survey:
    """`result` without mistakes that do not persist in larger regions.

    observed: the network's inputs, and every observed value, by name. A withdrawn finding becomes
    `rounding` (or `undecided`, where no region accepts and some cannot tell) and lists the nodes of
    the region; `power` gets the power of the check there.
    """
    typed = {v: conform(np.asarray(a), graph.types[v].dtype) for v, a in observed.items()}
    arrays = {**graph.constants, **{v: a for v, a in typed.items() if fits(graph.types[v], a)}}
    suspected = [f for f in result.findings if f.kind is Kind.mistake and f.test != "type"]
    if suspected:
        result = _withdraw(graph, result, suspected, arrays, subject, seed, progress)
    is_faulty = any(f.kind is Kind.mistake for f in result.findings)
    if is_faulty or subject.capabilities.stepwise or subject.capabilities.truncates:
        return result
    return dataclasses.replace(result, power=limit_by_wider_views(graph, result, arrays, seed))


def _withdraw(
    graph: Graph,
    result: Survey,
    suspected: Sequence[Finding],
    arrays: Arrays,
    subject: Runner,
    seed: int,
    progress: Progress | None,
) -> Survey:
    """`result` with what larger regions say in the place of mistakes that do not persist there."""
    undefined = {f.value for f in result.findings if f.test == UNDEFINED}
    proven = _computed_from_observed(graph, suspected, arrays, subject)
    faulty: set[str] = set()
    changed: dict[str, Finding] = {}
    power = list(result.power)
    for i, finding in enumerate(suspected):
        if progress is not None:
            progress(i, len(suspected), f"looking at {finding.node} in wider views")
        behind = [v for v in graph.producers[finding.value].inputs if v in undefined]
        if behind and not graph.types[finding.value].dtype.is_float:
            undefined.add(finding.value)
            reason = f"{finding.reason}; it was computed from {behind[0]!r}, parts of which nothing"
            changed[finding.value] = dataclasses.replace(
                finding, kind=Kind.undecided, test=UNDEFINED, reason=f"{reason} defines"
            )
            continue
        if finding.value in proven:
            faulty.add(finding.value)
            continue
        try:
            max_steps = NEAR if len(faulty) > FULLY else 0
            wider = _accepted(graph, finding, arrays, faulty, seed, max_steps)
        except OutOfTime as error:
            reason = f"{finding.reason}; wider views of it were not looked at: {error}"
            wider = dataclasses.replace(finding, kind=Kind.undecided, reason=reason)
        if wider is None:
            faulty.add(finding.value)
            continue
        changed[finding.value] = wider
        if wider.kind in ACCEPTED:
            power.append(_power_left(graph, wider, arrays[finding.value]))
    findings = [changed.get(f.value, f) if f.kind is Kind.mistake else f for f in result.findings]
    return dataclasses.replace(result, findings=findings, power=power)


def _accepted(
    graph: Graph, narrow: Finding, arrays: Arrays, faulty: set[str], seed: int, max_steps: int
) -> Finding | None:
    """The finding of the smallest region in which it is no mistake; None when it is one in all.

    max_steps: steps back to go; 0 goes back to the network's inputs.
    """
    doubtful: Finding | None = None
    for region in _larger_regions(graph, narrow, arrays.keys(), faulty, max_steps):
        large = why_too_large(needs(graph, region, arrays))
        if large:
            return doubtful or dataclasses.replace(
                narrow,
                kind=Kind.undecided,
                reason=f"alone, {narrow.reason}; whether it was fused with the "
                f"{len(region.nodes) - 1} nodes before it was not looked at: {large}",
            )
        with using(frozenset()):
            (wide,), _ = check_region(
                graph, region, arrays, seed, measure_power=False, find_precision=False
            )
        if wide.kind in ACCEPTED:
            return _withdrawn(narrow, wide, region, arrays[narrow.value])
        if wide.kind is Kind.undecided and doubtful is None:
            doubtful = dataclasses.replace(
                wide,
                reason=f"alone, {narrow.reason}; together with {_listed(region, narrow)}, which "
                f"may have been fused with it: {wide.reason}",
            )
    return doubtful


def _withdrawn(narrow: Finding, wide: Finding, region: Region, actual: np.ndarray) -> Finding:
    left = _visible(wide, actual)
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


def _visible(finding: Finding, actual: np.ndarray) -> float:
    """Relative error, spread over the value, that would have been a mistake in the region."""
    size = st.root_mean_square(np.nan_to_num(actual.astype(np.float64)))
    limit = st.SUSPICIOUS_T * st.group_limit(finding.elements)
    return limit * finding.sigma / size if size > 0 else np.inf


def _power_left(graph: Graph, finding: Finding, actual: np.ndarray) -> Power:
    visible = _visible(finding, actual) if graph.types[finding.value].dtype.is_float else np.inf
    return Power(finding.value, finding.node, float(visible))


def _larger_regions(
    graph: Graph, narrow: Finding, available: Iterable[str], faulty: set[str], max_steps: int
) -> Iterator[Region]:
    """Yield regions of the value's node with more and more of the nodes before it.

    Observed integers and truth values are read as they are at first; the last region computes them
    as well, except quantized ones: an integer has no other rounding.
    """
    observed = set(available)
    choices = {v for v in observed if not graph.types[v].dtype.is_float}
    quantized = {
        v for v in choices if v in graph.producers and rounds_to_integers(graph.producers[v].op)
    }
    last = frozenset(n.outputs[0] for n in graph.nodes if (n.name or n.outputs[0]) in narrow.region)
    for steps, exact in _depths(max_steps):
        stops = faulty | (quantized if exact else choices)
        members = _back(graph, narrow, observed, stops, steps)
        names = frozenset(n.outputs[0] for n in members)
        if len(members) < 2 or names <= last:
            continue
        last = names
        ordered = tuple(n for n in graph.nodes if n.outputs[0] in names)
        produced = {v for n in ordered for v in n.outputs}
        yield Region(ordered, frozenset(produced - {narrow.value}), (narrow.value,))


def _depths(max_steps: int) -> Iterator[tuple[int | None, bool]]:
    """Yield (steps back, None for all; whether observed integers are computed as well)."""
    step, following = 1, 2
    while step <= (max_steps or 64):
        yield step, False
        step, following = following, step + following
    if not max_steps:
        yield None, False
        yield None, True


def _back(
    graph: Graph, narrow: Finding, observed: set[str], stops: set[str], steps: int | None
) -> list[Node]:
    """Nodes that lead to the value within `steps`, where hidden values do not count."""
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
                if value in observed and steps is not None and depth >= steps:
                    continue
                following.append(producer)
        level = following
        depth += 1
    return list(members.values())


def _computed_from_observed(
    graph: Graph,
    suspected: Sequence[Finding],
    arrays: Arrays,
    subject: Runner,
) -> set[str]:
    """Suspected values that the subject, run on the observed inputs of their nodes alone, computes
    to the same bits or wrongly again. All of them for a subject that never fuses."""
    if subject.capabilities.stepwise:
        return {f.value for f in suspected}
    if not subject.capabilities.truncates or subject.stored_inputs is not None:
        return set()
    proven: set[str] = set()
    singles = [f.value for f in suspected if not f.region]
    for value, again in _run_singly(graph, singles, arrays, subject):
        if same_bits(again, arrays[value]) or _is_wrong(graph, value, again, arrays):
            proven.add(value)
    return proven


def without_fused_shapes(
    graph: Graph, subject: Runner, inputs: Arrays, values: Arrays
) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    """`values` without inner ones of a wrong type that a fusion shows under their names, and notes.

    A fused kernel may give its result the name of a value that lies inside it. If the subject gives
    the right type for the node alone, nothing is wrong with the node, and the value is left out,
    with a note. A subject that runs no nodes alone is taken at its word.
    """
    misfits = [
        v
        for v, a in values.items()
        if v not in graph.outputs and not fits(graph.types[v], conform(a, graph.types[v].dtype))
    ]
    if not misfits or subject.capabilities.stepwise or not subject.capabilities.truncates:
        return dict(values), ()
    arrays = {**graph.constants, **inputs, **{v: a for v, a in values.items() if v not in misfits}}
    testable = [
        v for v in misfits if all(i is None or i in arrays for i in graph.producers[v].inputs)
    ]
    right = {v for v, a in _run_singly(graph, testable, arrays, subject) if fits(graph.types[v], a)}
    if not right or any(v not in right for v in testable):
        return dict(values), ()
    first = misfits[0]
    shape = f"{values[first].dtype}[{', '.join(map(str, values[first].shape))}]"
    note = (
        f"{subject.name} shows {shape} under the name {first!r}, which is {graph.types[first]}, "
        "and computes the right type when it runs the node alone: the result of a fusion, not used"
        + (f" (so are {len(misfits) - 1} more)" if len(misfits) > 1 else "")
    )
    return {v: a for v, a in values.items() if v not in misfits}, (note,)


def _run_singly(
    graph: Graph, values: Sequence[str], arrays: Arrays, subject: Runner
) -> list[tuple[str, np.ndarray]]:
    """The subject's results for the single nodes of `values`, each on its observed inputs."""
    results: list[tuple[str, np.ndarray]] = []
    waiting = list(values)
    for _ in range(ROUNDS):
        batch = _independent(graph, waiting)
        if not batch:
            break
        waiting = [v for v in waiting if v not in batch]
        answers = _run_batch(graph, batch, arrays, subject)
        if not answers and len(batch) > 1:  # one of them is refused: each by itself
            singles = (_run_batch(graph, [v], arrays, subject) for v in batch[:SINGLES])
            answers = [answer for single in singles for answer in single]
        results += answers
    return results


def _independent(graph: Graph, values: Sequence[str]) -> list[str]:
    """Values whose nodes do not read each other, in order."""
    selected: list[str] = []
    produced: set[str] = set()
    read: set[str | None] = set()
    for value in values:
        node = graph.producers[value]
        if produced.isdisjoint(v for v in node.inputs if v) and read.isdisjoint(node.outputs):
            selected.append(value)
            produced.update(node.outputs)
            read.update(node.inputs)
    return selected


def _run_batch(
    graph: Graph, batch: Sequence[str], arrays: Arrays, subject: Runner
) -> list[tuple[str, np.ndarray]]:
    """The subject's results for the nodes of the values side by side in one network, on their
    observed inputs; [] when it refuses."""
    nodes = [graph.producers[v] for v in batch]
    read = dict.fromkeys(
        v for n in nodes for v in n.inputs if v is not None and v not in graph.constants
    )
    try:
        subgraph = cut(graph, read, batch)
        types = {v: TensorType.of(arrays[v]) for v in subgraph.inputs}
        subgraph = reinfer(subgraph, types)
        answers = subject.run(subgraph, {v: arrays[v] for v in subgraph.inputs})
        values, _ = renamed_answers(subgraph, {k: np.asarray(v) for k, v in answers.items()})
    except (VeraxError, KeyError):
        return []  # the wider views decide
    return [(v, conform(values[v], graph.types[v].dtype)) for v in batch if v in values]


def _is_wrong(graph: Graph, value: str, again: np.ndarray, arrays: Arrays) -> bool:
    """True if a node's result, run alone, is a mistake by itself."""
    node = graph.producers[value]
    judged = check_node(
        node,
        [None if v is None else arrays[v] for v in node.inputs],
        [again if v == value else None for v in node.outputs],
        graph.output_types(node),
    )
    return any(f.kind is Kind.mistake for f in judged)
