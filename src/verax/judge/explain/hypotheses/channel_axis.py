"""Parameters of channels that are taken along another axis of the same size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from verax.judge.explain.hypotheses.base import (
    After,
    Arrays,
    Hypothesis,
    Prior,
    Suspect,
    edited,
    rearranged,
)


def normalized_along_other_axes(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield that all parameters of a normalization with given statistics lie along another axis."""
    x = suspect.x
    for axis, n in enumerate(x.shape):
        if axis != 1 and x.ndim > 1 and n == x.shape[1] > 1:
            yield Hypothesis(
                f"parameters along axis {axis}",
                f"the parameters were taken along axis {axis}, not the channels'",
                Prior.usual,
                inputs=edited(0, lambda x, a=axis: x.swapaxes(1, a)),
                after=rearranged(lambda y, a=axis: y.swapaxes(1, a)),
                attributes={"axis": str(axis)},
            )


def parameters_along_other_axes(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield that scale and bias lie along another axis, and statistics where they should."""
    x, scale, bias = suspect.inputs[:3]
    for axis, n in enumerate(x.shape):
        if axis == 1 or x.ndim < 3 or not n == x.shape[1] == scale.size > 1:
            continue
        shape = tuple(n if a == axis else 1 for a in range(x.ndim))
        factor, addend = (v.astype(np.float64).reshape(shape) for v in (scale, bias))

        def applied(y: np.ndarray, _: Any, factor: Any = factor, addend: Any = addend) -> Any:
            return y * factor + addend

        yield Hypothesis(
            f"parameters along axis {axis}",
            f"scale and bias were taken along axis {axis}, not the channels'",
            Prior.usual,
            inputs=_neutral,
            after=After(applied, slope=float(np.max(np.abs(factor))), roundings=2),
            attributes={"axis": str(axis)},
        )


def _neutral(arrays: Arrays) -> Arrays:
    return [arrays[0], np.ones_like(arrays[1]), np.zeros_like(arrays[2]), *arrays[3:]]
