"""ML program operations that move data."""

from __future__ import annotations

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common import shapes
from verax.frontends.common.context import Result
from verax.frontends.common.shapes import END
from verax.frontends.common.table import integer
from verax.frontends.coreml.mil_rows import OPERATIONS, Mil, mil


@mil("reshape")
def reshape(c: Mil) -> Result:
    """To a shape that is constant or computed; -1 is inferred, 0 copies."""
    x, shape = c.tensor("x"), static_integers(c, "shape")
    if shape is not None:
        return c.result("Reshape", [x, c.ints(shape)])
    return c.result("Reshape", [x, c.add("Cast", [c.tensor("shape")], to="int64")])


def static_integers(c: Mil, name: str) -> tuple[int, ...] | None:
    """A constant list of integers, None when the argument is computed."""
    if name in c.attributes.get("inputs", ()):
        return None
    integers: tuple[int, ...] | None = c.integers(name)
    return integers


@mil("transpose")
def transpose(c: Mil) -> Result:
    x, perm = c.tensor("x"), c.integers("perm", ())
    return c.apply("Transpose", [x], perm=tuple(p % max(1, c.rank(x)) for p in perm))


@mil("expand_dims")
def expand_dims(c: Mil) -> Result:
    return c.apply("Unsqueeze", [c.tensor("x"), c.ints(c.integers("axes", ()))])


@mil("squeeze")
def squeeze(c: Mil) -> Result:
    axes = c.integers("axes")
    return c.apply("Squeeze", [c.tensor("x"), None if axes is None else c.ints(axes)])


@mil("slice_by_index")
def slice_by_index(c: Mil) -> Result:
    """From begin to end per axis; a mask means from the first, or to the last; squeezed axes go."""
    x = c.tensor("x")
    rank = c.rank(x)
    bounds = [c.counted(name, rank, 0) for name in ("begin", "end")]
    bounds.append(c.counted("stride", rank, 1))
    masks = [c.counted(f"{n}_mask", rank, 0) for n in ("begin", "end", "squeeze")]
    return shapes.strided(c, x, *bounds, *masks)


@mil("slice_by_size")
def slice_by_size(c: Mil) -> Result:
    """A size of -1 means to the end."""
    return shapes.slice_of_sizes(c, c.tensor("x"), c.integers("begin", ()), c.integers("size", ()))


@mil("concat")
def concat(c: Mil) -> Result:
    values, axis = c.tensors("values"), c.integer("axis")
    if c.flag("interleave"):
        return shapes.interleaved(c, values, axis)
    return c.apply("Concat", values, axis=axis)


@mil("split")
def split(c: Mil) -> Result:
    x, axis, count = c.tensor("x"), c.integer("axis"), len(c.node.outputs)
    sizes = c.integers("split_sizes")
    stated_count = c.integer("num_splits", len(sizes) if sizes is not None else count)
    size = c.type(x).dims[axis]
    if stated_count != count or (sizes is None and isinstance(size, int) and size % count):
        raise ModelError(f"{stated_count} parts of {size} for {count} outputs", place=c.node.place)
    inputs = [x] if sizes is None else [x, c.ints(sizes)]
    return c.finish(c.operator("Split", num_outputs=count, axis=axis), inputs)


@mil("stack")
def stack(c: Mil) -> Result:
    return shapes.stacked(c, c.tensors("values"), c.integer("axis"))


