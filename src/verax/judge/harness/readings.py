"""How a harness hands over other numbers than it means to: layout, channels, scale, order.

A reading turns an array into the array that the subject seems to have worked on. Scalings are kept
apart as steps of arithmetic, because they round; everything here moves elements and is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from verax.ir.operator import Operator
from verax.ops.pointwise.arithmetic import Add, Div, Mul, Sub

COLORS = (3, 4)
"""Channels of an image that has colors; a fourth is transparency and stays last."""
IMAGE_CHANNELS = (1, *COLORS)
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of red, green and blue in 0 to 1: the figures that most image classifiers were trained with."""
CAFFE_MEAN = (103.939, 116.779, 123.68)
"""Of blue, green and red in 0 to 255: the figures of networks trained with Caffe."""
Move = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Reading:
    """An exact rearrangement of one array. name: standard name; words: what the subject did to
    the input {0}; undo: hands over an input that comes out right, None where there is none."""

    name: str
    words: str
    move: Move
    undo: Move | None


@dataclass(frozen=True)
class Scaling:
    """Steps of arithmetic on an input, one after the other: "-", "/", "*" or "+" and the operand,
    one number or one for each of three channels. words: as in `Reading`."""

    words: str
    steps: tuple[tuple[str, tuple[float, ...]], ...]


