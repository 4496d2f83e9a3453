"""ATen operators that are short formulas over others."""

from __future__ import annotations

import numpy as np

from verax.frontends.common import formulas
from verax.frontends.common.context import Result
from verax.frontends.torch.rows import TABLE, Aten, row
from verax.frontends.torch.tables.elementwise import in_type, operand, promoted
from verax.ir.types import DType

XLOGY = {
    "xlogy": ("Tensor", "Scalar_Self", "Scalar_Other"),
    "special_xlog1py": ("default", "self_scalar", "other_scalar"),
}
"""Products with logarithms, and their overloads."""


def _scaled(t: Aten, x: str, factor: float) -> str:
    return x if factor == 1 else t.add("Mul", [x, t.constant(factor, t.type(x).dtype.numpy)])


@row("addcmul.default", "addcdiv.default")
def add_product(t: Aten) -> Result:
    """self + value * tensor1 (* or /) tensor2."""
    operands = [t.tensor(n) for n in ("self", "tensor1", "tensor2")]
    dtype = promoted(t, list(operands))
    x, a, b = (t.cast(v, dtype) for v in operands)
    kind = "Mul" if t.kind == "addcmul" else "Div"
    if kind == "Div" and not dtype.is_float:
        t.refuse("a division of integers")
    return t.result("Add", [x, t.add(kind, [_scaled(t, a, t.scalar("value", 1)), b])])


@row("lerp.Scalar", "lerp.Tensor")
def lerp(t: Aten) -> Result:
    """self + weight * (end - self), from the other end where the weight is 1/2 or more."""
    x, end, weight = t.tensor("self"), t.tensor("end"), operand(t, "weight")
    apart = t.add("Sub", [end, x])
    w = in_type(t, weight, t.type(x).dtype)
    complement = t.add("Sub", [t.like(1, x), w])
    ends = [t.add("Add", [x, t.add("Mul", [w, apart])])]
    ends.append(t.add("Sub", [end, t.add("Mul", [apart, complement])]))
    if not isinstance(weight, str):
        return t.result("Identity", [ends[abs(weight) >= 0.5]])
    near = t.add("Less", [t.add("Abs", [w]), t.like(0.5, x)])
    return t.result("Where", [near, *ends])


@row(*(f"{n}.{o}" for n, overloads in XLOGY.items() for o in overloads))
def product_with_logarithm(t: Aten) -> Result:
    """self log(other), or log(1 + other), which is 0 where self is, unless other is NaN."""
    a, b = operand(t, "self"), operand(t, "other")
    dtype = promoted(t, [a, b])
    dtype = dtype if dtype.is_float else DType.float32
    x, y = in_type(t, a, dtype), in_type(t, b, dtype)
    nothing = t.add("And", [t.add("Equal", [x, t.like(0, x)]), t.add("Equal", [y, y])])
    products = t.add("Mul", [x, t.add("Log" if t.kind == "xlogy" else "Log1p", [y])])
    return t.result("Where", [nothing, t.like(0, x), products])


@row("outer.default", "dot.default", "mv.default")
def vector_product(t: Aten) -> Result:
    x = t.tensor("self")
    y = t.tensor({"outer": "vec2", "dot": "tensor", "mv": "vec"}[t.kind])
    if t.kind == "outer":
        x, y = t.add("Unsqueeze", [x, t.ints([1])]), t.add("Unsqueeze", [y, t.ints([0])])
    return t.result("Mul" if t.kind == "outer" else "MatMul", [x, y])


TABLE.formula(formulas.erfc, "erfc.default")
TABLE.formula(formulas.is_finite, "isfinite.default")
TABLE.formula(formulas.log_add_exp, "logaddexp.default", inputs=("self", "other"))


@row("nan_to_num.default")
def nan_to_num(t: Aten) -> Result:
    """NaN and the infinities replaced; by 0 and the type's largest numbers unless given."""
    x = t.tensor("self")
    dtype = t.type(x).dtype
    if not dtype.is_float or dtype is DType.bfloat16:
        t.refuse(f"an input of {dtype}")
    largest = float(np.finfo(dtype.numpy).max)
    for name, kind, fields, default in (
        ("nan", "IsNaN", {}, 0.0),
        ("posinf", "IsInf", {"detect_negative": False}, largest),
        ("neginf", "IsInf", {"detect_positive": False}, -largest),
    ):
        replacement = t.scalar(name)
        value = t.constant(default if replacement is None else replacement, dtype.numpy)
        x = t.add("Where", [t.add(kind, [x], **fields), value, x])
    return t.result("Identity", [x])


@row("hardshrink.default", "softshrink.default")
def shrink(t: Aten) -> Result:
    """0 within lambda of 0; outside, softshrink moves towards 0 by it. NaN passes, as Shrink's does
    not."""
    x, width = t.tensor("self"), float(t.scalar("lambd", 0.5))
    y = t.add("Shrink", [x], lambd=width, bias=width if t.kind == "softshrink" else 0.0)
    return t.result("Where", [t.add("IsNaN", [x]), x, y])


@row("rrelu.default", "rrelu_with_noise.default", "rrelu_with_noise_functional.default")
def rrelu(t: Aten) -> Result:
    """At inference the slope is the middle of its range, and the noise is not touched."""
    if t.flag("training"):
        t.a.refuse("training", "call module.eval() before exporting")
    if t.output_used(1):
        t.refuse("its noise is used")
    t.irrelevant("noise", reason="it is for training only")
    slope = (t.scalar("lower", 1 / 8) + t.scalar("upper", 1 / 3)) / 2
    return t.result("LeakyRelu", [t.tensor("self")], alpha=slope)


@row("cosine_similarity.default")
def cosine_similarity(t: Aten) -> Result:
    """x1 x2 summed along an axis, each divided by its length, which is at least eps."""
    sides = [t.tensor("x1"), t.tensor("x2")]
    eps, axis = t.scalar("eps", 1e-8), t.axis("dim", sides[0], 1)
    if t.rank(sides[0]) != t.rank(sides[1]):
        t.refuse("inputs of different ranks")
    units = [t.append(formulas.over_norm(t, x, (axis,), eps)) for x in sides]
    return t.apply("ReduceSum", [t.add("Mul", units), t.ints([axis])], keepdims=False)


@row("_weight_norm.default", "_weight_norm_interface.default")
def weight_norm(t: Aten) -> Result:
    """v scaled so that its slices along `dim` have the lengths g."""
    if t.output_used(1):
        t.refuse("its norms are used")
    v, g = t.tensor("v"), t.tensor("g")
    axis = t.axis("dim", v, 0)
    other_axes = [a for a in range(t.rank(v)) if a != axis]
    length = t.add("ReduceL2", [v, t.ints(other_axes)], keepdims=True)
    return t.result("Mul", [v, t.add("Div", [g, length])])
