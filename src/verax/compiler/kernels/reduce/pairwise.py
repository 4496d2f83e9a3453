"""Sums of float64 in NumPy's order, which is what float64 promises.

Of axes reduced at the end of a row-major tensor, neighbors are added pairwise: up to 128 of them
in eight sums, which a fixed tree joins, with what is left behind them one by one; more are halved,
at a multiple of eight. What other axes hold is added in ascending order, beginning with +0.
Source: `pairwise_sum` in numpy/_core/src/umath/loops_utils.h.src of NumPy 2; axes of one element
are left out, as its iterator does.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator

import numpy as np

from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.arith import LlvmArith
from verax.compiler.kernels.llvm.builder import FunctionBuilder, Index, Kernel, ModuleBuilder
from verax.compiler.kernels.registry import emits
from verax.compiler.kernels.target import LANES
from verax.numerics.expr import Expr, evaluate

F64 = "float64"
SUMS, BLOCK = 8, 128
ITEMS = 64
"""Each has scratch memory of its own, if it is the first of its thread's."""
DEPTH = 64
"""Sums that wait for another: halving a number of elements ends before."""
UNROLLED = 4
"""Blocks with code of their own each; more of them are read from a table."""


def blocks(length: int) -> list[tuple[int, int, int]]:
    """(first element, element count, additions of partial sums after it) of each block of a
    pairwise sum over `length` neighbors."""
    if length <= BLOCK:
        return [(0, length, 0)]
    half = length // 2 - length // 2 % SUMS
    low, high = blocks(half), blocks(length - half)
    high = [(first + half, n, additions) for first, n, additions in high]
    first, n, additions = high[-1]
    return [*low, *high[:-1], (first, n, additions + 1)]


