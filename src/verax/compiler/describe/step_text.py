"""What one counted step did, in text form: a rewrite in nodes, a decision in kernels."""

from __future__ import annotations

from collections import Counter

import numpy as np

from verax.base.option_groups.settings import Settings
from verax.compiler.passes.base import PassClass
from verax.compiler.passes.remove_dead_code import remove_dead_code
from verax.compiler.pipeline.levels import FIRST_LEVEL, PIPELINE, kinds_of
from verax.compiler.pipeline.user_passes import with_injected
from verax.compiler.place.calls import CountedCall, KernelCall, Native, ReferenceCall, SizeCall
from verax.compiler.plan.steps import STEPS
from verax.compiler.specialized import Specialized
from verax.ir.graph import Graph, Node
from verax.ir.printer import INLINE_LIMIT, print_graph
from verax.records.bisection import Step


def step_between(
    name: str, index: int, before: Specialized, after: Specialized, settings: Settings
) -> Step:
    """The step `name`, number `index` from 1: how it changes the program that stops before it."""
    pass_name = name.partition(": ")[0]
    kinds = kinds_of(with_injected(PIPELINE, settings.inject))
    level = f"O{FIRST_LEVEL[kinds[pass_name]]}" if pass_name in kinds else f"O{settings.opt_level}"
    exact = kinds.get(pass_name) is PassClass.exact
    if any(s.name == pass_name for s in STEPS):
        old, new = _kernels(before), _kernels(after)
        region = tuple(dict.fromkeys(n for label in old - new for n in label[0].split(" + ")))
        lines = _calls(old - new), _calls(new - old)
    else:
        region, *texts = rewritten(before.graph, after.graph)
        lines = texts[0], texts[1]
    return Step(name, pass_name, level, index, region, *lines, exact)


def rewritten(before: Graph, after: Graph) -> tuple[tuple[str, ...], str, str]:
    """What a rewrite changed: names of nodes, and those in text form before and after it."""
    live = remove_dead_code(before)[0], remove_dead_code(after)[0]
    before, after = (before, after) if _same_nodes(*live) else live
    old, new = _changed(before, after), _changed(after, before)
    region = tuple(dict.fromkeys(n.name or n.outputs[0] for n in old))
    return region, _text(before, after, old), _text(after, before, new)


def _same_nodes(graph: Graph, candidate: Graph) -> bool:
    return not _changed(graph, candidate) and not _changed(candidate, graph)


def _changed(graph: Graph, candidate: Graph) -> list[Node]:
    there = {(n.op, n.inputs, n.outputs) for n in candidate.nodes}
    return [n for n in graph.nodes if (n.op, n.inputs, n.outputs) not in there]


def _text(graph: Graph, candidate: Graph, nodes: list[Node]) -> str:
    """Lines of the text form: the nodes with the constants that they read, and changed outputs."""
    read = {v for node in nodes for v in node.inputs if v in graph.constants}
    output_names = {node.outputs for node in nodes}
    lines = print_graph(graph).splitlines()
    first = 1 + len(graph.inputs)
    constants = lines[first : first + len(graph.constants)]
    shown_lines = [
        _ranged(line, array)
        for line, (value, array) in zip(constants, graph.constants.items(), strict=True)
        if value in read
    ]
    remaining_lines = lines[first + len(graph.constants) :]
    shown_lines += [
        line for line, n in zip(remaining_lines, graph.nodes) if n.outputs in output_names
    ]
    theirs = {*print_graph(candidate).splitlines()}
    return "\n".join(
        shown_lines + [v for v in remaining_lines[len(graph.nodes) :] if v not in theirs]
    )


def _ranged(line: str, array: np.ndarray) -> str:
    """A constant that is named by its hash, with the ends of what it holds."""
    if array.size <= INLINE_LIMIT or array.dtype.kind not in "fiu" or np.isnan(array).any():
        return line
    return f"{line}  ({array.min():.4g} to {array.max():.4g})"


Kernels = Counter[tuple[str, str]]


def _kernels(specialized: Specialized) -> Kernels:
    """(label, what it is) of every kernel call and reference step."""
    chunk_count = specialized.lowered.chunk_count
    times = f", {chunk_count} times for a part of the batch" if chunk_count > 1 else ""
    return Counter(
        (s.label, "reference" if isinstance(s, ReferenceCall) else _kind(s) + times)
        for s in specialized.lowered.steps
        if not isinstance(s, CountedCall | SizeCall)
    )


def _kind(step: Native) -> str:
    return type(step.spec if isinstance(step, KernelCall) else step).__name__


def kernel_lines(specialized: Specialized) -> str:
    """Every kernel call and reference step of a program, in order."""
    return _calls(_kernels(specialized))


def _calls(kernels: Kernels) -> str:
    return "\n".join(f"kernel {label} ({kind})" for label, kind in kernels.elements())
