"""One small model per quantised operator, type and option, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from tests.frontends.from_tflite.movement_cases import movement_cases
from tests.frontends.from_tflite.tflite_writer import Case, T, const, one

IMAGE = (2, 7, 6, 3)
TYPES = {"int8": (0.043, -5), "uint8": (0.043, 121), "int16": (0.0007, 0)}
"""Scale and zero point of the data by type."""
OUTPUTS = {"int8": (0.11, 7), "uint8": (0.11, 140), "int16": (0.0013, 0)}
NOT_MOVED = {"REVERSE_SEQUENCE": "int8", "DEPTH_TO_SPACE": "int16", "SPACE_TO_DEPTH": "int16"}
"""Types that LiteRT's kernels refuse."""
VERSIONS = {"int8": 3, "uint8": 1, "int16": 4}


def data(shape: tuple[int, ...], dtype: str, scale: float = 0.0) -> T:
    """A quantised input."""
    own, zero = TYPES[dtype]
    return T(shape, dtype, scale=[scale or own], zero=[zero])


def result(shape: tuple[int, ...], dtype: str, scale: float = 0.0) -> T:
    own, zero = OUTPUTS[dtype]
    return T(shape, dtype, scale=[scale or own], zero=[zero])


def quantised_cases() -> Iterator[Case]:
    """(label, model) in a fixed order."""
    rng = np.random.default_rng(23)

    def weights(shape: tuple[int, ...], dtype: str, axis: int | None) -> T:
        unsigned = dtype == "uint8"
        kind, low, high = ("uint8", 0, 255) if unsigned else ("int8", -127, 127)
        values = rng.integers(low, high, shape, dtype=kind, endpoint=True)
        if axis is None:
            return const(values, [0.0079], [119 if unsigned else 0])
        count = shape[axis]
        return const(values, rng.uniform(0.002, 0.02, count), [0] * count, axis)

    def bias(count: int, dtype: str, size: int = 4000) -> T:
        kind = np.int64 if dtype == "int16" else np.int32
        scale = 0.0079 * TYPES[dtype][0]  # LiteRT wants that of the sums, more or less
        return const(rng.integers(-size, size, count).astype(kind), [scale], [0])

    for dtype in TYPES:
        version = VERSIONS[dtype]
        axis = None if dtype == "uint8" else 0
        for act in ("NONE", "RELU", "RELU6", "RELU_N1_TO_1"):
            operands = [data(IMAGE, dtype), weights((4, 3, 2, 3), dtype, axis), bias(4, dtype)]
            yield f"CONV_2D {dtype} {act}", one(
                "CONV_2D", operands, result((2, 4, 3, 4), dtype), version, stride_h=2, stride_w=2,
                fused_activation_function=act,
            )  # fmt: skip
        depth_axis = None if dtype == "uint8" else 3
        operands = [data(IMAGE, dtype), weights((1, 3, 2, 6), dtype, depth_axis), bias(6, dtype)]
        yield f"DEPTHWISE_CONV_2D {dtype}", one(
            "DEPTHWISE_CONV_2D", operands, result((2, 7, 6, 6), dtype), version, stride_h=1,
            stride_w=1, depth_multiplier=2, fused_activation_function="RELU",
        )  # fmt: skip
        operands = [data((3, 8), dtype), weights((5, 8), dtype, None), bias(5, dtype)]
        yield f"FULLY_CONNECTED {dtype}", one(
            "FULLY_CONNECTED", operands, result((3, 5), dtype), 7 if dtype == "int16" else 4,
            fused_activation_function="RELU6",
        )  # fmt: skip
        operands = [data((3, 2, 4), dtype), weights((5, 4), dtype, None), bias(5, dtype)]
        yield f"FULLY_CONNECTED {dtype} kept", one(
            "FULLY_CONNECTED", operands, result((3, 2, 5), dtype), 7 if dtype == "int16" else 5,
            keep_num_dims=1,
        )  # fmt: skip
        shape = const(np.array([2, 8, 9, 4], np.int32))
        operands = [shape, weights((4, 3, 2, 3), dtype, axis), data((2, 4, 5, 3), dtype)]
        yield f"TRANSPOSE_CONV {dtype}", one(
            "TRANSPOSE_CONV", [*operands, bias(4, dtype)], result((2, 8, 9, 4), dtype), 3,
            stride_h=2, stride_w=2,
        )  # fmt: skip
        yield from _sums(dtype)
        yield from _pools(dtype)
    for dtype in ("int8", "uint8"):
        yield from _bytes(dtype)
    yield from _words()
    yield from _curves()
    yield from _arithmetic()
    yield from _reductions()
    yield from _halves()
    yield from _narrow_sums()
    yield from _moved()
    yield "CONV_2D int8 one scale", one(
        "CONV_2D", [data(IMAGE, "int8"), weights((4, 3, 2, 3), "int8", None), bias(4, "int8")],
        result((2, 3, 4, 4), "int8"), 3, stride_h=1, stride_w=1, padding="VALID",
        dilation_h_factor=2, dilation_w_factor=2,
    )  # fmt: skip
    for aligned, half in ((0, 0), (1, 0), (0, 1)):
        for size in ((11, 4), (14, 12)):
            yield f"RESIZE_BILINEAR int8 {aligned}{half} {size}", one(
                "RESIZE_BILINEAR", [data(IMAGE, "int8"), const(np.array(size, np.int32))],
                data((2, *size, 3), "int8"), 3, align_corners=aligned, half_pixel_centers=half,
            )  # fmt: skip
    operands = [data((3, 2, 4), "int8"), weights((5, 8), "int8", 0), bias(5, "int8")]
    yield (
        "FULLY_CONNECTED int8 per channel, folded",
        one("FULLY_CONNECTED", operands, result((3, 5), "int8"), 4),
    )


