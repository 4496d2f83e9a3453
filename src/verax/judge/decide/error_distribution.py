"""Error over allowed of every judged value, reduced to what a report draws.

The arrays exist only while a value is judged, so they are reduced there: `noted` is called with
them, and keeps something only inside of `collected`.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar

import numpy as np

from verax.numerics import statistics as st
from verax.numerics.compare import same_value
from verax.numerics.error_model import TINY
from verax.records.network import (
    ALLOWED_BIN,
    ALLOWED_LEVEL,
    BINS,
    LEVELS_PER_OCTAVE,
    ChannelErrors,
    ErrorDistribution,
)
from verax.records.verdict import Finding, Kind

SIDE = 56
"""Largest height and width of a picture, pixels."""
CHANNELS = 5
"""Channels of which there are pictures, beside that of all."""
ROW = 32
"""Width of the picture of a value that has no rows of its own."""
PICTURED = 16
"""Values of which pictures are kept: faulty ones first, then outputs, then the most suspicious."""
FEW_ROWS = 4
"""A matrix with fewer rows is drawn as one long row that is wrapped."""
BIN_OF_ONE = 127 << 1
"""The upper ten bits of 1.0 in float32: exponent and first bit of the significand."""
INFINITY = 0x7F800000
"""The bits of infinity in float32; those of NaN are larger."""

Distributions = dict[str, ErrorDistribution]
_collection: ContextVar[Distributions | None] = ContextVar("errors of judged values", default=None)


@contextlib.contextmanager
def collected(into: Distributions | None) -> Iterator[None]:
    """Inside, errors of judged values are kept in `into`, by value; for None they are not."""
    token = _collection.set(into)
    try:
        yield
    finally:
        _collection.reset(token)


def noted(
    value: str,
    actual: np.ndarray,
    expected: np.ndarray,
    sigma: np.ndarray | None,
    bound: np.ndarray | None = None,
) -> None:
    """Keep the distribution of the errors of a value if anybody collects them.

    actual, expected: of one shape, else nothing is kept. sigma: standard deviation of rounding,
    None where the value is exact; bound: of integers, the largest error that rounding makes.
    """
    collection = _collection.get()
    if collection is None or actual.shape != expected.shape or not actual.size:
        return
    with np.errstate(all="ignore"):
        collection[value] = distribution(
            value, _over_allowed(actual, np.asarray(expected), sigma, bound)
        )


def _over_allowed(
    actual: np.ndarray, expected: np.ndarray, sigma: np.ndarray | None, bound: np.ndarray | None
) -> np.ndarray:
    """|error| over what one element may err by, float32; of the shape of `actual`."""
    if sigma is None:
        same = same_value(actual, expected.astype(actual.dtype))
        return np.where(same, np.float32(0), np.float32(np.inf))
    error = np.abs(actual.astype(np.float64) - expected)
    allowed = st.group_limit(1) * sigma if bound is None else bound
    # of arrays without axes NumPy makes numbers, which cannot be written to
    ratio = np.array(np.divide(error, allowed + TINY, dtype=np.float64), np.float32)
    if not np.isfinite(ratio).all():
        agrees = same_value(actual.astype(np.float64), expected.astype(np.float64))
        ratio[agrees] = 0
    return ratio


def distribution(value: str, ratio: np.ndarray) -> ErrorDistribution:
    """What a report draws of error over allowed, an array of any shape with at least an element."""
    ratio = np.abs(ratio.astype(np.float32, copy=False))  # no bits of a sign
    if not ratio.any():
        return ErrorDistribution(value, tuple(ratio.shape), (ratio.size, *[0] * (BINS - 1)))
    pictures, axes = _pictures(ratio)
    peaks = np.nan_to_num(pictures, nan=np.inf, posinf=np.inf).max(axis=(1, 2))
    leading = ratio.shape[: ratio.ndim - 2] if len(pictures) > 1 else ()
    channels = [_channel((), pictures.max(axis=0))]
    if len(pictures) > 1:
        worst = np.argsort(-peaks, kind="stable")[:CHANNELS]
        channels += [
            _channel(tuple(int(i) for i in np.unravel_index(int(c), leading)), pictures[c])
            for c in worst
        ]
    return ErrorDistribution(value, tuple(ratio.shape), _histogram(ratio), tuple(channels), axes)


def _histogram(ratio: np.ndarray) -> tuple[int, ...]:
    """Counts by bin; half octaves are the upper bits of a float32."""
    bits = np.ascontiguousarray(ratio).reshape(-1).view(np.uint32)
    index = (bits >> np.uint32(22)).astype(np.int32)
    index -= BIN_OF_ONE - ALLOWED_BIN
    np.clip(index, 1, BINS - 2, out=index)
    counts = np.bincount(index, minlength=BINS)
    none = bits.size - np.count_nonzero(bits)
    lost = bits.size - np.count_nonzero(bits < INFINITY)
    counts[0], counts[1] = none, counts[1] - none
    counts[-1], counts[-2] = lost, counts[-2] - lost
    return tuple(int(n) for n in counts)


def _pictures(ratio: np.ndarray) -> tuple[np.ndarray, str]:
    """(channels, rows, columns), and what rows and columns are."""
    shape = ratio.shape
    if ratio.ndim < 2 or (ratio.ndim == 2 and shape[0] < FEW_ROWS):
        flat = ratio.ravel()
        width = min(flat.size, max(ROW, math.isqrt(flat.size)))
        missing = -flat.size % width
        padded = np.concatenate([flat, np.zeros(missing, np.float32)])
        return padded.reshape(1, -1, width), f"elements in order, {width} a row"
    picture = ratio.reshape(-1, *shape[-2:])
    return picture, f"rows: axis {ratio.ndim - 2}, columns: axis {ratio.ndim - 1}"


def _channel(index: tuple[int, ...], picture: np.ndarray) -> ChannelErrors:
    picture = np.nan_to_num(picture, nan=np.inf, posinf=np.inf)
    small = _reduced(_reduced(picture, 0), 1)
    level = np.round(ALLOWED_LEVEL + LEVELS_PER_OCTAVE * np.log2(np.maximum(small, TINY)))
    pixels = np.where(small == 0, 0, np.clip(level, 1, 255)).astype(np.uint8)
    text = base64.b64encode(zlib.compress(pixels.tobytes(), 9)).decode()
    rows, columns = pixels.shape
    return ChannelErrors(index, float(picture.max()), rows, columns, text)


def _reduced(picture: np.ndarray, axis: int) -> np.ndarray:
    """At most `SIDE` long along an axis: maxima of blocks of equal size, up to one element."""
    size = picture.shape[axis]
    if size <= SIDE:
        return picture
    starts = np.linspace(0, size, SIDE, endpoint=False).astype(np.int64)
    return np.maximum.reduceat(picture, starts, axis=axis)


def bounded(
    distributions: Mapping[str, ErrorDistribution],
    findings: Iterable[Finding],
    outputs: Iterable[str],
) -> tuple[ErrorDistribution, ...]:
    """The distributions of the values that have findings, in their order; those with pictures are
    the `PICTURED` most worth looking at."""
    ends = set(outputs)
    judged = [f for f in findings if f.value in distributions]
    ranked = sorted(
        judged, key=lambda f: (f.kind is not Kind.mistake, f.value not in ends, -f.statistic)
    )
    pictured = {f.value for f in ranked[:PICTURED]}
    values = dict.fromkeys(f.value for f in judged)
    return tuple(
        distributions[v]
        if v in pictured
        else dataclasses.replace(distributions[v], channels=(), axes="")
        for v in values
    )
