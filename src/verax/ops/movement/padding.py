"""Pad. Exact in every mode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from verax.base.errors import InputError
from verax.ir.dim import is_known
from verax.ir.operator import Array, Case, Evaluation, Inference, operator
from verax.ir.types import TensorType
from verax.ops.common import draw, normalize_axes
from verax.ops.movement.movement import (
    Movement,
    along,
    axis_of,
    ints,
    known_axes,
    known_ints,
    scalar,
)

MODES = ("constant", "edge", "reflect", "wrap")


def source_positions(size: int, begin: int, end: int, mode: str) -> Array:
    """int64 [begin + size + end]: the element that each position of a padded axis shows.

    -1 marks the constant. Negative pads crop first; what is left is then padded, so that a
    reflection never shows a cropped element. Raises `InputError` when nothing is left to show.
    """
    cropped = np.arange(size)[max(-begin, 0) : size - max(-end, 0)]
    ends = (max(begin, 0), max(end, 0))
    if mode == "constant":
        return np.pad(cropped, ends, constant_values=-1)
    if not len(cropped) and any(ends):
        raise InputError(f"an axis of size {len(cropped)} cannot be padded in mode {mode}")
    return np.pad(cropped, ends, mode=mode)  # type: ignore[call-overload]


@operator
class Pad(Movement):
    """Inputs: data, pads (begins, then ends; negative ones crop), constant_value (default 0),
    axes (default: all). `reflect` does not repeat the border element, `edge` repeats only it.
    """

    mode: str = "constant"
    min_inputs: ClassVar[int] = 2
    max_inputs: ClassVar[int | None] = 4

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        data, pads = ctx.type(0), known_ints(ctx, 1, "pads")
        ctx.one_of("mode", self.mode, MODES)
        if ctx.has(2):
            fill = ctx.type(2)
            ctx.require(fill.dtype == data.dtype, f"constant_value is {fill}, data is {data}")
            ctx.require(fill.size == 1, f"constant_value must be one element, it is {fill}")
        axes = known_axes(ctx, 3) if ctx.has(3) else list(range(data.rank))
        if axes is None:
            return (data.with_dims([ctx.fresh("pad") for _ in data.dims]),)
        axes = list(normalize_axes(ctx, axes, data.rank))
        dims = list(data.dims)
        if pads is None:
            for a in axes:
                dims[a] = ctx.fresh("pad")
            return (data.with_dims(dims),)
        ctx.require(len(pads) == 2 * len(axes), f"{len(pads)} pads for {len(axes)} axes")
        for a, begin, end in zip(axes, pads, pads[len(axes) :]):
            size = dims[a]
            dims[a] = size + begin + end
            if is_known(size) and is_known(begin) and is_known(end):
                cropped_size = size + min(begin, 0) + min(end, 0)
                ctx.require(
                    cropped_size >= 0, f"pads {begin} and {end} crop more than axis {a} of {data}"
                )
                shows = self.mode == "constant" or cropped_size > 0 or max(begin, end) <= 0
                ctx.require(
                    shows, f"pads {begin} and {end} leave mode {self.mode} nothing of axis {a}"
                )
        return (data.with_dims(dims),)

    def reference(
        self,
        ev: Evaluation,
        data: Array,
        pads: Array,
        constant_value: Array | None = None,
        axes: Array | None = None,
    ) -> Array:
        padded_axes = range(data.ndim) if axes is None else ints(axes)
        listed = ints(pads)
        if len(listed) != 2 * len(padded_axes):
            raise InputError(f"{len(listed)} pads are given for {len(padded_axes)} axes")
        fill = data.dtype.type(0) if constant_value is None else scalar(constant_value)
        for axis, begin, end in zip(padded_axes, listed, listed[len(padded_axes) :]):
            axis = axis_of(axis, data.ndim)
            if (begin, end) != (0, 0):
                data = _pad_axis(data, axis, begin, end, self.mode, fill)
        return data

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        x = draw(rng, (2, 3, 5, 4))
        pads = np.array([0, 0, 1, 3, 0, 1, 2, 0])
        for mode in MODES:
            yield Case(cls(mode=mode), (x, pads), (1,), mode)
            mixed = np.array([2, -1, -3, 1])
            yield Case(cls(mode=mode), (x, mixed, None, np.array([-1, 2])), (1, 3), f"{mode}, crop")
        fill = np.array(-1.5, np.float32)
        yield Case(cls(), (x, pads, fill), (1,), "value")
        yield Case(cls(), (draw(rng, (3, 2), "int32"), np.array([1, 0, 0, 2])), (), "at run time")
        yield Case(cls(mode="reflect"), (draw(rng, (3,)), np.array([7, 4])), (1,), "twice around")
        yield Case(cls(mode="wrap"), (draw(rng, (3,)), np.array([4, 8])), (1,), "twice around")


def _pad_axis(data: Array, axis: int, begin: int, end: int, mode: str, fill: Any) -> Array:
    if data.shape[axis] + min(begin, 0) + min(end, 0) < 0:
        raise InputError(f"pads {begin} and {end} crop more than axis {axis} of {data.shape}")
    source = source_positions(data.shape[axis], begin, end, mode)
    outside = np.flatnonzero(source < 0)
    if not len(outside):
        return data[along(axis, source)]
    shape = (*data.shape[:axis], len(source), *data.shape[axis + 1 :])
    out = np.full(shape, fill, data.dtype)
    inside = np.flatnonzero(source >= 0)
    out[along(axis, inside)] = data[along(axis, source[inside])]
    return out