def _sums(dtype: str) -> Iterator[Case]:
    version = {"int8": 2, "uint8": 1, "int16": 4}[dtype]
    for kind in ("ADD", "SUB", "MUL"):
        options = {} if kind == "MUL" else {"pot_scale_int16": 0}
        operands = [data(IMAGE, dtype), data((6, 1), dtype, TYPES[dtype][0] * 1.7)]
        for act in ("NONE", "RELU_N1_TO_1"):
            number = 5 if kind == "SUB" and dtype == "int16" else version
            yield f"{kind} {dtype} {act}", one(
                kind, operands, result(IMAGE, dtype), number, fused_activation_function=act,
                **options,
            )  # fmt: skip


def _pools(dtype: str) -> Iterator[Case]:
    version = {"int8": 2, "uint8": 1, "int16": 3}[dtype]
    for kind in ("AVERAGE_POOL_2D", "MAX_POOL_2D"):
        for act in ("NONE", "RELU_N1_TO_1"):
            yield f"{kind} {dtype} {act}", one(
                kind, [data(IMAGE, dtype)], data((2, 4, 2, 3), dtype), version, stride_h=2,
                stride_w=3, filter_height=3, filter_width=2, fused_activation_function=act,
            )  # fmt: skip
    axes = const(np.array([1, 2], np.int32))
    for keep in (0, 1):
        shape = (2, 1, 1, 3) if keep else (2, 3)
        yield (
            f"MEAN {dtype} {keep}",
            one("MEAN", [data(IMAGE, dtype), axes], result(shape, dtype), 2, keep_dims=keep),
        )
    pads = const(np.array([[0, 0], [1, 2], [3, 0], [0, 1]], np.int32))
    moved = data((2, 10, 9, 4), dtype)
    yield f"PAD {dtype}", one("PAD", [data(IMAGE, dtype), pads], moved, 2)
    value = const(np.array([9], dtype), [TYPES[dtype][0]], [TYPES[dtype][1]])
    yield f"PADV2 {dtype}", one("PADV2", [data(IMAGE, dtype), pads, value], moved, 2)
    parts = [data((2, 3, 4), dtype), data((2, 5, 4), dtype)]
    yield f"CONCATENATION {dtype}", one("CONCATENATION", parts, data((2, 8, 4), dtype), 2, axis=1)
    shape = const(np.array([2, 14, 9], np.int32))
    yield f"RESHAPE {dtype}", one("RESHAPE", [data(IMAGE, dtype), shape], data((2, 14, 9), dtype))
    for kind in ("RELU", "RELU6"):
        yield f"{kind} {dtype}", one(kind, [data((2, 9, 5), dtype)], result((2, 9, 5), dtype), 2)
    yield (
        f"LEAKY_RELU {dtype}",
        one("LEAKY_RELU", [data((2, 9, 5), dtype)], result((2, 9, 5), dtype), 2, alpha=0.3),
    )
    for kind in ("MAXIMUM", "MINIMUM"):
        operands = [data((2, 3, 5), dtype), data((3, 1), dtype)]
        yield f"{kind} {dtype}", one(kind, operands, data((2, 3, 5), dtype), 2)
    yield f"QUANTIZE {dtype}", one("QUANTIZE", [T((2, 9, 5))], result((2, 9, 5), dtype), 2)
    yield (
        f"QUANTIZE {dtype} at ties",
        one("QUANTIZE", [T((2, 9, 50))], result((2, 9, 50), dtype, scale=1 / 42.5), 2),
    )
    yield f"DEQUANTIZE {dtype}", one("DEQUANTIZE", [data((2, 9, 5), dtype)], T((2, 9, 5)), 3)
    other = "int8" if dtype != "int8" else "uint8"
    if dtype != "int16":
        yield (
            f"QUANTIZE {dtype} to {other}",
            one("QUANTIZE", [data((2, 9, 5), dtype)], result((2, 9, 5), other), 2),
        )


