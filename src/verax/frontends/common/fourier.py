"""Discrete Fourier transforms of every format, as products with constant matrices.

Complex numbers are pairs, a last axis of two (`transformed`), or two tensors, the real and the
imaginary part (`on_parts`). A short axis is one product (`is_one_product`); longer ones are taken
apart (`fourier_long`).
"""

from __future__ import annotations

import numpy as np

from verax.frontends.common.context import Conversion
from verax.frontends.common.fourier_long import long_transform
from verax.frontends.common.fourier_matrix import (
    Parts,
    is_one_product,
    matrix,
    product,
    put_back,
)
from verax.ir.types import DType

MOST = 1 << 20
"""Elements of an axis that is transformed at all."""
PLAIN, ROOT, WHOLE = range(3)
"""What a transform is divided by: nothing, the root of its size, its size."""


def _sizes(
    c: Conversion, x: str, axis: int, size: int | None, onesided: bool, real: bool
) -> tuple[int, int, int]:
    """(size of the transform, elements of the axis that enter it, size of the result)."""
    dtype = c.type(x).dtype
    if dtype not in (DType.float32, DType.float64):
        c.refuse(f"a transform of {dtype}")
    length = c.known_size(x, axis)
    size = size if size is not None else 2 * (length - 1) if real else length
    if size < 1 or size > MOST:
        c.refuse(f"a transform of {size} elements; 1 to {MOST} are supported")
    used_length = min(length, size // 2 + 1 if real else size)
    return size, used_length, size // 2 + 1 if onesided else size


def transformed(
    c: Conversion, x: str, axis: int, pair: bool, size: int | None, sign: int, norm: int = PLAIN,
    onesided: bool = False, real: bool = False,
) -> str:  # fmt: skip
    """The transform of x along an axis (of its rank without the pairs' own): the sum over j of
    x[j] exp(sign 2 pi i j k / size), divided by what `norm` says; pairs, unless `real`.

    pair: x holds pairs. size: of the transform, by default as long as the axis, or for a real
    result as long as onesided bins tell; x is cut or continued with zeros. onesided: the bins 0 to
    size // 2 only. real: x holds such bins, and the result, which is real, is given as it is.
    Raises `ValueNeededError` while the axis' size is open.
    """
    rank = c.rank(x) - pair
    size, used_length, bins = _sizes(c, x, axis, size, onesided, real)
    if not is_one_product(size):
        return _long_pairs(c, x, axis, pair, size, sign, norm, onesided, real)
    if used_length < c.known_size(x, axis):
        x = c.add("Slice", [x, c.ints([0]), c.ints([used_length]), c.ints([axis])])
    scale = (1.0, size**-0.5, 1 / size)[norm]
    numbers = matrix(size, used_length, bins, sign, scale, pair, real, False)
    order = [a for a in range(rank) if a != axis]
    last = axis == rank - 1
    if not last:
        behind = [rank] if pair else []
        x = c.add("Transpose", [x], perm=(*order, axis, *behind))
    front = c.add("Shape", [x], end=rank - 1)
    if pair:
        x = c.add("Reshape", [x, c.add("Concat", [front, c.ints([2 * used_length])], axis=0)])
    y = c.add("MatMul", [x, c.like(numbers, x)])
    if not real:
        y = c.add("Reshape", [y, c.add("Concat", [front, c.ints([bins, 2])], axis=0)])
    if last:
        return y
    return c.add("Transpose", [y], perm=(*put_back(order, axis), *([] if real else [rank])))


def on_parts(
    c: Conversion, x: Parts, axis: int, size: int | None, sign: int, norm: int = PLAIN,
    onesided: bool = False, real: bool = False,
) -> Parts:  # fmt: skip
    """As `transformed`, of a real and an imaginary part; the result's are given, (y, None) for a
    real one. What becomes a real result has an imaginary part."""
    size, used_length, bins = _sizes(c, x[0], axis, size, onesided, real)
    scale = (1.0, size**-0.5, 1 / size)[norm]
    if not is_one_product(size):
        return long_transform(c, x, axis, size, bins, sign, scale, real)
    return product(c, x, axis, size, used_length, bins, sign, scale, real)


def _long_pairs(
    c: Conversion, x: str, axis: int, pair: bool, size: int, sign: int, norm: int, onesided: bool,
    real: bool,
) -> str:  # fmt: skip
    """`transformed` of what is no single product."""
    real_and_imaginary: Parts = (x, None)
    if pair:
        one, two = (c.add("Gather", [x, c.constant(i, np.int64)], axis=-1) for i in (0, 1))
        real_and_imaginary = (one, two)
    y, imaginary = on_parts(c, real_and_imaginary, axis, size, sign, norm, onesided, real)
    if imaginary is None:
        return y
    behind = c.ints([-1])
    return c.add("Concat", [c.add("Unsqueeze", [v, behind]) for v in (y, imaginary)], axis=-1)
