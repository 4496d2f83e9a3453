"""Sums of integers on a GPU: neighboring channels that fill 32 bits are one term, four of bytes by
bytes (dp4a) or two of 16 bits.

Seen so, data and weights lie as those of float32 do, but that a block of 16 channels has four or
eight terms: the same tiles and copies serve all. Sums of integers are exact in any order.
"""

from __future__ import annotations

import dataclasses

from verax.compiler.kernels.convolution.spec import ConvSpec
from verax.compiler.kernels.gpu.staging import is_multiple
from verax.compiler.kernels.layout import Strides
from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import FunctionBuilder
from verax.compiler.kernels.products.steps import add_quads
from verax.compiler.kernels.sizes import ceil_div

FACTORS = (("uint8", "int8"), ("int16", "int16"))
"""Types of data and weights that fill words."""


def come_in_words(spec: ConvSpec) -> bool:
    """Whether it is a sum of such factors, whose words lie at multiples of their channels."""
    x, types = spec.x, spec.types
    return (
        (types.x, types.weights) in FACTORS
        and types.sum == "int32"
        and not spec.paired
        and x.lane == 1
        and all(is_multiple(s, spec.step) for s in (x.batch, x.block, *x.space))
        and spec.weight_strides == (0, 0)
        and isinstance(spec.channels, int)
    )


def in_words(spec: ConvSpec) -> ConvSpec:
    """The same in terms of 32 bits: `channels` and the strides of x count these. Specs of other
    types are as they are."""
    if (spec.types.x, spec.types.weights) not in FACTORS:
        return spec
    x, step = spec.x, spec.step
    batch, block, depth, row, pixel = (size // step for size in (x.batch, x.block, *x.space))
    channels = ceil_div(spec.group_channels, step) * spec.groups
    return dataclasses.replace(spec, channels=channels, x=Strides(batch, block, depth, row, pixel))


def add_words(f: FunctionBuilder, step: int, x: ir.Value, w: ir.Value, total: ir.Value) -> ir.Value:
    """`total` and the products of the `step` channels that words of x and of weights have, in every
    lane of vectors of int32."""
    if step == 4:
        return add_quads(f, x, w, total)
    b, kind = f.b, total.type
    sixteen = ir.Constant(kind, [16] * kind.count)
    for upper in (False, True):
        first, second = (b.ashr(v if upper else b.shl(v, sixteen), sixteen) for v in (x, w))
        total = b.add(total, b.mul(first, second))
    return total
