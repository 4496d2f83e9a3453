"""Softmax, LogSoftmax and Hardmax along one axis, or, with `flatten`, over all axes from `axis` on
(the meaning that ONNX gave them before opset 13)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from verax.ir.gains import Gain
from verax.ir.operator import MEANING, Case, Evaluation, Inference, Operator, operator
from verax.ir.types import DType, TensorType
from verax.numerics import reductions
from verax.numerics.arith_numpy import NumpyArith
from verax.numerics.error_model import Rounding
from verax.ops.common import FLOATS, draw, normalize_axis, rounding, same_dtype

_NUMPY = NumpyArith()


class AlongAxis(Operator):
    """One float input and output of one shape; every line along the axis is treated alone."""

    axis: int
    flatten: bool
    case_range: ClassVar[tuple[float, float]] = (-6.0, 6.0)

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        same_dtype(ctx, (0,), FLOATS)
        x = ctx.type(0)
        if self.flatten:  # axis == rank: lines of one element
            ctx.require(-x.rank <= self.axis <= x.rank, f"axis {self.axis}, rank {x.rank}")
        else:
            normalize_axis(ctx, self.axis, x.rank)
        return (x,)

    def axes(self, rank: int) -> tuple[int, ...]:
        """The axes that make up a line."""
        if not self.flatten:
            return (self.axis % rank,)
        return tuple(range(self.axis + rank if self.axis < 0 else self.axis, rank))

    def lines(self, x: np.ndarray) -> np.ndarray:
        """x with each line's elements in the last axis, one line per row."""
        axes = self.axes(x.ndim)
        lines_last = np.moveaxis(x, axes, range(x.ndim - len(axes), x.ndim))
        return lines_last.reshape(-1, int(np.prod([x.shape[a] for a in axes], dtype=np.int64)))

    def unlines(self, rows: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """The reverse of `lines`, for a tensor of `shape`."""
        axes = self.axes(len(shape))
        outer_sizes = [n for a, n in enumerate(shape) if a not in axes]
        lines_last = rows.reshape(outer_sizes + [shape[a] for a in axes])
        return np.moveaxis(lines_last, range(len(outer_sizes), len(shape)), axes)

    def along(self, rows: Any, m: NumpyArith = MEANING) -> Any:
        """The meaning on rows [lines, length], with the elementary functions of `m`."""
        raise NotImplementedError

    def promised(self, rows: np.ndarray) -> np.ndarray:
        """The canonical result on rows [lines, length] of float32 or float64."""
        return np.asarray(self.along(rows))

    def canonical(self, ev: Evaluation, *inputs: Any) -> Any:
        declared, x = ev.outputs[0].dtype, np.asarray(inputs[0])
        if x.size == 0:
            return super().canonical(ev, x)
        rows = self.lines(x if declared is DType.float64 else x.astype(np.float32))
        return self.unlines(_NUMPY.convert(self.promised(rows), str(declared)), x.shape)

    def reference(self, ev: Evaluation, x: Any) -> Any:
        x = np.asarray(x)
        return x if x.size == 0 else self.unlines(self.along(self.lines(x), ev.arith), x.shape)

    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        x, y = (np.asarray(a, np.float64) for a in (inputs[0], outputs[0]))
        if self.exact or x.size == 0:
            return (None,)
        rows = self.lines(x)
        with np.errstate(all="ignore"):
            below = np.max(rows, axis=1, keepdims=True) - rows
            below = np.where(np.isfinite(below), below, 0.0)  # -inf has no share, without rounding
            size, sigma, bound = self.sizes(below, self.lines(y))
            line_errors = rounding(ev.outputs[0].dtype, size, sigma, bound, floor=2.0**-124)
        return (
            Rounding(
                self.unlines(line_errors.sigma, x.shape), self.unlines(line_errors.bound, x.shape)
            ),
        )

    def sizes(self, below: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float, float]:
        """(size, sigma, bound) for `rounding`, from the distance to the line's maximum and y."""
        raise NotImplementedError

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        def case(shape: tuple[int, ...], dtype: str = "float32", **fields: Any) -> Case:
            return Case(cls(**fields), (draw(rng, shape, dtype, *cls.case_range),), label=dtype)

        yield case((2, 3, 5))
        yield case((2, 3, 37))
        yield case((2, 19, 3), axis=1)
        yield case((4, 3, 2), axis=-3)
        yield case((2, 3, 4, 5), axis=1, flatten=True)
        yield case((2, 3, 4), axis=-1, flatten=True)
        yield case((2, 3), axis=0, flatten=True)
        yield case((2, 3, 5), "float16")


def _below_maximum(rows: np.ndarray) -> np.ndarray:
    return _NUMPY.sub(rows, reductions.reduce(rows, (1,), "max", keepdims=True))


@operator
class Softmax(AlongAxis):
    """exp(X - max) / sum(exp(X - max)).

    masked_to_zero: a line that is -inf throughout, as the scores of a query that may attend to
    nothing, gives zeros ("safe softmax"); without it, NaN. A NaN stays one.
    """

    gains = (Gain.bounded,)
    axis: int = -1
    flatten: bool = False
    masked_to_zero: bool = False

    def along(self, rows: Any, m: NumpyArith = MEANING) -> Any:
        e = m.exp(rows - self.shift(m, np.max(rows, axis=1, keepdims=True)))
        return e / self.divisor(m, np.sum(e, axis=1, keepdims=True))

    def promised(self, rows: np.ndarray) -> np.ndarray:
        """exp of the differences to the maximum, divided by their sum in canonical order."""
        top = reductions.reduce(rows, (1,), "max", keepdims=True)
        e = _NUMPY.exp(_NUMPY.sub(rows, self.shift(_NUMPY, top)))
        total = reductions.reduce(e, (1,), "sum", keepdims=True)
        return _NUMPY.div(e, self.divisor(_NUMPY, total))

    def shift(self, m: Any, top: Any) -> Any:
        """What is subtracted from a line whose maximum is `top`, in the arithmetic `m`: `top`; of a
        masked line 0, where that gives zeros."""
        if not self.masked_to_zero:
            return top
        return m.select(m.eq(top, m.like(-np.inf, top)), m.like(0.0, top), top)

    def divisor(self, m: Any, total: Any) -> Any:
        """What the exponentials of a line are divided by: their sum `total`; of a masked line,
        whose sum is 0, 1. Other lines have at least one exponential of 1."""
        if not self.masked_to_zero:
            return total
        return m.select(m.eq(total, m.like(0.0, total)), m.like(1.0, total), total)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        yield from super().cases(rng)
        for shape, axis in (((3, 4, 37), -1), ((2, 5, 3), 1)):
            x = draw(rng, shape, "float32", *cls.case_range)
            x[rng.random(shape) < 0.3] = -np.inf
            np.moveaxis(x, axis, -1)[1, ::2] = -np.inf
            yield Case(cls(axis=axis, masked_to_zero=True), (x,), label="float32 masked lines")

    def sizes(self, below: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float, float]:
        return y * (2 + below + np.sqrt(y.shape[1]) / 8), 1.0, 8.0


@operator
class LogSoftmax(AlongAxis):
    """(X - max) - log(sum(exp(X - max)))."""

    gains = (Gain.bounded,)
    axis: int = -1
    flatten: bool = False

    def along(self, rows: Any, m: NumpyArith = MEANING) -> Any:
        shifted = rows - np.max(rows, axis=1, keepdims=True)
        return shifted - m.log(np.sum(m.exp(shifted), axis=1, keepdims=True))

    def promised(self, rows: np.ndarray) -> np.ndarray:
        """The differences to the maximum, less the logarithm of the sum of their exp."""
        shifted = _below_maximum(rows)
        total = reductions.reduce(_NUMPY.exp(shifted), (1,), "sum", keepdims=True)
        return _NUMPY.sub(shifted, _NUMPY.log(total))

    def sizes(self, below: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float, float]:
        share = np.sum(np.exp(y) * below, axis=1, keepdims=True)
        return np.abs(y) + below + share + 1 + np.sqrt(y.shape[1]) / 8, 1.0, 8.0


@operator
class Hardmax(AlongAxis):
    """1 at the first largest element of each line, 0 elsewhere."""

    gains = (Gain.unbounded,)
    axis: int = -1
    flatten: bool = False
    exact = True
    case_range = (-1.0, 1.0)
    no_derivative = "it chooses, so that its result jumps"

    def along(self, rows: Any, m: NumpyArith = MEANING) -> Any:
        first = np.argmax(rows, axis=1)[:, None]
        return (np.arange(rows.shape[1]) == first).astype(rows.dtype)
