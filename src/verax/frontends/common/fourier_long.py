"""Discrete Fourier transforms of axes too long for one matrix, taken apart into short ones.

A size n1 n2 is n2 transforms of n1 elements, a product with constant factors, and n1 transforms of
n2 elements (Cooley and Tukey), about n sqrt(n) products in all. A size with a large prime factor is
a convolution with a chirp (Bluestein), which transforms of a power of two compute.
"""

from __future__ import annotations

import math

import numpy as np

from verax.frontends.common.context import Conversion
from verax.frontends.common.fourier_matrix import (
    Parts,
    circle,
    is_one_product,
    product,
    put_back,
)


def long_transform(
    c: Conversion, x: Parts, axis: int, size: int, bins: int, sign: int, scale: float, real: bool
) -> Parts:
    """The first `bins` of the transform of an axis, times `scale`; `real`: of what `bins` mirror,
    the real part."""
    rank, im = c.rank(x[0]), x[1]
    if real and im is not None:
        x = _mirrored(c, (x[0], im), axis, size)
    components = [None if v is None else _to_end(c, _fitted(c, v, axis, size), axis) for v in x]
    y = _of_rows(c, (str(components[0]), components[1]), size, sign)
    results: list[str] = []
    for component in y[:1] if real else y:
        if bins < size:
            component = c.add("Slice", [component, c.ints([0]), c.ints([bins]), c.ints([rank - 1])])
        if scale != 1:
            component = c.add("Mul", [component, c.like(scale, component)])
        if axis < rank - 1:
            order = [a for a in range(rank) if a != axis]
            component = c.add("Transpose", [component], perm=put_back(order, axis))
        results.append(component)
    return results[0], None if real else results[1]


def _to_end(c: Conversion, x: str, axis: int) -> str:
    rank = c.rank(x)
    if axis == rank - 1:
        return x
    return c.add("Transpose", [x], perm=(*(a for a in range(rank) if a != axis), axis))


def _fitted(c: Conversion, x: str, axis: int, size: int) -> str:
    """x cut or continued with zeros along an axis."""
    length, rank = c.known_size(x, axis), c.rank(x)
    if length > size:
        return c.add("Slice", [x, c.ints([0]), c.ints([size]), c.ints([axis])])
    if length == size:
        return x
    pads = [0] * (2 * rank)
    pads[rank + axis] = size - length
    return c.add("Pad", [x, c.ints(pads), c.like(0, x)])


def _mirrored(c: Conversion, x: tuple[str, str], axis: int, size: int) -> tuple[str, str]:
    """All bins of a real signal from the bins 0 to size // 2; the imaginary part of those that are
    their own conjugates counts for nothing."""
    half = size // 2 + 1
    re, im = (_fitted(c, v, axis, half) for v in x)
    keep = np.ones(half)
    keep[0] = 0
    keep[-1] = size % 2
    shape = [half if a == axis else 1 for a in range(c.rank(re))]
    im = c.add("Mul", [im, c.like(keep.reshape(shape), im)])
    mirrored_indices = c.constant(np.arange(size - half, 0, -1), np.int64)
    back_re, back_im = (c.add("Gather", [v, mirrored_indices], axis=axis) for v in (re, im))
    back_im = c.add("Neg", [back_im])
    return (
        c.add("Concat", [re, back_re], axis=axis),
        c.add("Concat", [im, back_im], axis=axis),
    )


def _split(size: int) -> tuple[int, int] | None:
    """The factors of a size that are nearest to each other; None for a prime."""
    small = next(d for d in range(math.isqrt(size), 0, -1) if size % d == 0)
    return None if small == 1 else (small, size // small)


def _of_rows(c: Conversion, x: Parts, size: int, sign: int) -> tuple[str, str]:
    """Along the last axis, of `size` elements."""
    rank = c.rank(x[0])
    if is_one_product(size):
        re, im = product(c, x, rank - 1, size, size, size, sign)
        assert im is not None
        return re, im
    factors = _split(size)
    if factors is None:
        return _by_chirps(c, x, size, sign)
    first, second = factors
    front = c.add("Shape", [x[0]], end=rank - 1)
    grid = c.add("Concat", [front, c.ints([first, second])], axis=0)
    swapped_axes = (*range(rank - 1), rank, rank - 1)
    columns: list[str | None] = [
        None if v is None else c.add("Transpose", [c.add("Reshape", [v, grid])], perm=swapped_axes)
        for v in x
    ]
    a = _of_rows(c, (str(columns[0]), columns[1]), first, sign)  # [.., second, first]
    angles = np.arange(second)[:, None] * np.arange(first)
    a = _times(c, a, *circle(size, angles, sign))
    a = (
        c.add("Transpose", [a[0]], perm=swapped_axes),
        c.add("Transpose", [a[1]], perm=swapped_axes),
    )
    b = _of_rows(c, a, second, sign)  # [.., first, second]
    row = c.add("Concat", [front, c.ints([size])], axis=0)
    results = [c.add("Reshape", [c.add("Transpose", [v], perm=swapped_axes), row]) for v in b]
    return results[0], results[1]


def _times(c: Conversion, x: Parts, cos: np.ndarray, sin: np.ndarray) -> tuple[str, str]:
    """The product with constants cos + i sin."""
    re, im = x
    cos_, sin_ = c.like(cos, re), c.like(sin, re)
    if im is None:
        return c.add("Mul", [re, cos_]), c.add("Mul", [re, sin_])
    one, two = c.add("Mul", [re, cos_]), c.add("Mul", [im, sin_])
    three, four = c.add("Mul", [re, sin_]), c.add("Mul", [im, cos_])
    return c.add("Sub", [one, two]), c.add("Add", [three, four])


def _by_chirps(c: Conversion, x: Parts, size: int, sign: int) -> tuple[str, str]:
    """j k = (j j + k k - (k - j) (k - j)) / 2: the factors of j and of k are products, that of
    k - j is a convolution, computed round a circle of a power of two."""
    rank, wide = c.rank(x[0]), 1 << (2 * size - 2).bit_length()
    j = np.arange(size)
    cos, sin = circle(2 * size, j * j, sign)
    chirp = np.zeros(wide, np.complex128)
    chirp[:size] = cos - 1j * sin
    chirp[wide - size + 1 :] = chirp[1:size][::-1]
    kernel = np.fft.fft(chirp) / wide
    a = _times(c, x, cos, sin)
    padded = (_fitted(c, a[0], rank - 1, wide), _fitted(c, a[1], rank - 1, wide))
    a = _times(c, _of_rows(c, padded, wide, -1), kernel.real, kernel.imag)
    a = _of_rows(c, a, wide, 1)
    return _times(c, (_fitted(c, a[0], rank - 1, size), _fitted(c, a[1], rank - 1, size)), cos, sin)
