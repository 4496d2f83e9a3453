"""One small model per operator that moves numbers without changing them, whatever these are."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from tests.frontends.from_tflite.tflite_writer import Case, T, const, one, several


def movement_cases(x: Callable[[tuple[int, ...]], T]) -> Iterator[Case]:
    """(label, model) in a fixed order. x: makes a tensor of a shape: floating-point or quantised,
    all of them alike."""
    image = (2, 7, 6, 3)

    def ints(*values: int, shape: tuple[int, ...] = (-1,)) -> T:
        return const(np.array(values, np.int32).reshape(shape))

    yield "RESHAPE", one("RESHAPE", [x(image), ints(2, -1, 9)], x((2, 14, 9)))
    yield "RESHAPE by option", one("RESHAPE", [x(image)], x((2, 14, 9)), new_shape=(2, 14, 9))
    yield "SQUEEZE", one("SQUEEZE", [x((2, 1, 3, 1))], x((2, 3, 1)), squeeze_dims=(1,))
    yield "EXPAND_DIMS", one("EXPAND_DIMS", [x((2, 3)), ints(1)], x((2, 1, 3)))
    yield "TRANSPOSE", one("TRANSPOSE", [x(image), ints(2, 0, 3, 1)], x((6, 2, 3, 7)))
    parts = [x((2, 3, 4)), x((2, 5, 4))]
    yield "CONCATENATION", one("CONCATENATION", parts, x((2, 8, 4)), axis=-2)
    yield "PACK", one("PACK", [x((2, 3)), x((2, 3))], x((2, 2, 3)), values_count=2, axis=1)
    yield "GATHER", one("GATHER", [x((2, 4, 3)), ints(3, 0)], x((2, 2, 3)), axis=1)
    indices = ints(1, 2, 0, 3, shape=(2, 2))
    yield "GATHER_ND", one("GATHER_ND", [x((2, 4, 3)), indices], x((2, 3)))
    yield "TILE", one("TILE", [x((2, 3)), ints(2, 3)], x((4, 9)))
    yield "BROADCAST_TO", one("BROADCAST_TO", [x((3, 1)), ints(2, 3, 4)], x((2, 3, 4)), version=2)
    yield "FILL", one("FILL", [ints(2, 3), x(())], x((2, 3)))
    pads = ints(0, 0, 1, 2, 3, 0, 0, 1, shape=(4, 2))
    yield "PAD", one("PAD", [x(image), pads], x((2, 10, 9, 4)))
    yield (
        "MIRROR_PAD reflect",
        one("MIRROR_PAD", [x(image), pads], x((2, 10, 9, 4)), mode="REFLECT"),
    )
    small = ints(0, 0, 1, 1, 0, 1, 0, 1, shape=(4, 2))
    yield (
        "MIRROR_PAD symmetric",
        one("MIRROR_PAD", [x(image), small], x((2, 9, 7, 4)), mode="SYMMETRIC"),
    )
    wide = ints(0, 0, 3, 1, 0, 6, 2, 3, shape=(4, 2))
    yield (
        "MIRROR_PAD symmetric wide",
        one("MIRROR_PAD", [x(image), wide], x((2, 11, 12, 8)), mode="SYMMETRIC"),
    )
    slices = [x(image), ints(0, 2, 1, 0), ints(-1, 3, -1, 2)]
    yield "SLICE", one("SLICE", slices, x((2, 3, 5, 2)))
    strided = [x(image), ints(0, 6, 1, -1), ints(2, 0, 9, 0), ints(1, -2, 2, 1)]
    yield (
        "STRIDED_SLICE",
        one("STRIDED_SLICE", strided, x((4, 3)), begin_mask=2, end_mask=2, shrink_axis_mask=9),
    )
    for aligned, half in ((0, 0), (1, 0), (0, 1)):
        yield f"RESIZE_NEAREST_NEIGHBOR {aligned}{half}", one(
            "RESIZE_NEAREST_NEIGHBOR", [x(image), ints(11, 4)], x((2, 11, 4, 3)),
            align_corners=aligned, half_pixel_centers=half,
        )  # fmt: skip
    blocks = [x((2, 5, 4, 3)), ints(2, 3), ints(1, 0, 0, 2, shape=(2, 2))]
    yield "SPACE_TO_BATCH_ND", one("SPACE_TO_BATCH_ND", blocks, x((12, 3, 2, 3)))
    blocks = [x((12, 3, 2, 3)), ints(2, 3), ints(1, 0, 0, 2, shape=(2, 2))]
    yield "BATCH_TO_SPACE_ND", one("BATCH_TO_SPACE_ND", blocks, x((2, 5, 4, 3)))
    blocks = [x((2, 5, 3)), ints(3), ints(1, 0, shape=(1, 2))]
    yield "SPACE_TO_BATCH_ND rows", one("SPACE_TO_BATCH_ND", blocks, x((6, 2, 3)))
    blocks = [x((6, 2, 3)), ints(3), ints(1, 0, shape=(1, 2))]
    yield "BATCH_TO_SPACE_ND rows", one("BATCH_TO_SPACE_ND", blocks, x((2, 5, 3)))
    yield "DEPTH_TO_SPACE", one("DEPTH_TO_SPACE", [x((2, 3, 4, 12))], x((2, 6, 8, 3)), block_size=2)
    yield "SPACE_TO_DEPTH", one("SPACE_TO_DEPTH", [x((2, 6, 4, 3))], x((2, 3, 2, 12)), block_size=2)
    condition = const(np.array([[True], [False]]))
    yield "SELECT_V2", one("SELECT_V2", [condition, x((2, 3)), x((2, 3))], x((2, 3)))
    yield "REVERSE_V2", one("REVERSE_V2", [x((2, 3, 4)), ints(1)], x((2, 3, 4)), 2)
    yield (
        "REVERSE_SEQUENCE",
        one(
            "REVERSE_SEQUENCE", [x((3, 5, 2)), ints(2, 5, 1)], x((3, 5, 2)), seq_dim=1, batch_dim=0
        ),
    )
    operands = [const(np.int32(-2)), x((2, 6, 4))]
    yield "SPLIT", several("SPLIT", operands, [x((2, 2, 4)) for _ in range(3)], num_splits=3)
    sizes, first = const(np.array([1, -1, 2], np.int32)), const(np.int32(1))
    parts = [x((2, n, 4)) for n in (1, 3, 2)]
    yield "SPLIT_V", several("SPLIT_V", [x((2, 6, 4)), sizes, first], parts, num_splits=3)
    rows = [x((2, 4)) for _ in range(3)]
    yield "UNPACK", several("UNPACK", [x((2, 3, 4))], rows, num=3, axis=1)
    best = [x((3, 4)), T((3, 4), "int32")]
    yield "TOPK_V2", several("TOPK_V2", [x((3, 7)), const(np.int32(4))], best)
