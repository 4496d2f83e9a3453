"""Weights and biases of convolutions as their kernels read them: packed ahead where they are
constants, by loops inside the program where they are computed."""

from __future__ import annotations

import numpy as np

from verax.compiler.kernels.convolution.emit import is_direct, pack_conv_weights
from verax.compiler.kernels.convolution.moves import Move, weight_moves
from verax.compiler.kernels.convolution.pack import direct_elements, direct_order, pack_channels
from verax.compiler.kernels.convolution.schedule import ConvSchedule
from verax.compiler.kernels.convolution.spec import ConvSpec
from verax.compiler.kernels.llvm.builder import ELEMENT_SIZES
from verax.compiler.kernels.loops.loop import Access, LoopSpec
from verax.compiler.place.lowering import Lowering
from verax.compiler.place.storage import LANES, Physical, Placed, Pointer
from verax.numerics.expr import Const, Input


def packed_weights(
    lowering: Lowering, value: str, spec: ConvSpec, schedule: ConvSchedule, label: str
) -> Pointer:
    """The weights `value` for the kernel of `spec` with `schedule`."""
    constant = lowering.graph.constants.get(value)
    if constant is not None:
        weights = np.asarray(constant)
        if not is_direct(spec):
            return lowering.weights.packed(pack_conv_weights(weights, spec, schedule))
        nbytes = direct_elements(spec, schedule) * ELEMENT_SIZES[spec.types.weights]

        def pack() -> np.ndarray:
            return pack_conv_weights(weights, spec, schedule)

        return lowering.weights.packed_later(weights, direct_order(spec, schedule), nbytes, pack)
    layout_moves, kind = weight_moves(spec, schedule), str(lowering.graph.types[value].dtype)
    source: Pointer | Placed = lowering.values.read_contiguous(value)
    if layout_moves.regrouped is not None:
        grouped = lowering.values.scratch(Physical(lowering.graph.types[value]).nbytes)
        _move(lowering, layout_moves.regrouped, source, grouped, kind, f"{label}: filters by group")
        source = grouped
    target = lowering.values.scratch(ELEMENT_SIZES[kind] * layout_moves.elements)
    if layout_moves.gaps:
        _zeros(lowering, target, layout_moves.elements, kind, label)
    for move in layout_moves.moves:
        _move(lowering, move, source, target, kind, f"{label}: pack weights")
    return target


def packed_bias(lowering: Lowering, value: str, label: str) -> Pointer:
    """One number per filter, with zeros up to a whole block."""
    constant = lowering.graph.constants.get(value)
    if constant is not None:
        return lowering.weights.packed(pack_channels(constant))
    (count,) = lowering.graph.types[value].shape
    padded_count = -(-count // LANES) * LANES
    kind = str(lowering.graph.types[value].dtype)
    target = lowering.values.scratch(ELEMENT_SIZES[kind] * padded_count)
    if padded_count != count:
        _zeros(lowering, target, padded_count, kind, label)
    source = lowering.values.read_contiguous(value)
    _move(lowering, Move((count,), (1,), 0, (1,), 0), source, target, kind, f"{label}: pack bias")
    return target


def _move(
    lowering: Lowering,
    move: Move,
    source: Pointer | Placed,
    target: Pointer,
    kind: str,
    label: str,
) -> None:
    read = Access(kind, move.read, move.first)
    written = Access(kind, move.written, move.start)
    loop = LoopSpec(move.dims, (read,), (written,), (Input(0, kind),))
    lowering.calls.call(loop, [source, target], label)


def _zeros(lowering: Lowering, target: Pointer, elements: int, kind: str, label: str) -> None:
    loop = LoopSpec((elements,), (), (Access(kind, (1,)),), (Const(0.0, kind),))
    lowering.calls.call(loop, [target], f"{label}: zeros around what is packed")
