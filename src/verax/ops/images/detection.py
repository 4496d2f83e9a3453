"""Operators of object detectors: NonMaxSuppression, RoiAlign, MaxRoiPool."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from verax.base.errors import InputError
from verax.ir.gains import Gain
from verax.ir.operator import Array, Case, Evaluation, Inference, Operator, operator
from verax.ir.types import DType, TensorType
from verax.numerics.error_model import KAPPA, TINY, Rounding, U
from verax.ops.common import draw
from verax.ops.movement.movement import (
    agree,
    at_least_float32,
    require_indices,
    resolve_indices,
    scalar,
)


@operator
class NonMaxSuppression(Operator):
    """Indices [count, 3] (batch, class, box) of boxes kept, per batch and class by falling score.

    Inputs: boxes (N, boxes, 4), scores (N, classes, boxes), max_output_boxes_per_class (default 0:
    nothing is kept), iou_threshold (default 0), score_threshold (default: every box). A box is
    kept when its score is above the threshold and its intersection over union with each box kept
    before is at most iou_threshold; the lower index wins between equal scores, and a box scored
    NaN comes last. Boxes are (y1, x1, y2, x2) with corners in any order, or (x, y, width, height)
    about the center if `center_point_box`. Areas are compared in the arithmetic of the evaluation.
    """

    gains = (Gain.unbounded,)
    center_point_box: bool = False
    exact: ClassVar[bool] = True
    min_inputs: ClassVar[int] = 2
    max_inputs: ClassVar[int | None] = 5
    no_derivative = "it chooses, so that its result jumps"
    no_hypotheses = "its attributes at other values are what is tried"

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        boxes, scores = ctx.type(0), ctx.type(1)
        ctx.require(boxes.rank == 3, f"boxes must be (N, boxes, 4), they are {boxes}")
        ctx.require(scores.rank == 3, f"scores must be (N, classes, boxes), they are {scores}")
        for t in (boxes, scores):
            ctx.require(t.dtype is DType.float32, f"boxes and scores must be float32, not {t}")
        agree(ctx, (boxes.dims[2], 4), "the last axis of boxes and 4")
        agree(ctx, (boxes.dims[0], scores.dims[0]), "batch sizes of boxes and scores")
        agree(ctx, (boxes.dims[1], scores.dims[2]), "numbers of boxes in boxes and scores")
        for i in range(2, 5):
            if ctx.has(i):
                ctx.require(ctx.type(i).size == 1, f"input {i} must be one value: {ctx.type(i)}")
        return (TensorType(DType.int64, (ctx.fresh("selected"), 3)),)

    def canonical(self, ev: Evaluation, *inputs: Any) -> Any:
        """The same comparisons in float32."""
        return self.reference(ev, *inputs)

    def reference(
        self,
        ev: Evaluation,
        boxes: Array,
        scores: Array,
        max_output_boxes_per_class: Array | None = None,
        iou_threshold: Array | None = None,
        score_threshold: Array | None = None,
    ) -> Array:
        if boxes.shape[:2] != (scores.shape[0], scores.shape[2]):
            raise InputError(f"boxes {boxes.shape} and scores {scores.shape} do not fit")
        limit = max_output_boxes_per_class
        max_boxes = 0 if limit is None else min(int(scalar(limit)), boxes.shape[1])
        overlap = boxes.dtype.type(0) if iou_threshold is None else scalar(iou_threshold)
        lowest = None if score_threshold is None else scalar(score_threshold)
        if not 0 <= overlap <= 1:
            raise InputError(f"iou_threshold is {overlap}, it must lie in [0, 1]")
        corners = [self._corners(b) for b in boxes]
        selected = [
            (n, c, box)
            for n in range(scores.shape[0])
            for c in range(scores.shape[1])
            for box in _selected_boxes(corners[n], scores[n, c], max_boxes, overlap, lowest)
        ]
        return np.array(selected, np.int64).reshape(-1, 3)

    def _corners(self, boxes: Array) -> Array:
        """(4, boxes): low and high of the first axis, then of the second."""
        a, b, c, d = boxes.T
        if self.center_point_box:
            half_width, half_height = c / 2, d / 2
            return np.stack([a - half_width, a + half_width, b - half_height, b + half_height])
        return np.stack([np.minimum(a, c), np.maximum(a, c), np.minimum(b, d), np.maximum(b, d)])

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        corners = rng.uniform(0, 4, (2, 9, 4)).astype(np.float32)
        corners[:, 3] = corners[:, 5]
        centers = corners + np.array([0, 0, 1, 1], np.float32)
        scores = rng.uniform(0, 1, (2, 3, 9)).astype(np.float32)
        scores[0, 1, 2] = scores[0, 1, 7]
        max_boxes, overlap = np.array([4]), np.array([0.3], np.float32)
        score_threshold = np.array([0.25], np.float32)
        yield Case(cls(), (corners, scores, max_boxes, overlap, score_threshold))
        yield Case(
            cls(center_point_box=True), (centers, scores, max_boxes, overlap, score_threshold)
        )
        yield Case(cls(), (corners, scores, np.array([9])), (), "no thresholds")
        yield Case(
            cls(), (corners, scores, np.array([2]), None, score_threshold), (), "no iou_threshold"
        )
        yield Case(cls(), (corners, scores), (), "nothing kept")


def _selected_boxes(
    corners: Array, scores: Array, max_boxes: int, overlap: Any, lowest: Any
) -> list[int]:
    """Indices of the boxes of one class that suppression leaves, by falling score."""
    low0, high0, low1, high1 = corners
    area = (high0 - low0) * (high1 - low1)
    above = np.arange(len(scores)) if lowest is None else np.flatnonzero(scores > lowest)
    order = above[np.argsort(-scores[above], kind="stable")]
    selected: list[int] = []
    while len(order) and len(selected) < max_boxes:
        if _cheaper_at_once(len(order), max_boxes - len(selected)):
            return selected + _selected_at_once(
                corners, area, order, max_boxes - len(selected), overlap
            )
        best, order = order[0], order[1:]
        selected.append(int(best))
        order = order[~_overlapping(corners, area, best, order, overlap)]
    return selected


def _cheaper_at_once(count: int, max_boxes: int) -> bool:
    """True if comparing all pairs at once costs less than one box after the other."""
    return count <= 1024 and count * count <= 1024 * min(max_boxes, count)


def _selected_at_once(
    corners: Array, area: Array, order: Array, max_boxes: int, overlap: Any
) -> list[int]:
    overlaps = _overlapping(corners, area, order[:, None], order[None], overlap)
    alive = np.ones(len(order), bool)
    selected: list[int] = []
    for i, box in enumerate(order.tolist()):
        if alive[i]:
            selected.append(box)
            if len(selected) == max_boxes:
                break
            alive &= ~overlaps[i]
    return selected


def _overlapping(corners: Array, area: Array, one: Any, candidates: Array, overlap: Any) -> Array:
    """Boolean array: which of the boxes `candidates` overlap box `one` by more than `overlap`.

    one, candidates: indices of boxes, which broadcast with each other.
    """
    low0, high0, low1, high1 = corners
    side0 = np.minimum(high0[candidates], high0[one]) - np.maximum(low0[candidates], low0[one])
    side1 = np.minimum(high1[candidates], high1[one]) - np.maximum(low1[candidates], low1[one])
    common = np.maximum(side0, 0) * np.maximum(side1, 0)
    union = area[candidates] + area[one] - common
    is_solid = (area[candidates] > 0) & (area[one] > 0) & (union > 0)
    ratio = common / np.where(is_solid, union, 1)
    return np.asarray(is_solid & (side0 > 0) & (side1 > 0) & (ratio > overlap))


@operator
class RoiAlign(Operator):
    """X (N, C, H, W), rois (R, 4) as (x1, y1, x2, y2), batch_indices (R): (R, C, out_h, out_w).

    Each output bin averages (or takes the largest of) bilinear samples on a regular grid of
    sampling_ratio x sampling_ratio points, or of ceil(bin size) points if sampling_ratio is 0.
    `half_pixel` shifts regions by half a pixel; without it (`output_half_pixel`) a region is at
    least one pixel wide. Mode max takes the largest weighted corner of the samples, as ONNX does.
    """

    gains = (Gain.bounded, Gain.unbounded)
    coordinate_transformation_mode: str = "half_pixel"
    mode: str = "avg"
    output_height: int = 1
    output_width: int = 1
    sampling_ratio: int = 0
    spatial_scale: float = 1.0
    min_inputs: ClassVar[int] = 3
    max_inputs: ClassVar[int | None] = 3
    no_derivative = "no rule is written; regions that hold it are judged by Monte Carlo"

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        x, rois, batch = ctx.type(0), ctx.type(1), ctx.type(2)
        require_indices(ctx, 2, "batch_indices")
        ctx.require(x.rank == 4, f"X must be (N, C, H, W), it is {x}")
        ctx.require(rois.rank == 2 and batch.rank == 1, f"rois {rois}, batch_indices {batch}")
        agree(ctx, (rois.dims[1], 4), "the last axis of rois and 4")
        count = agree(ctx, (rois.dims[0], batch.dims[0]), "lengths of rois and batch_indices")
        ctx.one_of("mode", self.mode, ("avg", "max"))
        ctx.one_of(
            "coordinate_transformation_mode",
            self.coordinate_transformation_mode,
            ("half_pixel", "output_half_pixel"),
        )
        ctx.require(self.sampling_ratio >= 0, f"sampling_ratio is {self.sampling_ratio}")
        ctx.require(min(self.output_height, self.output_width) > 0, "the output size is not > 0")
        return (x.with_dims([count, x.dims[1], self.output_height, self.output_width]),)

    def reference(self, ev: Evaluation, x: Array, rois: Array, batch_indices: Array) -> Array:
        batch = resolve_indices(batch_indices, len(x), "batch_indices")
        if (batch_indices < 0).any() or not np.isfinite(rois.astype(np.float64)).all():
            raise InputError("rois must be finite and batch_indices not negative")
        out = np.zeros((len(rois), x.shape[1], self.output_height, self.output_width), x.dtype)
        for r, roi in enumerate(rois):
            rows, columns = self._samples(roi, x.shape)
            out[r] = self._pooled(x[batch[r]], rows, columns)
        return out

    def _samples(self, roi: Array, shape: tuple[int, ...]) -> tuple[Array, Array]:
        """Row and column coordinates of samples, [bins, points per bin]."""
        scalar_type = roi.dtype.type
        shift = scalar_type(0.5 if self.coordinate_transformation_mode == "half_pixel" else 0.0)
        scaled = roi * scalar_type(self.spatial_scale) - shift
        coordinates = []
        bins = ((1, self.output_height, shape[2]), (0, self.output_width, shape[3]))
        for first, count, size in bins:
            start, extent = scaled[first], scaled[first + 2] - scaled[first]
            if not shift:
                extent = max(extent, scalar_type(1))
            width = extent / count
            points = self.sampling_ratio or int(np.ceil(width))
            if points > 4 * (size + 2):
                raise InputError(f"a region of interest is {extent} wide, the image has {size}")
            bin_start = start + np.arange(count)[:, None] * width
            coordinates.append(
                bin_start + (np.arange(max(points, 0)) + scalar_type(0.5)) * width / max(points, 1)
            )
        return coordinates[0], coordinates[1]

    def _pooled(self, image: Array, rows: Array, columns: Array) -> Array:
        """(C, out_h, out_w) from one image (C, H, W)."""
        if rows.shape[1] == 0 or columns.shape[1] == 0:
            return np.zeros((len(image), len(rows), len(columns)), image.dtype)
        low_y, high_y, up_y = _corner_weights(rows, image.shape[1])
        low_x, high_x, up_x = _corner_weights(columns, image.shape[2])
        total: Any = None
        for y, wy in ((low_y, up_y[0]), (high_y, up_y[1])):
            for x, wx in ((low_x, up_x[0]), (high_x, up_x[1])):
                # axes: channel, bin row, bin column, point row, point column
                corner = image[:, y[:, None, :, None], x[None, :, None, :]]
                term = corner * (wy[:, None, :, None] * wx[None, :, None, :])
                if total is None:
                    total = term
                else:
                    total = total + term if self.mode == "avg" else np.maximum(total, term)
        if self.mode == "max":
            return np.asarray(total.max(axis=(3, 4)) + 0)  # of zeros NumPy takes any
        # one after the other: the order of NumPy's mean depends on how many channels there are
        points = total.reshape(*total.shape[:3], -1)
        return np.asarray((points.cumsum(axis=3)[..., -1] + 0) / points.shape[3])

    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        """Coordinates round, and each moves along the image's slope; bounded by its range."""
        x, rois = (np.asarray(v, np.float64) for v in inputs[:2])
        batch = resolve_indices(inputs[2], len(x), "batch_indices")
        flat = x[batch].reshape(*x[batch].shape[:2], -1)
        high, low = flat.max(-1, initial=0.0), flat.min(-1, initial=0.0)
        size = np.abs(rois).max(-1, initial=0.0)[:, None] * abs(self.spatial_scale) + 1.0
        drift = U * size * (high - low) + U * 8 * np.maximum(high, -low)
        shape = outputs[0].shape
        bound = np.broadcast_to((16 * drift + TINY)[:, :, None, None], shape)
        return (at_least_float32(Rounding(KAPPA * bound / 8, bound + 0.0), ev.outputs[0].dtype),)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        x = draw(rng, (2, 3, 8, 9))
        rois = np.array([[0, 0, 6, 5], [1.3, 2.1, 7.9, 7], [-2, 3, 20, 4.5]], np.float32)
        batch = np.array([0, 1, 1])
        yield Case(cls(), (x, rois, batch))
        for mode in ("avg", "max"):
            for transform in ("half_pixel", "output_half_pixel"):
                op = cls(
                    mode=mode,
                    coordinate_transformation_mode=transform,
                    output_height=3,
                    output_width=2,
                    sampling_ratio=2,
                    spatial_scale=0.5,
                )
                yield Case(op, (x, rois, batch))
        yield Case(cls(output_height=2, output_width=3), (x, rois, batch), (), "adaptive")


