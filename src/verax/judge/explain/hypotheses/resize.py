"""Resize: interpolation, where the coordinates lie, how the nearest is chosen."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import numpy as np

from verax.judge.explain.hypotheses.base import (
    Arrays,
    Edit,
    Hypothesis,
    Prior,
    Suspect,
    with_attributes,
)
from verax.ops.images.resize import Resize
from verax.ops.images.resize_tables import NEAREST_MODES

TRANSFORMS = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
"""Coordinate transformations that are taken for one another."""
COEFFICIENTS = (-0.5, -0.75, -0.6)
"""Cubic coefficients: Catmull-Rom and TensorFlow -0.5, torch and OpenCV -0.75."""


def resize(suspect: Suspect) -> Iterator[Hypothesis]:
    """Rivals of Resize."""
    op = suspect.op
    assert isinstance(op, Resize)
    if op.coordinate_transformation_mode == "tf_crop_and_resize":
        return
    for mode, transform in itertools.product(("nearest", "linear", "cubic"), TRANSFORMS):
        for choice in NEAREST_MODES if mode == "nearest" else (op.nearest_mode,):
            shown = {
                "mode": mode,
                "coordinate_transformation_mode": transform,
                "nearest_mode": choice,
            }
            shown = {k: v for k, v in shown.items() if v != getattr(op, k)}
            if not shown:
                continue
            few = len(shown) == 1
            named = ", ".join(shown.values())
            for label, edit in (("", None), (", scale of the sizes", _by_sizes(suspect, op))):
                if label and edit is None:
                    continue
                yield Hypothesis(
                    f"{named}{label}",
                    f"it was resized by {named}" + (" with the ratio of the sizes" if edit else ""),
                    Prior.usual if few and not label else Prior.common,
                    op=dataclasses.replace(op, **shown),  # type: ignore[arg-type]
                    inputs=edit,
                    attributes=shown,
                )
    edit = _by_sizes(suspect, op)
    if edit is not None:
        yield Hypothesis(
            "scale of the sizes",
            "coordinates were computed from the ratio of the sizes, not from the scales given",
            Prior.usual,
            inputs=edit,
        )
    if op.mode == "cubic":
        for a in COEFFICIENTS:
            yield from with_attributes(
                op,
                f"cubic coefficient {a:g}",
                f"the cubic coefficient was {a:g}, not {op.cubic_coeff_a:g}",
                Prior.usual,
                cubic_coeff_a=a,
            )
    for field in ("exclude_outside", "antialias"):
        if op.mode != "nearest":
            yield from with_attributes(
                op,
                f"{field} the other way",
                f"{field} was taken as {not getattr(op, field)}",
                Prior.usual,
                **{field: not getattr(op, field)},
            )


def _by_sizes(suspect: Suspect, op: Resize) -> Edit | None:
    """The output's sizes in the place of scales, where those do not say the same."""
    if not suspect.has(2) or suspect.inputs[2].size == 0:
        return None
    shape, x = suspect.expected.shape, suspect.x
    axes = range(x.ndim) if op.axes is None else [a % x.ndim for a in op.axes]
    sizes = np.array([shape[a] for a in axes], np.int64)
    ratios = sizes / np.array([x.shape[a] for a in axes])
    if np.array_equal(ratios.astype(np.float32), suspect.inputs[2].astype(np.float32)):
        return None

    def edit(arrays: Arrays) -> Arrays:
        return [arrays[0], arrays[1], None, sizes]

    return edit
