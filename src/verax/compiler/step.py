"""What one counted step did, in text form: a rewrite in nodes, a decision in kernels."""

from __future__ import annotations

from collections import Counter

import numpy as np

from verax.base.settings import Settings
from verax.compiler.decide.steps import STEPS
from verax.compiler.driver import Specialised
from verax.compiler.injected import with_injected
from verax.compiler.levels import FIRST_LEVEL, PIPELINE, kinds_of
from verax.compiler.lower.lowering import CountedCall, KernelCall, Native, ReferenceCall
from verax.compiler.passes.base import PassClass
from verax.compiler.passes.remove_dead_code import remove_dead_code
from verax.ir.graph import Graph, Node
from verax.ir.printer import INLINE_LIMIT, print_graph
from verax.records.bisection import Step


def step_between(
    name: str, number: int, before: Specialised, after: Specialised, settings: Settings
) -> Step:
    """The step `name`, the `number`-th from 1: what it made of the program that stops before it."""
    part = name.partition(": ")[0]
    kinds = kinds_of(with_injected(PIPELINE, settings.inject))
    level = f"O{FIRST_LEVEL[kinds[part]]}" if part in kinds else f"O{settings.opt_level}"
    exact = kinds.get(part) is PassClass.exact
    if any(s.name == part for s in STEPS):
        old, new = _kernels(before), _kernels(after)
        region = tuple(dict.fromkeys(n for label in old - new for n in label[0].split(" + ")))
        lines = _calls(old - new), _calls(new - old)
    else:
        region, *texts = rewritten(before.graph, after.graph)
        lines = texts[0], texts[1]
    return Step(name, part, level, number, region, *lines, exact)


def rewritten(before: Graph, after: Graph) -> tuple[tuple[str, ...], str, str]:
    """What a rewrite changed: names of nodes, and those in text form before and after it."""
    live = remove_dead_code(before)[0], remove_dead_code(after)[0]
    before, after = (before, after) if _same_nodes(*live) else live
    old, new = _changed(before, after), _changed(after, before)
    region = tuple(dict.fromkeys(n.name or n.outputs[0] for n in old))
    return region, _text(before, after, old), _text(after, before, new)


def _same_nodes(graph: Graph, other: Graph) -> bool:
    return not _changed(graph, other) and not _changed(other, graph)


def _changed(graph: Graph, other: Graph) -> list[Node]:
    there = {(n.op, n.inputs, n.outputs) for n in other.nodes}
    return [n for n in graph.nodes if (n.op, n.inputs, n.outputs) not in there]


def _text(graph: Graph, other: Graph, nodes: list[Node]) -> str:
    """Lines of the text form: the nodes with the constants that they read, and changed outputs."""
    read = {v for node in nodes for v in node.inputs if v in graph.constants}
    made = {node.outputs for node in nodes}
    lines = print_graph(graph).splitlines()
    first = 1 + len(graph.inputs)
    constants = lines[first : first + len(graph.constants)]
    shown = [
        _ranged(line, array)
        for line, (value, array) in zip(constants, graph.constants.items(), strict=True)
        if value in read
    ]
    rest = lines[first + len(graph.constants) :]
    shown += [line for line, n in zip(rest, graph.nodes) if n.outputs in made]
    theirs = {*print_graph(other).splitlines()}
    return "\n".join(shown + [v for v in rest[len(graph.nodes) :] if v not in theirs])


def _ranged(line: str, array: np.ndarray) -> str:
    """A constant that is named by its hash, with the ends of what it holds."""
    if array.size <= INLINE_LIMIT or array.dtype.kind not in "fiu" or np.isnan(array).any():
        return line
    return f"{line}  ({array.min():.4g} to {array.max():.4g})"


Kernels = Counter[tuple[str, str]]


def _kernels(made: Specialised) -> Kernels:
    """(label, what it is) of every kernel call and reference step."""
    parts = made.lowered.parts
    times = f", {parts} times for a part of the batch" if parts > 1 else ""
    return Counter(
        (s.label, "reference" if isinstance(s, ReferenceCall) else _kind(s) + times)
        for s in made.lowered.steps
        if not isinstance(s, CountedCall)
    )


def _kind(step: Native) -> str:
    return type(step.spec if isinstance(step, KernelCall) else step).__name__


def kernel_lines(made: Specialised) -> str:
    """Every kernel call and reference step of a program, in order."""
    return _calls(_kernels(made))


def _calls(kernels: Kernels) -> str:
    return "\n".join(f"kernel {label} ({kind})" for label, kind in kernels.elements())
