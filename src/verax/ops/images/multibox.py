"""MultiBoxDetection and BoxNMS: the last layers of SSD and YOLO detectors as MXNet defines them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from verax.ir.gains import Gain
from verax.ir.operator import Array, Case, Evaluation, Inference, Operator, operator
from verax.ir.types import TensorType
from verax.numerics.arith import Arith
from verax.numerics.arith_numpy import NumpyArith
from verax.numerics.error_model import KAPPA, Rounding
from verax.numerics.functions_double import exp_d
from verax.ops.common import constant, draw, rounding
from verax.ops.movement.movement import agree
from verax.ops.windows.windows import same_floats

V = TypeVar("V")
_TOGETHER = 256
"""Boxes that are compared with all others at once."""


@operator
class MultiBoxDetection(Operator):
    """Rows (class, score, x1, y1, x2, y2) [n, anchors, 6] of the boxes found, -1 elsewhere.

    Inputs: scores (n, classes, anchors), class 0 the background; offsets (n, 4 * anchors); anchors
    (1, anchors, 4) as (x1, y1, x2, y2). Per anchor the class that scores best (the first of equal
    ones, background aside) is found if it scores at least `threshold`; the box is the anchor moved
    by offset * variance * size and scaled by exp(offset * variance), cut to [0, 1] by `clip`.
    Unless nms_threshold is outside of (0, 1], rows are sorted by score, and of two of the same
    class (of any class with force_suppress) whose intersection over union is at least
    nms_threshold the later row's class becomes -1. Beyond the nms_topk best (if positive) rows
    keep their place before sorting, with class -1, as MXNet leaves them.
    Source: src/operator/contrib/multibox_detection.cc of apache/mxnet 1.9.
    """

    gains = (Gain.unbounded,)
    clip: bool = True
    threshold: float = 0.01
    nms_threshold: float = 0.5
    force_suppress: bool = False
    nms_topk: int = -1
    variances: tuple[float, ...] = (0.1, 0.1, 0.2, 0.2)
    min_inputs: ClassVar[int] = 3
    max_inputs: ClassVar[int | None] = 3
    no_derivative = "it chooses, so that its result jumps"
    no_hypotheses = "its attributes at other values are what is tried"

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        same_floats(ctx, 0, 1, 2)
        scores, offsets, anchors = (ctx.type(i) for i in range(3))
        for t, rank in ((scores, 3), (offsets, 2), (anchors, 3)):
            ctx.require(t.rank == rank, f"{t} is given where {rank} axes are needed")
        ctx.require(len(self.variances) == 4, "variances must be four numbers")
        batch = agree(ctx, (scores.dims[0], offsets.dims[0]), "batch sizes")
        count = agree(ctx, (scores.dims[2], anchors.dims[1]), "numbers of anchors")
        agree(ctx, (anchors.dims[0], 1), "the first axis of the anchors and 1")
        agree(ctx, (anchors.dims[2], 4), "the last axis of the anchors and 4")
        agree(ctx, (offsets.dims[1], 4 * count), "offsets and four times the anchors")
        return (scores.with_dims((batch, count, 6)),)

    def reference(self, ev: Evaluation, scores: Array, offsets: Array, anchors: Array) -> Array:
        return self._detected(ev, scores, self._boxes(ev, offsets, anchors)[0])

    def _detected(self, ev: Evaluation, scores: Array, boxes: Array) -> Array:
        """The rows, of boxes [n, anchors, 4]."""
        out = np.full((scores.shape[0], scores.shape[2], 6), scores.dtype.type(-1))
        for n in range(len(scores)):
            rows, classes, best = self._rows(ev, scores[n], boxes[n])
            out[n, : len(rows), 0] = classes
            out[n, : len(rows), 1] = best
            out[n, : len(rows), 2:] = boxes[n, rows]
        return out

    def canonical(self, ev: Evaluation, *inputs: Any) -> Any:
        """Of float32: boxes as `decoded`, compared in float64, then rounded once."""
        if inputs[0].dtype != np.float32:
            return super().canonical(ev, *inputs)
        scores, offsets, anchors = (a.astype(np.float64) for a in inputs)
        shifts = offsets.reshape(len(offsets), offsets.shape[1] // 4, 4)
        with np.errstate(all="ignore"):
            boxes = self.decoded(
                NumpyArith(),
                [shifts[..., k] for k in range(4)],
                [anchors[..., k] for k in range(4)],
            )
            return self._detected(ev, scores, np.stack(boxes, -1)).astype(np.float32)

    def decoded(self, m: Arith[V], shift: Sequence[V], anchor: Sequence[V]) -> list[V]:
        """x1, y1, x2, y2 of the boxes, of float64 offsets and corners of anchors.

        With the exponential of `functions_double`, which every machine has alike.
        """
        half, zero, one = (m.const(v, "float64") for v in (0.5, 0.0, 1.0))
        ends: list[list[V]] = [[], []]
        for k in range(2):
            center_shift, grown = (
                m.mul(shift[j], m.const(float(np.float32(self.variances[j])), "float64"))
                for j in (k, k + 2)
            )
            size = m.sub(anchor[k + 2], anchor[k])
            center = m.add(m.mul(center_shift, size), m.mul(m.add(anchor[k], anchor[k + 2]), half))
            reach = m.mul(m.mul(exp_d(m, grown), size), half)
            for end, value in zip(ends, (m.sub(center, reach), m.add(center, reach))):
                if self.clip:
                    value = m.select(m.le(value, zero), zero, value)
                    value = m.select(m.gt(value, one), one, value)
                end.append(value)
        return [*ends[0], *ends[1]]

    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        """Zero for classes and scores; of boxes the rounding of their decoding."""
        scores, offsets, anchors = inputs
        boxes, sizes = self._boxes(ev, offsets, anchors)
        rounded_sizes = np.zeros(outputs[0].shape)
        for n in range(len(scores)):
            rows, _, _ = self._rows(ev, scores[n], boxes[n])
            rounded_sizes[n, : len(rows), 2:] = sizes[n, rows]
        return (rounding(ev.outputs[0].dtype, rounded_sizes, KAPPA / 4, 1.0),)

    def _boxes(self, ev: Evaluation, offsets: Array, anchors: Array) -> tuple[Array, Array]:
        """Boxes [n, anchors, 4], and the magnitudes that their rounding is proportional to."""
        shift = offsets.reshape(len(offsets), offsets.shape[1] // 4, 4) * np.array(
            [constant(ev, v) for v in self.variances], offsets.dtype
        )
        low, high = anchors[..., :2], anchors[..., 2:]
        size, center = high - low, (low + high) / 2
        center_shift = shift[..., :2] * size
        half = ev.arith.exp(shift[..., 2:]) * size / 2
        boxes = np.concatenate(
            [center_shift + center - half, center_shift + center + half], axis=-1
        )
        if self.clip:
            boxes = np.clip(boxes, boxes.dtype.type(0), boxes.dtype.type(1))
        magnitudes = 5 * np.abs(center_shift) + 3 * np.abs(center)
        magnitudes = magnitudes + (np.abs(shift[..., 2:]) + 9) * np.abs(half)
        return boxes, np.concatenate([magnitudes, magnitudes], axis=-1)

    def _rows(self, ev: Evaluation, scores: Array, boxes: Array) -> tuple[Array, Array, Array]:
        """The anchor of each row, its class (from 0 on, -1 when suppressed) and its score."""
        if len(scores) < 2:
            return np.zeros(0, np.int64), np.zeros(0, np.int64), scores[0, :0]
        ordered_scores = np.where(np.isnan(scores[1:]), -np.inf, scores[1:])
        classes = ordered_scores.argmax(0)
        best = np.take_along_axis(ordered_scores, classes[None], 0)[0]
        detected = np.flatnonzero((best > -1) & (best >= constant(ev, self.threshold)))
        if not 0 < self.nms_threshold <= 1 or not len(detected):
            return detected, classes[detected], best[detected]
        order = detected[np.argsort(-best[detected], kind="stable")]
        limit = len(order) if self.nms_topk <= 0 else min(self.nms_topk, len(order))
        row_classes = np.full(len(order), -1)
        row_classes[:limit] = classes[order[:limit]]
        rows = np.concatenate([order[:limit], detected[limit:]])
        self._suppress(ev, row_classes[:limit], boxes[rows[:limit]])
        return rows, row_classes, best[rows]

    def _suppress(self, ev: Evaluation, row_classes: Array, boxes: Array) -> None:
        """Set the class of each row to -1, in place, that overlaps an earlier row too much.

        Pairs are compared by hundreds of rows."""
        limit = constant(ev, self.nms_threshold)
        for start in range(0, len(row_classes), _TOGETHER):
            rows = slice(start, start + _TOGETHER)
            overlapping = overlap(boxes[rows, None], boxes[None]) >= limit
            if not self.force_suppress:
                overlapping &= row_classes[rows, None] == row_classes[None]
            for i, overlaps in enumerate(overlapping, start):
                if row_classes[i] >= 0:
                    row_classes[i + 1 :][overlaps[i + 1 :]] = -1

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        scores = draw(rng, (2, 4, 11), low=0.0, high=1.0)
        scores[1, 1:, 3:6] = 0.001
        corner = rng.uniform(0.1, 0.5, (1, 11, 2))
        anchors = np.concatenate([corner, corner + rng.uniform(0.2, 0.4, (1, 11, 2))], -1)
        arrays = (scores, draw(rng, (2, 44)), anchors.astype(np.float32))
        forms: tuple[dict[str, Any], ...] = (
            {},
            {"clip": False, "nms_threshold": 0.2},
            {"threshold": 0.6, "variances": (0.2, 0.3, 0.1, 0.15)},
            {"force_suppress": True, "nms_threshold": 0.1},
            {"nms_topk": 4, "nms_threshold": 0.3},
            {"nms_threshold": 0.0},
        )
        for form in forms:
            yield Case(cls(**form), arrays, label=str(form))
        yield Case(cls(), tuple(a.astype(np.float64) for a in arrays), label="float64")
        yield Case(cls(), (scores[:, :1], *arrays[1:]), label="background only")


@operator
class BoxNMS(Operator):
    """Rows of data [..., boxes, width] that survive, by falling score, then rows of -1.

    A row holds a score at score_index, four coordinates from coord_start on (x1, y1, x2, y2, or x,
    y, width, height about the center with `center`), a class at id_index (-1: there is none), and
    whatever else. Rows stay that score above valid_thresh and are not of class background_id; of
    these the `topk` best (if positive; 0 leaves data as it is). Of two of the same class (of any
    with force_suppress; classes are compared as whole numbers) whose intersection over union is
    above overlap_thresh, the later one goes. Equal scores keep their order; areas are compared in
    the arithmetic of the evaluation.
    Source: src/operator/contrib/bounding_box-inl.h of apache/mxnet 1.9.
    """

    gains = (Gain.unbounded,)
    overlap_thresh: float = 0.5
    valid_thresh: float = 0.0
    topk: int = -1
    coord_start: int = 2
    score_index: int = 1
    id_index: int = -1
    background_id: int = -1
    force_suppress: bool = False
    center: bool = False
    exact: ClassVar[bool] = True
    min_inputs: ClassVar[int] = 1
    max_inputs: ClassVar[int | None] = 1
    no_derivative = "it chooses, so that its result jumps"
    no_hypotheses = "its attributes at other values are what is tried"

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        same_floats(ctx, 0)
        data = ctx.type(0)
        ctx.require(data.rank >= 2, f"{data} is given where boxes and their width are needed")
        width = data.dims[-1]
        ctx.require(isinstance(width, int), f"the last axis of {data} must be known")
        assert isinstance(width, int)
        box = range(self.coord_start, self.coord_start + 4)
        ctx.require(box[0] >= 0 and box[-1] < width, f"coordinates {box[0]} to {box[-1]} of {data}")
        columns = [self.score_index] + ([self.id_index] if self.id_index >= 0 else [])
        fits = all(0 <= p < width and p not in box for p in columns)
        ctx.require(fits and len(set(columns)) == len(columns), f"score and class at {columns}")
        return (data,)

    def canonical(self, ev: Evaluation, *inputs: Any) -> Any:
        """The same comparisons, of halves in float32."""
        if inputs[0].dtype.itemsize == 2:
            return self.in_float32(ev, *inputs)
        return self.reference(ev, *inputs)

    def reference(self, ev: Evaluation, data: Array) -> Array:
        if self.topk == 0:
            return data
        out = np.full(data.shape, data.dtype.type(-1))
        flat, flat_out = (a.reshape(-1, *data.shape[-2:]) for a in (data, out))
        for rows, result in zip(flat, flat_out):
            selected = self._selected_rows(ev, rows)
            result[: len(selected)] = rows[selected]
        return out

    def _selected_rows(self, ev: Evaluation, rows: Array) -> Array:
        """Indices of the rows that suppression leaves, by falling score."""
        scores = rows[:, self.score_index]
        is_valid = scores > constant(ev, self.valid_thresh)
        if self.id_index >= 0:
            is_valid &= rows[:, self.id_index] != self.background_id
        valid = np.flatnonzero(is_valid)
        order = valid[np.argsort(-scores[valid], kind="stable")]
        order = order if self.topk < 0 else order[: self.topk]
        boxes = rows[:, self.coord_start : self.coord_start + 4]
        if self.center:
            middle, half = boxes[:, :2], boxes[:, 2:] / 2
            boxes = np.concatenate([middle - half, middle + half], axis=1)
        classes = None
        if self.id_index >= 0 and not self.force_suppress:
            classes = rows[:, self.id_index].astype(np.int64)
        selected = []
        while len(order):
            best, order = order[0], order[1:]
            selected.append(best)
            is_rival = overlap(boxes[best], boxes[order]) > constant(ev, self.overlap_thresh)
            if classes is not None:
                is_rival &= classes[order] == classes[best]
            order = order[~is_rival]
        return np.array(selected, np.int64)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        corner = rng.uniform(0, 3, (2, 9, 2))
        boxes = np.concatenate([corner, corner + rng.uniform(0.5, 3, (2, 9, 2))], -1)
        classes = rng.integers(-1, 3, (2, 9, 1))
        scores = rng.uniform(-0.2, 1, (2, 9, 1))
        scores[0, 3] = scores[0, 6]
        rows = np.concatenate([classes, scores, boxes], -1).astype(np.float32)
        reordered = np.concatenate([boxes, scores, classes, boxes[..., :1]], -1).astype(np.float32)
        yield Case(cls(), (rows,))
        yield Case(cls(id_index=0, overlap_thresh=0.2), (rows,), label="by class")
        force = cls(id_index=0, background_id=1, force_suppress=True, overlap_thresh=0.1)
        yield Case(force, (rows,), label="whatever class, no background")
        yield Case(cls(topk=3, valid_thresh=0.3), (rows,), label="the best three")
        yield Case(cls(topk=0), (rows,), label="as it is")
        placed = cls(coord_start=0, score_index=4, id_index=5, center=True)
        yield Case(placed, (reordered[:, None],), label="about the centre, rank 4")


def overlap(box: Array, boxes: Array) -> Array:
    """Intersection over union of boxes with others, 0 where the union is empty."""
    low, high = np.maximum(box[..., :2], boxes[..., :2]), np.minimum(box[..., 2:], boxes[..., 2:])
    common = np.maximum(high - low, 0).prod(-1)
    areas = [(b[..., 2:] - b[..., :2]).prod(-1) for b in (box, boxes)]
    union = areas[0] + areas[1] - common
    return np.where(union <= 0, 0, common / np.where(union <= 0, 1, union))
