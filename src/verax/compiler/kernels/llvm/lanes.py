"""What the lanes of a vector come to together, and the blocks of a long sum."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.arith import LlvmArith
from verax.compiler.kernels.llvm.builder import I32, FunctionBuilder, Index
from verax.compiler.kernels.sizes import Size, minimum
from verax.compiler.kernels.target import LANES
from verax.numerics.reductions import BLOCK, add_block, sum_of_blocks

Join = Callable[[ir.Value, ir.Value], ir.Value]


def joined_lanes(f: FunctionBuilder, value: ir.Value, join: Join) -> ir.Value:
    """Sixteen lanes joined two by two, in the order of `numerics.reductions`; in every lane."""
    for distance in (8, 4, 2, 1):
        lanes = [(distance + j) % LANES for j in range(LANES)]
        value = join(value, f.shuffle(value, lanes))
    return f.shuffle(value, [0] * LANES)


def joined_rows(f: FunctionBuilder, values: Sequence[ir.Value], join: Join) -> ir.Value:
    """The same of each of `values`, up to 8 and a power of two of them, as a vector of a lane for
    each; of one as a scalar. `join` takes vectors of any number of lanes, and scalars."""
    bits = len(values).bit_length() - 1
    reverse = [sum((i >> k & 1) << (bits - 1 - k) for k in range(bits)) for i in range(1 << bits)]
    left = [values[i] for i in reverse]  # pairs are interleaved, after which rows are in order
    rows, width = 1, LANES
    while width > 1:
        half, size = width // 2, rows * width
        paired = len(left) > 1 and width < LANES  # the halves of 16 lanes need no shuffle
        operands = zip(left[::2], left[1::2]) if paired else zip(left, left)
        first = [at for k in range(0, size, width) for at in ((k, size + k) if paired else (k,))]
        low = [k + j for k in first for j in range(half)]
        high = [k + half for k in low]
        left = [
            join(_select_lanes(f, a, b, low), _select_lanes(f, a, b, high)) for a, b in operands
        ]
        rows, width = len(low) // half, half
    return left[0]


def _select_lanes(f: FunctionBuilder, a: ir.Value, b: ir.Value, lanes: Sequence[int]) -> ir.Value:
    """Lanes of a and, behind them, of b; one lane as a scalar."""
    if len(lanes) == 1:
        return f.b.extract_element(a, ir.Constant(I32, lanes[0]))
    return f.b.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, len(lanes)), list(lanes)))


def sum_of_floats(
    f: FunctionBuilder, dtype: str, length: Size, elements: Callable[[Index], ir.Value]
) -> ir.Value:
    """A sum in the order of `numerics.reductions`, in every lane; `elements(k)` are sixteen from k
    on, a multiple of sixteen."""
    m, zero = LlvmArith(f), f.constant(0.0, dtype)

    def block(first: Index, size: Size) -> ir.Value:
        """Two vectors of sums, which change places each time that sixteen are added."""
        full, remainder = divmod(size, LANES)
        sums = [zero, zero]
        if full != 0:
            with f.loop(full, carry=sums) as loop:
                e = elements(f.iadd(first, f.imul(loop.index, LANES)))
                loop.next([loop.values[1], f.b.fadd(loop.values[0], e)])
            sums = list(loop.results)
        if remainder != 0:
            with f.loop(minimum(1, remainder), carry=[sums[0]]) as last:
                e = elements(f.iadd(first, full * LANES))
                used = f.b.select(f.first(remainder), e, zero)
                last.next([f.b.fadd(last.values[0], used)])
            sums[0] = last.results[0]
        return joined_lanes(f, f.b.fadd(*sums), f.b.fadd)

    def add(state: Sequence[ir.Value], more: ir.Value) -> list[ir.Value]:
        operands = (m.bind(value, dtype) for value in (*state, more))
        return [m.unbind(operand) for operand in add_block(m, *operands)]

    if isinstance(length, int) and length <= BLOCK:
        return block(0, length)  # of as many, blocks give the same: 0 + x, and nothing is lost
    full, remainder = length // BLOCK * BLOCK, length % BLOCK
    with f.loop(full, step=BLOCK, carry=[zero, zero]) as loop:
        loop.next(add(loop.values, block(loop.index, BLOCK)))
    state = list(loop.results)
    if remainder != 0:
        state = add(state, block(full, remainder))
    return m.unbind(sum_of_blocks(m, *(m.bind(value, dtype) for value in state)))
