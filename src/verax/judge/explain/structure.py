"""Describes the structure of an error in sentences, for mistakes that no hypothesis explains.

The sentences do not affect the verdict. An element counts as wrong when its error is larger than
rounding makes a single element's, and every sentence holds for all wrong elements, or for all
elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from verax.judge.explain.hypotheses.base import axis_name
from verax.numerics import statistics as st
from verax.numerics.compare import worst_places
from verax.numerics.error_model import TINY
from verax.numerics.formats import BFLOAT16, FLOAT16, round_to

FEW = 8
"""Wrong elements that are listed one by one."""
LISTED = 6
"""Channels or places that a sentence lists."""
RELATIONS = 3
"""Channels whose factor and offset are listed."""
MAX_SHIFT = 4
"""Places by which a shift along an axis is looked for."""
SPARSE = 64
"""Step by which candidates are looked at first."""
ENOUGH = 16
"""Wrong elements from which a statement about all of them means something."""


@dataclass(frozen=True)
class ErrorMap:
    """given, expected in float64 and sigma of one shape; wrong: the elements beyond rounding."""

    actual: np.ndarray
    expected: np.ndarray
    sigma: np.ndarray
    wrong: np.ndarray

    @property
    def count(self) -> int:
        return int(self.wrong.sum())

    def fits(self, candidate: np.ndarray, mask: np.ndarray | None = None) -> bool:
        """True if `candidate` agrees with the actual values wherever `mask`."""
        for step in (SPARSE, 1) if self.actual.size > SPARSE else (1,):
            sampled = self.actual[..., ::step], candidate[..., ::step], self.sigma[..., ::step]
            wrong = _beyond(*sampled)
            if (wrong if mask is None else wrong & mask[..., ::step]).any():
                return False
        return True


def structure(
    actual: np.ndarray, expected: np.ndarray, sigma: np.ndarray | None
) -> tuple[str, ...]:
    """Sentences on how the error is distributed, the most telling first.

    actual: the subject's values; expected: the float64 reference; sigma: standard deviation of
    rounding, None for an exact value. Empty when shapes differ or nothing is wrong.
    """
    if actual.shape != expected.shape or not actual.size:
        return ()
    wide = actual.astype(np.float64)
    spread = np.zeros(actual.shape) if sigma is None else np.broadcast_to(sigma, actual.shape)
    truth = expected.astype(np.float64)
    if sigma is None and actual.dtype.kind == "f":
        truth = truth.astype(actual.dtype).astype(np.float64)
    with np.errstate(all="ignore"):
        wrong = _beyond(wide, truth, spread)
        if not wrong.any():
            wrong = np.abs(wide - truth) > st.DISTINCT * spread + TINY
        error = ErrorMap(wide, truth, spread, wrong)
        if not wrong.any():
            return ()
        sentences: list[str] = []
        for look in LOOKS:
            sentences += look(error)
    return tuple(sentences)


def _beyond(actual: np.ndarray, expected: np.ndarray, sigma: np.ndarray) -> np.ndarray:
    """Mask of elements whose error is larger than rounding makes a single element's."""
    same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    size = np.abs(actual - expected)
    far = ~(size <= st.group_limit(1) * sigma + TINY)
    return np.asarray(far & ~same)


def _non_finite(error: ErrorMap) -> Iterator[str]:
    for label, test in (("NaN", np.isnan), ("infinite", np.isinf)):
        stray = test(error.actual) & ~test(error.expected)
        if stray.any():
            yield f"{int(stray.sum())} elements are {label}, {_location(stray)}"


def _extent(error: ErrorMap) -> Iterator[str]:
    """Yield a sentence on the number of wrong elements and where they are."""
    total = error.wrong.size
    if error.count == total:
        yield "every element is wrong"
    elif error.count <= FEW:
        size = np.where(error.wrong, np.nan_to_num(np.abs(error.actual - error.expected)), 0)
        positions = worst_places(size, FEW) or [tuple(p) for p in np.argwhere(error.wrong)]
        named = ", ".join(str(tuple(int(i) for i in p)) for p in positions)
        location = f", {_location(error.wrong)}" if error.count > 1 else ""
        be = "are" if error.count > 1 else "is"
        yield f"only {error.count} of {total} elements {be} wrong{location}: {named}"
    else:
        yield f"{error.count} of {total} elements are wrong, {_location(error.wrong)}"


