"""ONNX Runtime's own operators on integers (com.microsoft): of 8 bits, also of images with channels
last, and with weights packed in 4 or 8 bits.

Each is what its text says: the operands dequantized, the float operator, the result quantized. A
runtime computes them in integers; what that may move is for the judge (`Operator.decides`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from verax.frontends.common.context import Conversion, Result
from verax.frontends.common.table import fields_of
from verax.frontends.onnx.rows import MICROSOFT, row, window_pads
from verax.frontends.onnx.table_microsoft import channels_first, channels_last
from verax.frontends.onnx.table_quantized import as_bias, as_floats, as_integers
from verax.frontends.onnx.table_windows import CONVOLUTION, POOL
from verax.ir.types import DType


@row("QGemm", domain=MICROSOFT)
def qgemm(c: Conversion) -> Result:
    """a and b, each with scale and zero point; bias; scale and zero point of the result."""
    a = c.attributes
    by_rows = a.flag("transB")
    inputs = [
        as_floats(c, 0),
        as_floats(c, 3, axis=0 if by_rows else 1),
        as_bias(c, c.input(6), 1, 4),
    ]
    fields = {"alpha": a.scalar("alpha", 1.0), "trans_a": a.flag("transA"), "trans_b": by_rows}
    if c.input(7) is None:
        return c.result("Gemm", inputs, **fields)
    return as_integers(c, c.add("Gemm", inputs, **fields), 7)


@row("QLinearAdd", "QLinearMul", domain=MICROSOFT)
def qlinear_arithmetic(c: Conversion) -> Result:
    operands = [as_floats(c, 0), as_floats(c, 3)]
    return as_integers(c, c.add(c.node.op_type.removeprefix("QLinear"), operands), 6)


@row("QLinearSigmoid", domain=MICROSOFT)
def qlinear_sigmoid(c: Conversion) -> Result:
    return as_integers(c, c.add("Sigmoid", [as_floats(c, 0)]), 3)


@row("QLinearLeakyRelu", domain=MICROSOFT)
def qlinear_leaky_relu(c: Conversion) -> Result:
    alpha = c.scalar("alpha", 0.01)
    return as_integers(c, c.add("LeakyRelu", [as_floats(c, 0)], alpha=alpha), 3)


@row("QLinearSoftmax", domain=MICROSOFT)
def qlinear_softmax(c: Conversion) -> Result:
    """opset: of the Softmax that it stands for; before 13 that was over all axes from `axis` on."""
    axis, version = c.integer("axis", -1), c.integer("opset", 13)
    if version < 13 and axis not in (-1, c.rank() - 1):
        c.refuse(f"axis {axis} of opset {version} flattens the input, which is not supported")
    return as_integers(c, c.add("Softmax", [as_floats(c, 0)], axis=axis), 3)


@row("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(c: Conversion) -> Result:
    """Scale and zero point of the result, then each part with its own."""
    floats = [as_floats(c, i) for i in range(2, len(c.inputs), 3)]
    return as_integers(c, c.add("Concat", floats, axis=c.integer("axis")), 0)


def _image(c: Conversion, last: bool) -> str:
    """Input 0 with its channels first, as floats. Bytes are turned, so that integers stay behind
    integers."""
    return as_floats(c, 0, value=channels_first(c, c.required(0), last))


def _image_of_integers(c: Conversion, y: str, first: int, last: bool) -> Result:
    """`as_integers` of an image with channels first, its channels put where they belong."""
    quantized = c.apply("QuantizeLinear", [y, c.required(first), c.input(first + 1)])
    return channels_last(c, quantized, last)


@row("QLinearConv", domain=MICROSOFT)
def qlinear_conv(c: Conversion) -> Result:
    """ONNX's, or of images with their channels last."""
    last = c.flag("channels_last")
    inputs = [_image(c, last), as_floats(c, 3, axis=0), as_bias(c, c.input(8), 1, 4)]
    y = c.add("Conv", inputs, **fields_of(c, CONVOLUTION))
    return _image_of_integers(c, y, 6, last)


@row("QLinearGlobalAveragePool", domain=MICROSOFT)
def qlinear_global_average_pool(c: Conversion) -> Result:
    last = c.flag("channels_last")
    y = c.add("GlobalAveragePool", [_image(c, last)])
    return _image_of_integers(c, y, 3, last)


@row("QLinearAveragePool", domain=MICROSOFT)
def qlinear_average_pool(c: Conversion) -> Result:
    last, a = c.flag("channels_last"), c.attributes
    fields: dict[str, Any] = {
        "kernel_shape": a.integers("kernel_shape"),
        "strides": a.integers("strides", ()),
        "pads": window_pads(c),
        "ceil_mode": a.flag("ceil_mode"),
        "count_include_pad": a.flag("count_include_pad"),
    }
    y = c.add("AveragePool", [_image(c, last)], **fields)
    return _image_of_integers(c, y, 3, last)


