"""Bilinear samples of the last two axes on the grids that CoreML has, as products with matrices.

A grid along an axis is a list of positions; the sample at p is the sum over pixels i of
max(0, 1 - |p - i|) times the pixel. Grids: `SamplingMode` of NeuralNetwork.proto; the documentation
of resize_bilinear and crop_resize in coremltools.
"""

from __future__ import annotations

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.context import MAX_MADE, Conversion
from verax.frontends.common.shapes import sliced

STRICT, ALIGN, UPSAMPLE, OFFSET, UNALIGN = "strict", "align", "upsample", "offset", "unalign"


def grid(mode: str, size: int, count: int) -> tuple[np.ndarray, int]:
    """Positions [count] on an axis of `size` pixels as whole numbers, and what divides them."""
    steps = np.arange(count)
    match mode:
        case "strict" | "align":
            if count == 1:
                return np.full(1, size - 1 if mode == ALIGN else 0), 2
            return steps * (size - 1), count - 1
        case "upsample":
            return steps * size, count
        case "offset":
            return (2 * steps + 1) * max(1, size - 1), 2 * count
    return (2 * steps + 1) * size - count, 2 * count


def resampled(c: Conversion, x: str, mode: str, sizes: tuple[int, int]) -> str:
    """The last two axes of x, whose sizes must be known, at new sizes.

    Raises `UnsupportedError` for unknown sizes.
    """
    dims = c.known_sizes(x, (-2, -1), "the grid")
    if any(m < 1 or n * m > MAX_MADE for n, m in zip(dims, sizes)):
        raise ModelError(f"{dims} at the sizes {sizes}", place=c.node.place)
    hats = []
    for n, m in zip(dims, sizes):
        numerators, divisor = grid(mode, n, m)
        at = c.add("Div", [_row(c, x, numerators), c.like(divisor, x)])
        at = c.add("Clip", [at, c.like(0, x), c.like(n - 1, x)])
        hats.append(c.add("Squeeze", [_hats(c, at, n)[0], c.ints((0,))]))
    columns = c.add("Transpose", [hats[1]], perm=(1, 0))
    return c.add("MatMul", [c.add("MatMul", [hats[0], x]), columns])


def crops(
    c: Conversion, x: str, boxes: str, batches: str | None, sizes: tuple[int, int], mode: str, *,
    order: str, normalized: bool, scale: float, outside: float = 0.0,
) -> str:  # fmt: skip
    """Boxes [N, 4] of images x [B, C, H, W] at `sizes`.

    batches: [N], int64, which image each box is of: [N, C, h, w]; None: each is of all images,
    [N, B, C, h, w]. order: what the numbers of a box are. normalized: they are shares of H - 1 and
    W - 1. Samples beyond the image are `outside`.
    """
    type_ = c.type(x)
    static_sizes = [d for d in type_.dims if isinstance(d, int)]
    if (
        type_.rank != 4
        or len(static_sizes) < 2
        or not all(isinstance(d, int) for d in type_.dims[2:])
    ):
        c.refuse(f"boxes of {type_}, its height and width must be known")
    if mode == UNALIGN:
        c.refuse("this grid has no meaning for boxes in the format's documentation")
    if min(sizes) < 1 or max(sizes) > MAX_MADE:
        raise ModelError(f"boxes at the sizes {sizes}", place=c.node.place)
    limits = (int(static_sizes[-2]), int(static_sizes[-1]))
    weights = []
    for axis, (limit, count) in enumerate(zip(limits, sizes)):
        start, end = _interval(c, boxes, axis, order)
        factor = scale * (limit - 1 if normalized else 1)
        if factor != 1:
            start, end = (c.add("Mul", [v, c.like(factor, v)]) for v in (start, end))
        weights.append(_hats(c, _positions(c, mode, start, end, count), limit))
    (rows, inside_h), (columns, inside_w) = weights
    lift: tuple[int, ...] = (1,)
    if batches is None:
        lift = (1, 2)
        image = c.add("Unsqueeze", [x, c.ints((0,))])
    else:
        image = c.add("Gather", [x, batches], axis=0)
    rows = c.add("Unsqueeze", [rows, c.ints(lift)])
    rank = 2 + len(lift) + 1
    columns = c.add("Unsqueeze", [columns, c.ints(lift)])
    transposed_columns = c.add("Transpose", [columns], perm=(*range(rank - 2), rank - 1, rank - 2))
    samples = c.add("MatMul", [c.add("MatMul", [rows, image]), transposed_columns])
    high = c.add("Unsqueeze", [inside_h, c.ints((*lift, rank - 1))])
    wide = c.add("Unsqueeze", [inside_w, c.ints((*lift, rank - 2))])
    return c.add("Where", [c.add("And", [high, wide]), samples, c.like(outside, x)])


