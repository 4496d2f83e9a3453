"""Quantized programs: the operators that PyTorch's PT2E flow writes (`quantized_decomposed`), those
of torchao (`torchao`), and ATen's fake quantization.

All of them say x ~ (q - zero) scale for blocks of elements that share a scale: a tensor, a slice of
an axis, a row, or a group within a row. `Blocks` finds which, and the operators of the IR follow.
Scales that PyTorch keeps in double precision are rounded to float32, as its kernels do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from verax.frontends.common.context import Result
from verax.frontends.torch.rows import Aten, row
from verax.ir.types import DType

PT2E, TORCHAO = "quantized_decomposed", "torchao"
PARAMETERS = (DType.int8, DType.uint8, DType.int16, DType.uint16)
"""Types of integers that are quantized to."""
ANNOTATION = "it says what the numbers are, not what becomes of them"


@dataclass(frozen=True)
class Blocks:
    """Which elements of a tensor share a scale: those with equal indices along the axes in `apart`,
    and within groups of `group` along the last axis where that is not 0."""

    rank: int
    apart: tuple[int, ...]
    group: int = 0

    @property
    def shared(self) -> list[int]:
        """Axes along which elements share a scale."""
        return [a for a in range(self.rank) if a not in self.apart]


def _blocks(t: Aten, x: str) -> Blocks:
    """What torchao's `block_size` says of `x`: its size along every axis, -1 for all of it."""
    sizes, dims = t.integers("block_size"), t.type(x).dims
    if sizes is None or len(sizes) != len(dims):
        t.refuse(f"block_size {sizes} for a tensor of rank {len(dims)}")
    # An axis of one element in blocks of one stays an axis of the parameters, but for the last.
    last = len(dims) - 1
    is_full_axis = [n == -1 or (n == d and (n != 1 or a == last))
                    for a, (n, d) in enumerate(zip(sizes, dims))]  # fmt: skip
    apart = tuple(a for a, n in enumerate(sizes) if not is_full_axis[a] and n == 1)
    partial = [a for a, n in enumerate(sizes) if not is_full_axis[a] and n != 1]
    if not partial:
        return Blocks(len(dims), apart)
    size = dims[-1]
    if partial != [len(dims) - 1] or not isinstance(size, int) or size % sizes[-1]:
        t.a.refuse("block_size", "blocks are whole axes, or equal groups of the last one")
    return Blocks(len(dims), tuple(range(len(dims) - 1)), sizes[-1])


def _along(t: Aten, x: str) -> Blocks:
    """A scale for each slice of the axis that the node names."""
    return Blocks(t.rank(x), (t.axis("axis", x),))


def _rows_of(t: Aten, x: str) -> Blocks:
    return Blocks(t.rank(x), tuple(range(t.rank(x) - 1)))


