"""MXNet operators that cut arrays into parts."""

from __future__ import annotations

from typing import Any

from verax.base.errors import ModelError
from verax.frontends.common import shapes
from verax.frontends.common.context import Conversion, Result
from verax.frontends.common.shapes import END
from verax.frontends.mxnet.rows import ints, known_dims, row, sizes_along
from verax.ir.operator import Operator


@row("slice", "crop")
def slice_(c: Conversion) -> Result:
    """begin, end and step per axis from the first on; None means to the border."""
    a = c.attributes
    begin, end = (_bounds(c, a.get(name)) for name in ("begin", "end"))
    step = _bounds(c, a.get("step", ())) or (None,) * len(begin)
    if len(begin) != len(end) or len(step) != len(begin):
        raise ModelError("begin, end and step have different lengths", place=c.node.place)
    steps = [1 if s is None else s for s in step]
    starts = [(0 if s > 0 else END) if b is None else b for b, s in zip(begin, steps)]
    ends = [(END if s > 0 else -END) if e is None else e for e, s in zip(end, steps)]
    return _slice(c, starts, ends, list(range(len(begin))), steps)


def _bounds(c: Conversion, stated: Any) -> tuple[int | None, ...]:
    items = stated if isinstance(stated, tuple) else (stated,)
    if not all(item is None or type(item) is int for item in items):
        raise ModelError(f"{stated} is no list of positions", place=c.node.place)
    return items


def _slice(
    c: Conversion, starts: list[int], ends: list[int], axes: list[int], steps: list[int]
) -> Result:
    return shapes.sliced(c, c.required(0), axes, starts, ends, steps)


@row("slice_axis")
def slice_axis(c: Conversion) -> Result:
    a = c.attributes
    end = a.integer("end")
    end = END if end is None else end
    return _slice(c, [a.integer("begin")], [end], [a.integer("axis")], [1])


@row("slice_like")
def slice_like(c: Conversion) -> Result:
    """As long as the second input, along `axes` or all axes."""
    rank = c.rank()
    axes = [axis % rank for axis in ints(c, "axes", ()) or range(rank)]
    if not ints(c, "axes", ()) and c.rank(1) != rank:
        raise ModelError(f"{c.type(0)} cannot be cut like {c.type(1)}", place=c.node.place)
    operands = [c.required(0), c.ints([0] * len(axes)), sizes_along(c, 1, axes)]
    return c.result("Slice", [*operands, c.ints(axes), c.ints([1] * len(axes))])


@row("Crop")
def crop(c: Conversion) -> Result:
    """The rows and columns of the second input's size, or h_w, at `offset` or in the center."""
    a = c.attributes
    sizes = ints(c, "h_w", (0, 0))
    if len(c.inputs) == 2:
        a.irrelevant("h_w", "the second input gives the size")
        sizes = known_dims(c, 1, "the size of the crop", 2)
    start, image_size = ints(c, "offset", (0, 0)), known_dims(c, 0, "what is cut away", 2)
    if a.flag("center_crop", False):
        start = tuple((w - s) // 2 for w, s in zip(image_size, sizes))
    fits = len(start) == len(sizes) == len(image_size) == 2 and min(*start, *sizes) >= 0
    if not fits or any(s + n > w for s, n, w in zip(start, sizes, image_size)):
        raise ModelError(f"a crop of {sizes} at {start}", place=c.node.place)
    return _slice(c, list(start), [s + n for s, n in zip(start, sizes)], [2, 3], [1, 1])


@row("SliceChannel", "split")
def slice_channel(c: Conversion) -> Result:
    a = c.attributes
    count, axis = a.integer("num_outputs"), a.integer("axis", 1)
    squeezed = a.flag("squeeze_axis", False)
    if not 0 < count <= 4096:
        a.refuse("num_outputs", "there is no such number of parts")
    op = c.operator("Split", num_outputs=count, axis=axis)
    size = c.type(0).dims[axis]
    if isinstance(size, int) and size % count:
        a.refuse("num_outputs", f"{size} elements cannot be shared equally")
    return _split_outputs(c, op, [c.required(0)], axis, squeezed)


def _split_outputs(
    c: Conversion, op: Operator, inputs: list[str], axis: int, is_squeezed: bool
) -> tuple[str, ...]:
    """The parts that a Split makes, without the axis (of size 1) if wanted."""
    if not is_squeezed:
        return c.finish(op, inputs)
    count = op.output_count
    names = [c.fresh(f"{c.first_output}/part") for _ in range(count)]
    pieces = c.builder.add_all(op, inputs, names, c.node.name)
    axes = c.ints((axis,))
    names_out = (*c.node.outputs, *[""] * (count - len(c.node.outputs)))
    squeeze_op = c.operator("Squeeze")
    return tuple(
        c.builder.add(squeeze_op, [piece, axes], [name or c.fresh(piece)], c.node.name)
        for piece, name in zip(pieces, names_out)
    )


@row("reverse", "flip")
def reverse(c: Conversion) -> Result:
    axes = [c.from_front(axis, c.rank()) for axis in ints(c, "axis", ())]
    return shapes.turned_round(c, c.required(0), axes)


@row("_split_v2")
def split_v2(c: Conversion) -> Result:
    """At the places that `indices` lists (the first is 0), or into `sections` equal parts."""
    a = c.attributes
    axis, sections = a.integer("axis", 1) % c.rank(), a.integer("sections", 0)
    size = known_dims(c, 0, "the sizes of the parts", axis)[0]
    cuts = ints(c, "indices", ())
    if sections:
        a.irrelevant("indices", "sections goes first")
        if not 0 < sections <= 4096 or size % sections:
            a.refuse("sections", f"{size} elements cannot be shared equally")
        cuts = tuple(range(0, size, size // sections))
    ends = [min(p, size) for p in (*cuts[1:], size)]
    starts = [min(p, size) for p in cuts]
    if not starts or starts[0] != 0 or any(s > e for s, e in zip(starts, ends)):
        a.refuse("indices", "they do not rise from 0 on")
    lengths = c.ints([e - s for s, e in zip(starts, ends)])
    op = c.operator("Split", num_outputs=len(starts), axis=axis)
    return _split_outputs(c, op, [c.required(0), lengths], axis, a.flag("squeeze_axis", False))
