"""Smaller cases of any graph: fewer nodes, then smaller sizes, as long as the alarm stays.

`repro.shrink` crops what belongs together by the meaning of an operator; here nothing is known of
operators, so that failures without a verdict, and graphs of several nodes, become small as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from verax.base.errors import VeraxError
from verax.ir.cut import cut
from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.reference.evaluate import evaluate

MAX_RUNS = 24
"""Smaller cases that are tried; each is a run of the subject."""
Values = Mapping[str, np.ndarray]
Shows = Callable[[Graph, Values], bool]
"""Whether the subject still does what the alarm says."""
NO_GRAPH = (VeraxError, ValueError, TypeError, IndexError, KeyError, ArithmeticError)


def smallest(graph: Graph, inputs: Values, shows: Shows) -> tuple[Graph, dict[str, np.ndarray]]:
    """The smallest graph and inputs found that still show it; what was given, where none does."""
    left = MAX_RUNS
    case = (graph, dict(inputs))
    progress = True
    while progress and left:
        progress = False
        for candidate in (*_fewer_nodes(*case), *_smaller_sizes(*case)):
            if not left:
                break
            left -= 1
            try:
                is_shown = shows(*candidate)
            except NO_GRAPH:
                continue
            if is_shown:
                case, progress = candidate, True
                break
    return case


def _fewer_nodes(graph: Graph, inputs: Values) -> Iterator[tuple[Graph, dict[str, np.ndarray]]]:
    """Each node alone, then the graph without its last node, then without its first."""
    if len(graph.nodes) < 2:
        return
    try:
        values = evaluate(graph, inputs, work=np.float32, keep="all")
    except NO_GRAPH:
        return
    arrays = {**inputs, **{v: a for v, a in values.items() if v in graph.types}}

    def cut_graph(
        boundary: list[str], outputs: list[str]
    ) -> tuple[Graph, dict[str, np.ndarray]] | None:
        try:
            smaller = cut(graph, boundary, outputs)
            typed = {
                v: np.asarray(arrays[v]).astype(graph.types[v].dtype.numpy) for v in smaller.inputs
            }
        except NO_GRAPH:
            return None
        return (smaller, typed) if smaller.inputs else None

    for node in graph.nodes:
        read = [v for v in node.inputs if v is not None and v not in graph.constants]
        if (alone := cut_graph(read, list(node.outputs))) is not None:
            yield alone
    first, last = graph.nodes[0], graph.nodes[-1]
    read = [v for v in last.inputs if v is not None and v in graph.producers]
    if read and (prefix := cut_graph(list(graph.inputs), read)) is not None:
        yield prefix
    suffix = cut_graph([*graph.inputs, *first.outputs], list(graph.outputs))
    if suffix is not None and len(suffix[0].nodes) < len(graph.nodes):
        yield suffix


def _smaller_sizes(graph: Graph, inputs: Values) -> Iterator[tuple[Graph, dict[str, np.ndarray]]]:
    """The graph with all axes of one size cut, or one axis of one input, to 1, 2 or a half."""
    sizes = sorted({d for a in inputs.values() for d in a.shape if d > 1}, reverse=True)
    for size in sizes:
        for target in dict.fromkeys((1, 2, size // 2)):
            if target < size:
                yield from _built(graph, inputs, lambda n, i, d: target if d == size else d)  # noqa: B023
    for name, array in inputs.items():
        for axis, size in enumerate(array.shape):
            if size > 1:
                yield from _built(
                    graph,
                    inputs,
                    lambda n, i, d: 1 if (n, i) == (name, axis) else d,  # noqa: B023
                )


def _built(
    graph: Graph, inputs: Values, resized: Callable[[str, int, int], int]
) -> Iterator[tuple[Graph, dict[str, np.ndarray]]]:
    """The graph anew with arrays cropped to `resized(name, axis, size)`; nothing where it makes no
    graph."""

    def cropped(name: str, array: np.ndarray) -> np.ndarray:
        slices = tuple(slice(resized(name, i, d)) for i, d in enumerate(array.shape))
        return np.ascontiguousarray(array[slices]).reshape(array[slices].shape)

    arrays = {v: cropped(v, a) for v, a in inputs.items()}
    builder = Builder(graph.name)
    try:
        for name, array in arrays.items():
            builder.input(name, TensorType.of(array))
        for name, array in graph.constants.items():
            builder.constant(array if array.dtype.kind == "i" else cropped(name, array), name)
        for node in graph.nodes:
            builder.add_all(node.op, node.inputs, node.outputs, node.name)
        yield builder.graph(graph.outputs), arrays
    except NO_GRAPH:
        return