def _in_bytes(values: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(255 * v for v in values)


SCALINGS = (
    Scaling("the input {0} was divided by 255", (("/", (255,)),)),
    Scaling("the input {0} was multiplied by 255", (("*", (255,)),)),
    Scaling(
        "the input {0} was normalized as (x - 127.5) / 127.5", (("-", (127.5,)), ("/", (127.5,)))
    ),
    Scaling("the input {0} was normalized as (x - 127.5) / 128", (("-", (127.5,)), ("/", (128,)))),
    Scaling("the input {0} was mapped from 0..1 to -1..1", (("-", (0.5,)), ("/", (0.5,)))),
    Scaling("the input {0} was mapped from -1..1 to 0..1", (("+", (1,)), ("/", (2,)))),
    Scaling("the input {0} was mapped from -1..1 to 0..255", (("+", (1,)), ("*", (127.5,)))),
    Scaling("0.5 was subtracted from the input {0}", (("-", (0.5,)),)),
    Scaling(
        "ImageNet's mean and deviation were applied to the input {0}",
        (("-", IMAGENET_MEAN), ("/", IMAGENET_STD)),
    ),
    Scaling(
        "ImageNet's mean and deviation were applied to the input {0}, in 0..255",
        (("-", _in_bytes(IMAGENET_MEAN)), ("/", _in_bytes(IMAGENET_STD))),
    ),
    Scaling(
        "ImageNet's normalization of the input {0} was missing",
        (("*", IMAGENET_STD), ("+", IMAGENET_MEAN)),
    ),
    Scaling(
        "the mean colors of Caffe's networks were subtracted from the input {0}",
        (("-", CAFFE_MEAN),),
    ),
)


def channel_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Axes of a [n, ., ., .] array that may hold channels: 1, the last, or both when unclear."""
    if len(shape) < 3:
        return ()
    axes = tuple(a for a in (1, len(shape) - 1) if shape[a] in IMAGE_CHANNELS)
    return axes if len(axes) == 1 else (1, len(shape) - 1)


def readings(shape: tuple[int, ...], *, image: bool = True) -> Iterator[Reading]:
    """Rearrangements that an array of this shape may have suffered, likeliest first.

    image: whether it can be one, so that layouts, colors and flips are among them.
    """
    if image:
        yield from _layouts(shape)
        for axis in channel_axes(shape):
            if shape[axis] in COLORS:
                swap = _colors(shape[axis], axis)
                yield Reading("RGB and BGR", "the colors of {0} were taken in reverse", swap, swap)
        yield from _flips(shape)
    if len(shape) > 1 and shape[0] > 1:
        back = _reversed(0)
        yield Reading("batch reversed", "the batch of {0} was taken backwards", back, back)
        yield Reading(
            "batch shifted",
            "every result belongs to the element of {0} before it",
            lambda x: np.roll(x, 1, axis=0),
            lambda x: np.roll(x, -1, axis=0),
        )
        yield Reading(
            "first of the batch",
            "the first element of {0} was used for the whole batch",
            lambda x: np.broadcast_to(x[:1], x.shape),
            None,
        )
    yield Reading("input ignored", "{0} was all zeros", np.zeros_like, None)
    yield Reading("whole numbers", "the numbers of {0} were cut to whole ones", np.trunc, None)


def _layouts(shape: tuple[int, ...]) -> Iterator[Reading]:
    """Bytes in one order of axes, read as if they were in the other."""
    if len(shape) < 3:
        return
    last = len(shape) - 1
    for axis in channel_axes(shape):
        first = axis == 1
        here, there = ("NCHW", "NHWC") if first else ("NHWC", "NCHW")
        to = (0, *range(2, last + 1), 1) if first else (0, last, *range(1, last))
        permuted = tuple(shape[a] for a in to)
        back = tuple(int(i) for i in np.argsort(to))

        reread = partial(_reread, shape=permuted, axes=back)
        handed = partial(_handed, shape=shape, axes=to)
        name = "NCHW and NHWC"
        yield Reading(name, f"the {here} bytes of {{0}} were read as {there}", reread, handed)
        words = f"{{0}} was handed over as {there} and read as {here}"
        yield Reading(name, words, handed, reread)


def _reread(x: np.ndarray, shape: tuple[int, ...], axes: tuple[int, ...]) -> np.ndarray:
    return np.ascontiguousarray(x).reshape(shape).transpose(axes)


def _handed(x: np.ndarray, shape: tuple[int, ...], axes: tuple[int, ...]) -> np.ndarray:
    return np.ascontiguousarray(x.transpose(axes)).reshape(shape)


def _flips(shape: tuple[int, ...]) -> Iterator[Reading]:
    if len(shape) != 4:
        return
    axes = channel_axes(shape)
    for axis in axes[:1] if len(axes) == 1 else ():
        height, width = (2, 3) if axis == 1 else (1, 2)
        for name, words, along in (
            ("upside down", "{0} was taken upside down", height),
            ("mirrored", "{0} was mirrored left to right", width),
        ):
            turn = _reversed(along)
            yield Reading(name, words, turn, turn)
        if shape[height] == shape[width]:

            def swap(x: np.ndarray, a: int = height, b: int = width) -> np.ndarray:
                return np.swapaxes(x, a, b)

            words = "height and width of {0} were exchanged"
            yield Reading("height and width", words, swap, swap)


def _reversed(axis: int) -> Move:
    return lambda x: np.flip(x, axis)


def _colors(count: int, axis: int) -> Move:
    order = [2, 1, 0, *range(3, count)]
    return lambda x: np.take(x, order, axis=axis)


def per_channel(values: tuple[float, ...], shape: tuple[int, ...], axis: int) -> np.ndarray | None:
    """`values` as a float32 array that broadcasts along `axis`; None when there are not as many."""
    if len(values) == 1:
        return np.array(values, np.float32).reshape((1,) * len(shape))
    if shape[axis] != len(values):
        return None
    view = [1] * len(shape)
    view[axis] = len(values)
    return np.array(values, np.float32).reshape(view)


Steps = list[tuple[Operator, np.ndarray]]
_ARITHMETIC: dict[str, Operator] = {"+": Add(), "-": Sub(), "*": Mul(), "/": Div()}
_NUMPY: dict[Operator, np.ufunc] = {
    Add(): np.add,
    Sub(): np.subtract,
    Mul(): np.multiply,
    Div(): np.divide,
}
_INVERSE: dict[Operator, np.ufunc] = {
    Add(): np.subtract,
    Sub(): np.add,
    Mul(): np.divide,
    Div(): np.multiply,
}


def steps_of(scaling: Scaling, shape: tuple[int, ...], axis: int) -> Steps | None:
    """A scaling as operators and operands; None when `axis` has not as many channels."""
    steps = []
    for sign, values in scaling.steps:
        operand = per_channel(values, shape, axis)
        if operand is None:
            return None
        steps.append((_ARITHMETIC[sign], operand))
    return steps


def apply(steps: Steps, x: np.ndarray) -> np.ndarray:
    """What these steps make of `x` in float32."""
    for op, operand in steps:
        x = _NUMPY[op](x, operand).astype(x.dtype)
    return x


def invert(steps: Steps, x: np.ndarray) -> np.ndarray:
    """What becomes `x` by these steps."""
    for op, operand in reversed(steps):
        x = _INVERSE[op](x, operand).astype(x.dtype)
    return x
