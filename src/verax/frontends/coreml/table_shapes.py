"""CoreML layers whose result has the shape of another tensor or of computed sizes; bands of
matrices, constant padding, ranges, logic."""

from __future__ import annotations

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.context import MAX_MADE, Conversion, Result
from verax.frontends.coreml.rows import row, sizes_of


@row("getShape")
def get_shape(c: Conversion) -> Result:
    return c.result("Cast", [c.add("Shape", [c.required(0)])], to="float32")


def _shape_input(c: Conversion, position: int) -> str:
    """The sizes that an input holds as numbers."""
    value = c.known(position)
    if value is not None and value.dtype != object:
        return c.ints([int(v) for v in value.ravel()])
    return c.add("Cast", [c.required(position)], to="int64")


@row("reshapeLike")
def reshape_like(c: Conversion) -> Result:
    return c.result("Reshape", [c.required(0), c.add("Shape", [c.required(1)])])


@row("reshapeDynamic")
def reshape_dynamic(c: Conversion) -> Result:
    return c.result("Reshape", [c.required(0), _shape_input(c, 1)])


@row("broadcastToLike")
def broadcast_to_like(c: Conversion) -> Result:
    found = c.result("Expand", [c.required(0), c.add("Shape", [c.required(1)])])
    if c.builder.types[found[0]].dims != c.type(1).dims:
        raise ModelError(f"{c.type(0)} does not broadcast to {c.type(1)}", place=c.node.place)
    return found


@row("broadcastToDynamic")
def broadcast_to_dynamic(c: Conversion) -> Result:
    return c.result("Expand", [c.required(0), _shape_input(c, 1)])


@row("fillLike")
def fill_like(c: Conversion) -> Result:
    value = c.constant(c.number("value", 0.0), np.float32)
    return c.result("Expand", [value, c.add("Shape", [c.required(0)])])


@row("fillDynamic")
def fill_dynamic(c: Conversion) -> Result:
    value = c.constant(c.number("value", 0.0), np.float32)
    return c.result("Expand", [value, _shape_input(c, 0)])


@row("rangeStatic")
def range_static(c: Conversion) -> Result:
    names = ("startValue", "endValue", "stepSizeValue")
    start, end, step = (c.number(n, 0.0) for n in names)
    count = int(np.ceil((end - start) / step)) if step else 0
    if not 0 < count <= MAX_MADE:
        raise ModelError(f"a range from {start} to {end} by {step}", place=c.node.place)
    return c.named_constant((start + np.arange(count) * step).astype(np.float32))


@row("rangeDynamic")
def range_dynamic(c: Conversion) -> Result:
    """Inputs are the end and, if present, the start and the step."""
    parts = []
    for position, name in ((1, "startValue"), (0, ""), (2, "stepSizeValue")):
        if c.input(position) is not None:
            if name:
                c.attributes.irrelevant(name, "an input gives it")
            parts.append(c.add("Reshape", [c.required(position), c.ints(())]))
        else:
            parts.append(c.constant(c.number(name, 0.0), np.float32))
    return c.result("Range", parts)


@row("constantPad")
def constant_pad(c: Conversion) -> Result:
    """Amounts (b0, e0, b1, e1, ...), or the sizes to reach, at one end of each axis."""
    a, rank = c.attributes, c.rank()
    value = c.like(a.number("value", 0.0))
    flat = a.integers("padAmounts", ())
    if len(c.inputs) == 2:
        flat = tuple(int(v) for v in c.constant_input(1, "the padding").ravel())
    if len(flat) != 2 * rank or min(flat, default=0) < 0:
        raise ModelError(f"padAmounts {flat} for {rank} axes", place=c.node.place)
    begins, ends = list(flat[::2]), list(flat[1::2])
    if a.flag("padToGivenOutputSizeMode"):
        for i, size in enumerate(sizes_of(c, 0, range(rank), "the padding")):
            if begins[i] and ends[i]:
                raise ModelError(f"padAmounts {flat}: two sizes of an axis", place=c.node.place)
            begins[i], ends[i] = (max(0, n - size) if n else 0 for n in (begins[i], ends[i]))
    return c.result("Pad", [c.required(0), c.ints([*begins, *ends]), value], mode="constant")


@row("lowerTriangular")
def lower_triangular(c: Conversion) -> Result:
    k = c.constant(c.integer("k", 0), np.int64)
    return c.result("Trilu", [c.required(0), k], upper=False)


@row("upperTriangular")
def upper_triangular(c: Conversion) -> Result:
    k = c.constant(c.integer("k", 0), np.int64)
    return c.result("Trilu", [c.required(0), k], upper=True)


@row("matrixBandPart")
def matrix_band_part(c: Conversion) -> Result:
    lower, upper = (c.integer(n, 0) for n in ("numLower", "numUpper"))
    return c.result("Identity", [band(c, c.required(0), lower, upper)])


def band(c: Conversion, x: str, lower: int, upper: int) -> str:
    """x with zeros further than `lower` below and `upper` above the diagonal; negative: no end."""
    if lower >= 0:
        x = c.add("Trilu", [x, c.constant(-lower, np.int64)], upper=True)
    if upper >= 0:
        x = c.add("Trilu", [x, c.constant(upper, np.int64)], upper=False)
    return x


@row("sequenceRepeat")
def sequence_repeat(c: Conversion) -> Result:
    """The axis before [batch, channel, height, width], repeated as a whole."""
    rank = c.rank()
    if rank < 5:
        c.refuse(f"{c.type(0)} has no sequence")
    reps = [1] * rank
    reps[rank - 5] = c.integer("nRepetitions", 0) or 1
    return c.result("Tile", [c.required(0), c.ints(reps)])


def _logic(name: str, kind: str) -> None:
    """A layer on truth values, which are 1.0 and 0.0."""

    def convert(c: Conversion) -> Result:
        flags = [c.add("Cast", [c.required(i)], to="bool") for i in range(len(c.inputs))]
        return c.result("Cast", [c.add(kind, flags)], to="float32")

    row(name)(convert)


for _name in ("Or", "Xor", "And", "Not"):
    _logic(f"logical{_name}", _name)


@row("floorDivBroadcastable")
def floor_div(c: Conversion) -> Result:
    return c.result("Floor", [c.add("Div", [c.required(0), c.required(1)])])


@row("modBroadcastable")
def mod(c: Conversion) -> Result:
    return c.result("Mod", [c.required(0), c.required(1)])