@row("NhwcMaxPool", domain=MICROSOFT)
def nhwc_max_pool(c: Conversion) -> Result:
    """MaxPool of bytes, channels last."""
    y = c.apply("MaxPool", [channels_first(c, c.required(0), True)], **fields_of(c, POOL))
    return channels_last(c, y, True)


@row("QLinearWhere", domain=MICROSOFT)
def qlinear_where(c: Conversion) -> Result:
    operands: Sequence[str] = [c.required(0), as_floats(c, 1), as_floats(c, 4)]
    return as_integers(c, c.add("Where", operands), 7)


@row("QuantizeLinear", "DequantizeLinear", domain=MICROSOFT)
def scaled(c: Conversion) -> Result:
    """ONNX's, from before it had 16-bit integers."""
    return c.operator(c.node.op_type, axis=c.integer("axis", 1))


def _integer_product(c: Conversion, a: str, b: str, zeros: Sequence[str | None]) -> str:
    """The product of two matrices of bytes minus their zero points, as float32."""
    centered = []
    for value, zero in zip((a, b), zeros):
        wide = c.add("Cast", [value], to=DType.int32)
        if zero is not None:
            wide = c.add("Sub", [wide, c.add("Cast", [zero], to=DType.int32)])
        centered.append(wide)
    return c.add("Cast", [c.add("MatMul", centered)], to=DType.float32)


def _scaled_product(c: Conversion, product: str, scales: Sequence[str], bias: str | None) -> Result:
    y = [product, c.add("Mul", list(scales))]
    if bias is None:
        return c.result("Mul", y)
    return c.result("Add", [c.add("Mul", y), bias])


@row("MatMulIntegerToFloat", domain=MICROSOFT)
def mat_mul_integer_to_float(c: Conversion) -> Result:
    """a, b, their scales, their zero points, bias; of b one for all or one per column."""
    if c.type(2).rank and c.type(2).dims != (1,):
        c.refuse("a scale per column of the first factor is not supported")
    product = _integer_product(c, c.required(0), c.required(1), (c.input(4), c.input(5)))
    return _scaled_product(c, product, (c.required(2), c.required(3)), c.input(6))