def _corner_weights(at: Array, size: int) -> tuple[Array, Array, tuple[Array, Array]]:
    """Lower and upper neighbor of coordinates and their weights, 0 beyond one pixel outside."""
    scalar_type = at.dtype.type
    is_inside = (at >= -1) & (at <= size)
    clipped = np.clip(at, scalar_type(0), scalar_type(size - 1))
    low = np.floor(clipped).astype(np.int64).clip(0, size - 1)
    high = np.minimum(low + 1, size - 1)
    t = clipped - low
    zero = scalar_type(0)
    weights = (np.where(is_inside, scalar_type(1) - t, zero), np.where(is_inside, t, zero))
    return low, high, weights


@operator
class MaxRoiPool(Operator):
    """X (N, C, H, W), rois (R, 5) as (batch, x1, y1, x2, y2): (R, C, *pooled_shape).

    Regions are scaled and rounded to whole pixels (halves away from zero), at least one wide, and
    divided into bins floor(i * size / count) to ceil((i + 1) * size / count); an empty bin is 0.
    """

    gains = (Gain.bounded, Gain.unbounded)
    pooled_shape: tuple[int, int]
    spatial_scale: float = 1.0
    exact: ClassVar[bool] = True
    min_inputs: ClassVar[int] = 2
    max_inputs: ClassVar[int | None] = 2
    no_derivative = "it chooses, so that its result jumps"
    no_hypotheses = "its attributes at other values are what is tried"

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        x, rois = ctx.type(0), ctx.type(1)
        ctx.require(x.rank == 4, f"X must be (N, C, H, W), it is {x}")
        ctx.require(rois.rank == 2, f"rois must be (R, 5), they are {rois}")
        agree(ctx, (rois.dims[1], 5), "the last axis of rois and 5")
        ctx.require(
            len(self.pooled_shape) == 2 and min(self.pooled_shape) > 0,
            f"pooled_shape {self.pooled_shape} must be two sizes",
        )
        return (x.with_dims([rois.dims[0], x.dims[1], *self.pooled_shape]),)

    def canonical(self, ev: Evaluation, *inputs: Any) -> Any:
        """+0 is larger than -0."""
        x, rois = inputs
        return self._pooled(x, rois, lambda w: _larger_zero(w, w.max(axis=(1, 2))))

    def reference(self, ev: Evaluation, x: Array, rois: Array) -> Array:
        return self._pooled(x, rois, lambda window: window.max(axis=(1, 2)))

    def _pooled(self, x: Array, rois: Array, largest: Callable[[Array], Array]) -> Array:
        wide = rois.astype(np.float64)
        if not np.isfinite(wide).all() or (wide[:, 0] < 0).any():
            raise InputError("rois must be finite and their batch indices not negative")
        batch = resolve_indices(wide[:, 0], len(x), "the first column of rois")
        scaled = wide[:, 1:] * np.float64(np.float32(self.spatial_scale))
        corners = (np.sign(scaled) * np.floor(np.abs(scaled) + 0.5)).clip(-(2**31), 2**31)
        out = np.zeros((len(rois), x.shape[1], *self.pooled_shape), x.dtype)
        for r, (x1, y1, x2, y2) in enumerate(corners.astype(np.int64)):
            rows = _bins(int(y1), int(y2), self.pooled_shape[0], x.shape[2])
            columns = _bins(int(x1), int(x2), self.pooled_shape[1], x.shape[3])
            for i, (top, bottom) in enumerate(rows):
                for j, (left, right) in enumerate(columns):
                    if top < bottom and left < right:
                        window = x[batch[r], :, top:bottom, left:right]
                        out[r, :, i, j] = largest(window)
        return out

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        x = draw(rng, (2, 3, 7, 9))
        rois = np.array([[0, 0, 0, 6, 5], [1, 2, 1, 12, 9], [1, 4, 4, 3, 2]], np.float32)
        yield Case(cls(pooled_shape=(2, 3)), (x, rois))
        yield Case(cls(pooled_shape=(3, 1), spatial_scale=0.5), (x, rois))


def _larger_zero(window: Array, largest: Array) -> Array:
    """`largest` of a window [C, H, W], +0 where it is a zero and one of them is +0."""
    positive = ((window == 0) & ~np.signbit(window)).any(axis=(1, 2))
    return np.where((largest == 0) & positive, largest.dtype.type(0), largest)


def _bins(first: int, last: int, count: int, size: int) -> list[tuple[int, int]]:
    extent = max(last - first + 1, 1)
    edges = [
        (first + i * extent // count, first - (-(i + 1) * extent // count)) for i in range(count)
    ]
    return [(min(max(a, 0), size), min(max(b, 0), size)) for a, b in edges]
