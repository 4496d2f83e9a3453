"""Arguments for a kernel by itself: numbers for everything it reads, weights packed as it wants.

What is read is drawn from a seed, so that two schedules of one kernel are given the same network's
numbers, each in its own order.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from verax.compiler.kernels.convolution.emit import pack_conv_weights
from verax.compiler.kernels.convolution.schedule import ConvSchedule
from verax.compiler.kernels.convolution.spec import ConvSpec
from verax.compiler.kernels.dtypes import FLOAT32
from verax.compiler.kernels.layout import Epilogue
from verax.compiler.kernels.products.attention import panels
from verax.compiler.kernels.products.attention_spec import AttentionSchedule, AttentionSpec
from verax.compiler.kernels.products.gemm import GemmSpec, Matrix, pack_b
from verax.compiler.kernels.products.paired_bytes import pack_paired
from verax.compiler.kernels.products.strassen import (
    ARGUMENTS,
    pack_right,
    right_elements,
    room_elements,
)
from verax.compiler.kernels.products.strassen_spec import StrassenSpec
from verax.compiler.kernels.registry import Schedule, Spec
from verax.compiler.kernels.sizes import static_size
from verax.numerics.strassen import PRODUCTS

INTEGERS = {"int8": (-128, 128), "uint8": (0, 256), "bool": (0, 2)}
OTHER_INTEGERS = (-200, 200)
"""Of wider types: sums stay small, as in quantized networks."""


@dataclasses.dataclass(frozen=True)
class Argument:
    """One argument of a kernel. dtype: of its elements. packed(schedule): its content, where that
    depends on the schedule. written: it is the result. scratch(schedule): bytes of memory that is
    neither."""

    dtype: str
    packed: Callable[[Any], np.ndarray] | None = None
    written: bool = False
    scratch: Callable[[Any], int] | None = None


def arguments(spec: Spec) -> list[Argument]:
    """In the order in which the kernel takes them. TypeError: a spec whose kernel has no choice of
    schedules."""
    if isinstance(spec, ConvSpec):
        start = bool(spec.bias or spec.initial)
        if spec.paired:
            return _of_paired(spec)
        return _of_sum(spec, spec.epilogue, start, lambda s: _conv_weights(spec, s))
    if isinstance(spec, GemmSpec):
        return _of_sum(spec, spec.epilogue, bool(spec.bias), lambda s: _factors(spec, s))
    if isinstance(spec, AttentionSpec):
        return _of_attention(spec)
    if isinstance(spec, StrassenSpec):
        return _of_strassen(spec)
    raise TypeError(f"{type(spec).__name__} has one schedule")


def operations_of(spec: Spec) -> int:
    """Multiplications and additions of a kernel that has a choice of schedules."""
    if isinstance(spec, AttentionSpec):
        return static_size(2 * spec.outer * spec.inner * spec.n * spec.m * (spec.d + spec.e))
    if isinstance(spec, StrassenSpec):
        return PRODUCTS * static_size(spec.half.flops)
    if isinstance(spec, GemmSpec):
        return operations_of(spec.convolution())
    assert isinstance(spec, ConvSpec), "others have one schedule"
    return static_size(spec.flops)


def drawn(dtype: str, count: int, seed: int) -> np.ndarray:
    """Array [count] of pseudorandom finite numbers of `dtype`; the seed decides them."""
    rng = np.random.default_rng(seed)
    if dtype.startswith(("float", "bfloat")):
        normal = rng.standard_normal(count, np.float32)
        return normal.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    low, high = INTEGERS.get(dtype, (0 if dtype.startswith("u") else OTHER_INTEGERS[0], 200))
    return rng.integers(low, high, count).astype(dtype)


def seed_of(text: str) -> int:
    """A number that only the text decides."""
    return zlib.crc32(text.encode())


def _of_sum(
    spec: ConvSpec | GemmSpec,
    epilogue: Epilogue | None,
    start: bool,
    packed: Callable[[ConvSchedule], np.ndarray],
) -> list[Argument]:
    operands = epilogue.operands if epilogue else ()
    return [
        Argument(spec.types.x),
        Argument(spec.types.weights, packed),
        *([Argument(spec.types.sum)] if start else []),
        *(Argument(o.dtype) for o in operands),
        Argument(spec.types.y, written=True),
    ]


def _of_paired(spec: ConvSpec) -> list[Argument]:
    shape = static_size(spec.filters), static_size(spec.channels), *spec.kernel
    size = int(np.prod(shape))
    packed = pack_paired(drawn("int8", size, seed_of("weights 0")).reshape(shape), spec)
    first, _, *remaining = _of_sum(spec, spec.epilogue, spec.bias, lambda _: packed.main)
    at = 2 + spec.bias
    arguments = [first, Argument("int8", lambda _: packed.main), *remaining]
    return [*arguments[:at], Argument("int8", lambda _: packed.further), *arguments[at:]]


def _conv_weights(spec: ConvSpec, schedule: ConvSchedule) -> np.ndarray:
    """Packed; those of each image where images have their own."""
    filters, channels = static_size(spec.filters), static_size(spec.group_channels)
    if spec.transposed:
        filters, channels = static_size(spec.channels), static_size(spec.group_filters)
    shape = (filters, channels, *spec.kernel)
    images = static_size(spec.batch) if spec.weight_strides[0] != 0 else 1
    size = int(np.prod(shape))
    by_image = [
        drawn(spec.types.weights, size, seed_of(f"weights {i}")).reshape(shape)
        for i in range(images)
    ]
    return np.concatenate([pack_conv_weights(w, spec, schedule) for w in by_image])


def _factors(spec: GemmSpec, schedule: ConvSchedule) -> np.ndarray:
    count = 1 if spec.constant_b else static_size(spec.outer) * static_size(spec.inner)
    size = static_size(spec.k) * static_size(spec.n)
    matrices = [drawn(spec.types.weights, size, seed_of(f"factor {i}")) for i in range(count)]
    return np.concatenate([pack_b(b, spec, schedule) for b in matrices])


def _of_attention(spec: AttentionSpec) -> list[Argument]:
    def packed(name: str, columns: int, depth: int) -> Argument:
        one = GemmSpec(1, columns, depth, Matrix(depth, 1), Matrix(columns, 1), types=FLOAT32)
        shared = spec.keys if name == "keys" else spec.values
        heads = -(-spec.inner // shared.repeats)
        count = shared.outer * (spec.outer - 1) + heads

        def content(schedule: AttentionSchedule) -> np.ndarray:
            matrices = (
                drawn("float32", columns * depth, seed_of(f"{name} {i}")) for i in range(count)
            )
            return np.concatenate([pack_b(b, one, panels(schedule)) for b in matrices])

        return Argument("float32", content)

    def all_keys(_: AttentionSchedule) -> np.ndarray:
        return np.full(static_size(spec.outer * spec.inner * spec.n), static_size(spec.m))

    def none_unusual(_: AttentionSchedule) -> np.ndarray:
        return np.zeros(static_size(spec.outer * spec.inner), np.int64)

    keys_and_values = [Argument("float32"), Argument("float32")]
    if spec.rows_of is None:
        keys_and_values = [
            packed("keys", static_size(spec.m), spec.d),
            packed("values", spec.e, static_size(spec.m)),
        ]
    return [
        Argument("float32"),
        *keys_and_values,
        *([Argument(spec.mask.dtype)] if spec.mask else []),
        *([Argument("int64", all_keys)] if spec.counts else []),
        *([Argument("int64", none_unusual)] if spec.skips_later else []),
        Argument("float32", scratch=lambda schedule: schedule.scratch_bytes(spec)),
        Argument("float32", written=True),
    ]


def _of_strassen(spec: StrassenSpec) -> list[Argument]:
    def content(schedule: ConvSchedule) -> np.ndarray:
        factor = drawn("float32", static_size(spec.k * spec.n), seed_of("factor"))
        packed = np.empty(right_elements(spec, schedule), np.float32)
        pack_right(factor.reshape(spec.k, spec.n), spec, schedule, packed)
        return packed

    operands = spec.epilogue.operands if spec.epilogue else ()
    factors = {
        "weights": Argument("float32", content),
        "signs": Argument("int8"),
        "room": Argument(
            "float32", scratch=lambda schedule: 4 * static_size(room_elements(spec, schedule))
        ),
    }
    return [
        *(factors.get(name, Argument("float32")) for name in ARGUMENTS),
        *(Argument(o.dtype) for o in operands),
        Argument("float32", written=True),
    ]


def packing_of(schedule: Schedule) -> object:
    """What of a schedule decides how its weights are packed."""
    if isinstance(schedule, ConvSchedule | AttentionSchedule):
        return type(schedule), schedule.blocks
    return schedule
