"""The constant matrices of Fourier transforms, and the transform of one axis that is one product.

Cosines and sines are computed in float64; the graph's constants are rounded once to the type of the
numbers that are transformed.
"""

from __future__ import annotations

import numpy as np

from verax.frontends.common.context import Conversion

LONGEST = 4096
"""Elements of an axis that one matrix transforms. Two steps through the factors of their number are
faster from 256 on and err less; but what errs less is also what other implementations are measured
by, and sums over up to so many elements, as runtimes and people write them, are honest."""
Parts = tuple[str, str | None]
"""Real and imaginary part; None where all numbers are real."""


def is_one_product(size: int) -> bool:
    """Whether a transform of so many elements is a product with one matrix."""
    return size <= LONGEST


def circle(size: int, numbers: np.ndarray, sign: int) -> tuple[np.ndarray, np.ndarray]:
    """Cosine and sine of sign 2 pi numbers / size, numbers being integers: zeros and ones are
    exact, so that what cancels in exact arithmetic does here."""
    quarter, remainder = np.divmod(4 * (sign * numbers % size), size)
    beyond_eighth = 2 * remainder > size  # angles beyond an eighth, from the other axis
    angle = np.pi / 2 * np.where(beyond_eighth, size - remainder, remainder) / size
    cos, sin = np.cos(angle), np.sin(angle)
    cos, sin = np.where(beyond_eighth, sin, cos), np.where(beyond_eighth, cos, sin)
    x = np.choose(quarter, [cos, -sin, -cos, sin])
    return x + 0.0, np.choose(quarter, [sin, cos, -sin, -cos]) + 0.0


def matrix(
    size: int, length: int, bins: int, sign: int, scale: float, pair: bool, real: bool, flat: bool
) -> np.ndarray:
    """[given (2), bins (2)]: exp(sign 2 pi i j k / size) for positions j and bins k. given: how
    many of the positions there are, the others being zeros; real: only the real parts, of a result
    whose other half mirrors `given`; flat: all real parts lie before all imaginary ones."""
    j, k = np.arange(length)[:, None], np.arange(bins)[None]
    cos, sin = (scale * component for component in circle(size, j * k, sign))
    rows = 0 if flat else 1
    if real:  # bins above the middle are conjugates of those below
        single = (j == 0) | ((size % 2 == 0) & (j == size // 2))
        weight = np.where(single, 1.0, 2.0)
        return np.stack([cos * weight, -sin * weight], rows).reshape(2 * length, bins)
    columns = 1 if flat else 2
    of_real = np.stack([cos, sin], columns).reshape(length, 2 * bins)
    if not pair:
        return of_real
    of_imaginary = np.stack([-sin, cos], columns).reshape(length, 2 * bins)
    return np.stack([of_real, of_imaginary], rows).reshape(2 * length, 2 * bins)


def product(
    c: Conversion, x: Parts, axis: int, size: int, length: int, bins: int, sign: int,
    scale: float = 1.0, real: bool = False,
) -> Parts:  # fmt: skip
    """The transform of an axis, of which `given` elements enter, as one product with a matrix."""
    re, rank = x[0], c.rank(x[0])
    order = [a for a in range(rank) if a != axis]
    components = []
    for component in x:
        if component is None:
            continue
        if length < c.known_size(component, axis):
            component = c.add("Slice", [component, c.ints([0]), c.ints([length]), c.ints([axis])])
        if axis < rank - 1:
            component = c.add("Transpose", [component], perm=(*order, axis))
        components.append(component)
    pair = len(components) == 2
    factor = c.add("Concat", components, axis=rank - 1) if pair else components[0]
    y = c.add(
        "MatMul", [factor, c.like(matrix(size, length, bins, sign, scale, pair, real, True), re)]
    )
    results = [y] if real else c.split(y, 2, rank - 1)
    if axis < rank - 1:
        results = [c.add("Transpose", [v], perm=put_back(order, axis)) for v in results]
    return results[0], None if real else results[1]


def put_back(order: list[int], axis: int) -> tuple[int, ...]:
    """The permutation that undoes the one to `order` with `axis` behind it."""
    back = [0] * (len(order) + 1)
    for new, old in enumerate([*order, axis]):
        back[old] = new
    return tuple(back)
