"""RoiAlign: where samples lie, how many there are, and what is made of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from verax.judge.explain.hypotheses.attributes import by_attributes
from verax.judge.explain.hypotheses.base import (
    After,
    Hypothesis,
    Prior,
    Suspect,
    edited,
    hypotheses_of,
    with_attributes,
)
from verax.ops.images.detection import RoiAlign

RATIOS = (1, 2, 3, 4)
"""Samples along a side of a bin that are tried."""


@hypotheses_of("RoiAlign")
def roi_align(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield hypotheses on RoiAlign."""
    op = suspect.op
    assert isinstance(op, RoiAlign)
    yield from by_attributes(suspect)
    for ratio in RATIOS:
        yield from with_attributes(
            op, f"sampling_ratio {ratio}", f"{ratio} by {ratio} samples were taken of each bin",
            Prior.usual, sampling_ratio=ratio,
        )  # fmt: skip
    yield from with_attributes(
        op, "adaptive sampling", "as many samples were taken of a bin as it has pixels",
        Prior.usual, sampling_ratio=0,
    )  # fmt: skip
    yield from with_attributes(
        op, "spatial_scale ignored", "spatial_scale was ignored", Prior.usual, spatial_scale=1.0
    )
    yield Hypothesis(
        "rows and columns of regions",
        "rows and columns of the regions were exchanged (y1, x1, y2, x2)",
        Prior.usual,
        inputs=edited(1, lambda rois: rois[:, [1, 0, 3, 2]]),
    )
    yield Hypothesis(
        "sizes for corners",
        "the regions were read as a corner, a width and a height",
        Prior.common,
        inputs=edited(
            1, lambda r: np.concatenate([r[:, :2], r[:, :2] + r[:, 2:]], 1, dtype=np.float64)
        ),
    )
    yield Hypothesis(
        "batch_indices ignored",
        "every region was taken from the first image: batch_indices were ignored",
        Prior.usual,
        inputs=edited(2, np.zeros_like),
    )
    yield from _largest(op)


def _largest(op: RoiAlign) -> Iterator[Hypothesis]:
    """The largest interpolated sample, where ONNX takes the largest weighted corner."""
    if not op.sampling_ratio:
        return
    n, h, w = op.sampling_ratio, op.output_height, op.output_width
    samples = dataclasses.replace(
        op, mode="avg", sampling_ratio=1, output_height=n * h, output_width=n * w
    )

    def largest(y: np.ndarray, inputs: list[np.ndarray]) -> np.ndarray:
        return np.asarray(y.reshape(*y.shape[:2], h, n, w, n).max(axis=(3, 5)))

    yield Hypothesis(
        "largest sample",
        "the largest sample of each bin was taken, interpolated first"
        + (", not the largest of the weighted corners" if op.mode == "max" else ", not the mean"),
        Prior.usual if op.mode == "max" else Prior.common,
        op=samples,
        after=After(largest, moves=True),
    )