def _linear(
    t: Aten, kind: str, x: str, scale: str, zero: str | None, blocks: Blocks, dtype: DType
) -> str:
    """QuantizeLinear or DequantizeLinear to `dtype`; zero: of any integer type."""
    integers = dtype if kind == "QuantizeLinear" else t.type(x).dtype
    if integers not in (*PARAMETERS, DType.int32)[: 4 if kind == "QuantizeLinear" else 5]:
        t.refuse(f"integers of type {integers}")
    fixed = all(t.constant_of(v) is not None for v in (scale, zero) if v is not None)
    scale = t.cast(scale, DType.float32)
    parameters = [scale, *([] if zero is None else [t.cast(zero, integers)])]
    shape, y, axis, size = None, x, 0, 0
    rows = blocks.apart and blocks.shared == [blocks.rank - 1]
    if rows and blocks.group and fixed and kind == "DequantizeLinear" and blocks.rank == 2:
        lines = [-1, t.known_size(x, -1, "its rows") // blocks.group]
        parameters = [t.add("Reshape", [v, t.ints(lines)]) for v in parameters]
        axis, size = 1, blocks.group
    elif rows and (blocks.group or len(blocks.apart) > 1 or not fixed):  # one below the other
        row = t.known_size(x, -1, "its rows")
        size = blocks.group or row
        lines = [-1, row // size] if blocks.group else [-1]
        shape, y = t.add("Shape", [x]), t.add("Reshape", [x, t.ints([*lines, size])])
        parameters, axis = (
            [t.add("Reshape", [v, t.ints([*lines, 1])]) for v in parameters],
            len(lines),
        )
    elif len(blocks.apart) <= 1:
        axis = next(iter(blocks.apart), 0)
        parameters = [t.add("Reshape", [v, t.ints([-1] * len(blocks.apart))]) for v in parameters]
    else:
        t.refuse(f"scales along the axes {blocks.apart} of rank {blocks.rank}")
    result = t.add(kind, [y, *parameters], axis=axis, block_size=size, output_dtype=dtype)
    return result if shape is None else t.add("Reshape", [result, shape])


def _limits(t: Aten, dtype: DType) -> tuple[int, int]:
    """The least and the largest integer that the node allows."""
    info = np.iinfo(dtype.numpy)
    low, high = t.scalar("quant_min"), t.scalar("quant_max")
    limits = int(info.min if low is None else low), int(info.max if high is None else high)
    if not info.min <= limits[0] < limits[1] <= info.max:
        t.refuse(f"integers from {limits[0]} to {limits[1]} in {dtype}")
    return limits


def _integer_type(t: Aten, name: str) -> DType:
    named = t.text(name)
    if named not in map(str, PARAMETERS):
        t.a.refuse(name, f"supported: {', '.join(map(str, PARAMETERS))}")
    return DType(named)


def _quantized(t: Aten, x: str, scale: str, zero: str | None, blocks: Blocks, dtype: DType) -> str:
    """Integers within the node's limits."""
    low, high = _limits(t, dtype)
    if t.type(x).dtype is not DType.float32:
        x = t.cast(x, DType.float32)
    quantized = _linear(t, "QuantizeLinear", x, scale, zero, blocks, dtype)
    info = np.iinfo(dtype.numpy)
    if (low, high) != (info.min, info.max):
        quantized = t.add("Clip", [quantized, *(t.constant(v, dtype.numpy) for v in (low, high))])
    return quantized


def _scale(t: Aten, name: str) -> str:
    """A scale, given as a tensor or a number."""
    value = t.a.values.get(name)
    if isinstance(value, int | float):
        return t.constant(t.scalar(name), np.float32)
    return t.tensor(name)


def _zero(t: Aten, name: str) -> str | None:
    """A zero point, given as a tensor or a number; None for none, and for a tensor of nothing."""
    value = t.a.values.get(name)
    if type(value) is int:
        return t.constant(t.integer(name), np.int64)
    tensor = t.maybe(name)
    return None if tensor is None or 0 in t.type(tensor).dims else tensor


@row(
    *("quantize_per_tensor.default", "quantize_per_tensor.tensor", "quantize_per_channel.default"),
    *("quantize_per_token.default",),
    domain=PT2E,
)
def quantize(t: Aten) -> Result:
    x, dtype = t.tensor("input"), _integer_type(t, "dtype")
    many = t.kind != "quantize_per_tensor"
    names = ("scales", "zero_points") if many else ("scale", "zero_point")
    blocks_of = {"quantize_per_channel": _along, "quantize_per_token": _rows_of}.get(t.kind)
    blocks = Blocks(t.rank(x), ()) if blocks_of is None else blocks_of(t, x)
    quantized = _quantized(t, x, _scale(t, names[0]), _zero(t, names[1]), blocks, dtype)
    return t.result("Identity", [quantized])


@row(
    *("dequantize_per_tensor.default", "dequantize_per_tensor.tensor"),
    *("dequantize_per_channel.default", "dequantize_per_token.default"),
    domain=PT2E,
)
def dequantize(t: Aten) -> Result:
    x = t.tensor("input")
    t.irrelevant("quant_min", "quant_max", "dtype", reason=ANNOTATION)
    many = t.kind != "dequantize_per_tensor"
    names = ("scales", "zero_points") if many else ("scale", "zero_point")
    blocks_of = {"dequantize_per_channel": _along, "dequantize_per_token": _rows_of}.get(t.kind)
    blocks = Blocks(t.rank(x), ()) if blocks_of is None else blocks_of(t, x)
    to = DType(t.text("output_dtype" if t.kind.endswith("token") else "out_dtype") or "float32")
    return _restored(t, x, _scale(t, names[0]), _zero(t, names[1]), blocks, to)


def _restored(t: Aten, x: str, scale: str, zero: str | None, blocks: Blocks, to: DType) -> Result:
    dequantized = _linear(t, "DequantizeLinear", x, scale, zero, blocks, DType.float32)
    return t.result("Identity", [t.cast(dequantized, to)])


@row("quantize_affine.default", domain=TORCHAO)
def quantize_affine(t: Aten) -> Result:
    x, dtype = t.tensor("input"), _integer_type(t, "output_dtype")
    scale, zero = _scale(t, "scale"), _zero(t, "zero_point")
    return t.result("Identity", [_quantized(t, x, scale, zero, _blocks(t, x), dtype)])


@row("dequantize_affine.default", domain=TORCHAO)
def dequantize_affine(t: Aten) -> Result:
    x = t.tensor("input")
    t.irrelevant("quant_min", "quant_max", "input_dtype", reason=ANNOTATION)
    to = DType(t.text("output_dtype") or "float32")
    return _restored(t, x, _scale(t, "scale"), _zero(t, "zero_point"), _blocks(t, x), to)


# Scales from the data


def _extremes(t: Aten, x: str, blocks: Blocks, keepdims: bool) -> tuple[str, str]:
    """min(x, 0) and max(x, 0) of every block, in float32."""
    x = t.cast(x, DType.float32)
    axes = blocks.shared
    if blocks.group:
        size = t.known_size(x, -1, "its groups")
        ends = t.ints([size // blocks.group, blocks.group])
        sizes = t.add("Slice", [t.add("Shape", [x]), t.ints([0]), t.ints([-1]), t.ints([0])])
        x = t.add("Reshape", [x, t.add("Concat", [sizes, ends], axis=0)])
        axes, keepdims = [blocks.rank], False
    extremes = [
        t.add(kind, [x, t.ints(axes)], keepdims=keepdims) for kind in ("ReduceMin", "ReduceMax")
    ]
    none = t.constant(0.0, np.float32)
    return t.add("Min", [extremes[0], none]), t.add("Max", [extremes[1], none])


def _over(t: Aten, x: str, divisor: float) -> str:
    return t.add("Div", [x, t.constant(divisor, np.float32)])


def _at_least(t: Aten, x: str, min_value: float) -> str:
    return t.add("Max", [x, t.constant(min_value, np.float32)])


def _lowest(t: Aten, low: str, scale: str, limits: Sequence[int], dtype: DType) -> str:
    """The zero point at which `low` is the least integer, int64."""
    lines = t.add("Reshape", [low, t.ints([-1])]), t.add("Reshape", [scale, t.ints([-1])])
    first = t.add("Expand", [t.constant(limits[0], dtype.numpy), t.add("Shape", [lines[1]])])
    zero = t.add(
        "QuantizeLinear", [t.add("Neg", [lines[0]]), lines[1], first], axis=0, output_dtype=dtype
    )
    bounded = t.add("Clip", [zero, *(t.constant(v, dtype.numpy) for v in limits)])
    return t.cast(t.add("Reshape", [bounded, t.add("Shape", [scale])]), DType.int64)


def _constant_like(t: Aten, scale: str, value: int) -> str:
    return t.add("Expand", [t.constant(value, np.int64), t.add("Shape", [scale])])


@row("choose_qparams.tensor", "choose_qparams_symmetric.tensor", domain=PT2E)
def choose(t: Aten) -> Result:
    """One scale, float64 [1], and one zero point, int64 [1]."""
    x, dtype = t.tensor("input"), _integer_type(t, "dtype")
    low, high = _extremes(t, x, Blocks(t.rank(x), ()), False)
    first, last = _limits(t, dtype)
    low, high = (t.add("Reshape", [v, t.ints([1])]) for v in (low, high))
    eps = t.scalar("eps")
    if t.kind == "choose_qparams_symmetric":
        largest = t.add("Max", [t.add("Neg", [low]), high])
        scale = _at_least(t, _over(t, largest, (last - first) / 2), eps)
        zero = _constant_like(t, scale, 128 if dtype is DType.uint8 else 0)
    else:
        scale = _at_least(t, _over(t, t.add("Sub", [high, low]), last - first), eps)
        zero = _lowest(t, low, scale, (first, last), dtype)
    return t.named([t.cast(scale, DType.float64), zero])


@row("choose_qparams_affine.default", domain=TORCHAO)
def choose_affine(t: Aten) -> Result:
    """A scale and a zero point for each block."""
    x, dtype = t.tensor("input"), _integer_type(t, "target_dtype")
    blocks, keepdims = _blocks(t, x), t.flag("keepdim")
    first, last = _limits(t, dtype)
    own = t.type(x).dtype
    eps, mapping = t.scalar("eps"), t.text("mapping_type")
    low, high = _extremes(t, x, blocks, keepdims)
    if mapping == "SYMMETRIC":
        scale = _over(t, t.add("Max", [t.add("Neg", [low]), high]), (last - first) / 2)
    elif mapping == "SYMMETRIC_NO_CLIPPING_ERR":
        scale = t.add("Max", [_over(t, low, first), _over(t, high, last)])
    elif mapping == "ASYMMETRIC":
        scale = _over(t, t.add("Sub", [high, low]), last - first)
    else:
        t.a.refuse("mapping_type")
    scale = _at_least(t, scale, float(np.finfo(own.numpy).tiny) if eps is None else eps)
    if mapping == "ASYMMETRIC":
        zero = _lowest(t, low, scale, (first, last), dtype)
    else:
        zero = _constant_like(t, scale, int((last + first + 1) / 2))
    to = DType(t.text("scale_dtype") or str(own))
    zero_type = t.text("zero_point_dtype") or ("int32" if mapping == "ASYMMETRIC" else str(to))
    return t.named([t.cast(scale, to), t.cast(zero, DType(zero_type))])


# Quantized and restored at once, and integer products


@row("fake_quantize_per_tensor_affine.default", "fake_quantize_per_channel_affine.default")
@row("fake_quantize_per_tensor_affine.tensor_qparams")
def fake_quantize(t: Aten) -> Result:
    return t.result("Identity", [_fake_quantized(t, t.tensor("self"))])


def _fake_quantized(t: Aten, x: str) -> str:
    """(saturate(round(x / scale) + zero) - zero) scale."""
    first, last = t.integer("quant_min"), t.integer("quant_max")
    dtype = next((d for d in PARAMETERS if _holds(d, first, last)), None)
    if dtype is None:
        t.refuse(f"integers from {first} to {last}")
    blocks = _along(t, x) if "channel" in t.kind else Blocks(t.rank(x), ())
    scale, zero = _scale(t, "scale"), _zero(t, "zero_point")
    quantized = _quantized(t, x, scale, zero, blocks, dtype)
    quantized = _linear(t, "DequantizeLinear", quantized, scale, zero, blocks, DType.float32)
    return t.cast(quantized, t.type(x).dtype)


@row("fake_quantize_per_tensor_affine_cachemask.default")
@row("fake_quantize_per_channel_affine_cachemask.default")
def fake_quantize_with_mask(t: Aten) -> Result:
    """`fake_quantize`, as decompositions write it: the mask beside it is for the gradient."""
    _require_no_mask(t)
    return fake_quantize(t)


@row("_fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default")
def fake_quantize_if_enabled(t: Aten) -> Result:
    """The same where a number that it is given is not 0, and x elsewhere."""
    _require_no_mask(t)
    x, enabled = t.tensor("self"), t.cast(t.tensor("fake_quant_enabled"), DType.bool_)
    return t.result("Where", [enabled, _fake_quantized(t, x), x])


def _require_no_mask(t: Aten) -> None:
    if t.output_used(1):
        t.refuse("the mask of what is saturated, which training reads")


def _holds(dtype: DType, first: int, last: int) -> bool:
    info = np.iinfo(dtype.numpy)
    return bool(info.min <= first and last <= info.max)


@row("_int_mm.default")
def integer_product(t: Aten) -> Result:
    """A product of int8 matrices, summed in int32."""
    return t.result("MatMul", [t.cast(t.tensor(n), DType.int32) for n in ("self", "mat2")])
