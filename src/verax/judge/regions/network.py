"""A whole network, cut at every value that the subject shows.

Where a node's inputs and outputs are all shown it is judged alone (`local`). Nodes whose values are
hidden (by fusion, or because only outputs were kept) are judged together with what lies around
them (`region`). Either way the inputs are the subject's own values, so one mistake cannot make
another node look guilty.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np

from verax.base.blas import one_blas_thread
from verax.base.cores import deciding
from verax.base.errors import VeraxError
from verax.ir.graph import Graph, Node
from verax.ir.types import TensorType
from verax.judge.decide.criterion import Decision
from verax.judge.decide.local import check_node, conform, finding, meaning, undecided
from verax.judge.decide.ties import rounds_freely
from verax.judge.regions.budget import Budget, current, keeping_to, needs, why_too_large
from verax.judge.regions.region import Region, check_region, drawn_ahead
from verax.judge.regions.sampler import Sampler
from verax.judge.regions.steps import named_integers
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
        """Every guilty node, in order."""
        guilty = []
        for found in self.findings:
            if found.kind is not Kind.mistake:
                continue
            node = graph.producers[found.value]
            attributes = {name: repr(v) for name, v in node.op.attributes().items()}
            guilty.append(
                Blame(
                    found.node,
                    found.operator,
                    attributes,
                    found.value,
                    found.kind,
                    found.reason,
                    found.region,
                )
            )
        return tuple(guilty)


def survey(
    graph: Graph,
    inputs: Mapping[str, np.ndarray],
    values: Mapping[str, np.ndarray],
    *,
    seed: int = 0,
    winograd: bool = True,
    measure_power: bool = True,
    find_precision: bool | frozenset[str] = True,
    progress: Progress | None = None,
    budget: Budget | None = None,
    ahead: Ahead | None = None,
) -> Survey:
    """Judge every value in `values` (named as in the specialised `graph`) on its actual inputs.

    inputs: the network's inputs in their declared types. winograd: whether the subject may use
    Winograd's algorithm. measure_power: whether regions are tried for blindness. find_precision:
    whether regions too wrong for float32 are tried in coarser arithmetics, or the names of products
    in bfloat16, where they are known. budget: memory that may
    be taken, by default that of this thread; what does not fit is in `unchecked` with the reason.
    ahead: what `survey_ahead` gave for the same values and seed; it is used up.
    """
    shown = {**graph.constants, **inputs}
    produced = set()
    for name, array in values.items():
        if name in graph.producers:
            shown[name] = conform(np.asarray(array), graph.types[name].dtype)
            produced.add(name)
    result = Survey()
    misfits = _drop_misfits(graph, shown, produced, result)
    cut = list(regions(graph, produced))

    def judge(region: Region) -> tuple[list[Finding], list[Power], bool]:
        """Findings, power, and whether several nodes had to be judged together."""
        inside = _before_transpose(graph, region)
        lost = sorted(region.hidden & misfits)
        if lost:
            reason = f"it was computed from {lost[0]!r}, which is of a wrong type"
            return (
                [undecided(graph.producers[v], v, shown[v], reason) for v in region.shown],
                [],
                False,
            )
        if inside is not None and _is_single(graph, inside):
            return _judge_transposed(graph, region, inside, shown, winograd), [], False
        if _is_single(graph, region):
            alone = _judge_single(graph, region, shown, winograd)
            return named_integers(graph, region, shown, alone, seed), [], False
        found, power = check_region(
            graph,
            region,
            shown,
            seed,
            winograd=winograd,
            measure_power=measure_power,
            find_precision=find_precision,
            sampler=ahead.pop(region.shown, None) if ahead else None,
        )
        return named_integers(graph, region, shown, found, seed), power, True

    kept = keeping_to(budget or current(), graph, shown, result.unchecked, judge, winograd=winograd)
    # A thread of the pool knows the time that is left and the subject's algorithms.
    contexts = [contextvars.copy_context() for _ in cut]
    judged = 0
    # Regions know nothing of each other, and NumPy computes outside of the interpreter's lock.
    with one_blas_thread(), ThreadPoolExecutor(min(WORKERS, deciding().threads)) as pool:
        for region, (found, power, together) in zip(
            cut, pool.map(lambda region, own: own.run(kept, region), cut, contexts), strict=True
        ):
            result.findings += found
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
    """What `survey` does before it looks at `values`, which need not be known yet, where several
    nodes between the inputs and them are judged together. What does not fit into this thread's
    budget, or fails, is left to `survey`."""
    shown = {**graph.constants, **inputs}
    found: Ahead = {}
    for region in regions(graph, {v for v in values if v in graph.producers}):
        inside = {v for n in region.nodes for v in n.outputs}
        given = {v for n in region.nodes for v in n.inputs if v is not None} - inside
        if _is_single(graph, region) or not given <= shown.keys() or inside & shown.keys():
            continue
        need = needs(graph, region, shown)
        if why_too_large(need):
            continue
        with (
            contextlib.suppress(VeraxError, MemoryError),
            current().taking(need),
            one_blas_thread(),
        ):
            found[region.shown] = drawn_ahead(graph, region, shown, seed)
    return found


def _drop_misfits(
    graph: Graph, shown: dict[str, np.ndarray], produced: set[str], result: Survey
) -> set[str]:
    """Values of another shape or element type are judged, but nobody may compute with them.

    Only the first is a mistake: what comes after it has to be of another shape. -> their names.
    """
    causes: dict[str, str] = {}
    misfits: set[str] = set()
    for node in graph.nodes:
        cause = next((causes[v] for v in node.inputs if v in causes), "")
        for name in node.outputs:
            if cause:
                causes[name] = cause
            if name not in produced or fits(graph.types[name], shown[name]):
                continue
            causes.setdefault(name, name)
            misfits.add(name)
            result.findings.append(_misfit(graph, node, name, shown[name], cause))
            produced.discard(name)
            del shown[name]
    return misfits


def fits(declared: TensorType, array: np.ndarray) -> bool:
    """Whether an array is of the declared type, as far as its shape is known."""
    shape_fits = not declared.is_static or declared.shape == array.shape
    return shape_fits and array.dtype == declared.dtype.counted


def _misfit(graph: Graph, node: Node, name: str, array: np.ndarray, cause: str) -> Finding:
    declared = graph.types[name]
    given = f"{array.dtype}[{', '.join(map(str, array.shape))}]"
    reason = f"it is {given}, it should be {declared}"
    kind = Kind.mistake
    if cause:
        kind, reason = Kind.undecided, f"{reason}; that follows from the wrong {cause!r}"
    decision = Decision(kind, reason, "type", np.inf)
    shape = declared.shape if declared.is_static else ()
    return finding(node, name, decision, array, np.zeros(shape))


def regions(graph: Graph, shown: set[str]) -> Iterator[Region]:
    """Cut the graph at `shown`: groups of nodes that share hidden values, in order.

    Nodes that no shown value depends on are in no region.
    """
    hidden = _hidden_needed(graph, shown)
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
        if any(v in hidden or v in shown for v in node.outputs)
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
            tuple(v for v in values if v in shown),
        )


def _hidden_needed(graph: Graph, shown: set[str]) -> set[str]:
    """Values not shown that some shown value is computed from."""
    hidden: set[str] = set()
    waiting = [v for name in shown for v in graph.producers[name].inputs]
    while waiting:
        value = waiting.pop()
        if value is None or value in shown or value in hidden or value not in graph.producers:
            continue
        hidden.add(value)
        waiting += graph.producers[value].inputs
    return hidden


def _is_single(graph: Graph, region: Region) -> bool:
    """Whether only exact operations are hidden, so that one node can be judged by itself."""
    inner = [n for n in region.nodes if any(v in region.hidden for v in n.outputs)]
    last = [n for n in region.nodes if any(v in region.shown for v in n.outputs)]
    return len(last) == 1 and all(_is_exact(graph, n) and n not in last for n in inner)


def _is_exact(graph: Graph, node: Node) -> bool:
    """Whether a node cannot round: by its operator, or because it computes with integers alone.

    A quantisation whose halves kernels round in different ways is none where nobody sees it.
    """
    if rounds_freely(node.op):
        return False
    types = [*(graph.types[v] for v in node.inputs if v is not None), *graph.output_types(node)]
    return node.op.exact or not any(t.dtype.is_float for t in types)


def _judge_single(
    graph: Graph, region: Region, shown: Mapping[str, np.ndarray], winograd: bool
) -> list[Finding]:
    """Evaluate the hidden exact nodes, then judge the last one on what they give."""
    values = dict(shown)
    for node in region.nodes[:-1]:
        arrays = [None if v is None else values[v] for v in node.inputs]
        types = graph.output_types(node)
        found = meaning(node, arrays, graph.input_types(node), types, errors=False)
        for value, array, type_ in zip(node.outputs, found.outputs, types):
            values.setdefault(value, array.astype(type_.dtype.numpy))
    node = region.nodes[-1]
    return check_node(
        node,
        [None if v is None else values[v] for v in node.inputs],
        [shown.get(v) if v in region.shown else None for v in node.outputs],
        graph.output_types(node),
        winograd=winograd,
        region=region.names if len(region.nodes) > 1 else (),
    )


def _before_transpose(graph: Graph, region: Region) -> Region | None:
    """The region without a Transpose at its end, the only value that it shows; None without one.

    Formats whose axes end with channels become such regions, layer by layer.
    """
    last = region.nodes[-1]
    if not isinstance(last.op, Transpose) or region.shown != last.outputs:
        return None
    (value,) = last.inputs
    if value not in region.hidden:
        return None
    return Region(region.nodes[:-1], region.hidden - {value}, (value,))


def _judge_transposed(
    graph: Graph, region: Region, inside: Region, shown: Mapping[str, np.ndarray], winograd: bool
) -> list[Finding]:
    """Judge the one node before a Transpose on what the subject gave behind it, put back."""
    last = region.nodes[-1]
    (value,), (name,) = inside.shown, region.shown
    rank = shown[name].ndim
    perm = last.op.perm if isinstance(last.op, Transpose) else None
    order = [a % rank for a in perm] if perm is not None else [*reversed(range(rank))]
    given = shown[name].transpose(np.argsort(order))
    return [
        replace(
            f,
            value=name,
            node=last.name or name,
            operator=last.op.kind,
            worst=tuple(replace(p, index=tuple(p.index[a] for a in order)) for p in f.worst),
            region=region.names,
        )
        for f in _judge_single(graph, inside, {**shown, value: given}, winograd)
    ]
