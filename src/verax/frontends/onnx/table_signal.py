"""ONNX operators on signals: Fourier transforms of a whole axis and of windows, the Mel scale.

Complex numbers are pairs along the last axis, real numbers a last axis of one, as ONNX has them.
"""

from __future__ import annotations

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common import shapes
from verax.frontends.common.context import Conversion, Result
from verax.frontends.common.fourier import PLAIN, WHOLE, transformed
from verax.frontends.onnx.rows import row
from verax.frontends.onnx.tensors import dtype_of
from verax.ir.types import DType


def _numbers(c: Conversion) -> tuple[str, bool]:
    """Input 0 in a type that transforms have, without the last axis where it is real; whether it
    holds pairs."""
    x, type_ = c.required(0), c.type(0)
    components = c.known_size(x, -1) if type_.rank else 0
    if components not in (1, 2) or not type_.dtype.is_float:
        raise ModelError(f"the last axis of {type_} should hold 1 or 2 parts", place=c.node.place)
    if type_.dtype.itemsize < 4:
        x = c.cast(x, DType.float32)
    return (x, True) if components == 2 else (c.add("Squeeze", [x, c.ints([-1])]), False)


def _scalar(c: Conversion, index: int, description: str) -> int | None:
    if c.input(index) is None:
        return None
    content = c.constant_input(index, description).reshape(-1)
    if content.size != 1:
        raise ModelError(f"{description} should be one number", place=c.node.place)
    return int(content[0])


@row("DFT")
def fourier(c: Conversion) -> Result:
    """The axis is an attribute before opset 20; it counts the last one, of the parts, as well."""
    rank, dtype = c.rank(0), c.type(0).dtype
    axis = c.integer("axis", 1) if c.version < 20 else _scalar(c, 2, "the axis")
    axis = c.from_front(-2 if axis is None else axis, rank)
    onesided, inverse = c.flag("onesided"), c.flag("inverse")
    if axis == rank - 1:
        raise ModelError("the last axis holds the parts of a number", place=c.node.place)
    size = _scalar(c, 1, "the transform's length")
    x, pair = _numbers(c)
    sign, norm = (1, WHOLE) if inverse else (-1, PLAIN)
    if onesided and inverse:
        if not pair:
            c.refuse("one side of real numbers has no inverse")
        y = transformed(c, x, axis, True, size, sign, norm, real=True)
        y = c.add("Unsqueeze", [y, c.ints([-1])])
    else:
        if onesided and pair:
            c.refuse("one side of the transform of complex numbers")
        y = transformed(c, x, axis, pair, size, sign, norm, onesided=onesided)
    return c.same(c.cast(y, dtype))


@row("STFT")
def short_time_fourier(c: Conversion) -> Result:
    """Windows along axis 1, one every `frame_step`, each multiplied and transformed:
    [batch, windows, bins, 2]."""
    dtype = c.type(0).dtype
    step, length = _scalar(c, 1, "the step"), _scalar(c, 3, "the length of a window")
    if c.rank(0) != 3 or step is None:
        raise ModelError(f"a step of {step} in {c.type(0)}", place=c.node.place)
    window, onesided = c.input(2), c.flag("onesided", True)
    if window is not None:
        width = c.known_size(window, 0)
        if c.rank(window) != 1 or length not in (None, width):
            raise ModelError(f"a window {c.type(window)} of {length}", place=c.node.place)
        length = width
    x, pair = _numbers(c)
    if length is None:
        raise ModelError("neither window nor length is given", place=c.node.place)
    if onesided and pair:
        c.refuse("one side of the transform of complex numbers")
    frames = c.append(shapes.windows_along(c, x, 1, length, step))
    if window is not None:
        window = c.cast(window, c.type(x).dtype)
        window = c.add("Unsqueeze", [window, c.ints([-1])]) if pair else window
        frames = c.add("Mul", [frames, window])
    y = transformed(c, frames, 2, pair, length, -1, onesided=onesided)
    return c.same(c.cast(y, dtype))


@row("MelWeightMatrix")
def mel_weights(c: Conversion) -> Result:
    """Triangles over the bins of a transform [bins, mel bins], evenly spaced in
    mel = 2595 log10(1 + hertz / 700), corners rounded down to bins."""
    code = c.integer("output_datatype", 1)
    names = ("the Mel bins", "the transform's length", "the rate", "the low edge", "the high edge")
    arguments = [float(_constant(c, i, description)) for i, description in enumerate(names)]
    count, size, rate = (int(v) for v in arguments[:3])
    if min(count, size, rate) < 1:
        raise ModelError(f"{count} Mel bins of {size} at {rate} Hz", place=c.node.place)
    c.check_count((size // 2 + 1) * count)
    low, high = (2595 * np.log10(1 + hertz / 700) for hertz in arguments[3:])
    mel = low + np.arange(count + 2) * ((high - low) / (count + 2))
    corners = np.floor((size + 1) * (700 * (10 ** (mel / 2595) - 1)) / rate)
    bins, start, middle, end = (
        np.arange(size // 2 + 1)[:, None],
        *(corners[i : count + i] for i in range(3)),
    )
    rising = (bins - start) / np.maximum(middle - start, 1)
    falling = (end - bins) / np.maximum(end - middle, 1)
    side = np.where(bins < middle, rising * (bins >= start), falling * (bins < end))
    weights = np.where(bins == middle, 1.0, side)
    return c.named_constant(weights.astype(dtype_of(code, c.node.place).numpy))


def _constant(c: Conversion, index: int, description: str) -> np.ndarray:
    content = c.constant_input(index, description)
    if content.size != 1:
        raise ModelError(f"{description} should be one number", place=c.node.place)
    return content.reshape(-1)[0]
