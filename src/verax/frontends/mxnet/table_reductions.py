"""MXNet operators that add up: reductions, running sums, products of matrices."""

from __future__ import annotations

import numpy as np

from verax.frontends.common import formulas
from verax.frontends.common.context import Applied, Conversion, Result
from verax.frontends.mxnet.rows import ints, keep_dtype, row, sizes_along


def _reduce(kind: str, *names: str) -> None:
    """Rows of reductions: axis None means all; exclude means all others."""

    def convert(c: Conversion) -> Result:
        a, rank = c.attributes, c.rank()
        axes = {axis % rank for axis in ints(c, "axis") or range(rank)}
        if a.flag("exclude", False):
            axes = set(range(rank)) - axes
        reduced_axes = c.ints(tuple(sorted(axes)))
        keep = a.flag("keepdims", False)
        if len(axes) == rank and not keep:
            one = c.add(kind, [c.required(0), reduced_axes], keepdims=False)
            return c.result("Reshape", [one, c.ints((1,))])
        return c.result(
            kind, [c.required(0), reduced_axes], keepdims=keep, noop_with_empty_axes=True
        )

    row(*names)(convert)


_reduce("ReduceSum", "sum", "sum_axis")
_reduce("ReduceMean", "mean")
_reduce("ReduceMax", "max", "max_axis")
_reduce("ReduceMin", "min", "min_axis")
_reduce("ReduceProd", "prod")


@row("norm")
def norm(c: Conversion) -> Result:
    a, rank = c.attributes, c.rank()
    keep_dtype(c, "out_dtype")
    order = a.integer("ord", 2)
    if order not in (1, 2):
        a.refuse("ord", "only 1 and 2 are supported")
    axes = c.ints(sorted(axis % rank for axis in ints(c, "axis") or range(rank)))
    kind, keep = "ReduceL2" if order == 2 else "ReduceL1", a.flag("keepdims", False)
    if keep or (ints(c, "axis") or ()):
        return c.result(kind, [c.required(0), axes], keepdims=keep)
    total = c.add(kind, [c.required(0), axes], keepdims=False)
    return c.result("Reshape", [total, c.ints((1,))])


@row("cumsum", "_np_cumsum")
def cumsum(c: Conversion) -> Result:
    axis, data = c.attributes.get("axis"), c.required(0)
    keep_dtype(c)
    if axis is None:
        data, axis = c.add("Reshape", [data, c.ints((-1,))]), 0
    return c.result("CumSum", [data, c.constant(axis, np.int64)])


@row("dot")
def dot(c: Conversion) -> Result:
    """Over the last axis of the first input and the first of the second."""
    a = c.attributes
    a.expect("forward_stype", None, "default", reason="sparse results are not supported")
    left, right = a.flag("transpose_a", False), a.flag("transpose_b", False)
    if c.rank(0) == 2 and c.rank(1) == 2:
        return c.operator("Gemm", trans_a=left, trans_b=right)
    if left or right or min(c.rank(0), c.rank(1)) < 2:
        c.refuse(f"{c.type(0)} and {c.type(1)}, turned or vectors, are not supported")
    if c.rank(1) == 2:
        return c.operator("MatMul")
    axes = list(range(1, c.rank(1)))
    tail = sizes_along(c, 1, axes)
    first = c.add("Flatten", [c.required(1)], axis=1)
    head = sizes_along(c, 0, range(c.rank(0) - 1))
    product = c.add("MatMul", [c.required(0), first])
    return c.result("Reshape", [product, c.add("Concat", [head, tail], axis=0)])


@row("_linalg_gemm2", "linalg_gemm2")
def linalg_gemm2(c: Conversion) -> Result:
    a = c.attributes
    a.expect("axis", -2, reason="only the last two axes are supported")
    factor = a.scalar("alpha", 1.0)
    product = _product(c)
    return product if factor == 1 else c.apply("Mul", [c.append(product), c.like(factor)])


@row("batch_dot")
def batch_dot(c: Conversion) -> Result:
    c.attributes.expect("forward_stype", None, "default", reason="sparse results are not supported")
    return _product(c)


def _product(c: Conversion) -> Applied:
    """Of both inputs, their last two axes swapped where the parameters say so."""
    flips = [c.flag(name) for name in ("transpose_a", "transpose_b")]
    return formulas.matrix_product(c, c.required(0), c.required(1), *flips)