def _location(mask: np.ndarray) -> str:
    """Text on the smallest ranges of single axes that hold the whole mask."""
    phrases = []
    for axis, n in enumerate(mask.shape):
        hit = np.flatnonzero(mask.any(axis=tuple(a for a in range(mask.ndim) if a != axis)))
        if 0 < len(hit) < n:
            phrases.append(_indices_text(axis_name(axis, mask.ndim), hit, n))
    return "all of them in " + ", ".join(phrases) if phrases else "spread over the whole tensor"


def _indices_text(name: str, hit: np.ndarray, n: int) -> str:
    """`the last row`, `rows 3 to 5`, `the first and last column`, `channels 1, 4, 7`."""
    many, hit_count = f"{name}s" if not name.startswith("axis") else f"places of {name}", len(hit)
    contiguous = hit_count == int(hit[-1] - hit[0]) + 1
    if hit_count == 1:
        one = name if not name.startswith("axis") else f"place of {name}"
        return {0: f"the first {one}", n - 1: f"the last {one}"}.get(int(hit[0]), f"{one} {hit[0]}")
    if hit[0] == 0 and contiguous:
        return f"the first {hit_count} {many}"
    if hit[-1] == n - 1 and contiguous:
        return f"the last {hit_count} {many}"
    if n - hit_count == 1:
        left = int(np.flatnonzero(~np.isin(np.arange(n), hit))[0])
        return f"every {name} but {left}" if not name.startswith("axis") else f"{many} but {left}"
    begin = int(np.argmin(np.isin(np.arange(n), hit)))
    end = int(np.argmin(np.isin(np.arange(n), hit)[::-1]))
    if begin and end and begin + end == hit_count:
        return f"the first {begin} and the last {end} {many}"
    if contiguous:
        return f"{many} {hit[0]} to {hit[-1]}"
    named = ", ".join(str(int(i)) for i in hit[:LISTED])
    return f"{many} {named}" + (f" and {hit_count - LISTED} more" if hit_count > LISTED else "")


def _border(error: ErrorMap) -> Iterator[str]:
    """Wrong only near the border of the last two axes, though not along one axis alone."""
    if error.wrong.ndim < 4 or error.count < ENOUGH:
        return
    inner = error.wrong[..., 1:-1, 1:-1]
    if inner.size and not inner.any():
        sides = {
            "top": error.wrong[..., 0, 1:-1],
            "bottom": error.wrong[..., -1, 1:-1],
            "left": error.wrong[..., 1:-1, 0],
            "right": error.wrong[..., 1:-1, -1],
        }
        named = [side for side, edge in sides.items() if edge.any()]
        yield f"only the border is wrong ({', '.join(named)}): look at the padding"


def _constants(error: ErrorMap) -> Iterator[str]:
    """Yield a sentence where all wrong elements are one number: never computed, or clipped."""
    values = error.actual[error.wrong]
    if len(values) < 2 or not (values == values[0]).all():
        return
    value = float(values[0])
    if value == 0:
        yield "every wrong element is 0: it was not computed, or was cut off"
        return
    beyond = error.expected[error.wrong]
    if (beyond >= value).all():
        yield f"every wrong element is {value:g} and should be more: the result was cut off above"
    elif (beyond <= value).all():
        yield f"every wrong element is {value:g} and should be less: the result was cut off below"
    else:
        yield f"every wrong element is {value:g}"


def _signs(error: ErrorMap) -> Iterator[str]:
    if error.count < ENOUGH:
        return
    expected = error.expected[error.wrong]
    has_both_signs = bool((error.expected > 0).any() and (error.expected < 0).any())
    if has_both_signs and (expected <= 0).all():
        yield "only numbers that should be negative are wrong"
    elif has_both_signs and (expected >= 0).all():
        yield "only numbers that should be positive are wrong"
    if error.fits(-error.expected, error.wrong):
        yield "the wrong elements have the right size and the wrong sign"