def _bytes(dtype: str) -> Iterator[Case]:
    lowest = int(np.iinfo(dtype).min)
    probability = T((2, 3, 10), dtype, scale=[1 / 256], zero=[lowest])
    for scale, beta in ((0.043, 1.0), (0.3, 0.7)):
        yield (
            f"SOFTMAX {dtype} {scale}",
            one("SOFTMAX", [data((2, 3, 10), dtype, scale)], probability, 2, beta=beta),
        )
    yield f"LOGISTIC {dtype}", one("LOGISTIC", [data((2, 60, 5), dtype)], T(
        (2, 60, 5), dtype, scale=[1 / 256], zero=[lowest]), 2)  # fmt: skip
    middle = 0 if dtype == "int8" else 128
    yield f"TANH {dtype}", one("TANH", [data((2, 60, 5), dtype)], T(
        (2, 60, 5), dtype, scale=[1 / 128], zero=[middle]), 2)  # fmt: skip
    for scale in (0.043, 0.0021, 0.7):
        yield (
            f"HARD_SWISH {dtype} {scale}",
            one("HARD_SWISH", [data((2, 60, 5), dtype, scale)], result((2, 60, 5), dtype), 1),
        )
    low = np.iinfo(dtype).min
    middle_ = T((2, 3, 10), dtype, scale=[1 / 128], zero=[middle])
    yield (
        f"L2_NORMALIZATION {dtype}",
        one("L2_NORMALIZATION", [data((2, 3, 10), dtype)], middle_, 2),
    )
    alpha = const(np.arange(low, low + 15, dtype=dtype).reshape(3, 5) + 90, [0.013], [low + 97])
    yield (
        f"PRELU {dtype}",
        one("PRELU", [data((2, 3, 5), dtype), alpha], result((2, 3, 5), dtype), 1),
    )
    axis = const(np.array([1], np.int32))
    yield (
        f"ARG_MAX {dtype}",
        one("ARG_MAX", [data(IMAGE, dtype), axis], T((2, 6, 3), "int32"), 2, output_type="int32"),
    )


def _words() -> Iterator[Case]:
    """What 16-bit data have by tables of their own."""
    unit = T((2, 3, 10), "int16", scale=[2.0**-15], zero=[0])
    for scale, beta in ((0.0007, 1.0), (0.00011, 0.7)):
        yield (
            f"SOFTMAX int16 {scale}",
            one("SOFTMAX", [data((2, 3, 10), "int16", scale)], unit, 3, beta=beta),
        )
    wide = T((2, 90, 10), "int16", scale=[2.0**-15], zero=[0])
    for kind in ("LOGISTIC", "TANH"):
        for scale in (2.0**-12, 2.0**-11, 0.0007, 0.00003, 0.9):
            operand = data((2, 90, 10), "int16", scale)
            yield f"{kind} int16 {scale}", one(kind, [operand], wide, 3)


