"""The bits of a product, simulated in the order and the arithmetic of a GPU's matrix units.

Where a known kernel's order of summation gives every number, that is the strongest word there is:
no size of an error has to be argued.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from verax.ir.graph import Node
from verax.judge.decide.precision import IN_UNITS
from verax.judge.decide.unit_sums import FP16_ACCUMULATION
from verax.numerics.matrix_units.convolution import reproduces_convolution
from verax.numerics.matrix_units.reproduction import reproduces
from verax.numerics.matrix_units.routes import ADDED, FIRST, Route, candidate_routes
from verax.numerics.matrix_units.units import TF32
from verax.ops.sums.linear import Gemm, MatMul
from verax.ops.windows.convolution import Conv

TF32_UNITS = "TF32 inputs" + IN_UNITS
IN_MATRIX_UNITS = " in matrix units"
MOST_TERMS, MOST_WORK = 512, 4_000_000
"""Longest sums, and most products in all, that are simulated."""


def reproduced_bits(
    node: Node, inputs: Sequence[Any], actual: np.ndarray
) -> tuple[str, str] | None:
    """Name of the arithmetic that gives every number of a product bit for bit, and words with the
    count; None where none of the known ones does, or where simulating takes too long. All are of
    one type: float32, bfloat16 or float16."""
    factors = inputs[:2]
    if any(f is None or f.dtype != actual.dtype for f in factors):
        return None
    if actual.dtype.name not in ("float32", "bfloat16", "float16"):
        return None
    bias = inputs[2] if len(inputs) > 2 else None
    if isinstance(node.op, Conv):
        route, equal, of = _convolution(node.op, factors, bias, actual)
    elif isinstance(node.op, MatMul | Gemm):
        route, equal, of = _product(node.op, factors, bias, actual)
    else:
        return None
    if route is None or equal < of or of < actual.size:
        return None
    words = f"{route.arithmetic}: {equal:,} of {of:,} numbers are predicted bit for bit"
    return _name(route), words


def _name(route: Route) -> str:
    """What a verdict calls the arithmetic of a route."""
    if route.low is not None:
        return route.arithmetic.removesuffix(IN_MATRIX_UNITS)
    if route.sums == "float16":
        return FP16_ACCUMULATION
    return TF32_UNITS if route.unit is TF32 else route.arithmetic


def _is_short(terms: int, size: int) -> bool:
    return 0 < terms <= MOST_TERMS and terms * size <= MOST_WORK


def _convolution(op: Conv, factors: Sequence[Any], bias: Any, actual: np.ndarray) -> Any:
    data, weights = factors
    if not _is_short(int(weights[0].size), actual.size) or not isinstance(op.pads, tuple):
        return None, 0, 1
    ones = (1,) * (data.ndim - 2)
    begins, ends = zip(*(op.pads or ((0, 0),) * len(ones)))
    result = reproduces_convolution(
        actual,
        data,
        weights,
        strides=op.strides or ones,
        pads=(*begins, *ends),
        dilations=op.dilations or ones,
        groups=op.groups,
        bias=bias,
    )
    return result.route, result.equal, result.of


def _product(op: Any, factors: Sequence[Any], bias: Any, actual: np.ndarray) -> Any:
    a, b = factors
    if isinstance(op, Gemm):
        if op.alpha != 1 or (bias is not None and op.beta != 1):
            return None, 0, 1
        a, b = (a.T if op.trans_a else a), (b.T if op.trans_b else b)
    if a.ndim < 2 or b.ndim < 2 or not _is_short(a.shape[-1], actual.size):
        return None, 0, 1
    epilogues = (ADDED,) if bias is None else (ADDED, FIRST)
    return reproduces(
        actual, a, b, candidate_routes(actual.dtype.name, a.shape[-1], epilogues), bias
    )
