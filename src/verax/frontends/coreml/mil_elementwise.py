"""ML program operations on single elements, and reductions."""

from __future__ import annotations

import numpy as np

from verax.frontends.common.context import Conversion, Result
from verax.frontends.coreml.mil_rows import (
    arg,
    dtype_of,
    flag,
    integer,
    mil,
    needed,
    number,
    numbers,
    refuse,
    several,
    text,
)

UNARY = {
    "relu": "Relu",
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "softplus": "Softplus",
    "softsign": "Softsign",
    "silu": "Swish",
    "abs": "Abs",
    "acos": "Acos",
    "asin": "Asin",
    "atan": "Atan",
    "atanh": "Atanh",
    "ceil": "Ceil",
    "cos": "Cos",
    "cosh": "Cosh",
    "erf": "Erf",
    "exp": "Exp",
    "floor": "Floor",
    "round": "Round",
    "sign": "Sign",
    "sin": "Sin",
    "sinh": "Sinh",
    "sqrt": "Sqrt",
    "tan": "Tan",
    "logical_not": "Not",
    "identity": "Identity",
}

BINARY = {
    "add": "Add",
    "sub": "Sub",
    "mul": "Mul",
    "real_div": "Div",
    "maximum": "Max",
    "minimum": "Min",
    "pow": "Pow",
    "mod": "Mod",
    "equal": "Equal",
    "less": "Less",
    "less_equal": "LessOrEqual",
    "greater": "Greater",
    "greater_equal": "GreaterOrEqual",
    "logical_and": "And",
    "logical_or": "Or",
    "logical_xor": "Xor",
}


def _unary(name: str, kind: str) -> None:
    mil(name)(lambda c: c.result(kind, [needed(c, "x")]))


def _binary(name: str, kind: str) -> None:
    mil(name)(lambda c: c.result(kind, [needed(c, "x"), needed(c, "y")]))


for _name, _kind in UNARY.items():
    _unary(_name, _kind)
for _name, _kind in BINARY.items():
    _binary(_name, _kind)


@mil("not_equal")
def not_equal(c: Conversion) -> Result:
    return c.result("Not", [c.add("Equal", [needed(c, "x"), needed(c, "y")])])


@mil("floor_div")
def floor_div(c: Conversion) -> Result:
    """The quotient rounded down; of whole numbers by way of the remainder, which is exact."""
    x, y = needed(c, "x"), needed(c, "y")
    if dtype_of(c, x).kind == "f":
        return c.result("Floor", [c.add("Div", [x, y])])
    return c.result("Div", [c.add("Sub", [x, c.add("Mod", [x, y])]), y])


@mil("square")
def square(c: Conversion) -> Result:
    x = needed(c, "x")
    return c.result("Mul", [x, x])


@mil("exp2")
def exp2(c: Conversion) -> Result:
    x = needed(c, "x")
    return c.result("Pow", [c.like(2, x), x])


@mil("relu6")
def relu6(c: Conversion) -> Result:
    x = needed(c, "x")
    return c.result("Clip", [x, c.like(0, x), c.like(6, x)])


@mil("log")
def log(c: Conversion) -> Result:
    """log(x + epsilon); an epsilon that the element type rounds to 0 is none."""
    x, epsilon = needed(c, "x"), number(c, "epsilon", 1e-45)
    return c.result("Log", [_shifted(c, x, epsilon)])


@mil("rsqrt")
def rsqrt(c: Conversion) -> Result:
    x, epsilon = needed(c, "x"), number(c, "epsilon", 1e-12)
    return c.result("Reciprocal", [c.add("Sqrt", [_shifted(c, x, epsilon)])])


@mil("inverse")
def inverse(c: Conversion) -> Result:
    x, epsilon = needed(c, "x"), number(c, "epsilon", 1e-4)
    return c.result("Reciprocal", [_shifted(c, x, epsilon)])


def _shifted(c: Conversion, x: str, shift: float) -> str:
    number_ = np.asarray(shift, c.type(x).dtype.numpy)
    return c.add("Add", [x, c.constant(number_)]) if number_ else x


@mil("clip")
def clip(c: Conversion) -> Result:
    return c.result("Clip", [needed(c, n) for n in ("x", "alpha", "beta")])


@mil("threshold")
def threshold(c: Conversion) -> Result:
    return c.result("Max", [needed(c, "x"), needed(c, "alpha")])


@mil("leaky_relu")
def leaky_relu(c: Conversion) -> Result:
    return c.result("LeakyRelu", [needed(c, "x")], alpha=number(c, "alpha"))


@mil("elu")
def elu(c: Conversion) -> Result:
    return c.result("Elu", [needed(c, "x")], alpha=number(c, "alpha"))


@mil("sigmoid_hard")
def sigmoid_hard(c: Conversion) -> Result:
    a, b = number(c, "alpha"), number(c, "beta")
    return c.result("HardSigmoid", [needed(c, "x")], alpha=a, beta=b)