def boxes_of(c: Conversion, value: str) -> tuple[str, str | None]:
    """Boxes [N, 1, 4, 1, 1] as [N, 4]; of [N, 1, 5, 1, 1], whose first number is an image's, these
    numbers as well."""
    dims = c.type(value).dims
    if c.rank(value) != 5 or dims[1] != 1 or dims[2] not in (4, 5) or tuple(dims[3:]) != (1, 1):
        c.refuse(f"boxes {c.type(value)}")
    flat = c.add("Squeeze", [value, c.ints((1, 3, 4))])
    if dims[2] == 4:
        return flat, None
    first, boxes = (c.append(sliced(c, flat, (1,), (s,), (e,))) for s, e in ((0, 1), (1, 5)))
    return boxes, c.cast(c.add("Squeeze", [first, c.ints((1,))]), "int64")


def _interval(c: Conversion, boxes: str, axis: int, order: str) -> tuple[str, str]:
    """Start and end of boxes along height (axis 0) or width (1), [N, 1]."""
    first = axis if order.endswith("HEIGHT_FIRST") else 1 - axis
    a, b = (
        c.add("Slice", [boxes, c.ints((i,)), c.ints((i + 1,)), c.ints((1,))])
        for i in (first, first + 2)
    )
    if order.startswith("CORNERS"):
        return a, b
    half = c.add("Mul", [b, c.like(0.5, b)])
    return c.add("Sub", [a, half]), c.add("Add", [a, half])


def _positions(c: Conversion, mode: str, start: str, end: str, count: int) -> str:
    """[N, count] positions between start and end [N, 1], as `grid` for an interval of that size."""
    length = c.add("Sub", [end, start])
    match mode:
        case "strict" | "align":
            size, numerators, divisor = length, np.arange(count), max(1, count - 1)
            if count == 1 and mode == ALIGN:
                numerators, divisor = np.arange(1, 2), 2
        case "upsample":
            size, numerators, divisor = (
                c.add("Add", [length, c.like(1, length)]),
                np.arange(count),
                count,
            )
        case _:
            size = c.add("Max", [length, c.like(1, length)])
            numerators, divisor = 2 * np.arange(count) + 1, 2 * count
    offsets = c.add("Mul", [size, _row(c, length, numerators)])
    offsets = c.add("Div", [offsets, c.like(divisor, length)])
    if mode in (UPSAMPLE, OFFSET):
        offsets = c.add("Min", [offsets, length])
    return c.add("Add", [start, offsets])


def _row(c: Conversion, x: str, values: np.ndarray) -> str:
    return c.constant(values[None].astype(c.type(x).dtype.numpy))


def _hats(c: Conversion, at: str, size: int) -> tuple[str, str]:
    """Weights [N, count, size] of the pixels for positions [N, count]; which lie on the image."""
    pixels = np.arange(size).reshape(1, 1, -1).astype(c.type(at).dtype.numpy)
    distance = c.add("Sub", [c.add("Unsqueeze", [at, c.ints((2,))]), c.constant(pixels)])
    weights = c.add("Sub", [c.like(1, at), c.add("Abs", [distance])])
    low = c.add("GreaterOrEqual", [at, c.like(0, at)])
    high = c.add("LessOrEqual", [at, c.like(size - 1, at)])
    return c.add("Relu", [weights]), c.add("And", [low, high])
