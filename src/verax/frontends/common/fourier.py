"""Discrete Fourier transforms of every format: products with constant matrices, one for each axis.

Complex numbers are pairs, a last axis of two: real and imaginary part. Cosines and sines are
computed in float64 and rounded once to the type of the numbers that are transformed.
"""

from __future__ import annotations

import numpy as np

from verax.frontends.common.context import Conversion
from verax.ir.types import DType

LONGEST = 4096
"""Elements of an axis that is transformed: the matrix has four times their square."""
PLAIN, ROOT, WHOLE = range(3)
"""What a transform is divided by: nothing, the root of its size, its size."""


def _matrix(
    size: int, given: int, bins: int, sign: int, scale: float, pair: bool, real: bool
) -> np.ndarray:
    """[given (2), bins (2)]: exp(sign 2 pi i j k / size) for positions j and bins k. given: how
    many of the positions there are, the others being zeros; real: only the real parts, of a result
    whose other half mirrors `given`."""
    j, k = np.arange(given)[:, None], np.arange(bins)[None]
    angle = sign * 2 * np.pi * ((j * k) % size) / size
    cos, sin = scale * np.cos(angle), scale * np.sin(angle)
    if real:  # bins above the middle are conjugates of those below
        single = (j == 0) | ((size % 2 == 0) & (j == size // 2))
        weight = np.where(single, 1.0, 2.0)
        return np.stack([cos * weight, -sin * weight], 1).reshape(2 * given, bins)
    of_real = np.stack([cos, sin], -1).reshape(given, 2 * bins)
    if not pair:
        return of_real
    of_imaginary = np.stack([-sin, cos], -1).reshape(given, 2 * bins)
    return np.stack([of_real, of_imaginary], 1).reshape(2 * given, 2 * bins)


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
    rank, dtype = c.rank(x) - pair, c.type(x).dtype
    if dtype not in (DType.float32, DType.float64):
        c.refuse(f"a transform of {dtype}")
    length = c.known_size(x, axis)
    size = size if size is not None else 2 * (length - 1) if real else length
    most = size // 2 + 1 if real else size
    if size < 1 or size > LONGEST:
        c.refuse(f"a transform of {size} elements; 1 to {LONGEST} are supported")
    given = min(length, most)
    if given < length:
        x = c.add("Slice", [x, c.ints([0]), c.ints([given]), c.ints([axis])])
    bins = size // 2 + 1 if onesided else size
    scale = (1.0, size**-0.5, 1 / size)[norm]
    matrix = c.constant(_matrix(size, given, bins, sign, scale, pair, real), dtype.numpy)
    order = [a for a in range(rank) if a != axis]
    last = axis == rank - 1
    if not last:
        behind = [rank] if pair else []
        x = c.add("Transpose", [x], perm=(*order, axis, *behind))
    front = c.add("Shape", [x], end=rank - 1)
    if pair:
        x = c.add("Reshape", [x, c.add("Concat", [front, c.ints([2 * given])], axis=0)])
    y = c.add("MatMul", [x, matrix])
    if not real:
        y = c.add("Reshape", [y, c.add("Concat", [front, c.ints([bins, 2])], axis=0)])
    if last:
        return y
    back = [0] * rank
    for new, old in enumerate([*order, axis]):
        back[old] = new
    return c.add("Transpose", [y], perm=(*back, *([] if real else [rank])))
