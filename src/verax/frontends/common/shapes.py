"""What moves elements in several formats: stacks, turned and rolled axes, blocks, windows, slices.

Each takes a node and values of the graph, appends what it needs, and gives the last step for a row
to return (or for `Conversion.append`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.context import MAX_MADE, Applied, Conversion
from verax.ir.types import TensorType
from verax.ops.windows.windows import geometry

END = 2**31 - 1
"""Beyond the end of any axis."""

Pads = tuple[tuple[int, int], ...]


# Axes


def inverse(perm: Sequence[int]) -> tuple[int, ...]:
    """The permutation that undoes another."""
    return tuple(int(i) for i in np.argsort(perm))


def exchanged(c: Conversion, x: str, first: int, second: int) -> Applied:
    """Two axes exchanged."""
    rank = c.rank(x)
    perm = list(range(rank))
    if perm:
        i, j = c.from_front(first, rank), c.from_front(second, rank)
        perm[i], perm[j] = perm[j], perm[i]
    return c.apply("Transpose", [x], perm=tuple(perm))


def move_axes(c: Conversion, x: str, source: Sequence[int], target: Sequence[int]) -> Applied:
    """Transpose: the axes `source` become the axes `target`; the others keep their order."""
    rank = c.rank(x)
    old, new = ([c.from_front(a, rank) for a in axes] for axes in (source, target))
    if len({*old}) != len(old) or len({*new}) != len(new) or len(old) != len(new):
        raise ModelError(f"axes {old} cannot move to {new}", place=c.node.place)
    remaining_axes = iter(a for a in range(rank) if a not in old)
    came_from = dict(zip(new, old))
    perm = tuple(came_from[a] if a in came_from else next(remaining_axes) for a in range(rank))
    return c.apply("Transpose", [x], perm=perm)


def stacked(c: Conversion, values: Sequence[str], axis: int) -> Applied:
    """Values of one shape along a new axis."""
    axis = c.from_front(axis, c.rank(values[0]) + 1)
    at = c.ints((axis,))
    return c.apply("Concat", [c.add("Unsqueeze", [v, at]) for v in values], axis=axis)


def interleaved(c: Conversion, values: Sequence[str], axis: int) -> Applied:
    """The first elements of all values along an axis, then the second ones, and so on."""
    type_ = c.type(values[0])
    if any(c.type(v).dims != type_.dims for v in values) or 0 in type_.dims:
        raise ModelError("interleaved values of several shapes", place=c.node.place)
    axis = c.from_front(axis, type_.rank)
    stacked_values = c.append(stacked(c, values, axis + 1))
    shape = [0] * type_.rank
    shape[axis] = -1
    if axis + 1 < type_.rank or all(isinstance(d, int) for d in type_.dims):
        shape = list(c.known_sizes(values[0], dependent="what is interleaved"))
        shape[axis] *= len(values)
    return c.apply("Reshape", [stacked_values, c.ints(shape)])


# Parts


def sliced(
    c: Conversion, x: str, axes: Sequence[int], starts: Sequence[int], ends: Sequence[int],
    steps: Sequence[int] | None = None,
) -> Applied:  # fmt: skip
    lists = [starts, ends, axes] if steps is None else [starts, ends, axes, steps]
    return c.apply("Slice", [x, *map(c.ints, lists)])


def strided(
    c: Conversion, x: str, begins: Sequence[int], ends: Sequence[int], steps: Sequence[int],
    open_begins: Sequence[int], open_ends: Sequence[int], single: Sequence[int],
) -> Applied:  # fmt: skip
    """A slice of the first axes, a mask of 0 and 1 per axis saying which bounds are left out and
    which axes are single elements and go."""
    starts, stops, strides = list(begins), list(ends), list(steps)
    if (
        len({len(starts), len(stops), len(strides), len(open_begins), len(open_ends), len(single)})
        > 1
    ):
        raise ModelError("the slice's lists have different lengths", place=c.node.place)
    if 0 in strides or len(starts) > c.rank(x):
        raise ModelError(f"a slice by {strides} of {c.type(x)}", place=c.node.place)
    for i, step in enumerate(strides):
        if single[i]:
            strides[i], stops[i] = 1, starts[i] + 1 or END
            continue
        first, last = (0, END) if step > 0 else (END, -END)
        starts[i] = first if open_begins[i] else starts[i]
        stops[i] = last if open_ends[i] else stops[i]
    gone = [i for i, is_single in enumerate(single) if is_single]
    slice_ = sliced(c, x, range(len(starts)), starts, stops, strides)
    return c.apply("Squeeze", [c.append(slice_), c.ints(gone)]) if gone else slice_


def slice_of_sizes(c: Conversion, x: str, begins: Sequence[int], sizes: Sequence[int]) -> Applied:
    """From begins on, so many elements of each axis; -1: to the end."""
    if min(begins, default=0) < 0 or not len(begins) == len(sizes) == c.rank(x):
        raise ModelError(f"{sizes} elements from {begins} of {c.type(x)}", place=c.node.place)
    ends = [END if n == -1 else b + n for b, n in zip(begins, sizes)]
    return c.apply("Slice", [x, c.ints(begins), c.ints(ends)])


def turned_round(c: Conversion, x: str, axes: Sequence[int]) -> Applied:
    """The order along some axes turned round."""
    back = [-1] * len(axes)
    return sliced(c, x, axes, back, [-END] * len(axes), back)


def rolled(c: Conversion, x: str, shift: int, axis: int) -> str:
    """Elements shifted beyond the end of an axis come in at its front."""
    axis = c.from_front(axis, c.rank(x))
    cut = -shift % max(c.known_size(x, axis, "where elements come in"), 1)
    slices = [c.append(sliced(c, x, (axis,), (b,), (e,))) for b, e in ((cut, END), (0, cut))]
    return c.add("Concat", slices, axis=axis)


def split_sizes(c: Conversion, x: str, axis: int, sizes: Sequence[int]) -> list[int]:
    """`sizes` of a split of `axis`, with the size of the remainder in place of a -1."""
    resolved = list(sizes)
    if -1 in resolved:
        axis_size = c.known_size(x, axis, "the size of the last part")
        resolved[resolved.index(-1)] = axis_size - (sum(resolved) + 1)
    return resolved


def windows_along(
    c: Conversion,
    x: str,
    axis: int,
    width: int,
    step: int,
    description: str = "the number of windows",
) -> Applied:
    """An axis as two axes, [windows, width], one window every `step`."""
    axis = c.from_front(axis, c.rank(x))
    size = c.known_size(x, axis, description)
    if min(width, step) < 1 or width > size:
        raise ModelError(f"windows of {width} every {step} in {size}", place=c.node.place)
    count = (size - width) // step + 1
    if count * width > MAX_MADE:
        raise ModelError(f"{count} windows of {width}", place=c.node.place)
    indices = np.arange(count)[:, None] * step + np.arange(width)
    return c.apply("Gather", [x, c.constant(indices, np.int64)], axis=axis)


def repeated(c: Conversion, x: str, count: int, axis: int) -> Applied:
    """Every element of an axis `count` times in a row."""
    axis = c.from_front(axis, c.rank(x))
    size = c.known_size(x, axis, "the repeated positions")
    c.check_count(size * count)
    return c.apply("Gather", [x, c.ints(np.repeat(np.arange(size), count).tolist())], axis=axis)


def positions(c: Conversion, x: str) -> Applied:
    """Positions [count, rank] of what is not zero, int64."""
    return c.apply("Transpose", [c.add("NonZero", [x])], perm=(1, 0))


def gathered(c: Conversion, x: str, indices: str, axis: int, batch: int) -> Applied:
    """Elements of an axis by index; the first `batch` axes of x and indices run together."""
    rank, depth = c.rank(x), c.rank(indices)
    if not batch:
        return c.apply("Gather", [x, indices], axis=axis)
    axis, batch = c.from_front(axis, rank), batch + depth if batch < 0 else batch
    more = depth - batch
    if not 0 < batch <= axis or more < 0:
        raise ModelError(f"batch_dims {batch}, axis {axis}", place=c.node.place)
    # [batch, between, axis, rest] -> [batch, axis, between, rest], and back once gathered
    head, between = range(batch), range(batch, axis)
    x = c.add("Transpose", [x], perm=(*head, axis, *between, *range(axis + 1, rank)))
    index = c.add("Unsqueeze", [c.cast(indices, "int64"), c.ints((-1,))])
    elements = c.add("GatherND", [x, index], batch_dims=batch)
    middle = range(batch + more, batch + more + len(between))
    last = range(batch + more + len(between), rank - 1 + more)
    return c.apply(
        "Transpose", [elements], perm=(*head, *middle, *range(batch, batch + more), *last)
    )


def scattered_slices(
    c: Conversion, x: str, indices: str, updates: str, axis: int, reduction: str
) -> Applied:
    """Whole slices of x across an axis; the axes of the indices stand in its place in updates."""
    rank, many = c.rank(x), c.rank(indices)
    axis = c.from_front(axis, rank)
    if c.rank(updates) != rank + many - 1:
        raise ModelError(f"axis {axis}, updates {c.type(updates)}", place=c.node.place)
    order = (axis, *(i for i in range(rank) if i != axis))
    first = range(axis, axis + many)
    updates_perm = (*first, *(i for i in range(rank + many - 1) if i not in first))
    data = c.add("Transpose", [x], perm=order)
    updates = c.add("Transpose", [updates], perm=updates_perm)
    index = c.add("Unsqueeze", [indices, c.ints((many,))])
    scattered = c.add("ScatterND", [data, index, updates], reduction=reduction)
    return c.apply("Transpose", [scattered], perm=inverse(order))


def added_to_zeros(c: Conversion, indices: str, updates: str, shape: str) -> Applied:
    """Zeros of a shape; updates of one place add up."""
    zeros = c.add("Expand", [c.like(0, updates), shape])
    return c.apply("ScatterND", [zeros, c.cast(indices, "int64"), updates], reduction="add")


# Blocks of TensorFlow's family


def space_to_batch(
    c: Conversion, x: str, block: Sequence[int], ends: Sequence[int], zero: str | None = None
) -> Applied:
    """x [n, *spatial, ...]; (begin, end) pads. Blocks become batches, the position in the block
    being the outer index. zero: what is padded with."""
    dims, m = c.known_sizes(x, range(1, c.rank(x)), "how blocks lie"), len(block)
    if len(ends) != 2 * m or min(*block, 1) < 1 or min(*ends, 0) < 0 or m > len(dims):
        raise ModelError(f"blocks of {block}, pads {ends} on {c.type(x)}", place=c.node.place)
    inner_dims = dims[m:]
    widths = [0, *ends[::2], *[0] * len(inner_dims), 0, *ends[1::2], *[0] * len(inner_dims)]
    if any(ends):
        x = c.add("Pad", [x, c.ints(widths), zero])
    inner = [d + a + b for d, a, b in zip(dims, ends[::2], ends[1::2])]
    if any(d % b for d, b in zip(inner, block)):
        raise ModelError(f"{inner} is not a multiple of {block}", place=c.node.place)
    cut = [v for d, b in zip(inner, block) for v in (d // b, b)]
    x = c.add("Reshape", [x, c.ints([-1, *cut, *inner_dims])])
    block_axes, tail = range(1, 2 * m + 1, 2), range(2 * m + 1, 2 * m + 1 + len(inner_dims))
    x = c.add("Transpose", [x], perm=(*range(2, 2 * m + 2, 2), 0, *block_axes, *tail))
    small = [d // b for d, b in zip(inner, block)]
    return c.apply("Reshape", [x, c.ints([-1, *small, *inner_dims])])


def batch_to_space(c: Conversion, x: str, block: Sequence[int], crops: Sequence[int]) -> Applied:
    """x [n blocks, *spatial, ...]; (begin, end) crops."""
    dims, m = c.known_sizes(x, range(1, c.rank(x)), "how blocks lie"), len(block)
    batch = c.type(x).dims[0]
    if len(crops) != 2 * m or min(*block, 1) < 1 or m > len(dims):
        raise ModelError(f"blocks of {block}, crops {crops} on {c.type(x)}", place=c.node.place)
    if isinstance(batch, int) and batch % math.prod(block):
        raise ModelError(f"{batch} batches in blocks of {block}", place=c.node.place)
    inner_dims, big = dims[m:], [d * b for d, b in zip(dims, block)]
    if any(b < 0 or e < 0 or b + e > d for b, e, d in zip(crops[::2], crops[1::2], big)):
        raise ModelError(f"crops {crops} of {big}", place=c.node.place)
    x = c.add("Reshape", [x, c.ints([*block, -1, *dims])])
    interleaved_axes = [v for i in range(m) for v in (m + 1 + i, i)]
    x = c.add(
        "Transpose",
        [x],
        perm=(m, *interleaved_axes, *range(2 * m + 1, 2 * m + 1 + len(inner_dims))),
    )
    uncropped = c.apply("Reshape", [x, c.ints([-1, *big, *inner_dims])])
    if not any(crops):
        return uncropped
    ends = [d - e for d, e in zip(big, crops[1::2])]
    return sliced(c, c.append(uncropped), range(1, m + 1), crops[::2], ends)


# Windows


def resolved(
    rule: Pads | str,
    x: TensorType,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int] = (),
) -> Pads | str:
    """The pads of a window in numbers; a rule stays one while the sizes of x are symbols."""
    sizes = [d for d in x.dims[2:] if isinstance(d, int)]
    if len(sizes) != x.rank - 2:
        return rule
    return geometry(kernel, tuple(strides), rule, tuple(dilations)).resolved_pads(sizes)


def same_transposed(
    reach: Sequence[int], strides: Sequence[int], rule: str
) -> tuple[Pads, tuple[int, ...]]:
    """Pads and output padding of a transposed convolution that gives strides times its input:
    half of what is too much goes at each border, the odd one where the rule has it."""
    pads = []
    for e, s in zip(reach, strides):
        small, large = max(0, e - s) // 2, max(0, e - s) - max(0, e - s) // 2
        pads.append((small, large) if rule == "SAME_UPPER" else (large, small))
    return tuple(pads), tuple(max(0, s - e) for e, s in zip(reach, strides))
