"""Functions of one element that ONNX lacks, in its arithmetic: quotients rounded down, polar
coordinates, exponentials and logarithms near 0."""

from __future__ import annotations

import math

import numpy as np

from verax.export.onnx.emission import (
    NodeGroup,
    OnnxEmission,
    written_for,
)
from verax.ir.graph import Graph, Node
from verax.ir.types import DType
from verax.numerics.inverse_error import (
    FAR,
    FAR_FROM,
    FAR_START,
    MIDDLE,
    MIDDLE_START,
    TAIL,
    TAIL_FROM,
    TAIL_START,
)


def _scalar(g: NodeGroup, value: float) -> str:
    return g.constant(value, g.type(0).dtype.numpy)


@written_for("FloorDiv")
def floor_div(node: Node, graph: Graph, version: int) -> OnnxEmission:
    """By the remainder, of which ONNX has C's for all types; integers as int64."""
    g = NodeGroup(node, graph)
    a, b, dtype = g.input(0), g.input(1), g.type(0).dtype
    if dtype is DType.uint64:
        return g.finish(g.add("Div", a, b))
    work = DType.int64 if dtype.is_integer else dtype
    if work is not dtype:
        a, b = g.cast(a, work), g.cast(b, work)
    zero, remainder = g.constant(0, work.numpy), g.add("Mod", a, b, fmod=1)
    below = g.add("Xor", g.add("Less", remainder, zero), g.add("Less", b, zero))
    wrong = g.add("And", g.add("Not", g.add("Equal", remainder, zero)), below)
    less, quotient = g.cast(wrong, work), g.add("Div", a, b)
    if dtype.is_integer:
        floored = g.add("Sub", quotient, less)
        return g.finish(floored if work is dtype else g.cast(floored, dtype))
    floored = g.add("Round", g.add("Sub", g.add("Div", g.add("Sub", a, remainder), b), less))
    signed = g.add("Where", g.add("Equal", floored, zero), g.add("Mul", quotient, zero), floored)
    return g.finish(g.add("Where", g.add("Equal", b, zero), quotient, signed))


def _is_negative(g: NodeGroup, x: str) -> str:
    """Bool: where the sign bit is set, of zeros too."""
    zero = _scalar(g, 0)
    with_sign = g.add("Where", g.add("Equal", x, zero), g.add("Reciprocal", x), x)
    return g.add("Less", with_sign, zero)


def _ratio(g: NodeGroup, a: str, b: str) -> tuple[str, str]:
    """The larger of two sizes, and the smaller as a part of it, 0 where both are."""
    large = g.add("Max", a, b)
    nothing = g.add("Equal", large, _scalar(g, 0))
    divisor = g.add("Where", nothing, _scalar(g, 1), large)
    return large, g.add("Div", g.add("Min", a, b), divisor)


@written_for("Atan2")
def atan2(node: Node, graph: Graph, version: int) -> OnnxEmission:
    """The arc tangent of the smaller over the larger, turned into its octant."""
    g = NodeGroup(node, graph)
    a, b, zero, one = g.input(0), g.input(1), _scalar(g, 0), _scalar(g, 1)
    height, width = g.add("Abs", a), g.add("Abs", b)
    endless = g.add("And", *(g.add("Equal", v, _scalar(g, np.inf)) for v in (height, width)))
    height, width = (g.add("Where", endless, one, v) for v in (height, width))
    steep, behind = g.add("Greater", height, width), _is_negative(g, b)
    angle = g.add("Atan", _ratio(g, height, width)[1])
    angle = g.add("Where", g.add("Xor", steep, behind), g.add("Neg", angle), angle)
    flat = g.add("Where", behind, _scalar(g, math.pi), zero)
    angle = g.add("Add", g.add("Where", steep, _scalar(g, math.pi / 2), flat), angle)
    return g.finish(g.add("Where", _is_negative(g, a), g.add("Neg", angle), angle))


@written_for("Hypot")
def hypot(node: Node, graph: Graph, version: int) -> OnnxEmission:
    """The larger times the root of 1 + ratio^2."""
    g = NodeGroup(node, graph)
    a, b = (g.add("Abs", g.input(i)) for i in (0, 1))
    large, ratio = _ratio(g, a, b)
    root = g.add("Sqrt", g.add("Add", _scalar(g, 1), g.add("Mul", ratio, ratio)))
    infinity = _scalar(g, np.inf)
    endless = g.add("Or", *(g.add("Equal", v, infinity) for v in (a, b)))
    return g.finish(g.add("Where", endless, infinity, g.add("Mul", large, root)))


@written_for("Log1p")
def log1p(node: Node, graph: Graph, version: int) -> OnnxEmission:
    """log(u) x / (u - 1) with u = 1 + x rounded: its error and that of the quotient cancel
    (W. Kahan)."""
    g = NodeGroup(node, graph)
    x, one = g.input(0), _scalar(g, 1)
    u = g.add("Add", x, one)
    apart = g.add("Sub", u, one)
    tiny = g.add("Equal", apart, _scalar(g, 0))
    slope = g.add("Div", x, g.add("Where", tiny, one, apart))
    endless = g.add("Equal", x, _scalar(g, np.inf))
    product = g.add("Mul", g.add("Log", u), g.add("Where", endless, one, slope))
    return g.finish(g.add("Where", tiny, x, product))


@written_for("Expm1")
def expm1(node: Node, graph: Graph, version: int) -> OnnxEmission:
    """2 t / (1 - t) with t = tanh(x / 2) near 0, exp(x) - 1 elsewhere."""
    g = NodeGroup(node, graph)
    x, one = g.input(0), _scalar(g, 1)
    t = g.add("Tanh", g.add("Mul", x, _scalar(g, 0.5)))
    near = g.add("Div", g.add("Add", t, t), g.add("Sub", one, t))
    far = g.add("Sub", g.add("Exp", x), one)
    return g.finish(g.add("Where", g.add("Less", g.add("Abs", x), one), near, far))


@written_for("ErfInv")
def erfinv(node: Node, graph: Graph, version: int) -> OnnxEmission:
    """The polynomials of `numerics.inverse_error`, which have too few digits for float64."""
    g = NodeGroup(node, graph)
    if g.type(0).dtype is DType.float64:
        return g.refuse("of float64 needs more digits than its polynomials have")
    x, one = g.input(0), _scalar(g, 1)
    product = g.add("Mul", g.add("Sub", one, x), g.add("Add", one, x))
    w = g.add("Neg", g.add("Log", product))
    root = g.add("Sqrt", w)
    factor = _series(g, g.add("Sub", root, _scalar(g, FAR_START)), FAR)
    for limit, start, variable, coefficients in (
        (FAR_FROM, TAIL_START, root, TAIL),
        (TAIL_FROM, MIDDLE_START, w, MIDDLE),
    ):
        near = _series(g, g.add("Sub", variable, _scalar(g, start)), coefficients)
        factor = g.add("Where", g.add("Less", w, _scalar(g, limit)), near, factor)
    ends = g.add("Mul", x, _scalar(g, np.inf))
    at_end = g.add("Equal", g.add("Abs", x), one)
    return g.finish(g.add("Where", at_end, ends, g.add("Mul", x, factor)))


def _series(g: NodeGroup, x: str, coefficients: tuple[float, ...]) -> str:
    total = _scalar(g, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = g.add("Add", g.add("Mul", total, x), _scalar(g, c))
    return total
