"""Resize: interpolation, where the coordinates lie, how the nearest is chosen, and which of two
pixels is taken where a coordinate lies exactly between them (a tie)."""

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
    from_inputs,
    hypotheses_of,
    with_attributes,
)
from verax.numerics.error_model import U
from verax.ops.images.resize import AxisPlan, Resize
from verax.ops.images.resize_tables import NEAREST_MODES, axis_table, source_coordinates

TRANSFORMS = (
    "half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric",
)  # fmt: skip
"""Coordinate transformations that are taken for one another."""
COEFFICIENTS = (-0.5, -0.75, -0.6)
"""Cubic coefficients: Catmull-Rom and TensorFlow -0.5, torch and OpenCV -0.75."""


ROUNDING = {"round_prefer_floor", "round_prefer_ceil"}
"""Ways to choose the nearest pixel that differ at ties alone."""
TIED = "exactly between two pixels (ties)"
NEAR = 8
"""Roundings to float32 within which a computed coordinate may leave a tie."""
MOST_TIED = 3
"""Axes with ties whose choices are read off the answer."""


@hypotheses_of("Resize")
def resize(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield hypotheses on Resize."""
    op = suspect.op
    assert isinstance(op, Resize)
    if op.coordinate_transformation_mode == "tf_crop_and_resize":
        yield from _region(suspect, op)
        return
    for mode, transform in itertools.product(("nearest", "linear", "cubic"), TRANSFORMS):
        for choice in NEAREST_MODES if mode == "nearest" else (op.nearest_mode,):
            settings = {
                "mode": mode,
                "coordinate_transformation_mode": transform,
                "nearest_mode": choice,
            }
            settings = {k: v for k, v in settings.items() if v != getattr(op, k)}
            if not settings:
                continue
            is_single = len(settings) == 1
            named = ", ".join(settings.values())
            if set(settings) == {"nearest_mode"} and {choice, op.nearest_mode} == ROUNDING:
                named += f" where coordinates lie {TIED}"
            for label, edit in (("", None), (", scale of the sizes", _by_sizes(suspect, op))):
                if label and edit is None:
                    continue
                yield Hypothesis(
                    f"{named}{label}",
                    f"it was resized by {named}" + (" with the ratio of the sizes" if edit else ""),
                    Prior.usual if is_single and not label else Prior.common,
                    op=dataclasses.replace(op, **settings),  # type: ignore[arg-type]
                    inputs=edit,
                    attributes=settings,
                )
    edit = _by_sizes(suspect, op)
    if edit is not None:
        yield Hypothesis(
            "scale of the sizes",
            "coordinates were computed from the ratio of the sizes, not from the scales given",
            Prior.usual,
            inputs=edit,
        )
    yield from _ties(suspect, op)
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


def _region(suspect: Suspect, op: Resize) -> Iterator[Hypothesis]:
    """tf_crop_and_resize without its region, or with another."""
    for transform in TRANSFORMS:
        yield from with_attributes(
            op,
            f"region ignored, {transform}",
            f"the region of interest was ignored: it was resized by {transform}",
            Prior.usual,
            coordinate_transformation_mode=transform,
        )
    yield Hypothesis(
        "region exchanged",
        "begin and end of the region of interest were read in turn (begin, end, begin, end)",
        Prior.common,
        inputs=lambda a: [a[0], a[1].reshape(-1, 2).T.ravel(), *a[2:]],
    )
    if op.extrapolation_value != 0:
        yield from with_attributes(
            op, "extrapolated by 0", "what lies outside was 0, not extrapolation_value",
            Prior.usual, extrapolation_value=0.0,
        )  # fmt: skip


def _ties(suspect: Suspect, op: Resize) -> Iterator[Hypothesis]:
    """The other pixel at some of the ties, as the answer has it, one choice per row and column."""
    x, y = suspect.x, suspect.wide
    if op.mode != "nearest" or op.nearest_mode not in ROUNDING or y.shape != suspect.expected.shape:
        return
    optional = [*suspect.inputs[1:], None, None, None][:3]
    base: list[np.ndarray] = [np.arange(n) for n in x.shape]
    tied: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for p in op.plan(x.shape, *optional):
        if p.in_size == 0:
            return
        base[p.axis], sides = _sides(op, p)
        if (sides[0] != sides[1]).any():
            tied[p.axis] = sides
    if not 0 < len(tied) <= MOST_TIED:
        return
    choices = list(itertools.product((0, 1), repeat=len(tied)))
    agrees = [x[np.ix_(*_positions(base, tied, choice))] == y for choice in choices]
    selected, count = list(base), 0
    for index, (axis, sides) in enumerate(tied.items()):
        other_axes = tuple(a for a in range(y.ndim) if a != axis)
        hits = [
            np.logical_or.reduce([m for w, m in zip(choices, agrees) if w[index] == side]).sum(
                other_axes
            )
            for side in (0, 1)
        ]
        selected[axis] = np.where(
            hits[0] == hits[1], base[axis], np.where(hits[0] > hits[1], *sides)
        )
        count += int((selected[axis] != base[axis]).sum())
    if count:
        yield Hypothesis(
            "ties",
            f"coordinates lie {TIED}, and the other pixel was taken for {count} rows or columns "
            f"than {op.nearest_mode} says",
            Prior.usual,
            after=from_inputs(lambda arrays: np.asarray(arrays[0])[np.ix_(*selected)]),
            attributes={"nearest_mode": "another way at ties"},
            fitted=count,
        )


def _positions(
    base: list[np.ndarray], tied: dict[int, tuple[np.ndarray, np.ndarray]], choice: tuple[int, ...]
) -> list[np.ndarray]:
    positions = list(base)
    for (axis, sides), side in zip(tied.items(), choice):
        positions[axis] = sides[side]
    return positions


def _sides(op: Resize, p: AxisPlan) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Of one axis, the pixels taken, and those before and behind where a coordinate is a tie."""
    mode = op.interpolation
    table = axis_table(mode, p.in_size, p.out_size, p.scale, p.roi).positions[:, 0]
    exact = source_coordinates(
        mode.coordinate_transformation_mode,
        p.in_size,
        p.out_size,
        p.scale,
        p.in_size * p.scale,
        p.roi,
    )
    coordinates = exact.astype(np.float64)
    before = np.floor(coordinates).astype(np.int64)
    near = NEAR * U * np.maximum(np.abs(coordinates), 1.0)
    tie = np.abs(coordinates - before - 0.5) <= near
    low, high = (np.where(tie, np.clip(before + i, 0, p.in_size - 1), table) for i in (0, 1))
    return table, (low, high)


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
