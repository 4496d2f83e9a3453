"""Concatenation of channels in the blocked layout: whole blocks lie one after the other.

Where there is one image a part of the result is a piece of memory like any other value, and what
nobody else reads is made there by its own kernel (`pieces`); all else is copied.
"""

from __future__ import annotations

import dataclasses

from verax.compiler.place.copies import copies
from verax.compiler.place.lowering import Lowering
from verax.compiler.place.storage import LANES
from verax.compiler.plan.layouts import Layout, can_block
from verax.ir.graph import Graph, Node


def concatenates_blocks(graph: Graph, node: Node) -> bool:
    """True for channels of inputs that fill their blocks, but for the last."""
    output = graph.types[node.outputs[0]]
    if not can_block(output) or node.op.attributes()["axis"] % output.rank != 1:
        return False
    channels = [graph.types[v or ""].dims[1] for v in node.inputs[:-1]]
    return all(isinstance(n, int) and n % LANES == 0 for n in channels)


def concatenate_blocks(lowering: Lowering, node: Node) -> None:
    """A copy of each input that is not in its place already."""
    result, first = node.outputs[0], 0
    target = lowering.values.write(result, Layout.blocked)
    for value in node.inputs:
        assert value is not None
        source = lowering.values.read(value, Layout.blocked)
        slot = target.blocks(source.physical.type, first)
        first += source.physical.blocks
        if (source.buffer, source.byte_offset) == (slot.buffer, slot.byte_offset):
            continue
        for spec in copies(source.physical, slot.physical):
            (out,) = spec.outputs
            output = dataclasses.replace(
                out, strides=(target.physical.strides[0], *out.strides[1:])
            )
            spec = dataclasses.replace(spec, outputs=(output,))
            lowering.calls.call(spec, (source, slot), node.name or result)
