"""Numbers to feed to two pieces of network, or to two networks, so that what differs shows.

Ordinary inputs stay on one side of many corners. Here numbers are drawn at sizes that pass them:
far above and below every constant that the operators hold, tiny ones that an epsilon outweighs,
halves and integers that tie, zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from verax.numerics import statistics as st

SIZES = (1.0, 1e3, 1e-3)
"""Sizes of numbers that every piece is tried with."""
BEYOND = (2.0, 16.0)
"""Multiples of a constant to which numbers are drawn."""
MOST_CONSTANTS = 8
"""Constants of a piece that sizes are made of."""
LARGEST = 1e30
"""No drive goes beyond it: squares and products stay finite in float64, sums in float32."""
FARTHER = (16.0, 256.0, 4096.0, 65536.0)
"""Factors by which inputs of a whole network are scaled."""
Draw = Callable[[np.ndarray, np.random.Generator], np.ndarray]


@dataclass(frozen=True)
class Drive:
    """A generator of arrays with the shape and type of another. words: its description."""

    words: str
    draw: Draw


def of_sizes(constants: Iterable[float]) -> list[Drive]:
    """Drives for a piece of network that holds these constants, the likeliest to tell first."""
    magnitudes = sorted({abs(c) for c in constants if np.isfinite(c) and 0 < abs(c) < LARGEST})
    selected = [
        *magnitudes[: MOST_CONSTANTS // 2],
        *magnitudes[MOST_CONSTANTS // 2 :][-MOST_CONSTANTS // 2 :],
    ]
    sizes = [*SIZES, *(c * by for c in selected for by in BEYOND)]
    sizes += [float(np.sqrt(c)) for c in selected if c < 1e-2]
    drives = [Drive("numbers like those of the network", _like)]
    drives += [
        Drive(f"numbers of about {s:.3g}", _normal(s)) for s in dict.fromkeys(sizes) if s < LARGEST
    ]
    return [*drives, Drive("halves", _half_integers), Drive("zeros", _zeros)]


def farther(size: float) -> Drive:
    """Numbers of a size of its own."""
    return Drive(f"numbers of about {size:.3g}", _normal(size))


def _integers(array: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Integers and truth values: those at hand, in another order, in their own range."""
    if array.dtype.kind == "b":
        return random.integers(0, 2, array.shape).astype(bool)
    if not array.size:
        return array
    low, high = int(array.min()), int(array.max())
    return random.integers(low, high + 1, array.shape).astype(array.dtype)


def _like(array: np.ndarray, random: np.random.Generator) -> np.ndarray:
    if array.dtype.kind != "f":
        return _integers(array, random)
    finite = array[np.isfinite(array)]
    size = st.root_mean_square(finite) if finite.size else 1.0
    return random.standard_normal(array.shape) * (size or 1.0)


def _normal(size: float) -> Draw:
    def draw(array: np.ndarray, random: np.random.Generator) -> np.ndarray:
        if array.dtype.kind != "f":
            return _integers(array, random)
        return random.standard_normal(array.shape) * size

    return draw


def _half_integers(array: np.ndarray, random: np.random.Generator) -> np.ndarray:
    if array.dtype.kind != "f":
        return _integers(array, random)
    return random.integers(-8, 9, array.shape) / 2.0


def _zeros(array: np.ndarray, random: np.random.Generator) -> np.ndarray:
    return np.zeros_like(array)


def of_inputs() -> Iterator[Drive]:
    """Drives for whole networks: the inputs at hand scaled, turned, shifted, sparse, saturated."""

    def from_floats(make: Draw) -> Draw:
        def draw(array: np.ndarray, random: np.random.Generator) -> np.ndarray:
            return make(array, random) if array.dtype.kind == "f" else _integers(array, random)

        return draw

    def sparse(array: np.ndarray, random: np.random.Generator) -> np.ndarray:
        size = 16 * (st.root_mean_square(array) or 1.0)
        return np.where(random.random(array.shape) < 0.02, size, 0.0)

    def saturated(array: np.ndarray, random: np.random.Generator) -> np.ndarray:
        size = 256 * (st.root_mean_square(array) or 1.0)
        return random.choice([-size, size], array.shape)

    def scaled(by: float) -> Draw:
        return from_floats(lambda array, random: array * by)

    def shifted(by: float) -> Draw:
        return from_floats(lambda array, random: array + by * (st.root_mean_square(array) or 1.0))

    yield Drive("times 4", scaled(4.0))
    yield Drive("times -1", scaled(-1.0))
    yield from (Drive(f"times {by:g}", scaled(by)) for by in FARTHER)
    yield from (Drive(f"times {-by:g}", scaled(-by)) for by in FARTHER[::2])
    yield Drive("shifted up by 16 times its size", shifted(16.0))
    yield Drive("shifted down by 16 times its size", shifted(-16.0))
    yield Drive("normal with 256 times its size", from_floats(lambda a, r: 256 * _like(a, r)))
    yield Drive("one in 50 of it set, the rest 0", from_floats(sparse))
    yield Drive("saturated: plus or minus 256 times its size", from_floats(saturated))
    yield Drive("rounded to halves", from_floats(_half_integers))
    yield Drive("a thousandth of it", scaled(1e-3))
    yield Drive("a millionth of it", scaled(1e-6))
    yield Drive("zeros", from_floats(_zeros))


def constants_of(constants: Sequence[float]) -> list[float]:
    """Finite constants, each once."""
    return list(dict.fromkeys(c for c in constants if np.isfinite(c)))
