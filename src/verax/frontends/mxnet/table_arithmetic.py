"""MXNet operators on single elements: arithmetic, comparisons, logic, element types."""

from __future__ import annotations

import numpy as np

from verax.frontends.common import formulas
from verax.frontends.common.context import Applied, Conversion, Result
from verax.frontends.common.table import scalar
from verax.frontends.mxnet.rows import TABLE, dtype_named, row
from verax.ir.types import DType

TABLE.operator("Identity", "identity", "_copy", "BlockGrad", "stop_gradient", "make_loss")
for _kind, _names in {
    "Relu": ("relu",),
    "Sigmoid": ("sigmoid",),
    "Tanh": ("tanh",),
    "Softsign": ("softsign",),
    "Exp": ("exp",),
    "Log": ("log",),
    "Sqrt": ("sqrt",),
    "Abs": ("abs",),
    "Neg": ("negative",),
    "Floor": ("floor",),
    "Ceil": ("ceil",),
    "Sign": ("sign",),
    "Reciprocal": ("reciprocal",),
    "Sin": ("sin",),
    "Cos": ("cos",),
    "Tan": ("tan",),
    "Asin": ("arcsin",),
    "Acos": ("arccos",),
    "Atan": ("arctan",),
    "Sinh": ("sinh",),
    "Cosh": ("cosh",),
    "Erf": ("erf",),
    "Sum": ("add_n", "ElementWiseSum", "_sum"),
    "Add": ("elemwise_add", "_plus", "_Plus", "_add", "broadcast_add", "broadcast_plus"),
    "Sub": ("elemwise_sub", "_minus", "_Minus", "_sub", "broadcast_sub", "broadcast_minus"),
    "Mul": ("elemwise_mul", "_mul", "_Mul", "broadcast_mul"),
    "Div": ("elemwise_div", "_div", "_Div", "broadcast_div"),
    "Max": ("_maximum", "_Maximum", "broadcast_maximum"),
    "Min": ("_minimum", "_Minimum", "broadcast_minimum"),
    "Pow": ("_power", "_Power", "broadcast_power"),
}.items():
    TABLE.operator(_kind, *_names)


TABLE.formula(formulas.square, "square")
TABLE.formula(formulas.rsqrt, "rsqrt")
TABLE.operator("Hypot", "broadcast_hypot", "_hypot")


def number_beside(c: Conversion) -> str:
    """The number in the place of a second input, in the first one's element type."""
    c.attributes.irrelevant("is_int", "it only says how the number was written")
    return c.like(c.scalar("scalar", 1.0))


def _scalar(kind: str, *names: str, swapped: bool = False) -> None:
    """Rows of operators with a number in the place of one input."""

    def convert(c: Conversion) -> Result:
        sides = [c.required(0), number_beside(c)]
        return c.apply(kind, sides[::-1] if swapped else sides)

    row(*names)(convert)


_scalar("Add", "_plus_scalar", "_PlusScalar")
_scalar("Sub", "_minus_scalar", "_MinusScalar")
_scalar("Sub", "_rminus_scalar", "_RMinusScalar", swapped=True)
_scalar("Mul", "_mul_scalar", "_MulScalar")
_scalar("Div", "_div_scalar", "_DivScalar")
_scalar("Div", "_rdiv_scalar", "_RDivScalar", swapped=True)
_scalar("Pow", "_power_scalar", "_PowerScalar")
_scalar("Pow", "_rpower_scalar", "_RPowerScalar", swapped=True)
_scalar("Max", "_maximum_scalar", "_MaximumScalar")
_scalar("Min", "_minimum_scalar", "_MinimumScalar")


def remainder(c: Conversion, left: str, right: str) -> Result:
    """Of the divisor's sign; 0 where the divisor is 0."""
    none = c.add("Equal", [right, c.like(0)])
    modulo = c.add("Mod", [left, c.add("Where", [none, c.like(1), right])])
    return c.apply("Where", [none, c.like(0), modulo])


row("broadcast_mod", "_mod", "_Mod")(lambda c: remainder(c, c.required(0), c.required(1)))
row("_mod_scalar", "_ModScalar")(lambda c: remainder(c, c.required(0), number_beside(c)))
row("_rmod_scalar", "_RModScalar")(lambda c: remainder(c, number_beside(c), c.required(0)))


@row("rint")
def rint(c: Conversion) -> Result:
    """The nearest whole number, the lower one of two, unlike in NumPy."""
    x = c.required(0)
    low, high = c.add("Floor", [x]), c.add("Ceil", [x])
    is_low = c.add("LessOrEqual", [c.add("Sub", [x, low]), c.add("Sub", [high, x])])
    return c.result("Where", [is_low, low, high])


@row("round")
def round_(c: Conversion) -> Result:
    """The nearest whole number, of two the one further from 0."""
    size = c.add("Abs", [c.required(0)])
    low = c.add("Floor", [size])
    is_up = c.add("GreaterOrEqual", [c.add("Sub", [size, low]), c.like(0.5)])
    rounded = c.add("Where", [is_up, c.add("Ceil", [size]), low])
    return c.result("Mul", [rounded, c.add("Sign", [c.required(0)])])


@row("fix", "trunc")
def fix(c: Conversion) -> Result:
    """Cut off towards 0."""
    x = c.required(0)
    is_low = c.add("Less", [x, c.like(0)])
    return c.result("Where", [is_low, c.add("Ceil", [x]), c.add("Floor", [x])])


