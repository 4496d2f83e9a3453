"""Single-operator TFLite files with drawn attributes, shapes and quantization.

`python -m tests.frontends.from_tflite.random_cases FOLDER COUNT SEED` writes them for
`verax hunt litert --families model --models FOLDER`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from tests.frontends.from_tflite.tflite_writer import Case, T, const, one

ACTIVATIONS = ("NONE", "RELU", "RELU6", "RELU_N1_TO_1")
SCALE, ZERO = 0.04, {"int8": -7, "uint8": 119}


class Drawing:
    """Draws of one case. dtype: float32, int8 or uint8, of data."""

    def __init__(self, seed: int, index: int) -> None:
        self.random = np.random.default_rng([seed, index])
        self.dtype = str(self.random.choice(["float32", "float32", "int8", "uint8"]))

    def number(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high + 1))

    def flag(self) -> bool:
        return bool(self.random.integers(2))

    def pick(self, *choices: str) -> str:
        return choices[self.number(0, len(choices) - 1)]

    def data(self, shape: tuple[int, ...], scale: float = SCALE) -> T:
        if self.dtype == "float32":
            return T(shape)
        return T(shape, self.dtype, scale=[scale], zero=[ZERO[self.dtype]])

    def weights(self, shape: tuple[int, ...], axis: int) -> T:
        values = self.random.standard_normal(shape)
        if self.dtype == "float32":
            return const(values.astype(np.float32))
        if self.dtype == "uint8":
            return const(np.clip(values * 40 + 128, 0, 255).astype(np.uint8), [0.02], [128])
        scales = self.random.uniform(0.01, 0.03, shape[axis])
        array = np.clip(values * 40, -127, 127).astype(np.int8)
        return const(array, list(scales), [0] * shape[axis], axis)

    def bias(self, weights: T, count: int) -> T:
        values = self.random.standard_normal(count)
        if self.dtype == "float32":
            return const(values.astype(np.float32))
        scales = [SCALE * s for s in weights.scale]
        return const((values * 300).astype(np.int32), scales, [0] * len(scales))


def extent(size: int, window: int, stride: int, dilation: int, padding: str) -> int:
    """Output positions along an axis, as TFLite's padding has them."""
    if padding == "SAME":
        return -(-size // stride)
    return (size - (window - 1) * dilation - 1) // stride + 1


def convolution(d: Drawing) -> Case:
    height, width, channels, filters = (
        d.number(3, 9),
        d.number(3, 9),
        d.number(1, 5),
        d.number(1, 6),
    )
    kernel = (d.number(1, 3), d.number(1, 3))
    stride, dilation = (d.number(1, 3), d.number(1, 3)), (1, 1)
    if d.flag():
        dilation = (d.number(1, 2), d.number(1, 2))
    padding = d.pick("SAME", "VALID")
    out = [extent(*a, padding) for a in zip((height, width), kernel, stride, dilation)]
    if min(out) < 1:
        padding = "SAME"
        out = [extent(*a, padding) for a in zip((height, width), kernel, stride, dilation)]
    depthwise, multiplier = d.flag(), d.number(1, 3)
    filters = channels * multiplier if depthwise else filters
    shape = (1, *kernel, filters) if depthwise else (filters, *kernel, channels)
    weights = d.weights(shape, 3 if depthwise else 0)
    kind = "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D"
    more = {"depth_multiplier": multiplier} if depthwise else {}
    return kind, one(
        kind,
        [d.data((2, height, width, channels)), weights, d.bias(weights, filters)],
        d.data((2, *out, filters), 0.11),
        version=3,
        stride_h=stride[0],
        stride_w=stride[1],
        dilation_h_factor=dilation[0],
        dilation_w_factor=dilation[1],
        padding=padding,
        fused_activation_function=d.pick(*ACTIVATIONS),
        **more,
    )


def pool(d: Drawing) -> Case:
    height, width = d.number(3, 9), d.number(3, 9)
    kernel, stride = (d.number(1, 4), d.number(1, 4)), (d.number(1, 3), d.number(1, 3))
    padding = d.pick("SAME", "VALID")
    out = [extent(*a, 1, padding) for a in zip((height, width), kernel, stride)]
    if min(out) < 1:
        padding, out = "SAME", [extent(*a, 1, "SAME") for a in zip((height, width), kernel, stride)]
    kind = d.pick("MAX_POOL_2D", "AVERAGE_POOL_2D")
    channels = d.number(1, 5)
    return kind, one(
        kind,
        [d.data((2, height, width, channels))],
        d.data((2, *out, channels)),
        version=2,
        stride_h=stride[0],
        stride_w=stride[1],
        filter_height=kernel[0],
        filter_width=kernel[1],
        padding=padding,
        fused_activation_function=d.pick(*ACTIVATIONS),
    )


def resized(d: Drawing) -> Case:
    d.dtype = "int8" if d.dtype == "uint8" else d.dtype  # which we do not resize
    corners, centers = d.flag(), d.flag()
    size = (d.number(1, 11), d.number(1, 11))
    kind = d.pick("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")
    return kind, one(
        kind,
        [d.data((2, d.number(1, 6), d.number(1, 7), 3)), const(np.array(size, np.int32))],
        d.data((2, *size, 3)),
        version=3,
        align_corners=corners,
        half_pixel_centers=centers and not corners,
    )


def reduced(d: Drawing) -> Case:
    shape = (d.number(1, 4), d.number(1, 5), d.number(1, 6), d.number(1, 4))
    axes = sorted(set(d.random.integers(0, 4, d.number(1, 3)).tolist()))
    keep = d.flag()
    out = tuple(1 if i in axes else n for i, n in enumerate(shape) if keep or i not in axes)
    kind = d.pick("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN")
    signed = np.array([a - 4 * d.number(0, 1) for a in axes], np.int32)
    scale = SCALE if "REDUCE" in kind else 0.09
    return kind, one(
        kind, [d.data(shape), const(signed)], d.data(out, scale), version=2, keep_dims=keep
    )


def binary(d: Drawing) -> Case:
    shape = (d.number(1, 3), d.number(2, 5), d.number(1, 4), d.number(1, 5))
    other = tuple(n if d.flag() else 1 for n in shape)[d.number(0, 3) :]
    kind = d.pick("ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM")
    own = {} if "IMUM" in kind else {"fused_activation_function": d.pick(*ACTIVATIONS)}
    scale = SCALE if "IMUM" in kind else 0.09
    operands = [d.data(shape), d.data(other)]
    if d.flag():
        operands.reverse()
    return kind, one(kind, operands, d.data(shape, scale), version=2, **own)


def sliced(d: Drawing) -> Case:
    shape = (d.number(2, 5), d.number(3, 7), d.number(2, 6))
    strides = [int(d.random.choice([1, 2, -1, -2])) for _ in shape]
    begin = [d.number(-n, n - 1) for n in shape]
    end = [d.number(-n, n) for n in shape]
    masks = {m: d.number(0, 7) for m in ("begin_mask", "end_mask")}
    slices = tuple(
        slice(
            None if masks["begin_mask"] >> i & 1 else b,
            None if masks["end_mask"] >> i & 1 else e,
            s,
        )
        for i, (b, e, s) in enumerate(zip(begin, end, strides))
    )
    out = np.zeros(shape)[slices].shape
    if 0 in out:
        return pool(d)
    texts = [const(np.array(v, np.int32)) for v in (begin, end, strides)]
    data = [d.data(shape), *texts]
    return "STRIDED_SLICE", one("STRIDED_SLICE", data, d.data(out), version=2, **masks)


def connected(d: Drawing) -> Case:
    rows, inner, outer = d.number(1, 6), d.number(1, 19), d.number(1, 7)
    weights = d.weights((outer, inner), 0)
    return "FULLY_CONNECTED", one(
        "FULLY_CONNECTED",
        [d.data((rows, inner)), weights, d.bias(weights, outer)],
        d.data((rows, outer), 0.11),
        version=4,
        fused_activation_function=d.pick(*ACTIVATIONS),
    )


def padded(d: Drawing) -> Case:
    shape = (d.number(2, 3), d.number(3, 5), d.number(2, 6))
    mirrored = d.flag()
    most = 1 if mirrored else 3
    pads = np.array([[d.number(0, most), d.number(0, most)] for _ in shape], np.int32)
    out = tuple(n + int(a) + int(b) for n, (a, b) in zip(shape, pads))
    if mirrored:
        mode = d.pick("REFLECT", "SYMMETRIC")
        return "MIRROR_PAD", one("MIRROR_PAD", [d.data(shape), const(pads)], d.data(out), mode=mode)
    return "PAD", one("PAD", [d.data(shape), const(pads)], d.data(out), version=2)


KINDS: tuple[Callable[[Drawing], Case], ...] = (
    *(convolution, convolution, pool, resized, reduced, binary, sliced, connected, padded),
)


def random_case(seed: int, index: int) -> Case:
    """Case `index` of a seed."""
    drawing = Drawing(seed, index)
    return KINDS[drawing.number(0, len(KINDS) - 1)](drawing)


def main(folder: str, count: int, seed: int) -> None:
    """Write `count` files."""
    for index in range(count):
        label, content = random_case(seed, index)
        (Path(folder) / f"{index:05d}_{label.lower()}.tflite").write_bytes(content)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
