"""Whole blocks of channels that Split and Slice take out of a blocked value, as views of it."""

from __future__ import annotations

from verax.compiler.place.lowering import Lowering
from verax.compiler.plan.layouts import Layout
from verax.compiler.plan.shared_blocks import pieces_of
from verax.ir.graph import Node


def cut_blocks(lowering: Lowering, node: Node) -> bool:
    """True if the outputs are pieces of the input; they are placed there."""
    pieces = pieces_of(lowering.values.layouts, node)
    if pieces:
        source = lowering.values.read(node.inputs[0] or "", Layout.blocked)
        for value, first in pieces:
            lowering.values.placed[value] = [source.blocks(lowering.graph.types[value], first)]
    return bool(pieces)
