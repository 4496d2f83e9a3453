"""MXNet operators that move data, resample it, or look it up."""

from __future__ import annotations

from typing import Any

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.conversion import Conversion
from verax.frontends.mxnet.rows import (
    Result,
    dtype_named,
    ints,
    known_dims,
    like,
    require_small,
    row,
)
from verax.ir.dim import DimLike

MOST = 2**31 - 1
"""An end that no axis reaches."""


@row("Flatten", "flatten")
def flatten(c: Conversion) -> Result:
    return c.operator("Flatten", axis=1)


@row("Concat", "concat")
def concat(c: Conversion) -> Result:
    return c.operator("Concat", axis=c.attributes.integer("dim", 1))


@row("stack")
def stack(c: Conversion) -> Result:
    axis = c.attributes.integer("axis", 0)
    axis = axis if axis >= 0 else axis + c.rank() + 1
    parts = [c.add("Unsqueeze", [c.required(i), c.ints((axis,))]) for i in range(len(c.inputs))]
    return c.result("Concat", parts, axis=axis)


@row("transpose")
def transpose(c: Conversion) -> Result:
    axes = ints(c, "axes", ()) or tuple(reversed(range(c.rank())))
    return c.operator("Transpose", perm=tuple(a % c.rank() for a in axes))


@row("SwapAxis", "swapaxes")
def swap_axis(c: Conversion) -> Result:
    rank = c.rank()
    first, second = (c.attributes.integer(n, 0) % rank for n in ("dim1", "dim2"))
    perm = list(range(rank))
    perm[first], perm[second] = perm[second], perm[first]
    return c.operator("Transpose", perm=tuple(perm))


@row("expand_dims")
def expand_dims(c: Conversion) -> Result:
    return c.result("Unsqueeze", [c.required(0), c.ints((c.attributes.integer("axis"),))])


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
    found = reshaped(dims, list(codes), c)
    found = found[::-1] if backwards else found
    if sum(isinstance(d, int) for d in found) < len(found) - 1:
        known_dims(c, 0, "the new shape")
    sizes = [d if isinstance(d, int) else -1 for d in found]
    return c.result("Reshape", [c.required(0), c.ints(sizes)])