@row("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_mat_mul(c: Conversion) -> Result:
    """a is quantized by its own range, all of it at once; b, its scale, its zero point, bias."""
    quantized, scale, zero = c.add_all("DynamicQuantizeLinear", [c.required(0)])
    product = _integer_product(c, quantized, c.required(1), (zero, c.input(3)))
    return _scaled_product(c, product, (scale, c.required(2)), c.input(4))


@row("GatherBlockQuantized", domain=MICROSOFT)
def gather_block_quantized(c: Conversion) -> Result:
    """Rows of a table [rows, features] in 4 or 8 bits, with a scale, and perhaps a zero point, for
    every `block_size` features; bytes hold two numbers of 4 bits, the low ones first."""
    a, table = c.attributes, _constant(c, 0, "the table")
    bits, size = a.integer("bits", 4), a.integer("block_size", 128)
    packed = table.dtype == np.uint8
    if table.ndim != 2 or a.integer("gather_axis", 0) % 2 or a.integer("quantize_axis", 1) % 2 != 1:
        c.refuse("only rows of a table whose blocks lie along them are supported")
    if packed and bits not in (4, 8):
        a.refuse("bits", "supported: 4, 8")
    codes, scales = _unpacked(table, bits) if packed else table, _constant(c, 2, "the scales")
    rows, features = codes.shape
    if size < 1 or features % size or scales.shape != (rows, features // size):
        c.refuse(f"scales {scales.shape} for {codes.shape} numbers in blocks of {size}")
    blocks = features // size
    ids = c.required(1)
    numbers = _looked_up(c, codes.reshape(rows, blocks, size), ids)
    if c.input(3) is not None:
        points = _constant(c, 3, "the zero points")
        points = _unpacked(points, bits)[:, :blocks] if packed else points
        numbers = c.add("Sub", [numbers, _looked_up(c, points.reshape(rows, blocks, 1), ids)])
    elif packed:
        numbers = c.add("Sub", [numbers, c.constant(1 << (bits - 1), np.float32)])
    units = c.add("Gather", [c.constant(scales.reshape(rows, blocks, 1)), ids], axis=0)
    product = c.add("Mul", [c.cast(numbers, c.type(units).dtype), units])
    return c.result("Reshape", [product, c.ints([*(0,) * c.rank(ids), features])])


def _looked_up(c: Conversion, table: np.ndarray, ids: str) -> str:
    """Rows of a constant table of integers, as floats."""
    rows = c.add("Gather", [c.constant(np.ascontiguousarray(table)), ids], axis=0)
    return c.cast(rows, DType.float32)


VIEWS = ("Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten")
"""Operators that leave the elements in their order."""
INT8_LEVEL = 4
"""accuracy_level of MatMulNBits whose products take their left factor in 8 bits."""


@row("MatMulNBits", domain=MICROSOFT)
def mat_mul_n_bits(c: Conversion) -> Result:
    """a [..., K]; B as bytes [N, blocks, bytes of a block], low bits first; a scale for each block
    of a column, perhaps its zero point as well, in as many bits; a bias."""
    a = c.attributes
    k, n, bits, size = (a.integer(name) for name in ("K", "N", "bits", "block_size"))
    level = a.integer("accuracy_level", 0)
    if bits not in (4, 8) or size < 1 or k < 1 or n < 1:
        c.refuse(f"weights of {bits} bits in blocks of {size} for {k} by {n} are not supported")
    if c.input(4) is not None:
        c.refuse("g_idx, the block of each row, is not supported")
    blocks = -(-k // size)
    packed = _constant(c, 1, "the weights")
    bytes_per_block = size * bits // 8
    if packed.dtype != np.uint8 or packed.size != n * blocks * bytes_per_block or size * bits % 8:
        c.refuse(
            f"weights of {packed.dtype}{packed.shape} "
            f"are not {n} x {blocks} x {bytes_per_block} bytes"
        )
    codes = _unpacked(packed.reshape(n, blocks * bytes_per_block), bits)[:, :k].T
    scales = _constant(c, 2, "the scales")
    if scales.size != n * blocks:
        c.refuse(f"{scales.size} scales are not {n} x {blocks}")
    zero = np.full((blocks, n), 1 << (bits - 1), np.uint8)
    if c.input(3) is not None:
        points = _constant(c, 3, "the zero points")
        row_bytes = -(-blocks * bits // 8)
        if points.dtype != np.uint8 or points.size != n * row_bytes:
            c.refuse(f"zero points of {points.dtype}{points.shape} are not packed in {bits} bits")
        zero = _unpacked(points.reshape(n, row_bytes), bits)[:, :blocks].T
    parameters = [codes, scales.reshape(n, blocks).T, zero]
    constants = [c.constant(np.ascontiguousarray(p)) for p in parameters]
    weights = c.add("DequantizeLinear", constants, axis=0, block_size=size)
    x = _quantize_blocks(c, c.required(0), k, size) if level == INT8_LEVEL else c.required(0)
    bias = c.input(5)
    if bias is None:
        return c.result("MatMul", [x, weights])
    return c.result("Add", [c.add("MatMul", [x, weights]), bias])


def _quantize_blocks(c: Conversion, x: str, k: int, size: int) -> str:
    """x [..., k] as integers of 8 bits with one scale for every `size` features, as floats."""
    rank, blocks, dtype = c.rank(x), -(-k // size), c.type(x).dtype
    x = c.cast(x, DType.float32)
    if k % size:
        x = c.add("Pad", [x, c.ints([0] * (2 * rank - 1) + [blocks * size - k])])
    x = c.add("Reshape", [x, c.ints([*(0,) * (rank - 1), blocks, size])])
    q, scale = c.add_all("DynamicQuantizeGroups", [x], axis=rank, symmetric=True)
    x = c.add("Mul", [c.cast(q, DType.float32), scale])
    x = c.add("Reshape", [x, c.ints([*(0,) * (rank - 1), blocks * size])])
    if k % size:
        limits = [c.ints([limit]) for limit in (0, k, rank - 1)]
        x = c.add("Slice", [x, *limits])
    return c.cast(x, dtype)


def _constant(c: Conversion, index: int, description: str) -> np.ndarray:
    """A constant input, also one that nodes give another shape."""
    builder, value = c.builder, c.required(index)
    type_ = builder.types[value]
    while value not in builder.constants and type_.is_static:
        node = next((n for n in reversed(builder.nodes) if value in n.outputs), None)
        if node is None or node.op.kind not in VIEWS:
            break
        value = node.inputs[0] or ""
    array = builder.constants.get(value)
    if array is None:
        c.refuse(f"{description} are computed while the network runs")
    return array.reshape(type_.shape)


def _unpacked(rows: np.ndarray, bits: int) -> np.ndarray:
    """Numbers of 4 bits, the low ones first, or bytes as they are."""
    if bits == 8:
        return rows
    return np.stack([rows & 15, rows >> 4], axis=-1).reshape(len(rows), -1)
