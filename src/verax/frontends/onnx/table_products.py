"""ONNX matrix products."""

from __future__ import annotations

from verax.frontends.common.context import Conversion, Result
from verax.frontends.common.determinant import determinant
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
        alpha=a.scalar("alpha", 1.0),
        beta=a.scalar("beta", 1.0),
        trans_a=a.flag("transA"),
        trans_b=a.flag("transB"),
    )


@row("Det")
def det(c: Conversion) -> Result:
    return determinant(c, c.required(0))