@row("smooth_l1")
def smooth_l1(c: Conversion) -> Result:
    """(scalar x)^2 / 2 near 0, |x| - 1 / (2 scalar^2) beyond 1 / scalar^2."""
    x, sharpness = c.required(0), c.scalar("scalar", 1.0)
    if not 0 < sharpness * sharpness < np.finfo(np.float32).max:
        c.attributes.refuse("scalar", "its square is no float32 above 0")
    square = np.float32(sharpness) * np.float32(sharpness)
    size = c.add("Abs", [x])
    far = c.add("Sub", [size, c.like(np.float32(0.5) / square)])
    near = c.add("Mul", [c.add("Mul", [x, x]), c.like(np.float32(0.5) * square)])
    is_far = c.add("Greater", [size, c.like(np.float32(1) / square)])
    return c.result("Where", [is_far, far, near])


@row("_contrib_div_sqrt_dim")
def div_sqrt_dim(c: Conversion) -> Result:
    """Divided by the root of the last axis's size."""
    size = c.known_size(0, -1, "what to divide by")
    return c.apply("Div", [c.required(0), c.like(np.sqrt(np.float32(size)))])


def compared(c: Conversion, kind: str, negated: bool) -> Applied:
    """A comparison with the second input, or with a number."""
    sides = [c.required(0), c.input(1) or number_beside(c)]
    return formulas.not_equal(c, *sides) if negated else c.apply(kind, sides)


def _compared(name: str, kind: str, *, negated: bool = False) -> None:
    """Comparisons give 1 or 0 in the type of the inputs."""

    def convert(c: Conversion) -> Result:
        return c.apply("Cast", [c.append(compared(c, kind, negated))], to=c.type(0).dtype)

    row(f"broadcast_{name}", f"_{name}_scalar", f"_{name}")(convert)


_compared("equal", "Equal")
_compared("not_equal", "Equal", negated=True)
_compared("lesser", "Less")
_compared("lesser_equal", "LessOrEqual")
_compared("greater", "Greater")
_compared("greater_equal", "GreaterOrEqual")


def _logic(kind: str, *names: str) -> None:
    """Logic on numbers: whatever is not 0 counts as true; 1 or 0 in the type of the input."""

    def convert(c: Conversion) -> Result:
        sides = [c.add("Cast", [v], to="bool") for v in c.inputs]
        if len(sides) == 1 and kind != "Not":
            c.attributes.irrelevant("is_int", "it only says how the number was written")
            sides.append(c.constant(c.scalar("scalar", 1.0) != 0, np.bool_))
        return c.result("Cast", [c.add(kind, sides)], to=c.type(0).dtype)

    row(*names)(convert)


_logic("And", "broadcast_logical_and", "_logical_and", "_logical_and_scalar")
_logic("Or", "broadcast_logical_or", "_logical_or", "_logical_or_scalar")
_logic("Xor", "broadcast_logical_xor", "_logical_xor", "_logical_xor_scalar")
_logic("Not", "logical_not")


@row("Cast", "cast")
def cast(c: Conversion) -> Result:
    return c.operator("Cast", to=dtype_named(c, "dtype"))


TABLE.formula(formulas.clipped, "clip", low=scalar(name="a_min"), high=scalar(name="a_max"))


@row("where")
def select(c: Conversion) -> Result:
    """The condition is a number; whatever is not 0 counts. A vector chooses along axis 0."""
    condition = c.add("Cast", [c.required(0)], to="bool")
    rank = c.rank(1)
    if c.rank(0) == 1 and rank > 1:
        condition = c.add("Unsqueeze", [condition, c.ints(tuple(range(1, rank)))])
    elif c.type(0).dims != c.type(1).dims:
        c.refuse(f"{c.type(0)} chooses between {c.type(1)} and {c.type(2)}")
    return c.result("Where", [condition, c.required(1), c.required(2)])


MIXED = (DType.float16, DType.bfloat16, DType.float32)
"""Types that mixed precision casts; all others stay."""


@row("amp_cast")
def amp_cast(c: Conversion) -> Result:
    dtype, own = dtype_named(c, "dtype"), c.type(0).dtype
    return c.operator("Cast", to=dtype if own in MIXED else own)


@row("amp_multicast")
def amp_multicast(c: Conversion) -> Result:
    """All inputs of mixed precision take the widest type among them, or the narrowest."""
    a, types = c.attributes, [c.type(i).dtype for i in range(len(c.inputs))]
    if a.integer("num_outputs") != len(types):
        a.refuse("num_outputs", f"there are {len(types)} inputs")
    order = [t for t in MIXED if t in types]
    if set(order) >= set(MIXED[:2]) or (order and types[0] not in MIXED):
        c.refuse(f"casting {', '.join(types)} is not supported")
    common = order[0 if a.flag("cast_narrow", False) else -1] if order else None
    outputs = []
    for i, own in enumerate(types):
        op = c.operator("Cast", to=common if own in MIXED else own)
        name = c.node.outputs[i] if c.output_used(i) else c.fresh(f"{c.first_output}/cast")
        outputs.append(c.builder.add(op, [c.required(i)], [name], c.node.name))
    return tuple(outputs)