def _relations(error: ErrorMap) -> Iterator[str]:
    """Yield a sentence where actual = factor expected + offset, for all elements or by channel."""
    if error.count < ENOUGH or not np.isfinite(error.actual).all():
        return
    x, y = error.expected.ravel(), error.actual.ravel()
    factor = float(x @ y) / float(x @ x) if np.any(x) else 1.0
    for slope, offset in ((factor, 0.0), (1.0, float(np.mean(y - x))), _line(x, y)):
        if error.fits(error.expected * slope + offset):
            yield f"everywhere the result is {_affine(slope, offset)}"
            return
    if error.actual.ndim < 2 or error.actual.size < ENOUGH * error.actual.shape[1]:
        return
    expected, actual = (np.moveaxis(a, 1, 0) for a in (error.expected, error.actual))
    lines = [_line(x.ravel(), y.ravel()) for x, y in zip(expected, actual)]
    bent = np.stack([x * a + b for x, (a, b) in zip(expected, lines)])
    if error.fits(np.moveaxis(bent, 0, 1)):
        wrong = np.flatnonzero(error.wrong.any(axis=_but(1, error.wrong.ndim)))
        named = "; ".join(f"{c}: {_affine(*lines[c])}" for c in wrong[:RELATIONS])
        more = f"; {len(wrong) - RELATIONS} more" if len(wrong) > RELATIONS else ""
        yield f"each channel has its own factor and offset ({named}{more})"


def _line(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Least-squares slope and offset; slope 1 for a constant x."""
    centered = x - x.mean()
    square = float(centered @ centered)
    slope = float(centered @ (y - y.mean())) / square if square else 1.0
    return slope, float(y.mean() - slope * x.mean())


def _affine(slope: float, offset: float) -> str:
    """`1.25 times what it should be, plus 0.5`, without the part that does nothing."""
    phrases = [] if slope == 1 else [f"{slope:.6g} times what it should be"]
    if offset and not phrases:
        return f"{abs(offset):.3g} {'more' if offset > 0 else 'less'} than it should be"
    if offset:
        phrases.append(f"{'plus' if offset > 0 else 'minus'} {abs(offset):.3g}")
    return ", ".join(phrases)


def _but(axis: int, rank: int) -> tuple[int, ...]:
    return tuple(a for a in range(rank) if a != axis)


def _moves(error: ErrorMap) -> Iterator[str]:
    """Yield sentences on the right numbers at other positions."""
    shape = error.actual.shape
    if error.count < ENOUGH:
        return
    for axis, n in enumerate(shape):
        for by in (k * s for k in range(1, min(MAX_SHIFT, n // 2) + 1) for s in (1, -1)):
            inside = np.zeros(shape, bool)
            inside[(slice(None),) * axis + (slice(max(0, by), n + min(0, by)),)] = True
            if error.fits(np.roll(error.expected, by, axis), inside):
                yield f"the right numbers, shifted by {by} along the {axis_name(axis, len(shape))}"
    for a in range(len(shape)):
        for b in range(a + 1, len(shape)):
            if shape[a] == shape[b] > 1 and error.fits(error.expected.swapaxes(a, b)):
                names = f"{axis_name(a, len(shape))} and {axis_name(b, len(shape))}"
                yield f"the right numbers with {names} exchanged"
    if not error.fits(error.expected):
        order = np.sort(error.actual, axis=None), np.sort(error.expected, axis=None)
        sigma = float(np.max(error.sigma))
        if not _beyond(order[0], order[1], np.full(order[0].shape, sigma)).any():
            yield "the right numbers in another order"


def _grids(error: ErrorMap) -> Iterator[str]:
    """Yield a sentence on numbers with fewer bits than their declared type."""
    finite = error.actual[np.isfinite(error.actual) & (error.actual != 0)]
    if finite.size < ENOUGH:
        return
    for fmt in (BFLOAT16, FLOAT16):
        on_grid = (round_to(finite, fmt) == finite).all()
        if on_grid and not (round_to(error.expected, fmt) == error.expected).all():
            yield f"every number lies on the grid of {fmt.name}"
            return
    steps = np.unique(np.abs(finite))
    if (np.rint(finite) == finite).all() and len(steps) > 1:
        yield "every number is an integer"


LOOKS: Sequence[Callable[[ErrorMap], Iterator[str]]] = (
    _non_finite,
    _extent,
    _border,
    _constants,
    _moves,
    _relations,
    _signs,
    _grids,
)
"""What is looked at, in the order of the sentences."""
