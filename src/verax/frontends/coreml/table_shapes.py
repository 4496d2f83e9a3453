"""CoreML layers whose result has the shape of another tensor or of computed sizes; bands of
matrices, constant padding, ranges, logic."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.context import MAX_MADE, Conversion, Result
from verax.frontends.common.table import integer
from verax.frontends.coreml.mil_rows import layer
from verax.frontends.coreml.rows import row

layer("getShape", "shape", output_dtype="float32")
layer("matrixBandPart", "band_part", lower=integer(0, "numLower"), upper=integer(0, "numUpper"))


def _stated(c: Conversion, position: int) -> str:
    return c.ints(c.integers("targetShape", ()))


def _shape_of(c: Conversion, position: int) -> str:
    return c.add("Shape", [c.required(position)])


def _computed(c: Conversion, position: int) -> str:
    """The sizes that an input holds as numbers."""
    value = c.known_value(position)
    if value is not None and value.dtype != object:
        return c.ints([int(v) for v in value.ravel()])
    return c.add("Cast", [c.required(position)], to="int64")


def _to_shape(source: str, shape: Callable[[Conversion, int], str]) -> None:
    """Rows of reshape, broadcastTo and fill to the shape that `shape` reads.

    source: suffix of the layers' names, "Like", "Static" or "Dynamic"."""

    def reshape(c: Conversion) -> Result:
        if 0 in c.attributes.values.get("targetShape", ()):
            c.attributes.refuse("targetShape", "a size of 0")
        return c.apply("Reshape", [c.required(0), shape(c, 1)])

    def broadcast(c: Conversion) -> Result:
        expanded = c.result("Expand", [c.required(0), shape(c, 1)])
        if source == "Like" and c.type(expanded[0]).dims != c.type(1).dims:
            raise ModelError(f"{c.type(0)} does not broadcast to {c.type(1)}", place=c.node.place)
        return expanded

    def fill(c: Conversion) -> Result:
        value = c.constant(c.scalar("value", 0.0), np.float32)
        return c.apply("Expand", [value, shape(c, 0)])

    row(f"reshape{source}")(reshape)
    row(f"broadcastTo{source}")(broadcast)
    row(f"fill{source}")(fill)


_to_shape("Static", _stated)
_to_shape("Like", _shape_of)
_to_shape("Dynamic", _computed)


@row("rankPreservingReshape")
def rank_preserving_reshape(c: Conversion) -> Result:
    if len(c.integers("targetShape", ())) != c.rank():
        c.attributes.refuse("targetShape", f"the input has {c.rank()} axes")
    return c.apply("Reshape", [c.required(0), _stated(c, 1)])


@row("rangeStatic")
def range_static(c: Conversion) -> Result:
    names = ("startValue", "endValue", "stepSizeValue")
    start, end, step = (c.scalar(n, 0.0) for n in names)
    count = int(np.ceil((end - start) / step)) if step else 0
    if not 0 < count <= MAX_MADE:
        raise ModelError(f"a range from {start} to {end} by {step}", place=c.node.place)
    return c.named_constant((start + np.arange(count) * step).astype(np.float32))


@row("rangeDynamic")
def range_dynamic(c: Conversion) -> Result:
    """Inputs are the end and, if present, the start and the step."""
    bounds = []
    for position, name in ((1, "startValue"), (0, ""), (2, "stepSizeValue")):
        if c.input(position) is not None:
            if name:
                c.attributes.irrelevant(name, "an input gives it")
            bounds.append(c.add("Reshape", [c.required(position), c.ints(())]))
        else:
            bounds.append(c.constant(c.scalar(name, 0.0), np.float32))
    return c.result("Range", bounds)


@row("constantPad")
def constant_pad(c: Conversion) -> Result:
    """Amounts (b0, e0, b1, e1, ...), or the sizes to reach, at one end of each axis."""
    a, rank = c.attributes, c.rank()
    value = c.like(a.scalar("value", 0.0))
    flat = a.integers("padAmounts", ())
    if len(c.inputs) == 2:
        flat = tuple(int(v) for v in c.constant_input(1, "the padding").ravel())
    if len(flat) != 2 * rank or min(flat, default=0) < 0:
        raise ModelError(f"padAmounts {flat} for {rank} axes", place=c.node.place)
    begins, ends = list(flat[::2]), list(flat[1::2])
    if a.flag("padToGivenOutputSizeMode"):
        for i, size in enumerate(c.known_sizes(0, dependent="the padding")):
            if begins[i] and ends[i]:
                raise ModelError(f"padAmounts {flat}: two sizes of an axis", place=c.node.place)
            begins[i], ends[i] = (max(0, n - size) if n else 0 for n in (begins[i], ends[i]))
    return c.result("Pad", [c.required(0), c.ints([*begins, *ends]), value], mode="constant")


@row("lowerTriangular", "upperTriangular")
def triangle(c: Conversion) -> Result:
    k = c.constant(c.integer("k", 0), np.int64)
    return c.apply("Trilu", [c.required(0), k], upper=c.node.op_type.startswith("upper"))


@row("sequenceRepeat")
def sequence_repeat(c: Conversion) -> Result:
    """The axis before [batch, channel, height, width], repeated as a whole."""
    rank = c.rank()
    if rank < 5:
        c.refuse(f"{c.type(0)} has no sequence")
    reps = [1] * rank
    reps[rank - 5] = c.integer("nRepetitions", 0) or 1
    return c.result("Tile", [c.required(0), c.ints(reps)])
