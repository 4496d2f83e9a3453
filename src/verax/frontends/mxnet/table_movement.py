"""MXNet operators that reshape, join, repeat or resample arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common import shapes
from verax.frontends.common.context import Conversion, Result
from verax.frontends.common.table import integer
from verax.frontends.mxnet.rows import TABLE, ints, known_dims, row, sizes_along
from verax.ir.dim import DimLike

TABLE.operator("Flatten", "Flatten", "flatten", axis=1)
TABLE.operator("Concat", "Concat", "concat", axis=integer(1, "dim"))
TABLE.operator("DepthToSpace", "depth_to_space", blocksize=integer(name="block_size"))
TABLE.operator("SpaceToDepth", "space_to_depth", blocksize=integer(name="block_size"))


@row("stack")
def stack(c: Conversion) -> Result:
    tensors = c.operands
    return shapes.stacked(c, tensors, c.integer("axis", 0))


@row("transpose")
def transpose(c: Conversion) -> Result:
    axes = ints(c, "axes", ()) or tuple(reversed(range(c.rank())))
    return c.operator("Transpose", perm=tuple(a % c.rank() for a in axes))


@row("SwapAxis", "swapaxes")
def swap_axis(c: Conversion) -> Result:
    return shapes.exchanged(c, c.required(0), c.integer("dim1", 0), c.integer("dim2", 0))


@row("expand_dims")
def expand_dims(c: Conversion) -> Result:
    return c.result("Unsqueeze", [c.required(0), c.ints((c.integer("axis"),))])


@row("squeeze")
def squeeze(c: Conversion) -> Result:
    axes = ints(c, "axis")
    return c.result("Squeeze", [c.required(0), *([] if axes is None else [c.ints(axes)])])


@row("Reshape", "reshape")
def reshape(c: Conversion) -> Result:
    """Sizes below 1 are codes: 0 copies, -1 infers, -2 copies the rest, -3 joins two, -4 splits."""
    a = c.attributes
    codes = ints(c, "shape", ())
    is_legacy = not codes
    if is_legacy:
        codes = ints(c, "target_shape", ())
        if a.flag("keep_highest", False) and codes:
            codes = (0, *codes[1:])
        elif codes:
            codes = tuple(-1 if d == 0 else d for d in codes)
    else:
        a.irrelevant("target_shape", "shape is given")
        a.irrelevant("keep_highest", "it belongs to target_shape")
    dims = list(c.type(0).dims)
    backwards = a.flag("reverse", False)
    if backwards:
        dims, codes = dims[::-1], codes[::-1]
    resolved = reshaped(dims, list(codes), c)
    resolved = resolved[::-1] if backwards else resolved
    return c.result("Reshape", [c.required(0), _sizes(c, resolved)])


def _sizes(c: Conversion, dims_out: list[DimLike]) -> str:
    """A shape for Reshape: a symbol that keeps its place is 0, one that is left to infer -1, and
    others are asked of the input."""
    dims = c.type(0).dims
    sizes = [
        0 if not isinstance(d, int) and dims[i : i + 1] == (d,) else d
        for i, d in enumerate(dims_out)
    ]
    unknown = [i for i, d in enumerate(sizes) if not isinstance(d, int)]
    if -1 not in sizes and unknown:
        sizes[unknown.pop()] = -1
    if any(sizes[i] not in dims for i in unknown):
        known_dims(c, 0, "the new shape")
    if not unknown:
        return c.ints(sizes)  # type: ignore[arg-type]
    pieces = [
        c.ints((d,)) if isinstance(d, int) else sizes_along(c, 0, (dims.index(d),)) for d in sizes
    ]
    return c.add("Concat", pieces, axis=0)


def reshaped(dims: list[DimLike], codes: list[int], c: Conversion) -> list[DimLike]:
    """The shape that MXNet's codes make of `dims`; -1 stays for one size to be inferred."""

    def wrong(reason: str) -> ModelError:
        return ModelError(f"shape {codes} for an input {c.type(0)}: {reason}", place=c.node.place)

    resolved: list[Any] = []
    remaining, pending = list(dims), list(codes)
    while pending:
        code = pending.pop(0)
        need = {0: 1, -3: 2, -4: 1}.get(code, 0)
        if len(remaining) < need:
            raise wrong("it copies more axes than there are")
        if code == -2:
            resolved, remaining = resolved + remaining, []
        elif code == -3:
            resolved.append(remaining.pop(0) * remaining.pop(0))
        elif code == -4:
            if len(pending) < 2:
                raise wrong("-4 needs two sizes")
            axis_size, first, second = remaining.pop(0), pending.pop(0), pending.pop(0)
            if -1 in (first, second):
                divisor = second if first == -1 else first
                if divisor < 1 or not isinstance(axis_size, int) or axis_size % divisor:
                    raise wrong(f"{axis_size} is not a multiple of {divisor}")
                first, second = (
                    (axis_size // divisor, second) if first == -1 else (first, axis_size // divisor)
                )
            if isinstance(axis_size, int) and first * second != axis_size:
                raise wrong(f"{first} x {second} is not {axis_size}")
            resolved += [first, second]
        elif code == 0:
            resolved.append(remaining.pop(0))
        elif code == -1 or code > 0:
            resolved.append(code)
            del remaining[:1]
        else:
            raise wrong(f"there is no code {code}")
    if resolved.count(-1) > 1:
        raise wrong("two sizes are to be inferred")
    return resolved


@row("Pad", "pad")
def pad(c: Conversion) -> Result:
    a = c.attributes
    widths, mode = (
        ints(c, "pad_width", ()),
        c.choice("mode", ("constant", "edge", "reflect"), "constant"),
    )
    if len(widths) != 2 * c.rank():
        raise ModelError(f"pad_width = {widths} for {c.type(0)}", place=c.node.place)
    pads = c.ints((*widths[::2], *widths[1::2]))
    if mode != "constant":
        a.irrelevant("constant_value", f"mode {mode} does not read it")
        return c.result("Pad", [c.required(0), pads], mode=mode)
    value = c.like(a.scalar("constant_value", 0.0))
    return c.result("Pad", [c.required(0), pads, value], mode=mode)


@row("tile")
def tile(c: Conversion) -> Result:
    """Of repetitions and axes, whichever are fewer get ones in front."""
    repeats, rank = ints(c, "reps", ()), c.rank()
    repeats = (1,) * (rank - len(repeats)) + repeats
    data, missing = c.required(0), len(repeats) - rank
    if missing:
        data = c.add("Unsqueeze", [data, c.ints(tuple(range(missing)))])
    return c.result("Tile", [data, c.ints(repeats)])


@row("repeat")
def repeat(c: Conversion) -> Result:
    """Each element of an axis (without one: of all) several times, one after the other."""
    a = c.attributes
    count, axis, data = a.integer("repeats"), a.get("axis"), c.required(0)
    if count < 1:
        a.refuse("repeats", "a count of at least 1 is needed")
    if axis is None:
        data, axis = c.add("Reshape", [data, c.ints((-1,))]), 0
    return shapes.repeated(c, data, count, axis)


@row("broadcast_to")
def broadcast_to(c: Conversion) -> Result:
    """A size of 0 keeps the input's."""
    shape = ints(c, "shape", ())
    if len(shape) != c.rank():
        c.attributes.refuse("shape", f"the input is {c.type(0)}")
    return c.result("Expand", [c.required(0), c.ints([d or 1 for d in shape])])


@row("broadcast_axis", "broadcast_axes")
def broadcast_axis(c: Conversion) -> Result:
    axes, sizes = ints(c, "axis", ()), ints(c, "size", ())
    if len(axes) != len(sizes):
        raise ModelError(f"axis = {axes}, size = {sizes}", place=c.node.place)
    shape = [1] * c.rank()
    for axis, size in zip(axes, sizes):
        if c.type(0).dims[axis] != 1:
            c.attributes.refuse("axis", f"the input is {c.type(0)}")
        shape[axis] = size
    return c.result("Expand", [c.required(0), c.ints(shape)])


@row("broadcast_like")
def broadcast_like(c: Conversion) -> Result:
    """Axes of size 1 grow to those of the second input: all, or lhs_axes to rhs_axes."""
    mine, source_axes = (ints(c, f"{side}_axes") for side in ("lhs", "rhs"))
    if mine is None and source_axes is None:
        return c.result("Expand", [c.required(0), c.add("Shape", [c.required(1)])])
    if mine is None or source_axes is None or len(mine) != len(source_axes) or not mine:
        raise ModelError(f"lhs_axes = {mine}, rhs_axes = {source_axes}", place=c.node.place)
    source_of_axis = {
        axis % c.rank(): source % c.rank(1) for axis, source in zip(mine, source_axes)
    }
    if any(c.type(0).dims[axis] != 1 for axis in source_of_axis):
        c.attributes.refuse("lhs_axes", f"the input is {c.type(0)}")
    one = c.ints((1,))
    sizes = [
        sizes_along(c, 1, (source_of_axis[axis],)) if axis in source_of_axis else one
        for axis in range(c.rank())
    ]
    return c.result("Expand", [c.required(0), c.add("Concat", sizes, axis=0)])


@row("reshape_like")
def reshape_like(c: Conversion) -> Result:
    """The axes from lhs_begin to lhs_end get the shape of rhs_begin to rhs_end."""
    a, ranks = c.attributes, (c.rank(0), c.rank(1))
    spans = []
    for side, rank in zip(("lhs", "rhs"), ranks):
        begin, end = a.get(f"{side}_begin"), a.get(f"{side}_end")
        begin, end = begin or 0, rank if end is None else end
        spans.append((begin + rank * (begin < 0), end + rank * (end < 0)))
    (first, last), (start, stop) = spans
    if not (0 <= first <= last <= ranks[0] and 0 <= start <= stop <= ranks[1]):
        raise ModelError(f"axes {spans} of {c.type(0)}, {c.type(1)}", place=c.node.place)
    sections = [(0, range(first)), (1, range(start, stop)), (0, range(last, ranks[0]))]
    sizes = [sizes_along(c, index, axes) for index, axes in sections if axes]
    shape = sizes[0] if len(sizes) == 1 else c.add("Concat", sizes, axis=0)
    return c.result("Reshape", [c.required(0), shape])


@row("_contrib_BilinearResize2D")
def bilinear_resize(c: Conversion) -> Result:
    """To a size that `mode` says, with the corner pixels in place by default."""
    a = c.attributes
    image_size = known_dims(c, 0, "the new size", 2)
    mode, scales = a.text("mode", "size"), [a.scalar(f"scale_{n}") for n in ("height", "width")]
    named = [a.integer(name, 1) for name in ("height", "width")]
    if mode == "like":
        sizes = list(known_dims(c, 1, "the new size", 2))
    elif mode in ("size", "odd_scale"):
        sizes = (
            named if None in scales else [_scaled(n, s, mode) for n, s in zip(image_size, scales)]
        )
        if (scales[0] is None) != (scales[1] is None) or (mode != "size" and None in scales):
            a.refuse("mode", "it needs scale_height and scale_width")
    elif mode in TO_PARITY:
        odd, step = TO_PARITY[mode]
        sizes = [n if n % 2 == odd else n + step for n in image_size]
    else:
        a.refuse("mode", "unknown mode")
    if min(sizes) < 1:
        raise ModelError(f"a new size of {sizes}", place=c.node.place)
    corners = a.flag("align_corners", True)
    target = c.add("Concat", [sizes_along(c, 0, (0, 1)), c.ints(sizes)], axis=0)
    return c.result(
        "Resize",
        [c.required(0), None, None, target],
        mode="linear",
        coordinate_transformation_mode="align_corners" if corners else "half_pixel",
    )


TO_PARITY = {"to_even_down": (0, -1), "to_even_up": (0, 1), "to_odd_down": (1, -1),
             "to_odd_up": (1, 1)}  # fmt: skip
"""Modes that change a size by 0 or 1: what the new size leaves when halved, and the step."""


def _scaled(size: int, scale: float, mode: str) -> int:
    """A size times a scale, cut off in float32; odd_scale keeps the first of an odd number."""
    first = 1 if mode == "odd_scale" and size % 2 else 0
    return int(np.float32(size - first) * np.float32(scale)) + first