def _curves() -> Iterator[Case]:
    shape = (2, 90, 5)
    for kind, types in (("ELU", "int8"), ("EXP", "int8 int16"), ("LOG", "int8 int16"),
                        ("ABS", "int8 int16")):  # fmt: skip
        for dtype in types.split():
            operand = data(shape, dtype, 0.0001 if dtype == "int16" else 0.0)
            yield (
                f"{kind} {dtype}",
                one(kind, [operand], result(shape, dtype), 1 if kind == "ELU" else 2),
            )
    yield (
        "ABS int8 kept",
        one("ABS", [data(shape, "int8")], T(shape, "int8", scale=[0.043], zero=[9]), 2),
    )
    for dtype in TYPES:
        for flag in (0, 1):
            yield (
                f"GELU {dtype} {flag}",
                one("GELU", [data(shape, dtype)], result(shape, dtype), 2, approximate=flag),
            )
    for dtype in ("int8", "int16"):
        lowest = int(np.iinfo(dtype).min) if dtype == "int8" else 0
        operand = T(shape, dtype, scale=[TYPES[dtype][0]], zero=[lowest])
        for kind in ("SQRT", "RSQRT"):
            yield f"{kind} {dtype}", one(kind, [operand], result(shape, dtype), 2)


def _arithmetic() -> Iterator[Case]:
    rng = np.random.default_rng(29)
    shape, many = (2, 9, 5), (2, 90, 25)
    for kind, ratio in (("EQUAL", 1), ("NOT_EQUAL", 1), ("LESS", 1.7), ("LESS_EQUAL", 1.7),
                        ("GREATER", 1.7), ("GREATER_EQUAL", 1.7)):  # fmt: skip
        for dtype in ("int8", "uint8"):
            operands = [data(many, dtype), data((90, 1), dtype, TYPES[dtype][0] * ratio)]
            yield f"{kind} {dtype}", one(kind, operands, T(many, "bool"), 2)
    for kind in ("EQUAL", "GREATER"):
        operands = [data(many, "int16", 1e-5), data((90, 1), "int16", 1.7e-5)]
        yield f"{kind} int16", one(kind, operands, T(many, "bool"), 2)
    yield "NEG int16", one("NEG", [data(shape, "int16")], data(shape, "int16"))
    for dtype, low, zero in (("int8", 0, -5), ("uint8", 125, 120)):
        divisor = const(rng.integers(low, low + 100, (90, 1)).astype(dtype), [0.006], [zero])
        for act in ("NONE", "RELU"):
            yield f"DIV {dtype} {act}", one(
                "DIV", [data(many, dtype), divisor], result(many, dtype, 0.09), 2,
                fused_activation_function=act,
            )  # fmt: skip
    operands = [data(shape, "int8"), data((9, 1), "int8", 0.07)]
    yield "SQUARED_DIFFERENCE int8", one("SQUARED_DIFFERENCE", operands, result(shape, "int8"), 2)
    for dtype in ("int8", "int16"):
        for flags in ((0, 0), (1, 1)):
            shapes = ((2, 4, 3), (2, 5, 4)) if flags[0] else ((2, 3, 4), (2, 4, 5))
            scales = (0.0, 0.09 if dtype == "int8" else 0.0002)
            operands = [data(s, dtype, scale) for s, scale in zip(shapes, scales)]
            yield f"BATCH_MATMUL {dtype} {flags}", one(
                "BATCH_MATMUL", operands, result((2, 3, 5), dtype), 4, adj_x=flags[0],
                adj_y=flags[1],
            )  # fmt: skip
    parts = [data((2, 3, 4), "uint8"), T((2, 5, 4), "uint8", scale=[0.031], zero=[90]),
             T((2, 1, 4), "uint8", scale=[0.043], zero=[90])]  # fmt: skip
    whole = data((2, 9, 4), "uint8")
    yield "CONCATENATION uint8 converted", one("CONCATENATION", parts, whole, axis=1)
    alpha = const(rng.integers(-127, 127, (9, 5), dtype="int8", endpoint=True), [0.013], [0])
    yield "PRELU int16", one("PRELU", [data(shape, "int16"), alpha], result(shape, "int16"), 1)
    for aligned, half in ((0, 0), (1, 0), (0, 1)):
        yield f"RESIZE_BILINEAR int16 {aligned}{half}", one(
            "RESIZE_BILINEAR", [data(IMAGE, "int16"), const(np.array((11, 4), np.int32))],
            data((2, 11, 4, 3), "int16"), 3, align_corners=aligned, half_pixel_centers=half,
        )  # fmt: skip
    for source, target in (("int16", "int8"), ("int8", "int16"), ("int16", "int16")):
        wide = T(shape, target, scale=[OUTPUTS[target][0] * 0.3], zero=[OUTPUTS[target][1]])
        yield f"QUANTIZE {source} to {target}", one("QUANTIZE", [data(shape, source)], wide, 3)
    operand = T(shape, "int32", scale=[3e-9], zero=[0])
    yield "QUANTIZE int32", one("QUANTIZE", [operand], result(shape, "int8"), 3)


