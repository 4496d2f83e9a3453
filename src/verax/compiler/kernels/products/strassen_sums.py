"""The sums of quarters of the left factor that Strassen's product begins with, as reductions."""

from __future__ import annotations

import functools

from verax.compiler.kernels.loops.spec import Access
from verax.compiler.kernels.products.strassen_spec import F32, StrassenSpec
from verax.compiler.kernels.reduce.spec import ReduceSpec, Stage
from verax.compiler.kernels.sizes import Size
from verax.compiler.kernels.target import LANES
from verax.ir.dim import same
from verax.numerics import power_of_two, strassen
from verax.numerics.expr import Const, Expr, Input, TracingArith


@functools.lru_cache(maxsize=256)
def left_sums(spec: StrassenSpec) -> tuple[ReduceSpec, ...]:
    """What scales rows of a and adds up its quarters: arguments a for each quarter that is read,
    the scales of the rows for each half that is, then the sums once for each product. The last
    upper row of an odd number stands above a row of zeros."""
    half, (row, block, right) = spec.k // 2, spec.steps
    down = spec.upper * row
    starts = (0, right, down, down + right)
    m, size = TracingArith(), spec.upper * half
    # Rows of 16 terms, a block at a time, or whole rows.
    reduced = (half // LANES, LANES) if spec.image else (half,)
    sum_row, sum_block = spec.sum_steps

    def access(from_row: Size, from_block: Size, offset: Size) -> Access:
        return Access(F32, (from_row, *((from_block,) if spec.image else ()), 1), offset)

    def kernel(first: Size, rows: Size, row_halves: int) -> ReduceSpec:
        count = 2 * row_halves
        quarters = [Input(i, F32) for i in range(count)]
        sizes = [power_of_two.magnitude(m, q) for q in quarters]
        stages = tuple(
            Stage("max", m.max(*sizes[2 * h : 2 * h + 2]),
                  power_of_two.inverse_scale(m, Input(count + h, "int32")))
            for h in range(row_halves)
        )  # fmt: skip
        inverse = [Input(count + h, F32) for h in range(row_halves)]
        scaled_quarters: list[Expr] = [
            power_of_two.scaled(m, q, inverse[i // 2]) for i, q in enumerate(quarters)
        ]
        scaled_quarters += [Const(0.0, F32)] * (len(strassen.QUARTERS) - count)
        return ReduceSpec(
            (rows,), reduced,
            tuple(access(row, block, start + first * row) for start in starts[:count]),
            stages,
            tuple(
                (Access(F32, (1,), h * spec.upper + first), power_of_two.scale(m, inverse[h]))
                for h in range(row_halves)
            ),
            tuple(
                (access(sum_row, sum_block, p * size + first * sum_row),
                 strassen.left_factor(m, p, scaled_quarters))
                for p in range(strassen.PRODUCTS)
            ),
        )  # fmt: skip

    single = spec.upper - spec.lower  # one row, or none; of an open number known when it runs
    specs = [kernel(0, spec.lower, 2)] if not same(spec.lower, 0) else []
    if not same(single, 0):
        specs.append(kernel(spec.lower, single, 1))
    return tuple(specs)
