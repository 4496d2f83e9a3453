"""ATen operators that lay windows out as elements and back: unfold, im2col, col2im, as_strided."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from verax.frontends.common import layers, shapes
from verax.frontends.common.context import Result
from verax.frontends.torch.rows import Aten, row


@row("unfold.default", "unfold_copy.default")
def unfold(t: Aten) -> Result:
    """Windows along one axis, their elements on a new last axis."""
    x = t.tensor("self")
    axis, size, step = t.axis("dimension", x), t.integer("size"), t.integer("step")
    windows = t.append(shapes.windows_along(t, x, axis, size, step))
    rank = t.rank(windows)
    perm = (*(a for a in range(rank) if a != axis + 1), axis + 1)
    return t.result("Transpose", [windows], perm=perm)


def _windows(t: Aten, sizes: Sequence[int]) -> list[np.ndarray]:
    """For each axis the positions [kernel, windows] in the padded input."""
    kernel, dilation = t.integers("kernel_size", None, 2), t.integers("dilation", (1,), 2)
    padding, stride = t.integers("padding", (0,), 2), t.integers("stride", (1,), 2)
    positions = []
    for n, k, d, p, s in zip(sizes, kernel, dilation, padding, stride):
        count = (n + 2 * p - d * (k - 1) - 1) // s + 1 if s > 0 else 0
        if min(k, d, s) < 1 or p < 0 or count < 1:
            t.refuse(f"windows of {k}, dilation {d}, padding {p}, stride {s} on {n} elements")
        t.check_count(k * count)
        positions.append(np.arange(k)[:, None] * d + np.arange(count) * s)
    return positions


@row("im2col.default")
def im2col(t: Aten) -> Result:
    """[n, c, h, w] -> [n, c kernel positions, windows], both row-major."""
    x, added = t.batched(t.tensor("self"), 4)
    rows, columns = _windows(t, [t.known_size(x, 2), t.known_size(x, 3)])
    pads = t.integers("padding", (0,), 2)
    channels = t.known_size(x, 1)
    zero = t.constant(0, t.type(x).dtype.numpy)
    wide = t.add("Pad", [x, t.ints([0, 0, *pads, 0, 0, *pads]), zero])
    lines = t.add("Gather", [wide, t.constant(rows, np.int64)], axis=2)
    patches = t.add("Gather", [lines, t.constant(columns, np.int64)], axis=4)
    kernel_first = t.add("Transpose", [patches], perm=(0, 1, 2, 4, 3, 5))
    kernel = rows.shape[0] * columns.shape[0]
    sizes = [channels * kernel, rows.shape[1] * columns.shape[1]]
    batch = t.add("Shape", [x], end=1)
    shape = t.ints(sizes) if added else t.add("Concat", [batch, t.ints(sizes)], axis=0)
    return t.result("Reshape", [kernel_first, shape])


@row("col2im.default")
def col2im(t: Aten) -> Result:
    """Sums of overlapping windows: a transposed convolution that puts every element at its kernel
    position, channel by channel."""
    x, added = t.batched(t.tensor("self"), 3)
    output = t.integers("output_size", None, 2)
    rows, columns = _windows(t, output)
    kernel = (rows.shape[0], columns.shape[0])
    counts = (rows.shape[1], columns.shape[1])
    total = t.known_size(x, 1)
    if total % math.prod(kernel) or t.known_size(x, 2) != math.prod(counts):
        t.wrong("output_size", output, f"one that {t.type(x)} are the windows of")
    pads, strides = t.integers("padding", (0,), 2), t.integers("stride", (1,), 2)
    dilations = t.integers("dilation", (1,), 2)
    weight, fields = layers.sums_of_windows(
        t,
        t.type(x).dtype,
        total // math.prod(kernel),
        kernel,
        image=output,
        counts=counts,
        strides=strides,
        dilations=dilations,
        pads=tuple((p, p) for p in pads),
    )
    images = t.add("Concat", [t.add("Shape", [x], end=2), t.ints(counts)], axis=0)
    return t.unbatched("ConvTranspose", [t.add("Reshape", [x, images]), weight], added, **fields)


def memory_indices(
    t: Aten, sizes: Sequence[int], strides: Sequence[int], offset: int, count: int
) -> np.ndarray:
    """int64 [*sizes]: index in memory, which has `count` elements, of each element of a strided
    tensor. Refuses indices outside of the memory."""
    t.check_count(math.prod(sizes))
    indices = np.full(sizes, offset)
    for axis, (n, stride) in enumerate(zip(sizes, strides)):
        indices += (np.arange(n) * stride).reshape(-1, *(1,) * (len(sizes) - axis - 1))
    if indices.size and not 0 <= indices.min() <= indices.max() < count:
        t.refuse("places outside of its input")
    return indices


@row("as_strided.default")
def as_strided(t: Aten) -> Result:
    """Elements by their places in memory, which follow from the strides that the program records
    of the input; it must fill its memory without gaps."""
    x = t.tensor("self")
    sizes, strides = t.integers("size"), t.integers("stride")
    own, offset = t.integers("recorded_strides"), t.integer("recorded_offset")
    offset = t.integer("storage_offset", offset) - offset
    dims = [t.known_size(x, axis) for axis in range(t.rank(x))]
    same = [(n, s) for n, s in zip(dims, own) if n != 1]
    if same == [(n, s) for n, s in zip(sizes, strides) if n != 1] and not offset:
        return t.result("Reshape", [x, t.ints(sizes)])
    order = sorted(range(len(dims)), key=lambda a: (-own[a], a))
    expected = [math.prod(dims[a] for a in order[i + 1 :]) for i in range(len(order))]
    if any(dims[a] != 1 and own[a] != stride for a, stride in zip(order, expected)):
        t.refuse(f"an input of strides {own}, which has gaps")
    indices = memory_indices(t, sizes, strides, offset, math.prod(dims))
    flat = t.add("Reshape", [t.add("Transpose", [x], perm=tuple(order)), t.ints([-1])])
    return t.result("Gather", [flat, t.constant(indices, np.int64)], axis=0)
