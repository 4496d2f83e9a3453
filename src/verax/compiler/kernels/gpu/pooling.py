"""`PoolSpec` on a GPU: a thread computes one output of a block of 16 channels."""

from __future__ import annotations

import math

from verax.compiler.kernels.convolution.pooling import (
    KNOWN,
    PoolSpec,
    emit_pool,
    emit_tile,
    run_at,
    with_known_channels,
)
from verax.compiler.kernels.llvm.builder import Kernel, ModuleBuilder
from verax.compiler.kernels.registry import emits
from verax.compiler.kernels.target import LANES


@emits(PoolSpec, dtypes=KNOWN, target="gpu", settle=with_known_channels)
def emit_pool_by_output(module: ModuleBuilder, spec: PoolSpec) -> Kernel:
    """The kernel of `spec`. args: as those of the CPU's kernel (`convolution.pooling`), which means
    of integers have: their divisors are known numbers."""
    if spec.kind == "rounded":
        return emit_pool(module, spec)
    operands = spec.epilogue.operands if spec.epilogue else ()
    f = module.kernel(("pool", spec), 2 + len(operands))
    if f.kernel is not None:
        return f.kernel
    blocks = -(-spec.channels // LANES)
    with f.items() as item:
        n, block, *position = f.split(item.index, blocks, *spec.output)
        depth, row, column = position
        runs = tuple(run_at(f, spec, axis, at) for axis, at in enumerate(position))
        emit_tile(f, spec, (n, block), (depth, row, column), (runs[0], runs[1], runs[2]), 1)
    outputs = math.prod(spec.output)
    elements = spec.batch * spec.channels * (math.prod(spec.size) + outputs)
    flops = spec.batch * spec.channels * outputs * math.prod(spec.kernel)
    return f.finish(spec.batch * blocks * outputs, flops, 4 * elements)
