"""Blocks of 16 filters of which a tensor has fewer: the last one without the lanes that no filter
has, while a tile is computed. In memory blocks are whole; lanes beyond the filters may be anything.
"""

from __future__ import annotations

from typing import Any

from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import FunctionBuilder
from verax.compiler.kernels.target import LANES


def computed(f: FunctionBuilder, vectors: list[Any], blocks: int, spare: int) -> list[Any]:
    """Vectors of 16 lanes, `blocks` for each pixel: the last of them without its `spare` lanes."""
    if not spare:
        return vectors
    return [
        v if i % blocks < blocks - 1 else f.shuffle(v, range(LANES - spare))
        for i, v in enumerate(vectors)
    ]


def widened_blocks(
    f: FunctionBuilder, vectors: list[ir.Value], blocks: int, spare: int
) -> list[ir.Value]:
    """What `computed` made narrow in 16 lanes again, the spare ones 0."""
    if not spare:
        return vectors
    count = LANES - spare
    lanes = ir.Constant(f.vector_type("int32"), [*range(count), *[count] * spare])
    return [
        v if i % blocks < blocks - 1 else f.b.shuffle_vector(v, ir.Constant(v.type, None), lanes)
        for i, v in enumerate(vectors)
    ]
