"""Concatenation of channels in the blocked layout: whole blocks lie one after the other.

Where there is one image a part of the result is a piece of memory like any other value, and what
nobody else reads is made there by its own kernel (`pieces`); all else is copied.
"""

from __future__ import annotations

import dataclasses

from verax.compiler.decide.layouts import Decided, Layout, Layouts, can_block
from verax.compiler.lower.copies import copies
from verax.compiler.lower.lowering import Lowering
from verax.compiler.lower.storage import LANES
from verax.ir.graph import Node


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


def join_blocks(lowering: Lowering, node: Node) -> None:
    """A copy of each input that is not in its place already."""
    joined, first = node.outputs[0], 0
    whole = lowering.write(joined, Layout.blocked)
    for value in node.inputs:
        assert value is not None
        source = lowering.read(value, Layout.blocked)
        part = whole.blocks(source.physical.type, first)
        first += source.physical.blocks
        if (source.buffer, source.byte_offset) == (part.buffer, part.byte_offset):
            continue
        for spec in copies(source.physical, part.physical):
            (out,) = spec.outputs
            moved = dataclasses.replace(out, strides=(whole.physical.strides[0], *out.strides[1:]))
            spec = dataclasses.replace(spec, outputs=(moved,))
            lowering.call(spec, (source, part), node.name or joined)
