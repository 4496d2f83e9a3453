"""Elementwise nodes fused behind a kernel that makes a blocked tensor: its epilogue."""

from __future__ import annotations

import numpy as np

from verax.compiler.kernels.convolution.pack import pack_channels
from verax.compiler.kernels.layout import Epilogue
from verax.compiler.kernels.layout import Operand as EpilogueOperand
from verax.compiler.place.lowering import Lowering
from verax.compiler.place.storage import Placed, Pointer
from verax.compiler.place.strides import kernel_strides
from verax.compiler.plan.bounded import Bounds, in_bounds
from verax.compiler.plan.expressions import chain_expr
from verax.compiler.plan.fusion import Group
from verax.compiler.plan.layouts import Layout
from verax.compiler.plan.ranges import range_of
from verax.numerics.expr import Apply, Expr, compose, substitute
from verax.numerics.formats import INTEGERS


def epilogue(
    lowering: Lowering, group: Group, sums: Expr | None = None, within: Bounds | None = None
) -> tuple[Epilogue | None, tuple[Pointer | Placed, ...]]:
    """The group's epilogue and the arguments of its operands; (None, ()) when nothing is fused.

    sums: the root's result as a conversion of the kernel's sums, where those have another type.
    within: what the kernel's sums of integers can be; by default nothing is made of it.
    """
    if not group.fused:
        return (None if sums is None else Epilogue(sums)), ()
    graph = lowering.graph
    accumulator = group.root.outputs[0]
    chain = chain_expr(graph, group.fused, [accumulator])
    epilogue_operands: list[EpilogueOperand] = []
    bounds: dict[int, Bounds] = {} if within is None else {0: within}
    arguments: list[Pointer | Placed] = []
    for operand in chain.operands[1:]:
        if isinstance(operand, str):
            placed = lowering.values.read(operand, Layout.blocked)
            dtype = str(placed.physical.type.dtype)
            epilogue_operands.append(
                EpilogueOperand("tensor", kernel_strides(placed.physical), dtype=dtype)
            )
            arguments.append(placed)
            if dtype in INTEGERS:
                bounds[len(epilogue_operands)] = range_of(graph, operand)
        else:
            channels = graph.types[accumulator].shape[1]
            full = np.broadcast_to(operand.reshape(-1), (channels,))
            epilogue_operands.append(EpilogueOperand("channel", dtype=full.dtype.name))
            arguments.append(lowering.weights.packed(pack_channels(full)))
            if full.size and np.isfinite(full).all():  # lanes without a channel hold zeros
                zero = full.dtype.type(0)
                bounds[len(epilogue_operands)] = min(full.min(), zero), max(full.max(), zero)
    expr = _of_sums(chain.expr, sums)
    return Epilogue(
        expr if within is None else in_bounds(expr, bounds), tuple(epilogue_operands)
    ), tuple(arguments)


def _of_sums(expr: Expr, sums: Expr | None) -> Expr:
    """`expr` over the kernel's sums. Whole numbers summed as floats and wanted so stay so."""
    if sums is None:
        return expr
    expr, (source,) = compose(expr, {0: sums}), sums.args
    return substitute(expr, {Apply("convert", [sums], source.dtype): source})
