"""What the lanes of a vector come to together, and the blocks of a long sum."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.arith import LlvmArith
from verax.compiler.kernels.llvm.builder import I32, FunctionBuilder, Index
from verax.compiler.kernels.target import LANES
from verax.numerics.reductions import BLOCK, add_block, sum_of_blocks

Join = Callable[[ir.Value, ir.Value], ir.Value]


def joined_lanes(f: FunctionBuilder, value: ir.Value, join: Join) -> ir.Value:
    """Sixteen lanes joined two by two, in the order of `numerics.reductions`; in every lane."""
    for distance in (8, 4, 2, 1):
        lanes = [(distance + j) % LANES for j in range(LANES)]
        value = join(value, f.shuffle(value, lanes))
    return f.shuffle(value, [0] * LANES)


def joined_lane(f: FunctionBuilder, value: ir.Value, join: Join) -> ir.Value:
    """The same as a scalar, of ever fewer lanes: `join` takes vectors of 8, 4 and 2 of them, and
    scalars in the end."""
    for width in (8, 4, 2):
        low, high = (f.shuffle(value, range(i, i + width)) for i in (0, width))
        value = join(low, high)
    return join(*(f.b.extract_element(value, ir.Constant(I32, i)) for i in range(2)))


def sum_of_floats(
    f: FunctionBuilder, dtype: str, length: int, elements: Callable[[Index], ir.Value]
) -> ir.Value:
    """A sum in the order of `numerics.reductions`, in every lane; `elements(k)` are sixteen from k
    on, a multiple of sixteen."""
    m, zero = LlvmArith(f), f.constant(0.0, dtype)

    def block(first: Index, size: int) -> ir.Value:
        """Two vectors of sums, which change places each time that sixteen are added."""
        full, rest = divmod(size, LANES)
        sums = [zero, zero]
        if full:
            with f.loop(full, carry=sums) as loop:
                e = elements(f.iadd(first, f.imul(loop.index, LANES)))
                loop.next([loop.values[1], f.b.fadd(loop.values[0], e)])
            sums = list(loop.results)
        if rest:
            e = elements(f.iadd(first, full * LANES))
            sums[0] = f.b.fadd(sums[0], f.b.select(f.first(rest), e, zero))
        return joined_lanes(f, f.b.fadd(*sums), f.b.fadd)

    def add(state: Sequence[ir.Value], more: ir.Value) -> list[ir.Value]:
        parts = (m.bind(value, dtype) for value in (*state, more))
        return [m.unbind(part) for part in add_block(m, *parts)]

    if length <= BLOCK:
        return block(0, length)
    full, rest = length // BLOCK * BLOCK, length % BLOCK
    with f.loop(full, step=BLOCK, carry=[zero, zero]) as loop:
        loop.next(add(loop.values, block(loop.index, BLOCK)))
    state = list(loop.results)
    if rest:
        state = add(state, block(full, rest))
    return m.unbind(sum_of_blocks(m, *(m.bind(value, dtype) for value in state)))
