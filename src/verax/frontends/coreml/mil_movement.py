"""ML program operations that move data."""

from __future__ import annotations

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.context import Conversion, Result
from verax.frontends.coreml.mil_rows import (
    arg,
    flag,
    integer,
    known,
    mil,
    needed,
    numbers,
    refuse,
    several,
    text,
)
from verax.frontends.coreml.table_movement import interleaved
from verax.frontends.coreml.table_shapes import band

MOST = 2**31 - 1
"""An end that no axis reaches."""


@mil("reshape")
def reshape(c: Conversion) -> Result:
    """To a shape that is constant or computed; -1 is inferred, 0 copies."""
    x, shape = needed(c, "x"), known_or_none(c, "shape")
    if shape is not None:
        return c.result("Reshape", [x, c.ints(shape)])
    return c.result("Reshape", [x, c.add("Cast", [needed(c, "shape")], to="int64")])


def known_or_none(c: Conversion, name: str) -> tuple[int, ...] | None:
    """A constant list of integers, None when the argument is computed."""
    if name in c.attributes.get("inputs", ()):
        return None
    found: tuple[int, ...] | None = numbers(c, name)
    return found


@mil("transpose")
def transpose(c: Conversion) -> Result:
    x, perm = needed(c, "x"), numbers(c, "perm", ())
    return c.result("Transpose", [x], perm=tuple(p % max(1, c.rank(x)) for p in perm))


@mil("expand_dims")
def expand_dims(c: Conversion) -> Result:
    return c.result("Unsqueeze", [needed(c, "x"), c.ints(numbers(c, "axes", ()))])


@mil("squeeze")
def squeeze(c: Conversion) -> Result:
    axes = numbers(c, "axes")
    return c.result("Squeeze", [needed(c, "x"), *([] if axes is None else [c.ints(axes)])])


@mil("slice_by_index")
def slice_by_index(c: Conversion) -> Result:
    """From begin to end per axis; a mask means from the first, or to the last; squeezed axes go."""
    x = needed(c, "x")
    rank = c.rank(x)
    begin, end = list(numbers(c, "begin", ())), list(numbers(c, "end", ()))
    steps = list(numbers(c, "stride", (1,) * rank))
    masks = [numbers(c, f"{n}_mask", (0,) * rank) for n in ("begin", "end", "squeeze")]
    if any(len(v) != rank for v in (begin, end, steps, *masks)):
        raise ModelError(f"the slice does not speak of {rank} axes", place=c.node.place)
    for i in range(rank):
        if masks[0][i]:
            begin[i] = 0 if steps[i] > 0 else MOST
        if masks[2][i]:
            steps[i], end[i] = 1, begin[i] + 1 if begin[i] != -1 else MOST
        elif masks[1][i]:
            end[i] = MOST if steps[i] > 0 else -MOST
    lists = [c.ints(v) for v in (begin, end, range(rank), steps)]
    gone = [i for i in range(rank) if masks[2][i]]
    if not gone:
        return c.result("Slice", [x, *lists])
    return c.result("Squeeze", [c.add("Slice", [x, *lists]), c.ints(gone)])


@mil("slice_by_size")
def slice_by_size(c: Conversion) -> Result:
    """A size of -1 means to the end."""
    x, begin, size = needed(c, "x"), numbers(c, "begin", ()), numbers(c, "size", ())
    if len(begin) != c.rank(x) or len(size) != len(begin):
        raise ModelError("begin and size do not fit the input", place=c.node.place)
    ends = [MOST if n == -1 else b + n for b, n in zip(begin, size)]
    if any(b < 0 for b in begin):
        refuse(c, "begin", "it is negative")
    return c.result("Slice", [x, c.ints(begin), c.ints(ends), c.ints(range(len(begin)))])


@mil("concat")
def concat(c: Conversion) -> Result:
    values, axis = several(c, "values"), integer(c, "axis")
    if flag(c, "interleave"):
        return c.result("Identity", [interleaved(c, values, axis)])
    return c.result("Concat", values, axis=axis)


@mil("split")
def split(c: Conversion) -> Result:
    x, axis, count = needed(c, "x"), integer(c, "axis"), len(c.node.outputs)
    sizes = numbers(c, "split_sizes")
    said = integer(c, "num_splits", len(sizes) if sizes is not None else count)
    size = c.type(x).dims[axis]
    if said != count or (sizes is None and isinstance(size, int) and size % count):
        raise ModelError(f"{said} parts of {size} for {count} outputs", place=c.node.place)
    inputs = [x] if sizes is None else [x, c.ints(sizes)]
    return c.finish(c.operator("Split", num_outputs=count, axis=axis), inputs)


