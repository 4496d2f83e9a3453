"""Products of bytes by weights of few bits, both with scales for blocks of the sums."""

from __future__ import annotations

import dataclasses
import hashlib
import math

import numpy as np

from verax.compiler.kernels.convolution.pack import direct_order
from verax.compiler.kernels.convolution.schedule import ConvSchedule
from verax.compiler.kernels.dtypes import contraction
from verax.compiler.kernels.products.block_scaled import (
    BlockProductSpec,
    BlockSumsSpec,
    pack_blocks,
)
from verax.compiler.kernels.products.gemm import GemmSpec, Matrix
from verax.compiler.kernels.sizes import static_size
from verax.compiler.kernels.target import LANES
from verax.compiler.place.lowering import Lowering
from verax.compiler.place.products.linear import fits, product_epilogue
from verax.compiler.place.storage import Placed, Pointer
from verax.compiler.plan.choice import Alternatives, Choice, NoKernel, Planning, plans
from verax.compiler.plan.fusion import Group
from verax.ir.graph import Node
from verax.ops.quantized.block_scaled import BlockScaledMatMul


def plan_blocks(planning: Planning, node: Node) -> Alternatives:
    """One alternative."""
    graph = planning.graph
    x, constants = graph.types[node.inputs[0] or ""], graph.constant_inputs(node)
    if 0 in x.shape:
        return NoKernel("there is nothing to multiply")
    if any(c is None for c, v in zip(constants[2:], node.inputs[2:]) if v is not None):
        return NoKernel("weights, scales or zero points are computed")
    if static_size(x.shape[-1]) % LANES:
        return NoKernel("a block has no whole vectors of 16")
    refused = planning.refused_types(graph.output_types(node), BlockProductSpec)
    choice = Choice("block-scaled product", takes_epilogue=True, spec=BlockProductSpec)
    return refused or (choice,)


@plans(BlockScaledMatMul, plan=plan_blocks, fits=fits)
def place_blocks(lowering: Lowering, group: Group, choice: Choice) -> None:
    """x, sums of its blocks, its scales, weights, operands, y."""
    graph, node = lowering.graph, group.root
    x, x_scale, *names = node.inputs
    arrays = [graph.constants[v] for v in names if v is not None]
    codes, scales, points = arrays[0], arrays[1], arrays[2] if len(arrays) > 2 else None
    *lead, count, size = graph.types[x or ""].shape
    count, size = static_size(count), static_size(size)
    rows, columns = math.prod(lead), codes.shape[1]
    shift, bits = _stored(codes, points)
    zeros = np.full(scales.shape, shift) if points is None else points.astype(int) + shift
    by_column = bool((zeros != zeros.flat[0]).any())
    types = contraction("float32", "float32", str(graph.types[group.output].dtype))
    k = count * size
    product = GemmSpec(rows, columns, k, Matrix(k, 1), Matrix(columns, 1), types=types)
    epilogue, values = product_epilogue(lowering, group, product)
    product = dataclasses.replace(product, epilogue=epilogue)
    spec = BlockProductSpec(product, size, bits, by_column)
    schedule = lowering.calls.schedule(spec)
    assert isinstance(schedule, ConvSchedule)
    data = lowering.values.read_contiguous(x or "")
    sums = lowering.values.scratch(4 * rows * count)
    factor = -1 if by_column else -int(zeros.flat[0])
    lowering.calls.call(
        BlockSumsSpec(rows * count, size, factor), [data, sums], f"{group.label}: sums of blocks"
    )

    def pack() -> np.ndarray:
        numbers = (codes.astype(np.int16) + shift).astype(np.uint8)
        # Data behind the last row meet weights that count as 0: the zero points.
        missing = np.repeat(zeros[-1:].astype(np.uint8), k - len(codes), axis=0)
        numbers = np.concatenate([numbers, missing])
        table = zeros.astype(np.uint8) if by_column else None
        return pack_blocks(numbers, scales, table, spec, schedule)

    parameters = hashlib.sha256(np.ascontiguousarray(scales).tobytes() + zeros.tobytes())
    order = direct_order(product.convolution(), schedule)
    packing = size, bits, by_column, order, parameters.hexdigest()
    weights = lowering.weights.packed_later(codes, packing, spec.nbytes, pack)
    x_scales = lowering.values.read_contiguous(x_scale or "")
    y = lowering.values.write(group.output, bordered=False)
    arguments: list[Pointer | Placed] = [data, sums, x_scales, weights, *values, y]
    lowering.calls.call(spec, arguments, group.label, schedule)


def _stored(codes: np.ndarray, points: np.ndarray | None) -> tuple[int, int]:
    """What makes weights, and the zero points with them, unsigned, and the bits that hold them."""
    arrays = [codes] if points is None else [codes, points]
    low, high = (
        min(int(a.min(initial=0)) for a in arrays),
        max(int(a.max(initial=0)) for a in arrays),
    )
    if codes.dtype == np.uint8:
        return 0, 4 if high < 16 else 8
    return (8, 4) if low >= -8 and high < 8 else (128, 8)
