"""Judges a whole network, cut at every observed value (a value that the subject gives).

A node whose inputs and outputs are all observed is judged alone (`local`). Nodes with hidden
values (by fusion, or because only outputs were kept) are judged together with their neighbors
(`region`). Either way the inputs are the subject's own values, so that one mistake cannot make
another node look faulty.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np

from verax.base.errors import VeraxError
from verax.base.machine.blas import one_blas_thread
from verax.base.machine.cores import deciding
from verax.base.process.side_by_side import sharing
from verax.ir.graph import Graph, Node
from verax.ir.types import TensorType
from verax.judge.decide.criterion import Decision
from verax.judge.decide.local import check_node, conform, finding, meaning, undecided
from verax.judge.decide.ties import rounds_to_integers
from verax.judge.regions.budget import Budget, current, limit_to_budget, needs, why_too_large
from verax.judge.regions.quantized_steps import named_integers
from verax.judge.regions.region import Region, check_region, drawn_ahead
from verax.judge.regions.sampler import Sampler
from verax.judge.regions.unit_products import single_product
from verax.ops.movement.reshaping import Transpose
from verax.records.verdict import Blame, Finding, Kind, Power

WORKERS = 4
"""Regions judged at a time, as far as the budget of memory allows."""
Ahead = dict[tuple[str, ...], Sampler]
"""By names of the values that a region shows, what judging it begins with."""
Progress = Callable[[int, int, str], None]
"""Called with (nodes judged, nodes in all, name of the node)."""


@dataclass
class Survey:
    """Findings on every value that could be judged, in order, and what follows from them."""

    findings: list[Finding] = field(default_factory=list)
    power: list[Power] = field(default_factory=list)
    unchecked: dict[str, str] = field(default_factory=dict)
    regions: int = 0

    def blame(self, graph: Graph) -> tuple[Blame, ...]:
        """One record for every faulty node, in order."""
        attributions = []
        for value_finding in self.findings:
            if value_finding.kind is not Kind.mistake:
                continue
            node = graph.producers[value_finding.value]
            attributes = {name: repr(v) for name, v in node.op.attributes().items()}
            attributions.append(
                Blame(
                    value_finding.node,
                    value_finding.operator,
                    attributes,
                    value_finding.value,
                    value_finding.kind,
                    value_finding.reason,
                    value_finding.region,
                )
            )
        return tuple(attributions)


def survey(
    graph: Graph,
    inputs: Mapping[str, np.ndarray],
    values: Mapping[str, np.ndarray],
    *,
    seed: int = 0,
    measure_power: bool = True,
    find_precision: bool | frozenset[str] = True,
    progress: Progress | None = None,
    budget: Budget | None = None,
    ahead: Ahead | None = None,
) -> Survey:
    """Judge every value in `values` (named as in the specialized `graph`) on its actual inputs.

    inputs: the network's inputs in their declared types. measure_power: whether regions are tried
    for blindness. find_precision: whether regions too wrong for float32 are tried in coarser
    arithmetics, or the names of products in bfloat16, where they are known. budget: memory that may
    be taken, by default that of this thread; what does not fit is in `unchecked` with the reason.
    ahead: the result of `survey_ahead` for the same values and seed; it is consumed.
    """
    observed = {**graph.constants, **inputs}
    produced = set()
    for name, array in values.items():
        if name in graph.producers:
            observed[name] = conform(np.asarray(array), graph.types[name].dtype)
            produced.add(name)
    result = Survey()
    misfits = _drop_misfits(graph, observed, produced, result)
    cut = list(regions(graph, produced))

    def judge(region: Region) -> tuple[list[Finding], list[Power], bool]:
        """Findings, power, and whether several nodes had to be judged together."""
        inside = _before_transpose(graph, region)
        lost = sorted(region.hidden & misfits)
        if lost:
            reason = f"it was computed from {lost[0]!r}, which is of a wrong type"
            return (
                [undecided(graph.producers[v], v, observed[v], reason) for v in region.observed],
                [],
                False,
            )
        if inside is not None and _is_single(graph, inside):
            return _judge_transposed(graph, region, inside, observed), [], False
        if _is_single(graph, region):
            alone = _judge_single(graph, region, observed)
            alone = single_product(graph, region, observed, alone, seed)
            return named_integers(graph, region, observed, alone, seed), [], False
        findings, power = check_region(
            graph,
            region,
            observed,
            seed,
            measure_power=measure_power,
            find_precision=find_precision,
            sampler=ahead.pop(region.observed, None) if ahead else None,
        )
        return named_integers(graph, region, observed, findings, seed), power, True

    judge_within_budget = limit_to_budget(
        budget or current(), graph, observed, result.unchecked, judge
    )
    workers = min(WORKERS, deciding().threads)
    # A thread of the pool knows the time that is left and the subject's algorithms.
    with sharing(deciding().threads // max(1, min(workers, len(cut)))):
        contexts = [contextvars.copy_context() for _ in cut]
    judged = 0
    # Regions know nothing of each other, and NumPy computes outside of the interpreter's lock.
    with one_blas_thread(), ThreadPoolExecutor(workers) as pool:
        for region, (findings, power, together) in zip(
            cut,
            pool.map(lambda region, own: own.run(judge_within_budget, region), cut, contexts),
            strict=True,
        ):
            result.findings += findings
            result.power += power
            result.regions += together
            judged += len(region.nodes)
            if progress is not None:
                progress(min(judged, len(graph.nodes)), len(graph.nodes), region.names[-1])
    order = {value: i for i, node in enumerate(graph.nodes) for value in node.outputs}
    result.findings.sort(key=lambda f: order[f.value])
    covered = {n for r in cut for n in r.names}
    for node in graph.nodes:
        if (node.name or node.outputs[0]) not in covered:
            result.unchecked[node.name or node.outputs[0]] = "nothing that it leads to was shown"
    return result


def survey_ahead(
    graph: Graph, inputs: Mapping[str, np.ndarray], values: Collection[str], seed: int = 0
) -> Ahead:
    """Samplers of the regions that `survey` will judge, drawn before `values` are known.

    Only for regions of several nodes whose inputs are known. What does not fit into this thread's
    budget, or fails, is left to `survey`."""
    observed = {**graph.constants, **inputs}
    samplers: Ahead = {}
    for region in regions(graph, {v for v in values if v in graph.producers}):
        inside = {v for n in region.nodes for v in n.outputs}
        inputs_read = {v for n in region.nodes for v in n.inputs if v is not None} - inside
        if (
            _is_single(graph, region)
            or not inputs_read <= observed.keys()
            or inside & observed.keys()
        ):
            continue
        need = needs(graph, region, observed)
        if why_too_large(need):
            continue
        with (
            contextlib.suppress(VeraxError, MemoryError),
            current().reserve(need),
            one_blas_thread(),
            sharing(deciding().threads),
        ):
            samplers[region.observed] = drawn_ahead(graph, region, observed, seed)
    return samplers


def _drop_misfits(
    graph: Graph, observed: dict[str, np.ndarray], produced: set[str], result: Survey
) -> set[str]:
    """Names of observed values of a wrong shape or element type, which are removed from `observed`
    and `produced` and get their findings in `result`.

    Only the first is a mistake: the shapes after it follow from it.
    """
    causes: dict[str, str] = {}
    misfits: set[str] = set()
    for node in graph.nodes:
        cause = next((causes[v] for v in node.inputs if v in causes), "")
        for name in node.outputs:
            if cause:
                causes[name] = cause
            if name not in produced or fits(graph.types[name], observed[name]):
                continue
            causes.setdefault(name, name)
            misfits.add(name)
            result.findings.append(_misfit(graph, node, name, observed[name], cause))
            produced.discard(name)
            del observed[name]
    return misfits


def fits(declared: TensorType, array: np.ndarray) -> bool:
    """Whether an array is of the declared type, as far as its shape is known."""
    shape_fits = not declared.is_static or declared.shape == array.shape
    return shape_fits and array.dtype == declared.dtype.counted


def _misfit(graph: Graph, node: Node, name: str, array: np.ndarray, cause: str) -> Finding:
    declared = graph.types[name]
    actual_type = f"{array.dtype}[{', '.join(map(str, array.shape))}]"
    reason = f"it is {actual_type}, it should be {declared}"
    kind = Kind.mistake
    if cause:
        kind, reason = Kind.undecided, f"{reason}; that follows from the wrong {cause!r}"
    decision = Decision(kind, reason, "type", np.inf)
    shape = declared.shape if declared.is_static else ()
    return finding(node, name, decision, array, np.zeros(shape))


def regions(graph: Graph, observed: set[str]) -> Iterator[Region]:
    """Yield the regions of the graph cut at `observed`: groups of nodes that share hidden values.

    Nodes that no shown value depends on are in no region.
    """
    hidden = _hidden_needed(graph, observed)
    parent = list(range(len(graph.nodes)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    index = {v: i for i, node in enumerate(graph.nodes) for v in node.outputs}
    needed = {
        i
        for i, node in enumerate(graph.nodes)
        if any(v in hidden or v in observed for v in node.outputs)
    }
    for i in needed:
        for value in graph.nodes[i].inputs:
            if value in hidden:
                parent[root(i)] = root(index[value])
    groups: dict[int, list[int]] = {}
    for i in sorted(needed):
        groups.setdefault(root(i), []).append(i)
    for members in sorted(groups.values(), key=lambda m: m[-1]):
        nodes = tuple(graph.nodes[i] for i in members)
        values = [v for node in nodes for v in node.outputs]
        yield Region(
            nodes,
            frozenset(v for v in values if v in hidden),
            tuple(v for v in values if v in observed),
        )


def _hidden_needed(graph: Graph, observed: set[str]) -> set[str]:
    """Values not shown that some shown value is computed from."""
    hidden: set[str] = set()
    waiting = [v for name in observed for v in graph.producers[name].inputs]
    while waiting:
        value = waiting.pop()
        if value is None or value in observed or value in hidden or value not in graph.producers:
            continue
        hidden.add(value)
        waiting += graph.producers[value].inputs
    return hidden


def _is_single(graph: Graph, region: Region) -> bool:
    """Whether only exact operations are hidden, so that one node can be judged by itself."""
    inner = [n for n in region.nodes if any(v in region.hidden for v in n.outputs)]
    last = [n for n in region.nodes if any(v in region.observed for v in n.outputs)]
    return len(last) == 1 and all(_is_exact(graph, n) and n not in last for n in inner)


def _is_exact(graph: Graph, node: Node) -> bool:
    """Whether a node cannot round: by its operator, or because it computes with integers alone.

    A quantization whose halves kernels round in different ways is none where nobody sees it.
    """
    if rounds_to_integers(node.op):
        return False
    types = [*(graph.types[v] for v in node.inputs if v is not None), *graph.output_types(node)]
    return node.op.exact or not any(t.dtype.is_float for t in types)


def _judge_single(
    graph: Graph, region: Region, observed: Mapping[str, np.ndarray]
) -> list[Finding]:
    """Evaluate the hidden exact nodes, then judge the last one on what they give."""
    values = dict(observed)
    for node in region.nodes[:-1]:
        arrays = [None if v is None else values[v] for v in node.inputs]
        types = graph.output_types(node)
        reference = meaning(node, arrays, graph.input_types(node), types, errors=False)
        for value, array, type_ in zip(node.outputs, reference.outputs, types):
            values.setdefault(value, array.astype(type_.dtype.numpy))
    node = region.nodes[-1]
    return check_node(
        node,
        [None if v is None else values[v] for v in node.inputs],
        [observed.get(v) if v in region.observed else None for v in node.outputs],
        graph.output_types(node),
        region=region.names if len(region.nodes) > 1 else (),
    )


def _before_transpose(graph: Graph, region: Region) -> Region | None:
    """The region without a Transpose at its end, the only value that it shows; None without one.

    Formats whose axes end with channels become such regions, layer by layer.
    """
    last = region.nodes[-1]
    if not isinstance(last.op, Transpose) or region.observed != last.outputs:
        return None
    (value,) = last.inputs
    if value not in region.hidden:
        return None
    return Region(region.nodes[:-1], region.hidden - {value}, (value,))


def _judge_transposed(
    graph: Graph, region: Region, inside: Region, observed: Mapping[str, np.ndarray]
) -> list[Finding]:
    """Judge the one node before a Transpose on what the subject gave behind it, put back."""
    last = region.nodes[-1]
    (value,), (name,) = inside.observed, region.observed
    rank = observed[name].ndim
    perm = last.op.perm if isinstance(last.op, Transpose) else None
    order = [a % rank for a in perm] if perm is not None else [*reversed(range(rank))]
    actual = observed[name].transpose(np.argsort(order))
    return [
        replace(
            f,
            value=name,
            node=last.name or name,
            operator=last.op.kind,
            worst=tuple(replace(p, index=tuple(p.index[a] for a in order)) for p in f.worst),
            region=region.names,
        )
        for f in _judge_single(graph, inside, {**observed, value: actual})
    ]
