"""ONNX matrix products."""

from __future__ import annotations

import numpy as np

from verax.frontends.common.context import Conversion, Result
from verax.frontends.common.table import text
from verax.frontends.onnx.rows import TABLE, row

TABLE.operator("MatMul")
TABLE.operator("Einsum", equation=text(""))


@row("Gemm")
def gemm(c: Conversion) -> Result:
    a = c.attributes
    if c.version < 7:
        a.irrelevant("broadcast", "the shape of C says whether it broadcasts")
    return c.operator(
        "Gemm",
        alpha=a.number("alpha", 1.0),
        beta=a.number("beta", 1.0),
        trans_a=a.flag("transA"),
        trans_b=a.flag("transB"),
    )


@row("MatMulNBits", domain="com.microsoft")
def mat_mul_n_bits(c: Conversion) -> Result:
    """a [..., K]; B as bytes [N, blocks, bytes of a block], low bits first; a scale for each block
    of a column, perhaps its zero point as well, in as many bits; a bias."""
    a = c.attributes
    k, n, bits, size = (a.integer(name) for name in ("K", "N", "bits", "block_size"))
    a.irrelevant("accuracy_level", "it says how coarsely kernels may compute")
    if bits not in (4, 8) or size < 1 or k < 1 or n < 1:
        c.refuse(f"weights of {bits} bits in blocks of {size} for {k} by {n} are not supported")
    if c.input(4) is not None:
        c.refuse("g_idx, the block of each row, is not supported")
    blocks = -(-k // size)
    packed = _constant(c, 1, "the weights")
    held = size * bits // 8
    if packed.dtype != np.uint8 or packed.size != n * blocks * held or size * bits % 8:
        c.refuse(f"weights of {packed.dtype}{packed.shape} are not {n} x {blocks} x {held} bytes")
    whole = _unpacked(packed.reshape(n, blocks * held), bits)[:, :k].T
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
    parameters = [whole, scales.reshape(n, blocks).T, zero]
    constants = [c.constant(np.ascontiguousarray(p)) for p in parameters]
    weights = c.add("DequantizeLinear", constants, axis=0, block_size=size)
    bias = c.input(5)
    if bias is None:
        return c.result("MatMul", [c.required(0), weights])
    return c.result("Add", [c.add("MatMul", [c.required(0), weights]), bias])


def _constant(c: Conversion, index: int, what: str) -> np.ndarray:
    found = c.builder.constants.get(c.required(index))
    if found is None:
        c.refuse(f"{what} are computed while the network runs")
    return found


def _unpacked(rows: np.ndarray, bits: int) -> np.ndarray:
    """Numbers of 4 bits, the low ones first, or bytes as they are."""
    if bits == 8:
        return rows
    return np.stack([rows & 15, rows >> 4], axis=-1).reshape(len(rows), -1)
