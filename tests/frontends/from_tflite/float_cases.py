"""One small model per floating-point operator and option, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from tests.frontends.from_tflite.movement_cases import movement_cases
from tests.frontends.from_tflite.tflite_writer import Case, T, const, one

RNG_SEED = 11


def float_cases() -> Iterator[Case]:
    """(label, model) in a fixed order."""
    rng = np.random.default_rng(RNG_SEED)

    def weights(*shape: int) -> T:
        return const(rng.standard_normal(shape).astype(np.float32))

    image = (2, 7, 6, 3)
    for act in ("NONE", "RELU", "RELU6", "RELU_N1_TO_1"):
        yield f"CONV_2D {act}", one(
            "CONV_2D", [T(image), weights(4, 3, 2, 3), weights(4)], T((2, 4, 2, 4)),
            stride_h=2, stride_w=3, fused_activation_function=act,
        )  # fmt: skip
    yield "CONV_2D dilated, VALID", one(
        "CONV_2D", [T(image), weights(4, 3, 2, 3), weights(4)], T((2, 3, 3, 4)),
        stride_h=1, stride_w=1, dilation_h_factor=2, dilation_w_factor=3, padding="VALID",
    )  # fmt: skip
    yield "CONV_2D grouped", one(
        "CONV_2D", [T((2, 5, 4, 6)), weights(4, 2, 2, 3), weights(4)], T((2, 5, 4, 4)),
        stride_h=1, stride_w=1,
    )  # fmt: skip
    yield "DEPTHWISE_CONV_2D", one(
        "DEPTHWISE_CONV_2D", [T(image), weights(1, 3, 2, 6), weights(6)], T((2, 4, 3, 6)),
        stride_h=2, stride_w=2, depth_multiplier=2, fused_activation_function="RELU6",
    )  # fmt: skip
    yield "DEPTHWISE_CONV_2D dilated", one(
        "DEPTHWISE_CONV_2D", [T(image), weights(1, 2, 3, 3), weights(3)], T((2, 4, 4, 3)),
        stride_h=1, stride_w=1, depth_multiplier=1, dilation_h_factor=3, padding="VALID",
    )  # fmt: skip
    yield "CONV_3D", one(
        "CONV_3D", [T((2, 4, 5, 6, 3)), weights(2, 3, 2, 3, 5), weights(5)], T((2, 2, 5, 2, 5)),
        stride_d=2, stride_h=1, stride_w=3, fused_activation_function="RELU",
    )  # fmt: skip
    for padding, out, stride in (("SAME", (2, 7, 9), 2), ("SAME", (2, 8, 10), 2),
                                 ("VALID", (2, 9, 11), 2), ("VALID", (2, 10, 12), 2)):  # fmt: skip
        shape = np.array([*out, 4], np.int32)
        yield f"TRANSPOSE_CONV {padding} {out}", one(
            "TRANSPOSE_CONV",
            [const(shape), weights(4, 3, 3, 3), T((2, 4, 5, 3)), weights(4)],
            T((*out, 4)), version=4, stride_h=stride, stride_w=stride, padding=padding,
            fused_activation_function="RELU",
        )  # fmt: skip
    for kind in ("MAX_POOL_2D", "AVERAGE_POOL_2D"):
        for padding, out in (("SAME", (2, 4, 2, 3)), ("VALID", (2, 3, 2, 3))):
            yield f"{kind} {padding}", one(
                kind, [T(image)], T(out), stride_h=2, stride_w=3, filter_height=3,
                filter_width=2, padding=padding, fused_activation_function="RELU_N1_TO_1",
            )  # fmt: skip
    yield "FULLY_CONNECTED", one(
        "FULLY_CONNECTED", [T((3, 8)), weights(5, 8), weights(5)], T((3, 5)),
        fused_activation_function="RELU6",
    )  # fmt: skip
    yield (
        "FULLY_CONNECTED folded",
        one("FULLY_CONNECTED", [T((3, 2, 4)), weights(5, 8), None], T((3, 5))),
    )
    yield "FULLY_CONNECTED kept", one(
        "FULLY_CONNECTED", [T((3, 2, 4)), weights(5, 4), weights(5)], T((3, 2, 5)),
        version=5, keep_num_dims=1, fused_activation_function="RELU",
    )  # fmt: skip
    yield (
        "BATCH_MATMUL",
        one("BATCH_MATMUL", [T((2, 4, 3)), T((2, 5, 4))], T((2, 3, 5)), adj_x=1, adj_y=1),
    )
    yield "LOCAL_RESPONSE_NORMALIZATION", one(
        "LOCAL_RESPONSE_NORMALIZATION", [T((2, 3, 4, 7))], T((2, 3, 4, 7)),
        radius=2, bias=1.5, alpha=0.3, beta=0.7,
    )  # fmt: skip
    for kind in ("ADD", "SUB", "MUL", "DIV"):
        yield kind, one(
            kind, [T(image), const(rng.uniform(1, 2, (6, 1)).astype(np.float32))], T(image),
            fused_activation_function="RELU_N1_TO_1",
        )  # fmt: skip
    for kind in ("MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE"):
        yield kind, one(kind, [T((2, 3, 5)), T((3, 1))], T((2, 3, 5)))
    for kind in ("LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL", "EQUAL", "NOT_EQUAL"):
        yield kind, one(kind, [T((2, 3, 5)), T((3, 1))], T((2, 3, 5), "bool"))
    for kind in ("ABS", "CEIL", "COS", "ELU", "EXP", "FLOOR", "HARD_SWISH", "LOGISTIC", "NEG",
                 "RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1", "ROUND", "SIN", "SQUARE",
                 "TANH", "LOG_SOFTMAX"):  # fmt: skip
        yield kind, one(kind, [T((2, 3, 5))], T((2, 3, 5)))
    yield "PRELU", one("PRELU", [T(image), weights(1, 1, 3)], T(image))
    yield "LEAKY_RELU", one("LEAKY_RELU", [T((2, 3, 5))], T((2, 3, 5)), alpha=0.25)
    for flag in (0, 1):
        yield f"GELU {flag}", one("GELU", [T((2, 3, 5))], T((2, 3, 5)), approximate=flag)
    yield "SOFTMAX", one("SOFTMAX", [T((2, 3, 5))], T((2, 3, 5)), beta=0.5)
    yield "L2_NORMALIZATION", one("L2_NORMALIZATION", [T((2, 3, 4, 5))], T((2, 3, 4, 5)))
    axes = const(np.array([2, -3], np.int32))
    for kind in ("MEAN", "SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN"):
        yield kind, one(kind, [T(image), axes], T((2, 1, 1, 3)), keep_dims=1)
    yield "MEAN dropped", one("MEAN", [T(image), axes], T((2, 3)), keep_dims=0)
    for kind in ("ARG_MAX", "ARG_MIN"):
        axis = const(np.array([1], np.int32))
        yield kind, one(kind, [T(image), axis], T((2, 6, 3), "int32"), output_type="int32")
    yield from movement_cases(T)
    yield from _sizes(image)
    yield from _general(image)
    yield from _truths()
    yield from _domains()


def _sizes(image: tuple[int, ...]) -> Iterator[Case]:
    pads = const(np.array([[0, 0], [1, 2], [3, 0], [0, 1]], np.int32))
    value = const(np.float32(1.5))
    yield "PADV2", one("PADV2", [T(image), pads, value], T((2, 10, 9, 4)))
    size = const(np.array([11, 4], np.int32))
    for aligned, half in ((0, 0), (1, 0), (0, 1)):
        yield f"RESIZE_BILINEAR {aligned}{half}", one(
            "RESIZE_BILINEAR", [T(image), size], T((2, 11, 4, 3)),
            align_corners=aligned, half_pixel_centers=half,
        )  # fmt: skip
    yield "SHAPE", one("SHAPE", [T(image)], T((4,), "int32"), out_type="int32")
    yield "CAST", one("CAST", [T(image)], T(image, "int32"), in_data_type="float32",
                      out_data_type="int32")  # fmt: skip


def _general(image: tuple[int, ...]) -> Iterator[Case]:
    rng = np.random.default_rng(RNG_SEED)

    def ints(*values: int, shape: tuple[int, ...] = (-1,)) -> T:
        return const(np.array(values, np.int32).reshape(shape))

    yield "ADD_N", one("ADD_N", [T((2, 3)), T((2, 3)), T((2, 3))], T((2, 3)))
    divisor = const(np.array([[3, -7, 2]], np.int32))
    for kind in ("FLOOR_DIV", "FLOOR_MOD"):
        yield kind, one(kind, [T((5, 3), "int32"), divisor], T((5, 3), "int32"))
    divisor = const(np.array([0.7, -1.3, 2.1], np.float32))
    yield "FLOOR_DIV real", one("FLOOR_DIV", [T((5, 3)), divisor], T((5, 3)), 2)
    for flags in ((0, 0), (1, 0), (0, 1)):
        yield f"CUMSUM {flags}", one(
            "CUMSUM", [T((2, 5, 3)), const(np.int32(1))], T((2, 5, 3)),
            exclusive=flags[0], reverse=flags[1],
        )  # fmt: skip
    mask = const(rng.integers(0, 2, (2, 3, 4)).astype(bool))
    for kind in ("REDUCE_ANY", "REDUCE_ALL"):
        condition = one(kind, [mask, ints(2)], T((2, 3), "bool"), keep_dims=0)
        yield kind, condition
    yield "L2_POOL_2D", one(
        "L2_POOL_2D", [T(image)], T((2, 4, 2, 3)), stride_h=2, stride_w=3, filter_height=3,
        filter_width=2, fused_activation_function="RELU_N1_TO_1",
    )  # fmt: skip
    yield "ZEROS_LIKE", one("ZEROS_LIKE", [T((2, 3))], T((2, 3)))
    operands = [ints(1, -1, 4, 0), const(np.int32(3)), const(np.float32(2.5)), T(())]
    yield "ONE_HOT", one("ONE_HOT", operands, T((4, 3)), axis=-1)
    scattered = [ints(3, 1, 3, shape=(3, 1)), T((3, 2)), ints(5, 2)]
    yield "SCATTER_ND", one("SCATTER_ND", scattered, T((5, 2)))
    yield "EMBEDDING_LOOKUP", one("EMBEDDING_LOOKUP", [ints(2, 0), T((4, 3))], T((2, 3)))
    rows = [T((2, 4, 3)), ints(3, 0, 1, 2, 2, 1, shape=(2, 3))]
    yield "GATHER batched", one("GATHER", rows, T((2, 3, 3)), 5, axis=1, batch_dims=1)
    for padding, out in (("SAME", (4, 7, 5)), ("VALID", (5, 9, 6))):
        weights = const(rng.standard_normal((3, 3, 2, 4, 3)).astype(np.float32))
        bias = const(rng.standard_normal(4).astype(np.float32))
        yield f"CONV_3D_TRANSPOSE {padding}", one(
            "CONV_3D_TRANSPOSE", [ints(2, *out, 4), weights, T((2, 2, 4, 5, 3)), bias],
            T((2, *out, 4)), stride_d=2, stride_h=2, stride_w=1, padding=padding,
        )  # fmt: skip


def _truths() -> Iterator[Case]:
    shape, other = (2, 3, 5), (3, 1)
    for kind in ("LOGICAL_AND", "LOGICAL_OR"):
        yield kind, one(kind, [T(shape, "bool"), T(other, "bool")], T(shape, "bool"))
    yield "LOGICAL_NOT", one("LOGICAL_NOT", [T(shape, "bool")], T(shape, "bool"))
    yield "SELECT", one("SELECT", [T(shape, "bool"), T(shape), T(shape)], T(shape))
    yield "SELECT whole", one("SELECT", [T((), "bool"), T(shape), T(shape)], T(shape))
    rng = np.random.default_rng(RNG_SEED)
    mask = rng.integers(0, 2, shape).astype(bool)
    yield "WHERE", one("WHERE", [const(mask)], T((int(mask.sum()), 3), "int64"))
    yield "WHERE open", one("WHERE", [T(shape, "bool")], T((1, 3), "int64", signature=(-1, 3)))
    yield "WHERE real", one("WHERE", [T((5, 4))], T((1, 2), "int64", signature=(-1, 2)))


def _domains() -> Iterator[Case]:
    """What is defined for some numbers only, or takes numbers alone."""
    rng = np.random.default_rng(RNG_SEED)
    shape = (2, 3, 5)
    positive = rng.uniform(0.1, 4, shape).astype(np.float32)
    for kind in ("LOG", "SQRT", "RSQRT"):
        yield kind, one(kind, [const(positive)], T(shape))
    yield "SIGN", one("SIGN", [T(shape)], T(shape))
    yield "SIGN int32", one("SIGN", [T(shape, "int32")], T(shape, "int32"), 2)
    base = rng.uniform(0.3, 2, (3, 1)).astype(np.float32)
    yield "POW", one("POW", [const(base), T(shape)], T(shape))
    yield "POW odd", one("POW", [T(shape), const(np.float32(3))], T(shape))
    whole = np.array([[2, -3, 5, 7], [-1, 4, 0, -6]], np.int32)
    powers = const(np.array([3, 2, 0, 5], np.int32))
    yield "POW int32", one("POW", [const(whole), powers], T((2, 4), "int32"))
    for start, limit, step, count in ((2, 17, 4, 4), (9, -5, -3, 5)):
        operands = [const(np.int32(v)) for v in (start, limit, step)]
        yield f"RANGE {step}", one("RANGE", operands, T((count,), "int32"))
    operands = [const(np.float32(v)) for v in (-1.5, 2.25, 0.75)]
    yield "RANGE real", one("RANGE", operands, T((5,)))
    half = rng.standard_normal(shape).astype(np.float16)
    for label, operand in (("", const(half)), (" of an input", T(shape, "float16"))):
        yield f"DEQUANTIZE{label}", one("DEQUANTIZE", [operand], T(shape), 2)
    yield "RANK", one("RANK", [T((2, 3, 5))], T((), "int32"))