@mil("stack")
def stack(c: Conversion) -> Result:
    values, axis = several(c, "values"), integer(c, "axis")
    axis = axis if axis >= 0 else axis + c.rank(values[0]) + 1
    parts = [c.add("Unsqueeze", [v, c.ints((axis,))]) for v in values]
    return c.result("Concat", parts, axis=axis)


@mil("pad")
def pad(c: Conversion) -> Result:
    """Pairs for the last axes."""
    x, flat = needed(c, "x"), numbers(c, "pad", ())
    rank = c.rank(x)
    if len(flat) % 2 or len(flat) > 2 * rank:
        raise ModelError(f"pad = {flat} for {rank} axes", place=c.node.place)
    lead = [0] * (rank - len(flat) // 2)
    pads = c.ints([*lead, *flat[::2], *lead, *flat[1::2]])
    mode = text(c, "mode", "constant")
    if mode == "constant":
        value = arg(c, "constant_val") or c.like(0, x)
        return c.result("Pad", [x, pads, value], mode="constant")
    c.attributes.irrelevant("constant_val", f"mode {mode} does not read it")
    if mode not in ("reflect", "replicate"):
        refuse(c, "mode", "there is no such mode")
    return c.result("Pad", [x, pads], mode="reflect" if mode == "reflect" else "edge")


@mil("crop")
def crop(c: Conversion) -> Result:
    """Rows and columns, the last two axes, cut away at both ends."""
    x = needed(c, "x")
    cut = [numbers(c, name, (0, 0)) for name in ("crop_height", "crop_width")]
    if any(len(v) != 2 or min(v) < 0 for v in cut):
        raise ModelError(f"a crop of {cut}", place=c.node.place)
    rank = c.rank(x)
    ends = [-e if e else MOST for _, e in cut]
    axes = c.ints((rank - 2, rank - 1))
    return c.result("Slice", [x, c.ints([s for s, _ in cut]), c.ints(ends), axes])


@mil("tile")
def tile(c: Conversion) -> Result:
    return c.result("Tile", [needed(c, "x"), c.ints(numbers(c, "reps", ()))])


@mil("flatten2d")
def flatten2d(c: Conversion) -> Result:
    x, axis = needed(c, "x"), integer(c, "axis", 1)
    return c.result("Flatten", [x], axis=axis if axis >= 0 else axis + c.rank(x))


@mil("depth_to_space")
def depth_to_space(c: Conversion) -> Result:
    return c.result("DepthToSpace", [needed(c, "x")], blocksize=integer(c, "block_size"))


@mil("space_to_depth")
def space_to_depth(c: Conversion) -> Result:
    return c.result("SpaceToDepth", [needed(c, "x")], blocksize=integer(c, "block_size"))


@mil("pixel_shuffle")
def pixel_shuffle(c: Conversion) -> Result:
    size = integer(c, "upscale_factor")
    return c.result("DepthToSpace", [needed(c, "x")], blocksize=size, mode="CRD")


@mil("pixel_unshuffle")
def pixel_unshuffle(c: Conversion) -> Result:
    """[n, c, h, w] -> [n, c * r * r, h / r, w / r], the blocks last in the channels.

    Written as moves where sizes are known: few runtimes know this order of SpaceToDepth.
    """
    x, r = needed(c, "x"), integer(c, "downscale_factor")
    dims = [d for d in c.type(x).dims[1:] if isinstance(d, int)]
    if len(dims) != 3 or r < 1:
        return c.result("SpaceToDepth", [x], blocksize=r, mode="CRD")
    channels, height, width = dims
    if height % r or width % r:
        raise ModelError(f"{dims} in blocks of {r}", place=c.node.place)
    apart = c.ints((0, channels, height // r, r, width // r, r))
    turned = c.add("Transpose", [c.add("Reshape", [x, apart])], perm=(0, 1, 3, 5, 2, 4))
    return c.result("Reshape", [turned, c.ints((0, channels * r * r, height // r, width // r))])


@mil("reverse")
def reverse(c: Conversion) -> Result:
    x = needed(c, "x")
    axes = numbers(c, "axes", tuple(range(c.rank(x))))
    first, last, step = ([v] * len(axes) for v in (MOST, -MOST, -1))
    return c.result("Slice", [x, c.ints(first), c.ints(last), c.ints(axes), c.ints(step)])


@mil("shape")
def shape(c: Conversion) -> Result:
    found = c.add("Shape", [needed(c, "x")])
    return c.result("Cast", [found], to=text(c, "output_dtype", "int32"))


@mil("band_part")
def band_part(c: Conversion) -> Result:
    lower, upper = integer(c, "lower", -1), integer(c, "upper", -1)
    return c.result("Identity", [band(c, needed(c, "x"), lower, upper)])


@mil("range_1d")
def range_1d(c: Conversion) -> Result:
    start, end, step = (known(c, n) for n in ("start", "end", "step"))
    if any(v is None or isinstance(v, str) for v in (start, end, step)):
        raise ModelError("start, end and step must be given", place=c.node.place)
    count = max(0, int(np.ceil((float(end) - float(start)) / float(step))))
    if count > 2**24:
        raise ModelError(f"a range of {count} numbers", place=c.node.place)
    return c.named_constant(np.asarray(start + np.arange(count) * step, np.asarray(start).dtype))


@mil("fill_like")
def fill_like(c: Conversion) -> Result:
    value = known(c, "value")
    value = c.constant(np.float32(0) if value is None else np.asarray(value))
    return c.result("Expand", [value, c.add("Shape", [needed(c, "ref_tensor")])])


def _listed(c: Conversion, name: str) -> list[int]:
    """The numbers of an argument that takes a list of constants."""
    bound = c.attributes.get("inputs", ())
    if name not in bound:
        return [integer(c, name)]
    values = [c.constant_input(i, name) for i, n in enumerate(bound) if n == name]
    if any(v.size != 1 for v in values):
        raise ModelError(f"{name} are not single numbers", place=c.node.place)
    return [int(v.ravel()[0]) for v in values]


@mil("reshape_like")
def reshape_like(c: Conversion) -> Result:
    """To parts of the shapes of some tensors, one after the other."""
    x, models = needed(c, "x"), several(c, "ref_tensors")
    lists = [_listed(c, n) for n in ("begins", "ends", "end_masks")]
    if any(len(v) != len(models) for v in lists):
        raise ModelError(f"{len(models)} tensors, {lists}", place=c.node.place)
    parts = []
    for model, begin, end, is_open in zip(models, *lists):
        lists_ = (c.ints((begin,)), c.ints((MOST if is_open else end,)))
        parts.append(c.add("Slice", [c.add("Shape", [model]), *lists_]))
    shape = parts[0] if len(parts) == 1 else c.add("Concat", parts, axis=0)
    return c.result("Reshape", [x, shape])


def _blocks(c: Conversion, name: str) -> tuple[str, tuple[int, ...], tuple[int, int], list[int]]:
    """x, its sizes, the block's, and the four amounts of `name`."""
    x = needed(c, "x")
    dims = tuple(d for d in c.type(x).dims if isinstance(d, int))
    block, amounts = numbers(c, "block_shape", ()), list(numbers(c, name, ()))
    if len(dims) != 4 or c.rank(x) != 4:
        c.refuse(f"blocks of {c.type(x)}, its four sizes must be known")
    if len(block) != 2 or min(block) < 1 or len(amounts) != 4 or min(amounts) < 0:
        raise ModelError(f"blocks {block}, {name} {amounts}", place=c.node.place)
    return x, dims, (block[0], block[1]), amounts


@mil("space_to_batch")
def space_to_batch(c: Conversion) -> Result:
    """The places of a block become the slowest part of the batch."""
    x, (n, channels, height, width), (a, b), pads = _blocks(c, "paddings")
    spread = c.ints((0, 0, pads[0], pads[2], 0, 0, pads[1], pads[3]))
    x = c.add("Pad", [x, spread, c.like(0, x)], mode="constant")
    height, width = height + pads[0] + pads[1], width + pads[2] + pads[3]
    if height % a or width % b:
        raise ModelError(f"{height} x {width} in blocks of {a} x {b}", place=c.node.place)
    apart = c.add("Reshape", [x, c.ints((n, channels, height // a, a, width // b, b))])
    turned = c.add("Transpose", [apart], perm=(3, 5, 0, 1, 2, 4))
    return c.result("Reshape", [turned, c.ints((n * a * b, channels, height // a, width // b))])


@mil("batch_to_space")
def batch_to_space(c: Conversion) -> Result:
    x, (n, channels, height, width), (a, b), cut = _blocks(c, "crops")
    if n % (a * b):
        raise ModelError(f"a batch of {n} in blocks of {a} x {b}", place=c.node.place)
    apart = c.add("Reshape", [x, c.ints((a, b, n // (a * b), channels, height, width))])
    turned = c.add("Transpose", [apart], perm=(2, 3, 4, 0, 5, 1))
    whole = c.add("Reshape", [turned, c.ints((n // (a * b), channels, height * a, width * b))])
    first, last = c.ints((cut[0], cut[2])), c.ints((height * a - cut[1], width * b - cut[3]))
    return c.result("Slice", [whole, first, last, c.ints((2, 3))])