@mil("linear_activation")
def linear_activation(c: Conversion) -> Result:
    product = c.add("Mul", [needed(c, "x"), needed(c, "alpha")])
    return c.result("Add", [product, needed(c, "beta")])


@mil("scaled_tanh")
def scaled_tanh(c: Conversion) -> Result:
    inner = c.add("Tanh", [c.add("Mul", [needed(c, "x"), needed(c, "beta")])])
    return c.result("Mul", [inner, needed(c, "alpha")])


@mil("thresholded_relu")
def thresholded_relu(c: Conversion) -> Result:
    """x where it is at least alpha, else 0."""
    x = needed(c, "x")
    kept = c.add("GreaterOrEqual", [x, needed(c, "alpha")])
    return c.result("Where", [kept, x, c.like(0, x)])


@mil("clamped_relu")
def clamped_relu(c: Conversion) -> Result:
    leaky = c.add("LeakyRelu", [needed(c, "x")], alpha=number(c, "alpha"))
    return c.result("Min", [leaky, needed(c, "beta")])


def _per_channel(c: Conversion, name: str, x: str) -> str:
    """A vector over axis 1, shaped to broadcast against x."""
    vector, rank = needed(c, name), c.rank(x)
    return c.add("Unsqueeze", [vector, c.ints(range(1, rank - 1))]) if rank > 2 else vector


@mil("prelu")
def prelu(c: Conversion) -> Result:
    x = needed(c, "x")
    return c.result("PRelu", [x, _per_channel(c, "alpha", x)])


@mil("softplus_parametric")
def softplus_parametric(c: Conversion) -> Result:
    x = needed(c, "x")
    inner = c.add("Softplus", [c.add("Mul", [x, _per_channel(c, "beta", x)])])
    return c.result("Mul", [inner, _per_channel(c, "alpha", x)])


@mil("gelu")
def gelu(c: Conversion) -> Result:
    x, mode = needed(c, "x"), text(c, "mode", "EXACT")
    if mode == "SIGMOID_APPROXIMATION":
        return c.result("Swish", [x], alpha=1.702)
    if mode not in ("EXACT", "TANH_APPROXIMATION"):
        refuse(c, "mode", "there is no such mode")
    return c.result("Gelu", [x], approximate="none" if mode == "EXACT" else "tanh")


@mil("softmax")
def softmax(c: Conversion) -> Result:
    return c.result("Softmax", [needed(c, "x")], axis=integer(c, "axis", -1))


@mil("select")
def select(c: Conversion) -> Result:
    return c.result("Where", [needed(c, n) for n in ("cond", "a", "b")])


DTYPES = {"fp16": "float16", "fp32": "float32", "fp64": "float64"}


@mil("cast")
def cast(c: Conversion) -> Result:
    wanted = text(c, "dtype", "")
    return c.result("Cast", [needed(c, "x")], to=DTYPES.get(wanted, wanted))


@mil("cumsum")
def cumsum(c: Conversion) -> Result:
    axis = c.constant(integer(c, "axis", 0), np.int64)
    return c.result(
        "CumSum",
        [needed(c, "x"), axis],
        exclusive=flag(c, "exclusive"),
        reverse=flag(c, "reverse"),
    )


@mil("einsum")
def einsum(c: Conversion) -> Result:
    return c.result("Einsum", several(c, "values"), equation=text(c, "equation", ""))


REDUCTIONS = {
    "sum": "ReduceSum",
    "mean": "ReduceMean",
    "max": "ReduceMax",
    "min": "ReduceMin",
    "prod": "ReduceProd",
    "l1_norm": "ReduceL1",
    "l2_norm": "ReduceL2",
    "log_sum": "ReduceLogSum",
    "log_sum_exp": "ReduceLogSumExp",
    "sum_square": "ReduceSumSquare",
}


def _reduction(name: str, kind: str) -> None:
    """All axes when none are given."""

    def convert(c: Conversion) -> Result:
        x = needed(c, "x")
        axes = c.ints(numbers(c, "axes", tuple(range(c.rank(x)))))
        return c.result(kind, [x, axes], keepdims=flag(c, "keep_dims"))

    mil(f"reduce_{name}")(convert)


for _name, _kind in REDUCTIONS.items():
    _reduction(_name, _kind)


def _arg(name: str, kind: str) -> None:
    def convert(c: Conversion) -> Result:
        found = c.add(
            kind, [needed(c, "x")], axis=integer(c, "axis", -1), keepdims=flag(c, "keep_dims")
        )
        return c.result("Cast", [found], to=text(c, "output_dtype", "int32"))

    mil(name)(convert)


_arg("reduce_argmax", "ArgMax")
_arg("reduce_argmin", "ArgMin")


@mil("fill")
def fill(c: Conversion) -> Result:
    value = arg(c, "value")
    if value is None:
        value = c.constant(np.float32(0))
    shape = c.add("Cast", [needed(c, "shape")], to="int64")
    return c.result("Expand", [value, shape])
