"""Plain comparison of two tensors: the figures people quote, non-finite masks, worst places."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from verax.numerics.statistics import root_mean_square

USUAL_SETTINGS = {
    "numpy (rtol 1e-05, atol 1e-08)": (1e-5, 1e-8),
    "torch.testing (rtol 1.3e-06, atol 1e-05)": (1.3e-6, 1e-5),
    "rtol 1e-04, atol 0": (1e-4, 0.0),
    "rtol 1e-03, atol 1e-05": (1e-3, 1e-5),
    "rtol 1e-02, atol 1e-03": (1e-2, 1e-3),
}
"""The tolerances that are widely used; they are reported and decide nothing."""
QUOTED_RTOL = 1e-4
"""Relative difference beyond which elements are counted for the report."""


@dataclass(frozen=True)
class PlainFigures:
    """See `verax.records.verdict.ErrorMetrics`."""

    max_abs: float
    max_rel: float
    cosine: float
    psnr: float
    allclose: dict[str, bool]
    differing: int
    beyond: int = 0
    beyond_rtol: float = 0.0
    beyond_abs: float = 0.0
    beyond_size: float = 0.0


def plain_figures(actual: np.ndarray, expected: np.ndarray) -> PlainFigures:
    """Compare `actual` with `expected` (float64, same shape) over elements finite in both.

    max_rel is infinite where only the expected value is 0. psnr uses the largest expected
    magnitude as peak.
    """
    if actual.dtype.kind in "biu" and expected.dtype.kind in "biu":
        differing = int((actual != expected).sum())
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            differing = int((~same_value(actual, expected.astype(actual.dtype))).sum())
    g, x = actual.astype(np.float64).ravel(), expected.astype(np.float64).ravel()
    finite = np.isfinite(g) & np.isfinite(x)
    if not finite.all():
        g, x = g[finite], x[finite]
    if g.size == 0:
        return PlainFigures(0.0, 0.0, 1.0, np.inf, dict.fromkeys(USUAL_SETTINGS, True), differing)
    error, size = np.abs(g - x), np.abs(x)
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = error / size
        relative[error == 0] = 0.0
        norms = np.linalg.norm(g) * np.linalg.norm(x)
        noise, peak = root_mean_square(error), float(size.max())
        psnr = 20 * np.log10(peak / noise) if noise and peak else np.inf
    cosine = float(g @ x / norms) if norms > 0 else float(not error.any())
    # Elements below the sharpest relative setting pass all of them.
    far = relative > min(rtol for rtol, _ in USUAL_SETTINGS.values())
    error_far, size_far = error[far], size[far]
    passes = {
        name: bool((error_far <= atol + rtol * size_far).all())
        for name, (rtol, atol) in USUAL_SETTINGS.items()
    }
    beyond = relative > QUOTED_RTOL
    typical = root_mean_square(x)
    return PlainFigures(
        float(error.max()),
        float(relative.max()),
        cosine,
        float(psnr),
        passes,
        differing,
        int(beyond.sum()),
        QUOTED_RTOL,
        float(error[beyond].max(initial=0.0)),
        float(size[beyond].max(initial=0.0)) / typical if typical else 0.0,
    )


def same_value(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Where two arrays hold the same value: -0 equals +0, NaN equals NaN."""
    if a.dtype.kind == "V" or a.dtype.name == "bfloat16":
        a, b = a.astype(np.float64), b.astype(np.float64)
    same = np.asarray(a == b)
    if a.dtype.kind == "f" and not same.all():
        same |= np.isnan(a) & np.isnan(b.astype(np.float64))
    return same


def worst_places(size: np.ndarray, count: int) -> list[tuple[int, ...]]:
    """Coordinates of the `count` largest elements of `size` that are above 0, largest first."""
    flat = np.nan_to_num(size.ravel(), nan=np.inf, posinf=np.inf)
    count = min(count, flat.size)
    if count == 0:
        return []
    top = np.argpartition(flat, flat.size - count)[flat.size - count :]
    top = top[np.argsort(-flat[top], kind="stable")]
    return [tuple(int(i) for i in np.unravel_index(int(t), size.shape)) for t in top if flat[t] > 0]