def _reductions() -> Iterator[Case]:
    axes = const(np.array([1, -2], np.int32))
    for dtype in TYPES:
        for kind in ("REDUCE_MAX", "REDUCE_MIN"):
            reduced = data((2, 1, 1, 3), dtype)
            yield f"{kind} {dtype}", one(kind, [data(IMAGE, dtype), axes], reduced, 3, keep_dims=1)
    for dtype, scale in (("uint8", 1.9), ("int8", 1.9), ("int16", 0.02)):
        operands = [data(IMAGE, dtype), axes]
        yield f"SUM {dtype}", one("SUM", operands, result((2, 3), dtype, scale), 2)
    block, pads = const(np.array([2, 3], np.int32)), const(np.array([[1, 0], [0, 2]], np.int32))
    operands = [data((2, 5, 4, 3), "int8"), block, pads]
    yield (
        "SPACE_TO_BATCH_ND int8",
        one("SPACE_TO_BATCH_ND", operands, data((12, 3, 2, 3), "int8"), 2),
    )
    places = const(np.array([1, -1, 2, 5], np.int32))
    off = const(np.array(-40, np.int8), [0.043], [-5])
    operands = [places, const(np.int32(3)), data((), "int8"), off]
    yield "ONE_HOT int8", one("ONE_HOT", operands, data((4, 3), "int8"), axis=-1)
    condition = const(np.array([[True], [False]]))
    operands = [condition, data((2, 3), "int8"), data((2, 3), "int8")]
    yield "SELECT_V2 int8", one("SELECT_V2", operands, data((2, 3), "int8"))