def reshaped(dims: list[DimLike], codes: list[int], c: Conversion) -> list[DimLike]:
    """The shape that MXNet's codes make of `dims`; -1 stays for one size to be inferred."""

    def wrong(why: str) -> ModelError:
        return ModelError(f"shape {codes} for an input {c.type(0)}: {why}", place=c.node.place)

    found: list[Any] = []
    rest, pending = list(dims), list(codes)
    while pending:
        code = pending.pop(0)
        need = {0: 1, -3: 2, -4: 1}.get(code, 0)
        if len(rest) < need:
            raise wrong("it copies more axes than there are")
        if code == -2:
            found, rest = found + rest, []
        elif code == -3:
            found.append(rest.pop(0) * rest.pop(0))
        elif code == -4:
            if len(pending) < 2:
                raise wrong("-4 needs two sizes")
            whole, first, second = rest.pop(0), pending.pop(0), pending.pop(0)
            if -1 in (first, second):
                given = second if first == -1 else first
                if given < 1 or not isinstance(whole, int) or whole % given:
                    raise wrong(f"{whole} is not a multiple of {given}")
                first, second = (whole // given, second) if first == -1 else (first, whole // given)
            if isinstance(whole, int) and first * second != whole:
                raise wrong(f"{first} x {second} is not {whole}")
            found += [first, second]
        elif code == 0:
            found.append(rest.pop(0))
        elif code == -1 or code > 0:
            found.append(code)
            del rest[:1]
        else:
            raise wrong(f"there is no code {code}")
    if found.count(-1) > 1:
        raise wrong("two sizes are to be inferred")
    return found


@row("slice", "crop")
def slice_(c: Conversion) -> Result:
    """begin, end and step per axis from the first on; None means to the border."""
    a = c.attributes
    begin, end = (_bounds(c, a.get(name)) for name in ("begin", "end"))
    step = _bounds(c, a.get("step", ())) or (None,) * len(begin)
    if len(begin) != len(end) or len(step) != len(begin):
        raise ModelError("begin, end and step have different lengths", place=c.node.place)
    steps = [1 if s is None else s for s in step]
    starts = [(0 if s > 0 else MOST) if b is None else b for b, s in zip(begin, steps)]
    ends = [(MOST if s > 0 else -MOST) if e is None else e for e, s in zip(end, steps)]
    return _slice(c, starts, ends, list(range(len(begin))), steps)


def _bounds(c: Conversion, given: Any) -> tuple[int | None, ...]:
    items = given if isinstance(given, tuple) else (given,)
    if not all(item is None or type(item) is int for item in items):
        raise ModelError(f"{given} is no list of positions", place=c.node.place)
    return items


def _slice(
    c: Conversion, starts: list[int], ends: list[int], axes: list[int], steps: list[int]
) -> Result:
    return c.result("Slice", [c.required(0), *map(c.ints, (starts, ends, axes, steps))])


@row("slice_axis")
def slice_axis(c: Conversion) -> Result:
    a = c.attributes
    end = a.integer("end", MOST)
    return _slice(c, [a.integer("begin")], [end], [a.integer("axis")], [1])


@row("slice_like")
def slice_like(c: Conversion) -> Result:
    """As long as the second input, along `axes` or all axes."""
    axes = list(ints(c, "axes", ()) or range(c.rank()))
    sizes = known_dims(c, 1, "the end of the slice")
    return _slice(c, [0] * len(axes), [sizes[a] for a in axes], axes, [1] * len(axes))


@row("Crop")
def crop(c: Conversion) -> Result:
    """The rows and columns of the second input's size, or h_w, at `offset` or in the centre."""
    a = c.attributes
    sizes = ints(c, "h_w", (0, 0))
    if len(c.inputs) == 2:
        a.irrelevant("h_w", "the second input gives the size")
        sizes = known_dims(c, 1, "the size of the crop")[2:]
    start, whole = ints(c, "offset", (0, 0)), known_dims(c, 0, "what is cut away")[2:]
    if a.flag("center_crop", False):
        start = tuple((w - s) // 2 for w, s in zip(whole, sizes))
    fits = len(start) == len(sizes) == len(whole) == 2 and min(*start, *sizes) >= 0
    if not fits or any(s + n > w for s, n, w in zip(start, sizes, whole)):
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
    if not squeezed:
        return c.finish(op, [c.required(0)])
    names = [c.fresh(f"{c.first_output}/part") for _ in range(count)]
    made = c.builder.add_all(op, [c.required(0)], names, c.node.name)
    axes = c.ints((axis,))
    wanted = (*c.node.outputs, *[""] * (count - len(c.node.outputs)))
    squeeze_op = c.operator("Squeeze")
    return tuple(
        c.builder.add(squeeze_op, [part, axes], [name or c.fresh(part)], c.node.name)
        for part, name in zip(made, wanted)
    )


@row("Pad", "pad")
def pad(c: Conversion) -> Result:
    a = c.attributes
    widths, mode = ints(c, "pad_width", ()), a.text("mode", "constant")
    if mode not in ("constant", "edge", "reflect"):
        a.refuse("mode", "there is no such mode")
    if len(widths) != 2 * c.rank():
        raise ModelError(f"pad_width = {widths} for {c.type(0)}", place=c.node.place)
    pads = c.ints((*widths[::2], *widths[1::2]))
    if mode != "constant":
        a.irrelevant("constant_value", f"mode {mode} does not read it")
        return c.result("Pad", [c.required(0), pads], mode=mode)
    value = like(c, a.number("constant_value", 0.0))
    return c.result("Pad", [c.required(0), pads, value], mode=mode)


@row("tile")
def tile(c: Conversion) -> Result:
    repeats = ints(c, "reps", ())
    if len(repeats) != c.rank():
        c.attributes.refuse("reps", "it must have one number per axis")
    return c.result("Tile", [c.required(0), c.ints(repeats)])


@row("repeat")
def repeat(c: Conversion) -> Result:
    """Each element of an axis several times, one after the other."""
    a, rank = c.attributes, c.rank()
    count, axis = a.integer("repeats"), a.integer("axis")
    if axis is None or count < 1:
        a.refuse("repeats", "an axis and a count of at least 1 are needed")
    axis %= rank
    (size,) = known_dims(c, 0, "the repeated positions")[axis : axis + 1]
    require_small(c, size * count)
    places = c.constant(np.repeat(np.arange(size), count), np.int64)
    return c.result("Gather", [c.required(0), places], axis=axis)


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
    for name in ("lhs_axes", "rhs_axes"):
        if c.attributes.has(name):
            c.attributes.refuse(name, "only whole shapes are supported")
    return c.result("Expand", [c.required(0), c.add("Shape", [c.required(1)])])


@row("Embedding")
def embedding(c: Conversion) -> Result:
    """Rows of the weights by their numbers, which MXNet keeps as floats."""
    a = c.attributes
    size = (a.integer("input_dim"), a.integer("output_dim"))
    if c.type(1).dims != size:
        raise ModelError(f"the weights are {c.type(1)}, not {size}", place=c.node.place)
    a.irrelevant("sparse_grad", "it shapes the gradient only")
    if a.has("dtype") and dtype_named(c, "dtype") is not c.type(1).dtype:
        a.refuse("dtype", "it differs from the weights'")
    last = c.constant(size[0] - 1, np.int64)
    rows = c.add("Cast", [c.required(0)], to="int64")
    bounded = c.add("Clip", [rows, c.constant(0, np.int64), last])
    return c.result("Gather", [c.required(1), bounded], axis=0)


@row("dot")
def dot(c: Conversion) -> Result:
    if c.rank(0) != 2 or c.rank(1) != 2:
        c.refuse("only matrices are supported")
    a = c.attributes
    left, right = a.flag("transpose_a", False), a.flag("transpose_b", False)
    return c.operator("Gemm", trans_a=left, trans_b=right)


@row("batch_dot")
def batch_dot(c: Conversion) -> Result:
    sides = []
    for i, name in enumerate(("transpose_a", "transpose_b")):
        turned = c.attributes.flag(name, False)
        side = c.required(i)
        sides.append(c.add("Transpose", [side], perm=(0, 2, 1)) if turned else side)
    return c.result("MatMul", sides)


@row("depth_to_space")
def depth_to_space(c: Conversion) -> Result:
    return c.operator("DepthToSpace", blocksize=c.attributes.integer("block_size"))


@row("space_to_depth")
def space_to_depth(c: Conversion) -> Result:
    return c.operator("SpaceToDepth", blocksize=c.attributes.integer("block_size"))


@row("_contrib_BilinearResize2D")
def bilinear_resize(c: Conversion) -> Result:
    """To height x width or by scales, with the corner pixels in place by default."""
    a = c.attributes
    a.expect("mode", "size", why="only sizes and plain scales are supported")
    height, width = known_dims(c, 0, "the new size")[2:]
    scales = [a.number(name) for name in ("scale_height", "scale_width")]
    sizes = [a.integer(name, 1) for name in ("height", "width")]
    if None not in scales:
        sizes = [int(s * n) for s, n in zip(scales, (height, width))]
    corners = a.flag("align_corners", True)
    return c.result(
        "Resize",
        [c.required(0), None, None, c.ints((*known_dims(c, 0, "the new size")[:2], *sizes))],
        mode="linear",
        coordinate_transformation_mode="align_corners" if corners else "half_pixel",
    )
