"""Concatenation of channels in the blocked layout: whole blocks lie one after the other.

Where there is one image a part of the result is a piece of memory like any other value, and what
nobody else reads is made there by its own kernel (`parts_of_results`); all else is copied.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from verax.compiler.decide.layouts import Decided, Layout, Layouts, can_block, widest
from verax.compiler.lower.copies import copies
from verax.compiler.lower.lowering import Lowering
from verax.compiler.lower.storage import LANES
from verax.ir.graph import Graph, Node


def joins_blocks(decided: Decided, node: Node) -> Layouts | None:
    """Blocked, where all that is joined is so, and ends with whole blocks but for the last."""
    graph, output = decided.graph, decided.graph.types[node.outputs[0]]
    if not can_block(output) or node.op.attributes()["axis"] % output.rank != 1:
        return None
    values = [v for v in node.inputs if v is not None]
    whole = all(graph.types[v].shape[1] % LANES == 0 for v in values[:-1])
    if not whole or not all(v in decided.blocked for v in values):
        return None
    return Layouts({i: (Layout.blocked, ()) for i in range(len(values))}, Layout.blocked)


def parts_of_results(graph: Graph, decided: Decided) -> Mapping[str, tuple[str, int]]:
    """Values that are made in their place in a concatenation: (the result, the first block).

    Of one image, read by the concatenation alone. The border that readers of the result want is
    that of its parts.
    """
    found: dict[str, tuple[str, int]] = {}
    for node in graph.nodes:
        joined = node.outputs[0]
        if node.op.kind != "Concat" or joined not in decided.blocked:
            continue
        if graph.types[joined].shape[0] != 1:
            continue
        first = 0
        for value in node.inputs:
            assert value is not None
            if len(graph.consumers[value]) == 1 and value not in graph.outputs:
                found[value] = joined, first
            first += -(-graph.types[value].shape[1] // LANES)
    for value in reversed(list(found)):  # of a part of a part, the outer one first
        joined, _ = found[value]
        wanted = decided.borders.get((joined, Layout.blocked), ())
        own = decided.borders.get((value, Layout.blocked), ())
        decided.borders[value, Layout.blocked] = widest(wanted, own)
    return found


def join_blocks(lowering: Lowering, node: Node) -> None:
    """A copy of each input that is not in its place already."""
    joined, first = node.outputs[0], 0
    whole = lowering.write(joined, Layout.blocked)
    for value in node.inputs:
        assert value is not None
        source = lowering.read(value, Layout.blocked)
        part = whole.blocks(source.physical.type, first)
        first += source.physical.blocks
        if source.buffer is whole.buffer:
            continue
        for spec in copies(source.physical, part.physical):
            (out,) = spec.outputs
            moved = dataclasses.replace(out, strides=(whole.physical.strides[0], *out.strides[1:]))
            spec = dataclasses.replace(spec, outputs=(moved,))
            lowering.call(spec, (source, part), node.name or joined)