def packed(
    shape: tuple[int, ...], scale: list[float], axis: int = 0, kind: str = "int4", zero: int = 0
) -> T:
    """Weights of 4 or 2 bits, two or four to a byte, the first in the lowest."""
    bits = int(kind[-1])
    low = 0 if kind.startswith("u") else -(2 ** (bits - 1))
    values = np.random.default_rng(37).integers(low, low + 2**bits, int(np.prod(shape)))
    values = np.append(values, [0] * (-values.size % (8 // bits))).astype(np.uint8)
    data = np.zeros(values.size * bits // 8, np.uint8)
    for i in range(8 // bits):
        data |= (values[i :: 8 // bits] & (2**bits - 1)) << i * bits
    return T(shape, kind, data, scale, [zero] * len(scale), axis)


def _narrow_sums() -> Iterator[Case]:
    """16-bit data whose sums are asked to have 32 bits."""
    rng = np.random.default_rng(41)
    weights = rng.integers(-127, 127, (4, 3, 2, 3), dtype="int8", endpoint=True)
    scales = [0.002, 0.007, 0.005, 0.003]
    bias = const(rng.integers(-4000, 4000, 4).astype(np.int32), [1e-6], [0])
    asked = {"quantized_bias_type": "int32"}
    operands = [data(IMAGE, "int16"), const(weights, scales, [0] * 4), bias]
    yield (
        "CONV_2D int16 32 bits",
        one("CONV_2D", operands, result((2, 7, 6, 4), "int16"), 8, stride_h=1, stride_w=1, **asked),
    )
    operands = [data((3, 6), "int16"), const(weights[:, 0].reshape(4, 6), scales, [0] * 4), bias]
    yield (
        "FULLY_CONNECTED int16 32 bits",
        one("FULLY_CONNECTED", operands, result((3, 4), "int16"), 11, **asked),
    )
    shape = const(np.array([2, 8, 9, 4], np.int32))
    operands = [shape, const(weights, scales, [0] * 4), data((2, 4, 5, 3), "int16"), bias]
    yield "TRANSPOSE_CONV int16 32 bits", one(
        "TRANSPOSE_CONV", operands, result((2, 8, 9, 4), "int16"), 5, stride_h=2, stride_w=2,
        **asked,
    )  # fmt: skip


def _halves() -> Iterator[Case]:
    scales = [0.02, 0.07, 0.05, 0.03, 0.011]
    bias = const(np.arange(-300, 200, 100, dtype=np.int32), [0.001], [0])
    operands = [data((3, 7), "int8"), packed((5, 7), scales), bias]
    yield (
        "FULLY_CONNECTED int8 4 bits",
        one("FULLY_CONNECTED", operands, result((3, 5), "int8"), 10),
    )
    operands = [data((3, 7), "int8"), packed((5, 7), scales, kind="int2"), bias]
    yield (
        "FULLY_CONNECTED int8 2 bits",
        one("FULLY_CONNECTED", operands, result((3, 5), "int8"), 14),
    )
    for kind, zero in (("uint4", 8), ("int2", 0), ("int4", 0)):
        weights = packed((5, 7), [0.03], kind=kind, zero=zero)
        yield f"DEQUANTIZE {kind}", one("DEQUANTIZE", [weights], T((5, 7)), 6)
    operands = [data(IMAGE, "int8"), packed((5, 3, 1, 3), scales), bias]
    yield (
        "CONV_2D int8 4 bits",
        one("CONV_2D", operands, result((2, 7, 6, 5), "int8"), 7, stride_h=1, stride_w=1),
    )
    operands = [data(IMAGE, "int8"), packed((1, 3, 2, 3), scales[:3], 3)]
    operands.append(const(np.array([90, -70, 20], np.int32), [0.001], [0]))
    yield "DEPTHWISE_CONV_2D int8 4 bits", one(
        "DEPTHWISE_CONV_2D", operands, result((2, 7, 6, 3), "int8"), 7, stride_h=1,
        stride_w=1, depth_multiplier=1,
    )  # fmt: skip


def _moved() -> Iterator[Case]:
    """Integers that are moved, not read."""
    for dtype in TYPES:
        for label, made in movement_cases(lambda shape, dtype=dtype: data(shape, dtype)):
            kind, *rest = label.split(" ", 1)
            if NOT_MOVED.get(kind) != dtype:
                yield " ".join([kind, dtype, *rest, "moved"]), made
    for kind in ("RELU_N1_TO_1", "RELU_0_TO_1"):
        yield f"{kind} int8", one(kind, [data((2, 9, 5), "int8")], result((2, 9, 5), "int8"))
    axis = const(np.array([1], np.int32))
    found = T((2, 6, 3), "int32")
    yield "ARG_MIN int8", one("ARG_MIN", [data(IMAGE, "int8"), axis], found, 2, output_type="int32")
    yield "SHAPE int8", one("SHAPE", [data(IMAGE, "int8")], T((4,), "int32"), out_type="int32")
    chosen = [T((2, 3, 5), "bool"), data((2, 3, 5), "int8"), data((2, 3, 5), "int8")]
    yield "SELECT int8", one("SELECT", chosen, data((2, 3, 5), "int8"))