@dataclasses.dataclass(frozen=True)
class PairwiseSpec:
    """final(sum of element(x)) over some axes of a dense row-major tensor, of float64.

    shape: of x, none of it 1; reduced: which axes are. element: over Input(0), final: over Input(0)
    as the sum. Arguments: x, the blocks that a table is needed for (int64 [blocks, 3], `table`),
    scratch (`scratch_bytes`), y (dense, the other axes in order).
    """

    shape: tuple[int, ...]
    reduced: tuple[int, ...]
    element: Expr
    final: Expr

    def __str__(self) -> str:
        over = "x".join(str(self.shape[a]) for a in self.reduced) or "1"
        return f"{F64} pairwise sums over {over} of {'x'.join(map(str, self.shape)) or '1'}"

    @property
    def dtypes(self) -> tuple[str, ...]:
        return (F64,)

    @property
    def remaining_axes(self) -> tuple[int, ...]:
        return tuple(a for a in range(len(self.shape)) if a not in self.reduced)

    @property
    def behind(self) -> int:
        """The first of the axes that are reduced at the end."""
        first = len(self.shape)
        while first - 1 in self.reduced:
            first -= 1
        return first

    @property
    def length(self) -> int:
        """Neighbors that are added pairwise; 0 if the last axis is kept."""
        return math.prod(self.shape[self.behind :]) if self.behind < len(self.shape) else 0

    @property
    def strides(self) -> tuple[int, ...]:
        return tuple(math.prod(self.shape[a + 1 :]) for a in range(len(self.shape)))

    @property
    def rows(self) -> int:
        """Results, or rows of them where the last axis is kept."""
        axes = self.remaining_axes if self.length or not self.shape else self.remaining_axes[:-1]
        return math.prod(self.shape[a] for a in axes)

    @property
    def items(self) -> int:
        return min(self.rows, ITEMS)

    @property
    def table(self) -> np.ndarray:
        """First element, eights and joined sums of all blocks but the last."""
        all_blocks = blocks(max(1, self.length))
        if len(all_blocks) <= UNROLLED:
            return np.zeros((1, 3), np.int64)
        return np.array(
            [(first, n // SUMS, additions) for first, n, additions in all_blocks[:-1]], np.int64
        )

    @property
    def scratch_bytes(self) -> int:
        return self.items * DEPTH * 8


@emits(PairwiseSpec, dtypes=(F64,))
def emit_pairwise(module: ModuleBuilder, spec: PairwiseSpec) -> Kernel:
    """Items: some neighboring rows."""
    f = module.kernel(spec, 4, hint="pairwise")
    if f.kernel is not None:
        return f.kernel
    rows_per_item = -(-spec.rows // spec.items)
    stack = f.at(f.args[2], (f.begin, DEPTH), dtype=F64)
    with f.items() as item:
        start = f.clamp(f.imul(item.index, rows_per_item), 0, spec.rows)
        end = f.clamp(f.iadd(start, rows_per_item), 0, spec.rows)
        with f.loop(end, start=start) as row:
            _Row(f, spec, row.index, stack).emit()
    size = math.prod(spec.shape)
    return f.finish(
        spec.items, size, 8 * (size + math.prod(spec.shape[a] for a in spec.remaining_axes))
    )


class _Row:
    """A result, or the results along a last axis that is kept, being written."""

    def __init__(self, f: FunctionBuilder, spec: PairwiseSpec, row: Index, stack: ir.Value) -> None:
        self.f, self.b, self.spec, self.row, self.stack = f, f.b, spec, row, stack

    def emit(self) -> None:
        f, spec = self.f, self.spec
        axes = spec.remaining_axes if spec.length or not spec.shape else spec.remaining_axes[:-1]
        indices = f.split(self.row, *(spec.shape[a] for a in axes[1:])) if axes else []
        terms = [(i, spec.strides[a]) for i, a in zip(indices, axes)]
        x = f.at(f.args[0], *terms, dtype=F64)
        outer = [a for a in spec.reduced if a < spec.behind]
        if spec.length or not spec.shape:
            total = self._over(outer, x, 0, self._neighbors)
            f.store(self._final(total, 0), f.at(f.args[3], self.row, dtype=F64))
            return
        width = spec.shape[-1]
        y = f.at(f.args[3], (self.row, width), dtype=F64)
        for at, count in _vectors(f, width):
            load = lambda p, count=count: self._elements(p, LANES, count)  # noqa: E731
            total = self._final(self._over(outer, f.at(x, at, dtype=F64), LANES, load), LANES)
            to = f.at(y, at, dtype=F64)
            if count == LANES:
                f.store(total, to)
            else:
                f.store_first(total, to, count)

    def _over(
        self, axes: list[int], x: ir.Value, lanes: int, inner: Callable[[ir.Value], ir.Value]
    ) -> ir.Value:
        """`inner` over the axes, added to +0 in ascending order."""
        f = self.f

        def nest(left: list[int], pointer: ir.Value, total: ir.Value) -> ir.Value:
            if not left:
                return self.b.fadd(total, inner(pointer))
            with f.loop(self.spec.shape[left[0]], carry=[total]) as i:
                element = f.at(pointer, (i.index, self.spec.strides[left[0]]), dtype=F64)
                i.next([nest(left[1:], element, i.values[0])])
            return i.results[0]

        return nest(axes, x, f.constant(0.0, F64, lanes))

    # --- neighbors

    def _neighbors(self, x: ir.Value) -> ir.Value:
        f, b, spec = self.f, self.b, self.spec
        all_blocks = blocks(max(1, spec.length))
        if len(all_blocks) <= UNROLLED:
            waiting: list[ir.Value] = []
            for block_start, n, block_additions in all_blocks:
                waiting.append(self._block(f.at(x, block_start, dtype=F64), n // SUMS, n % SUMS))
                for _ in range(block_additions):
                    high = waiting.pop()
                    waiting.append(b.fadd(waiting.pop(), high))
            return waiting[0]
        with f.loop(len(all_blocks) - 1, carry=[f.i64(0)]) as i:
            first, eights, additions = (
                f.load(f.at(f.args[1], (i.index, 3), k, dtype="int64"), "int64", lanes=0)
                for k in range(3)
            )
            (depth,) = i.values
            total = self._block(f.at(x, first, dtype=F64), eights, 0)
            with f.loop(additions, carry=[depth, total]) as j:
                above = b.sub(j.values[0], f.i64(1))
                j.next([above, b.fadd(self._waiting(above), j.values[1])])
            depth, total = j.results
            f.store(total, f.at(self.stack, (depth, 1), dtype=F64))
            i.next([b.add(depth, f.i64(1))])
        begin, n, left = all_blocks[-1]
        total = self._block(f.at(x, begin, dtype=F64), n // SUMS, n % SUMS)
        for k in range(left):
            total = b.fadd(self._waiting(f.i64(left - 1 - k)), total)
        return total

    def _waiting(self, at: ir.Value) -> ir.Value:
        return self.f.load(self.f.at(self.stack, (at, 1), dtype=F64), F64, lanes=0)

    def _block(self, x: ir.Value, eights: Index, remainder: int) -> ir.Value:
        """Sum of 8 * eights + remainder neighbors from `x` on, at most 128."""
        f, b = self.f, self.b
        if isinstance(eights, int) and not eights:
            total, start = self._elements(x, 0), 1
        else:
            sums = self._elements(x, SUMS)
            if not isinstance(eights, int) or eights > 1:
                with f.loop(eights, start=1, carry=[sums]) as i:
                    more = self._elements(f.at(x, (i.index, SUMS), dtype=F64), SUMS)
                    i.next([b.fadd(i.values[0], more)])
                sums = i.results[0]
            for n in (4, 2, 1):
                even, odd = (f.shuffle(sums, range(k, 2 * n, 2)) for k in range(2))
                sums = b.fadd(even, odd)
            total, start = b.extract_element(sums, ir.Constant(ir.IntType(32), 0)), 0
        for k in range(start, remainder):
            total = b.fadd(total, self._elements(f.at(x, (eights, SUMS), k, dtype=F64), 0))
        return total

    def _elements(self, pointer: ir.Value, lanes: int, count: int = 0) -> ir.Value:
        """What is summed, of `lanes` neighbors or of the first `count` of them."""
        f = self.f
        if count and count < lanes:
            raw = f.load_first(pointer, count, F64, lanes)
        else:
            raw = f.load(pointer, F64, lanes)
        return evaluate(self.spec.element, LlvmArith(f, lanes), [raw])

    def _final(self, total: ir.Value, lanes: int) -> ir.Value:
        return evaluate(self.spec.final, LlvmArith(self.f, lanes), [total])


def _vectors(f: FunctionBuilder, extent: int) -> Iterator[tuple[Index, int]]:
    """(position, elements) of vectors; code goes where the iterator stands."""
    full, remainder = extent // LANES * LANES, extent % LANES
    if full:
        with f.loop(full, step=LANES) as loop:
            yield loop.index, LANES
    if remainder:
        yield full, remainder
