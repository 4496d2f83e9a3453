"""TensorFlow operators on single elements."""

from __future__ import annotations

from verax.base.errors import ModelError
from verax.frontends.common import formulas
from verax.frontends.common.context import Conversion, Result
from verax.frontends.common.table import scalar
from verax.frontends.tensorflow.rows import TABLE, row
from verax.ir.types import COMPUTED, DType

SAME = {
    **{n: n for n in ("Relu", "Sigmoid", "Tanh", "Softplus", "Softsign", "Exp", "Log", "Sqrt")},
    **{n: n for n in ("Abs", "Neg", "Floor", "Ceil", "Sign", "Reciprocal", "Erf", "Sin", "Cos")},
    **{n: n for n in ("Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh")},
    **{n: n for n in ("Add", "Sub", "Mul", "Pow", "Less", "Greater", "Equal")},
    **{n: n for n in ("Expm1", "Log1p")},
    **{
        "AddV2": "Add",
        "FloorMod": "Mod",
        "RealDiv": "Div",
        "Maximum": "Max",
        "Minimum": "Min",
        "Inv": "Reciprocal",
    },
    **{"LessEqual": "LessOrEqual", "GreaterEqual": "GreaterOrEqual", "LogicalAnd": "And"},
    **{
        "LogicalOr": "Or",
        "LogicalNot": "Not",
        "IsNan": "IsNaN",
        "IsInf": "IsInf",
        "Selu": "Selu",
        "Rint": "Round",
        "Rsqrt": "Rsqrt",  # Eigen's may be some ulps off, unlike 1 / sqrt of the other formats
    },
}
"""Operators without attributes of their own -> ours."""


@row(*SAME)
def same(c: Conversion) -> Result:
    c.attributes.expect(
        "incompatible_shape_error", True, reason="it changes what unequal shapes mean"
    )
    return c.operator(SAME[c.node.op_type])


@row("Round")
def round_(c: Conversion) -> Result:
    """Halves go to the even number."""
    return c.operator("Round" if c.type(0).dtype.is_float else "Identity")


@row(
    *("Identity", "StopGradient", "PreventGradient", "Snapshot", "CheckNumerics"),
    "GuaranteeConst",
)
def identity(c: Conversion) -> Result:
    """The value itself, also where it is a constant."""
    c.attributes.irrelevant("message", "it is what an error would say")
    return c.required(0)


@row("EnsureShape")
def ensure_shape(c: Conversion) -> Result:
    """The value itself, whose shape is what the file says."""
    if not c.attributes.has("shape"):
        raise ModelError("the attribute shape is missing", place=c.node.place)
    declared, inferred = c.attributes.get("shape"), c.type(0).dims
    if declared is not None and (
        len(declared) != len(inferred)
        or any(
            isinstance(d, int) and isinstance(n, int) and d != n for d, n in zip(declared, inferred)
        )
    ):
        raise ModelError(f"{c.type(0)} should be of shape {list(declared)}", place=c.node.place)
    return c.required(0)


@row("IdentityN")
def identities(c: Conversion) -> Result:
    """All the values themselves; networks with gradients of their own pass through it."""
    c.attributes.expect(
        "T", tuple(str(c.type(i).dtype) for i in range(len(c.inputs))), reason="it repeats types"
    )
    if len(c.node.outputs) > len(c.inputs):
        raise ModelError(f"it has {len(c.inputs)} outputs", place=c.node.place)
    return tuple(c.required(i) for i in range(len(c.node.outputs)))


@row("PlaceholderWithDefault")
def default(c: Conversion) -> Result:
    c.attributes.irrelevant("dtype", "it repeats the default's type")
    c.attributes.irrelevant("shape", "the default has one")
    return c.required(0)


@row("NotEqual")
def not_equal(c: Conversion) -> Result:
    c.attributes.expect(
        "incompatible_shape_error", True, reason="it changes what unequal shapes mean"
    )
    return formulas.not_equal(c, c.required(0), c.required(1))


@row("ClipByValue")
def clip(c: Conversion) -> Result:
    """Bounds may be tensors; scalars make it a Clip."""
    if c.rank(1) == c.rank(2) == 0:
        return c.result("Clip", [c.required(i) for i in range(3)])
    upper = c.add("Min", [c.required(0), c.required(2)])
    return c.result("Max", [upper, c.required(1)])


@row("TruncateDiv", "TruncateMod", "Mod")
def truncated(c: Conversion) -> Result:
    """Quotients towards zero, and what they leave, as in C."""
    is_integer = not c.type(0).dtype.is_float
    if c.node.op_type == "TruncateDiv":
        if not is_integer:
            c.refuse("of floating-point numbers")
        return c.operator("Div")
    return c.operator("Mod", fmod=True)


@row("DivNoNan", "MulNoNan")
def no_nan(c: Conversion) -> Result:
    """0 where the second operand is 0, whatever the first."""
    x, y = c.required(0), c.required(1)
    zero, one = (c.like(v) for v in (0, 1))
    is_zero = c.add("Equal", [y, zero])
    if c.node.op_type == "DivNoNan":
        guarded = c.add("Div", [x, c.add("Where", [is_zero, one, y])])
    else:
        guarded = c.add("Mul", [x, y])
    return c.result("Where", [is_zero, zero, guarded])


TABLE.operator("LeakyRelu", alpha=scalar(0.2))
TABLE.operator("Elu", alpha=1.0)
TABLE.operator("Div")  # of integers it truncates as C does; the others round down


@row("FloorDiv")
def floor_div(c: Conversion) -> Result:
    """Of floats the rounded quotient rounded down, so that 3 // 0.3 is 10 here."""
    if not c.type(0).dtype.is_float:
        return c.operator("FloorDiv")
    return c.apply("Floor", [c.add("Div", [c.required(0), c.required(1)])])


TABLE.formula(formulas.relu6, "Relu6")
TABLE.formula(formulas.erfc, "Erfc")
TABLE.formula(formulas.square, "Square")
TABLE.formula(formulas.squared_difference, "SquaredDifference")
TABLE.formula(formulas.is_finite, "IsFinite")
TABLE.formula(formulas.filled_like, "ZerosLike", value=0)
TABLE.formula(formulas.filled_like, "OnesLike", value=1)


@row("AddN")
def add_n(c: Conversion) -> Result:
    c.attributes.expect("N", len(c.inputs), reason="it counts the operands")
    return c.operator("Sum")


@row("Select", "SelectV2")
def select(c: Conversion) -> Result:
    """The condition of the old form may be a vector that chooses along the first axis."""
    condition = c.required(0)
    if c.node.op_type == "Select" and c.rank(0) == 1 and c.rank(1) > 1:
        condition = c.add("Unsqueeze", [condition, c.ints(range(1, c.rank(1)))])
    return c.result("Where", [condition, c.required(1), c.required(2)])


@row("Cast")
def cast(c: Conversion) -> Result:
    """Floats become integers by cutting off."""
    a = c.attributes
    a.expect("Truncate", False, reason="it changes how numbers are rounded")
    a.expect("SrcT", str(c.type(0).dtype), reason="it repeats the operand's type")
    target = c.choice("DstT", COMPUTED)
    return c.result("Cast", [c.required(0)], to=DType(target))
