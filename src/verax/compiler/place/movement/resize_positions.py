"""Resize along an axis of open size: neighbors and weights are computed when the program runs.

The source coordinate of output i is an exact fraction (slope * i + start) / divisor of whole
numbers, which are sizes. What its floor is and what remains are integers, and a weight is the
quotient of two integers, rounded once: what `ops.images.resize_tables` gives with fractions.
"""

from __future__ import annotations

import dataclasses
from fractions import Fraction

from verax.compiler.kernels.llvm.builder import ELEMENT_SIZES
from verax.compiler.kernels.loops.loop import Access, LoopSpec
from verax.compiler.kernels.sizes import Size, maximum, minimum
from verax.compiler.place.lowering import Lowering
from verax.compiler.place.movement.positions import iota
from verax.compiler.place.storage import Pointer
from verax.numerics.expr import Expr, Input, TracingArith
from verax.ops.images.resize import Resize

M = TracingArith()
LONG = "int64"
LARGEST_TERM = 1 << 16
"""Of a scale as a fraction: products with sizes stay whole numbers of 53 bits."""


@dataclasses.dataclass(frozen=True)
class OpenTable:
    """How one axis is resampled, as `AxisTable`: one tap where `nearest_mode` is given, else two
    with weights of type `computed`. slope, start, divisor: of the source coordinate."""

    in_size: Size
    out_size: Size
    slope: Size
    start: Size
    divisor: Size
    nearest_mode: str
    computed: str

    @property
    def taps(self) -> int:
        return 1 if self.nearest_mode else 2

    def emit_calls(self, lowering: Lowering, label: str) -> tuple[list[Pointer], list[Pointer]]:
        """Positions (int32) of every tap, and weights."""
        positions, weights = self._expressions()
        room = [lowering.values.scratch(4 * self.out_size) for _ in positions]
        wide = ELEMENT_SIZES[self.computed]
        weight_room = [lowering.values.scratch(wide * self.out_size) for _ in weights]
        expressions = [*positions, *weights]
        spec = LoopSpec(
            (self.out_size,), (Access(LONG, (1,)),),
            tuple(Access(e.dtype, (1,)) for e in expressions), tuple(expressions),
        )  # fmt: skip
        numbers = iota(lowering, self.out_size, label, LONG)
        lowering.calls.call(spec, [numbers, *room, *weight_room], f"{label}: neighbors")
        return room, weight_room

    def _expressions(self) -> tuple[list[Expr], list[Expr]]:
        """Over the number of an output, input 0."""
        divisor, last = M.const(self.divisor, LONG), M.const(self.in_size - 1, LONG)  # type: ignore[arg-type]
        slope, start = M.const(self.slope, LONG), M.const(self.start, LONG)  # type: ignore[arg-type]
        above = M.add(M.mul(Input(0, LONG), slope), start)

        def clamped(position: Expr) -> Expr:
            return M.convert(M.max(M.min(position, last), M.const(0, LONG)), "int32")

        if self.nearest_mode:
            return [clamped(_rounded(above, divisor, self.nearest_mode))], []
        base = _floor(above, divisor)
        remainder = M.sub(above, M.mul(base, divisor))
        shares = (M.sub(divisor, remainder), remainder)
        denominator = M.convert(divisor, "float64")
        weights = [M.div(M.convert(s, "float64"), denominator) for s in shares]
        if self.computed != "float64":
            weights = [M.convert(w, self.computed) for w in weights]
        return [clamped(base), clamped(M.add(base, M.const(1, LONG)))], weights


def _floor(above: Expr, divisor: Expr) -> Expr:
    """Their quotient rounded down; the divisor is positive."""
    quotient = M.div(above, divisor)
    is_below = M.lt(above, M.mul(quotient, divisor))
    return M.sub(quotient, M.convert(is_below, LONG))


def _ceil(above: Expr, divisor: Expr) -> Expr:
    return M.neg(_floor(M.neg(above), divisor))


def _rounded(above: Expr, divisor: Expr, nearest_mode: str) -> Expr:
    """As `resize_tables.nearest_index`."""
    if nearest_mode == "floor":
        return _floor(above, divisor)
    if nearest_mode == "ceil":
        return _ceil(above, divisor)
    numerator, doubled = M.add(above, above), M.add(divisor, divisor)
    if nearest_mode == "round_prefer_floor":
        return _ceil(M.sub(numerator, divisor), doubled)
    return _floor(M.add(numerator, divisor), doubled)


def open_table(
    op: Resize, in_size: Size, out_size: Size, scale: Fraction | None, computed: str
) -> OpenTable | None:
    """The table of an axis, of which some size is open; None where whole numbers do not tell it.

    scale: None where the output's size is given.
    """
    line = coordinates(op.coordinate_transformation_mode, in_size, out_size, scale)
    smooths = op.mode != "nearest" and (op.antialias or op.exclude_outside)
    if line is None or smooths or op.mode == "cubic":
        return None
    nearest_mode = op.nearest_mode if op.mode == "nearest" else ""
    return OpenTable(in_size, out_size, *line, nearest_mode, computed)


def coordinates(
    transform: str, in_size: Size, out_size: Size, scale: Fraction | None
) -> tuple[Size, Size, Size] | None:
    """(slope, start, divisor), as `resize_tables.source_coordinates` has coordinates."""
    # The scale is above / below.
    above, below = (out_size, in_size) if scale is None else (scale.numerator, scale.denominator)
    if scale is not None and max(scale.numerator, scale.denominator) > LARGEST_TERM:
        return None
    if transform == "asymmetric":
        return below, 0, above
    # Of one output only the start matters, and it is 0 in these two.
    if transform == "align_corners":
        if scale is None:
            return in_size - 1, 0, maximum(1, out_size - 1)
        return (in_size - 1) * below, 0, maximum(1, in_size * above - below)
    if transform == "pytorch_half_pixel":
        return 2 * below, (below - above) * minimum(1, out_size - 1), 2 * above
    if transform == "half_pixel":
        return 2 * below, below - above, 2 * above
    if transform == "half_pixel_symmetric":
        middle = 0 if scale is None else in_size * above - out_size * below
        return 2 * below, middle + below - above, 2 * above
    return None
