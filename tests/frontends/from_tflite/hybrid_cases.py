"""One small model per operator with quantised weights and floating-point data, for the tests of
this folder."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from tests.frontends.from_tflite.quantised_cases import packed
from tests.frontends.from_tflite.tflite_writer import Case, T, const, one

IMAGE = (2, 7, 6, 3)


def hybrid_cases() -> Iterator[Case]:
    """(label, model) in a fixed order. The second word is the kind."""
    rng = np.random.default_rng(31)

    def weights(shape: tuple[int, ...], axis: int | None, scales: int = 0) -> T:
        values = rng.integers(-127, 127, shape, dtype="int8", endpoint=True)
        if axis is None:
            return const(values, [0.0079], [0])
        count = shape[axis]
        scale = [0.0079] * count if scales == 1 else rng.uniform(0.002, 0.02, count)
        return const(values, scale, [0] * count, axis)

    def bias(count: int) -> T:
        return const(rng.standard_normal(count).astype(np.float32))

    for label, axis, scales in (("one scale", None, 0), ("equal scales", 0, 1), ("scales", 0, 0)):
        operands = [T(IMAGE), weights((4, 3, 2, 3), axis, scales), bias(4)]
        yield f"CONV_2D hybrid {label}", one(
            "CONV_2D", operands, T((2, 4, 3, 4)), 5, stride_h=2, stride_w=2,
            fused_activation_function="RELU6",
        )  # fmt: skip
    operands = [T(IMAGE), weights((4, 3, 2, 3), 0), bias(4)]
    yield "CONV_2D hybrid dilated", one(
        "CONV_2D", operands, T((2, 3, 4, 4)), 5, stride_h=1, stride_w=1, padding="VALID",
        dilation_h_factor=2, dilation_w_factor=2,
    )  # fmt: skip
    operands = [T((2, 5, 4, 6)), weights((4, 2, 2, 3), 0), bias(4)]
    yield "CONV_2D hybrid grouped", one(
        "CONV_2D", operands, T((2, 5, 4, 4)), 5, stride_h=1, stride_w=1,
    )  # fmt: skip
    operands = [T(IMAGE), weights((1, 3, 2, 6), 3), bias(6)]
    yield "DEPTHWISE_CONV_2D hybrid", one(
        "DEPTHWISE_CONV_2D", operands, T((2, 7, 6, 6)), 6, stride_h=1, stride_w=1,
        depth_multiplier=2, fused_activation_function="RELU",
    )  # fmt: skip
    shape = const(np.array([2, 8, 9, 4], np.int32))
    for axis in (None, 0):
        operands = [shape, weights((4, 3, 2, 3), axis), T((2, 4, 5, 3)), bias(4)]
        yield f"TRANSPOSE_CONV hybrid {axis}", one(
            "TRANSPOSE_CONV", operands, T((2, 8, 9, 4)), 5, stride_h=2, stride_w=2,
            fused_activation_function="RELU",
        )  # fmt: skip
    for axis in (None, 0):
        for asymmetric in (0, 1):
            yield f"FULLY_CONNECTED hybrid {axis} {asymmetric}", one(
                "FULLY_CONNECTED", [T((3, 8)), weights((5, 8), axis), bias(5)], T((3, 5)),
                9 if asymmetric or axis is None else 12, asymmetric_quantize_inputs=asymmetric,
                fused_activation_function="RELU",
            )  # fmt: skip
    yield "FULLY_CONNECTED hybrid kept", one(
        "FULLY_CONNECTED", [T((3, 2, 4)), weights((5, 4), None), None], T((3, 2, 5)), 9,
        keep_num_dims=1,
    )  # fmt: skip
    for adjoint, axis in ((0, None), (1, None), (0, 2), (1, 1)):
        shape = (2, 5, 4) if adjoint else (2, 4, 5)
        yield f"BATCH_MATMUL hybrid {adjoint} {axis}", one(
            "BATCH_MATMUL", [T((2, 3, 4)), weights(shape, axis)], T((2, 3, 5)), 4,
            adj_y=adjoint, asymmetric_quantize_inputs=adjoint,
        )  # fmt: skip
    halves = packed((5, 8), [0.02, 0.07, 0.05, 0.03, 0.011])
    yield (
        "FULLY_CONNECTED hybrid 4 bits",
        one("FULLY_CONNECTED", [T((3, 8)), halves, bias(5)], T((3, 5)), 12),
    )
    yield (
        "FULLY_CONNECTED hybrid 2 bits",
        one(
            "FULLY_CONNECTED",
            [T((3, 7)), packed((5, 7), [0.02, 0.07, 0.05, 0.03, 0.011], kind="int2"), bias(5)],
            T((3, 5)),
            14,
        ),
    )
    places = const(np.array([2, 0, 4], np.int32))
    for label, table in (
        ("int8", weights((5, 8), None)),
        ("int4", packed((5, 8), [0.03])),
        ("int4 by rows", packed((5, 8), [0.02, 0.07, 0.05, 0.03, 0.011])),
        ("int2", packed((5, 8), [0.03], kind="int2")),
    ):
        yield (
            f"EMBEDDING_LOOKUP {label}",
            one("EMBEDDING_LOOKUP", [places, table], T((3, 8)), 4),
        )
