"""Fourier transforms, which are products with a constant matrix: how their angles were taken.

For a length that is no power of two a runtime may use Bluestein's algorithm: the transform becomes
a convolution with the chirp exp(i pi k^2 / n). Where the angles of the chirp are float32 numbers,
the large ones have few digits behind the point, and the result errs by far more than rounding does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from verax.judge.explain.hypotheses.base import After, Arrays, Hypothesis, Prior, Suspect, edited
from verax.numerics import statistics as st
from verax.numerics.error_model import KAPPA, Rounding, U

CHIRP_UNITS = 64
"""What three float32 transforms of a chirp's length add, in units of rounding of the result's root
mean square; measured on ONNX Runtime 1.32 for 24 to 3,000 elements: 14 to 28."""
MATRIX_ERROR = 1e-5
"""Most that a matrix differs from that of a transform, as a part of its size."""


@dataclass(frozen=True)
class _Transform:
    """exp(sign 2 pi i j k / size) times `scale`, as a real matrix with interleaved parts; pair:
    whether what is transformed is complex too."""

    size: int
    scale: float
    sign: int
    pair: bool

    def matrix(self, angles: np.ndarray) -> np.ndarray:
        """The matrix for angles [positions, bins]."""
        cos, sin = self.scale * np.cos(angles), self.scale * np.sin(angles)
        positions, bins = angles.shape
        of_real = np.stack([cos, sin], 2).reshape(positions, 2 * bins)
        if not self.pair:
            return of_real
        of_imaginary = np.stack([-sin, cos], 2).reshape(positions, 2 * bins)
        return np.stack([of_real, of_imaginary], 1).reshape(2 * positions, 2 * bins)


class _ChirpRounding(After):
    """The result as it is, with the rounding of the transforms that the chirp is convolved by."""

    widens: ClassVar[bool] = True

    def rounding(self, before: Rounding | None, y: np.ndarray, inputs: Arrays) -> Rounding | None:
        if before is None:
            return None
        own = CHIRP_UNITS * U * st.root_mean_square(y)
        return Rounding(np.hypot(before.sigma, KAPPA * own), before.bound + own)


def chirp(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield, for a product with the matrix of a transform, Bluestein's algorithm with angles in
    float32."""
    w = suspect.inputs[1]
    transform = _recognized(w)
    if transform is None:
        return
    n = transform.size
    positions, bins = w.shape[0] // (2 if transform.pair else 1), w.shape[1] // 2
    k = np.arange(n, dtype=np.float32)
    angles = (np.float32(np.pi) * k * k / np.float32(n)).astype(np.float64)
    j, m = np.arange(positions)[:, None], np.arange(bins)[None]
    phases = transform.sign * (angles[j] + angles[m] - angles[np.abs(m - j)])
    yield Hypothesis(
        "chirp with angles in float32",
        f"the transform of {n} elements was taken by Bluestein's algorithm, whose angles "
        "(pi k^2 / n) were rounded to float32: the largest keep "
        f"{max(0.0, -np.log10(np.pi * n * U)):.0f} digits behind the point",
        Prior.common,
        inputs=edited(1, lambda _: transform.matrix(phases)),
        after=_ChirpRounding(lambda y, inputs: y),
    )


def _recognized(w: np.ndarray) -> _Transform | None:
    """The transform that a matrix is of; None where it is none, or of a power of two."""
    if w.ndim != 2 or w.dtype.kind != "f" or min(w.shape) < 4 or w.shape[1] % 2:
        return None
    wide = w.astype(np.float64)
    scale = wide[0, 0]
    if scale <= 0 or wide[0, 1::2].any() or np.ptp(wide[0, 0::2]) > MATRIX_ERROR * scale:
        return None
    pair = wide[1, 0] == 0 and abs(wide[1, 1] - scale) <= MATRIX_ERROR * scale
    step = np.arctan2(wide[2 if pair else 1, 3], wide[2 if pair else 1, 2])
    size = int(np.rint(2 * np.pi / abs(step))) if step else 0
    positions, bins = w.shape[0] // (2 if pair else 1), w.shape[1] // 2
    if size & (size - 1) == 0 or max(positions, bins) > size:
        return None
    transform = _Transform(size, float(scale), 1 if step > 0 else -1, pair)
    j, k = np.arange(positions)[:, None], np.arange(bins)[None]
    exact = transform.matrix(transform.sign * 2 * np.pi * (j * k % size) / size)
    same = exact.shape == w.shape and np.abs(exact - wide).max() <= MATRIX_ERROR * scale
    return transform if same else None