@mil("pad")
def pad(c: Mil) -> Result:
    """Pairs for the last axes."""
    x, flat = c.tensor("x"), c.integers("pad", ())
    rank = c.rank(x)
    if len(flat) % 2 or len(flat) > 2 * rank:
        raise ModelError(f"pad = {flat} for {rank} axes", place=c.node.place)
    lead = [0] * (rank - len(flat) // 2)
    pads = c.ints([*lead, *flat[::2], *lead, *flat[1::2]])
    mode = c.text("mode", "constant")
    if mode == "constant":
        value = c.maybe("constant_val") or c.like(0, x)
        return c.result("Pad", [x, pads, value], mode="constant")
    c.attributes.irrelevant("constant_val", f"mode {mode} does not read it")
    if mode not in ("reflect", "replicate"):
        c.attributes.refuse("mode", "unknown mode")
    return c.result("Pad", [x, pads], mode="reflect" if mode == "reflect" else "edge")


@mil("crop")
def crop(c: Mil) -> Result:
    """Rows and columns, the last two axes, cut away at both ends."""
    x = c.tensor("x")
    cut = [c.integers(name, (0, 0)) for name in ("crop_height", "crop_width")]
    if any(len(v) != 2 or min(v) < 0 for v in cut):
        raise ModelError(f"a crop of {cut}", place=c.node.place)
    rank = c.rank(x)
    ends = [-e if e else END for _, e in cut]
    axes = c.ints((rank - 2, rank - 1))
    return c.result("Slice", [x, c.ints([s for s, _ in cut]), c.ints(ends), axes])


@mil("tile")
def tile(c: Mil) -> Result:
    return c.result("Tile", [c.tensor("x"), c.ints(c.integers("reps", ()))])


@mil("flatten2d")
def flatten2d(c: Mil) -> Result:
    x, axis = c.tensor("x"), c.integer("axis", 1)
    return c.result("Flatten", [x], axis=axis if axis >= 0 else axis + c.rank(x))


OPERATIONS.operator("DepthToSpace", "depth_to_space", blocksize=integer(name="block_size"))
OPERATIONS.operator("SpaceToDepth", "space_to_depth", blocksize=integer(name="block_size"))
SHUFFLE = integer(name="upscale_factor")
OPERATIONS.operator("DepthToSpace", "pixel_shuffle", blocksize=SHUFFLE, mode="CRD")


@mil("pixel_unshuffle")
def pixel_unshuffle(c: Mil) -> Result:
    """[n, c, h, w] -> [n, c * r * r, h / r, w / r], the blocks last in the channels.

    Written as moves where sizes are known: few runtimes know this order of SpaceToDepth.
    """
    x, r = c.tensor("x"), c.integer("downscale_factor")
    dims = [d for d in c.type(x).dims[1:] if isinstance(d, int)]
    if len(dims) != 3 or r < 1:
        return c.result("SpaceToDepth", [x], blocksize=r, mode="CRD")
    channels, height, width = dims
    if height % r or width % r:
        raise ModelError(f"{dims} in blocks of {r}", place=c.node.place)
    apart = c.ints((0, channels, height // r, r, width // r, r))
    transposed = c.add("Transpose", [c.add("Reshape", [x, apart])], perm=(0, 1, 3, 5, 2, 4))
    return c.result("Reshape", [transposed, c.ints((0, channels * r * r, height // r, width // r))])


@mil("reverse")
def reverse(c: Mil) -> Result:
    x = c.tensor("x")
    return shapes.turned_round(c, x, c.integers("axes", tuple(range(c.rank(x)))))


@mil("shape")
def shape(c: Mil) -> Result:
    sizes = c.add("Shape", [c.tensor("x")])
    return c.result("Cast", [sizes], to=c.text("output_dtype", "int32"))


@mil("band_part")
def band_part(c: Mil) -> Result:
    """Zeros further than `lower` below and `upper` above the diagonal; negative: no end."""
    x, lower, upper = c.tensor("x"), c.integer("lower", -1), c.integer("upper", -1)
    if lower >= 0:
        x = c.add("Trilu", [x, c.constant(-lower, np.int64)], upper=True)
    if upper >= 0:
        x = c.add("Trilu", [x, c.constant(upper, np.int64)], upper=False)
    return c.apply("Identity", [x])


@mil("range_1d")
def range_1d(c: Mil) -> Result:
    start, end, step = (c.fixed(n) for n in ("start", "end", "step"))
    if any(v is None or isinstance(v, str) for v in (start, end, step)):
        raise ModelError("start, end and step must be given", place=c.node.place)
    count = max(0, int(np.ceil((float(end) - float(start)) / float(step))))
    c.check_count(count)
    return c.named_constant(np.asarray(start + np.arange(count) * step, np.asarray(start).dtype))


@mil("fill_like")
def fill_like(c: Mil) -> Result:
    value = c.fixed("value")
    value = c.constant(np.float32(0) if value is None else np.asarray(value))
    return c.result("Expand", [value, c.add("Shape", [c.tensor("ref_tensor")])])


def _listed(c: Mil, name: str) -> list[int]:
    """The numbers of an argument that takes a list of constants."""
    bound = c.attributes.get("inputs", ())
    if name not in bound:
        return [c.integer(name)]
    values = [c.constant_input(i, name) for i, n in enumerate(bound) if n == name]
    if any(v.size != 1 for v in values):
        raise ModelError(f"{name} are not single numbers", place=c.node.place)
    return [int(v.ravel()[0]) for v in values]


@mil("reshape_like")
def reshape_like(c: Mil) -> Result:
    """To parts of the shapes of some tensors, one after the other."""
    x, models = c.tensor("x"), c.tensors("ref_tensors")
    lists = [_listed(c, n) for n in ("begins", "ends", "end_masks")]
    if any(len(v) != len(models) for v in lists):
        raise ModelError(f"{len(models)} tensors, {lists}", place=c.node.place)
    slices = []
    for model, begin, end, is_open in zip(models, *lists):
        lists_ = (c.ints((begin,)), c.ints((END if is_open else end,)))
        slices.append(c.add("Slice", [c.add("Shape", [model]), *lists_]))
    shape = slices[0] if len(slices) == 1 else c.add("Concat", slices, axis=0)
    return c.result("Reshape", [x, shape])


def _blocks(c: Mil, name: str) -> tuple[str, tuple[int, ...], tuple[int, int], list[int]]:
    """x, its sizes, the block's, and the four amounts of `name`."""
    x = c.tensor("x")
    dims = tuple(d for d in c.type(x).dims if isinstance(d, int))
    block, amounts = c.integers("block_shape", ()), list(c.integers(name, ()))
    if len(dims) != 4 or c.rank(x) != 4:
        c.refuse(f"blocks of {c.type(x)}, its four sizes must be known")
    if len(block) != 2 or min(block) < 1 or len(amounts) != 4 or min(amounts) < 0:
        raise ModelError(f"blocks {block}, {name} {amounts}", place=c.node.place)
    return x, dims, (block[0], block[1]), amounts


@mil("space_to_batch")
def space_to_batch(c: Mil) -> Result:
    """The places of a block become the slowest part of the batch."""
    x, (n, channels, height, width), (a, b), pads = _blocks(c, "paddings")
    spread = c.ints((0, 0, pads[0], pads[2], 0, 0, pads[1], pads[3]))
    x = c.add("Pad", [x, spread, c.like(0, x)], mode="constant")
    height, width = height + pads[0] + pads[1], width + pads[2] + pads[3]
    if height % a or width % b:
        raise ModelError(f"{height} x {width} in blocks of {a} x {b}", place=c.node.place)
    apart = c.add("Reshape", [x, c.ints((n, channels, height // a, a, width // b, b))])
    transposed = c.add("Transpose", [apart], perm=(3, 5, 0, 1, 2, 4))
    return c.result("Reshape", [transposed, c.ints((n * a * b, channels, height // a, width // b))])


@mil("batch_to_space")
def batch_to_space(c: Mil) -> Result:
    x, (n, channels, height, width), (a, b), cut = _blocks(c, "crops")
    if n % (a * b):
        raise ModelError(f"a batch of {n} in blocks of {a} x {b}", place=c.node.place)
    apart = c.add("Reshape", [x, c.ints((a, b, n // (a * b), channels, height, width))])
    transposed = c.add("Transpose", [apart], perm=(2, 3, 4, 0, 5, 1))
    uncropped = c.add(
        "Reshape", [transposed, c.ints((n // (a * b), channels, height * a, width * b))]
    )
    first, last = c.ints((cut[0], cut[2])), c.ints((height * a - cut[1], width * b - cut[3]))
    return c.result("Slice", [uncropped, first, last, c.ints((2, 3))])
