"""Blocked values that lie inside of others: parts of a concatenation that are made in their place,
and whole blocks of channels that Split and Slice take out of a value. Nothing is moved for either.

That needs one image: then blocks of channels lie one after the other. What shares memory has one
border, the widest that anybody wants around any of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from verax.compiler.kernels.target import LANES
from verax.compiler.plan.layouts import Decided, Layout, Pads, can_block, widest
from verax.ir.dim import same
from verax.ir.graph import Graph, Node
from verax.ir.operator import Evaluation, as_tuple
from verax.ir.types import DType

CUTS = frozenset({"Split", "Slice"})


def cuts_whole_blocks(graph: Graph, node: Node) -> bool:
    """True if every output is whole blocks of channels of the input."""
    return bool(_begins(graph, node))


def pieces_of(decided: Decided, node: Node) -> list[tuple[str, int]]:
    """The outputs that are pieces of the input, and the block of it with which each begins."""
    if not decided.blocked.issuperset((node.inputs[0] or "", *node.outputs)):
        return []
    return list(zip(node.outputs, _begins(decided.graph, node)))


def _begins(graph: Graph, node: Node) -> list[int]:
    """The block of the input with which each output begins; none if one is no run of blocks."""
    source = graph.types[node.inputs[0] or ""]
    if not can_block(source) or not isinstance(source.shape[1], int):
        return []
    if source.shape[0] != 1 or source.shape[1] <= LANES:
        return []
    if not all(v is None or v in graph.constants for v in node.inputs[1:]):
        return []
    for axis, size in enumerate(source.dims):
        if axis == 1 or _is_left_alone(graph, node, axis):
            continue
        if not isinstance(size, int) or any(
            not np.array_equal(x, np.arange(size)) for x in _output_positions(graph, node, axis)
        ):
            return []
    begins = []
    for line in _output_positions(graph, node, 1):
        if not line.size or not np.array_equal(line, np.arange(line[0], line[0] + line.size)):
            return []
        end = int(line[0]) + line.size
        if line[0] % LANES or (end % LANES and end != source.shape[1]):
            return []
        begins.append(int(line[0]) // LANES)
    return begins


def _is_left_alone(graph: Graph, node: Node, axis: int) -> bool:
    """Whether an axis is none of those that are cut."""
    if node.op.kind == "Split":
        size = graph.types[node.inputs[0] or ""].dims[axis]
        return all(same(graph.types[v].dims[axis], size) for v in node.outputs)
    axes = graph.constants.get(node.inputs[3] or "") if len(node.inputs) > 3 else None
    rank = graph.types[node.inputs[0] or ""].rank
    return axes is not None and axis not in [int(a) % rank for a in axes.reshape(-1)]


def _output_positions(graph: Graph, node: Node, axis: int) -> Iterator[np.ndarray]:
    """What the operator keeps of the positions along an axis, output by output."""
    source = graph.types[node.inputs[0] or ""]
    line = np.arange(source.shape[axis]).reshape(
        [-1 if a == axis else 1 for a in range(source.rank)]
    )
    data = np.broadcast_to(line, [n if isinstance(n, int) else 1 for n in source.dims])
    fixed = [None if v is None else graph.constants[v] for v in node.inputs[1:]]
    types = (source.with_dtype(DType.int64), *graph.input_types(node)[1:])
    outputs = tuple(t.with_dtype(DType.int64) for t in graph.output_types(node))
    for result in as_tuple(node.op.reference(Evaluation(types, outputs), data, *fixed)):
        at = tuple(slice(None) if a == axis else slice(0, 1) for a in range(source.rank))
        yield np.asarray(result)[at].reshape(-1)


def result_slices_of(graph: Graph, decided: Decided) -> Mapping[str, tuple[str, int]]:
    """Values that are made in their place in a concatenation: (the result, the first block).

    Of one image, and read by the concatenation alone; or cut into pieces of which the
    concatenation reads all, one after the other. What shares memory gets one border.
    """
    pieces = {
        value: (node.inputs[0] or "", first)
        for node in graph.nodes
        if node.op.kind in CUTS
        for value, first in pieces_of(decided, node)
    }
    slices: dict[str, tuple[str, int]] = {}
    for node in graph.nodes:
        result = node.outputs[0]
        if node.op.kind != "Concat" or result not in decided.blocked:
            continue
        if same(graph.types[result].shape[0], 1):
            for value, first in _slices_in(graph, node, pieces):
                slices.setdefault(value, (result, first))
    _share_borders(decided, {**pieces, **slices})
    return slices


def _slices_in(
    graph: Graph, node: Node, pieces: Mapping[str, tuple[str, int]]
) -> Iterator[tuple[str, int]]:
    """Values that may lie in the result of a concatenation, and their first blocks there."""
    values, first = [v or "" for v in node.inputs], 0
    for i, value in enumerate(values):
        source, begin = pieces.get(value, (value, 0))
        if source != value and begin == 0 and source not in pieces and source not in graph.outputs:
            blocks, at = _blocks(graph, source), 0
            for piece in values[i:]:  # the pieces that follow are the rest of it
                if at == blocks or pieces.get(piece) != (source, at):
                    break
                at += _blocks(graph, piece)
            if at == blocks:
                yield source, first
        elif source == value and len(graph.consumers[value]) == 1 and value not in graph.outputs:
            yield value, first
        first += _blocks(graph, value)


def _blocks(graph: Graph, value: str) -> int:
    return -(-graph.types[value].shape[1] // LANES)


def _share_borders(decided: Decided, inside: Mapping[str, tuple[str, int]]) -> None:
    """Give all values that lie in one piece of memory the widest border of any of them."""

    def outermost(value: str) -> str:
        while value in inside:
            value = inside[value][0]
        return value

    groups: dict[str, set[str]] = {}
    for value in inside:
        groups.setdefault(outermost(value), {outermost(value)}).add(value)
    for values in groups.values():
        border: Pads = ()
        for value in values:
            border = widest(border, decided.borders.get((value, Layout.blocked), ()))
        for value in values:
            decided.borders[value, Layout.blocked] = border
