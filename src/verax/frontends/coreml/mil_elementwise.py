"""ML program operations on single elements, and reductions."""

from __future__ import annotations

import numpy as np

from verax.frontends.common import formulas
from verax.frontends.common.context import Result
from verax.frontends.common.table import integer, scalar
from verax.frontends.coreml.mil_rows import OPERATIONS, Mil, mil

CURVES = {
    **{"sin": "Sin", "cos": "Cos", "tan": "Tan", "asin": "Asin", "acos": "Acos", "atan": "Atan"},
    **{"sinh": "Sinh", "cosh": "Cosh", "tanh": "Tanh", "atanh": "Atanh", "erf": "Erf"},
    **{"ceil": "Ceil", "floor": "Floor", "round": "Round", "sign": "Sign"},
}
"""Functions of one element that layers of neural networks have under the same names."""
BINARY = {
    **{"add": "Add", "sub": "Sub", "mul": "Mul", "real_div": "Div", "maximum": "Max"},
    **{
        "minimum": "Min",
        "pow": "Pow",
        "mod": "Mod",
        "floor_div": "FloorDiv",
        "equal": "Equal",
        "less": "Less",
    },
    **{"less_equal": "LessOrEqual", "greater": "Greater", "greater_equal": "GreaterOrEqual"},
    **{"logical_and": "And", "logical_or": "Or", "logical_xor": "Xor"},
}
OPERATIONS.operators(CURVES)
OPERATIONS.operators(
    {
        **{"relu": "Relu", "sigmoid": "Sigmoid", "softplus": "Softplus", "softsign": "Softsign"},
        **{"silu": "Swish", "abs": "Abs", "exp": "Exp", "sqrt": "Sqrt", "logical_not": "Not"},
        "identity": "Identity",
    }
)
OPERATIONS.operators(BINARY, inputs=("x", "y"))
OPERATIONS.operator("Clip", "clip", inputs=("x", "alpha", "beta"))
OPERATIONS.operator("Max", "threshold", inputs=("x", "alpha"))
OPERATIONS.operator("LeakyRelu", "leaky_relu", alpha=scalar())
OPERATIONS.operator("Elu", "elu", alpha=scalar())
OPERATIONS.operator("HardSigmoid", "sigmoid_hard", alpha=scalar(), beta=scalar())
OPERATIONS.operator("Softmax", "softmax", axis=integer(-1))
OPERATIONS.operator("Where", "select", inputs=("cond", "a", "b"))
OPERATIONS.formula(formulas.not_equal, "not_equal", inputs=("x", "y"))
OPERATIONS.formula(formulas.square, "square")
OPERATIONS.formula(formulas.exp2, "exp2")
OPERATIONS.formula(formulas.relu6, "relu6")
OPERATIONS.formula(formulas.rsqrt, "rsqrt", epsilon=scalar(1e-12))
OPERATIONS.formula(formulas.reciprocal, "inverse", epsilon=scalar(1e-4))
OPERATIONS.formula(formulas.linear, "linear_activation", inputs=("x", "alpha", "beta"))
OPERATIONS.formula(formulas.scaled_tanh, "scaled_tanh", inputs=("x", "alpha", "beta"))
OPERATIONS.formula(formulas.thresholded, "thresholded_relu", inputs=("x", "alpha"))


@mil("log")
def log(c: Mil) -> Result:
    """log(x + epsilon); an epsilon that the element type rounds to 0 is none."""
    return c.apply("Log", [formulas.shifted(c, c.tensor("x"), c.scalar("epsilon", 1e-45))])


@mil("clamped_relu")
def clamped_relu(c: Mil) -> Result:
    return formulas.clamped_leaky_relu(c, c.tensor("x"), c.scalar("alpha"), c.tensor("beta"))


def _per_channel(c: Mil, name: str) -> str:
    """A vector over axis 1, shaped to broadcast against x."""
    vector, rank = c.tensor(name), c.rank(c.tensor("x"))
    return c.add("Unsqueeze", [vector, c.ints(range(1, rank - 1))]) if rank > 2 else vector


@mil("prelu")
def prelu(c: Mil) -> Result:
    return c.apply("PRelu", [c.tensor("x"), _per_channel(c, "alpha")])


@mil("softplus_parametric")
def softplus_parametric(c: Mil) -> Result:
    alpha, beta = _per_channel(c, "alpha"), _per_channel(c, "beta")
    return formulas.scaled_softplus(c, c.tensor("x"), alpha, beta)


@mil("gelu")
def gelu(c: Mil) -> Result:
    x, modes = c.tensor("x"), {"EXACT": "none", "TANH_APPROXIMATION": "tanh"}
    mode = c.choice("mode", (*modes, "SIGMOID_APPROXIMATION"), "EXACT")
    if mode == "SIGMOID_APPROXIMATION":
        return c.apply("Swish", [x], alpha=1.702)
    return c.apply("Gelu", [x], approximate=modes[mode])


DTYPES = {"fp16": "float16", "fp32": "float32", "fp64": "float64"}


@mil("cast")
def cast(c: Mil) -> Result:
    dtype = c.text("dtype", "")
    return c.apply("Cast", [c.tensor("x")], to=DTYPES.get(dtype, dtype))


@mil("cumsum")
def cumsum(c: Mil) -> Result:
    axis = c.constant(c.integer("axis", 0), np.int64)
    fields = {name: c.flag(name) for name in ("exclusive", "reverse")}
    return c.apply("CumSum", [c.tensor("x"), axis], **fields)


@mil("einsum")
def einsum(c: Mil) -> Result:
    return c.apply("Einsum", c.tensors("values"), equation=c.text("equation", ""))


REDUCTIONS = {
    **{"sum": "Sum", "mean": "Mean", "max": "Max", "min": "Min", "prod": "Prod", "l1_norm": "L1"},
    **{"l2_norm": "L2", "log_sum": "LogSum", "log_sum_exp": "LogSumExp", "sum_square": "SumSquare"},
}
"""What reductions are called here and, behind "reduce", in layers and operators."""


def _reduction(name: str, kind: str) -> None:
    """All axes when none are given."""

    def convert(c: Mil) -> Result:
        x = c.tensor("x")
        axes = c.ints(c.integers("axes", tuple(range(c.rank(x)))))
        return c.apply(f"Reduce{kind}", [x, axes], keepdims=c.flag("keep_dims"))

    mil(f"reduce_{name}")(convert)


for _name, _kind in REDUCTIONS.items():
    _reduction(_name, _kind)


def _position(name: str, kind: str) -> None:
    def convert(c: Mil) -> Result:
        axis, keep = c.integer("axis", -1), c.flag("keep_dims")
        index = c.add(kind, [c.tensor("x")], axis=axis, keepdims=keep)
        return c.apply("Cast", [index], to=c.text("output_dtype", "int32"))

    mil(name)(convert)


_position("reduce_argmax", "ArgMax")
_position("reduce_argmin", "ArgMin")


@mil("fill")
def fill(c: Mil) -> Result:
    value = c.maybe("value") or c.constant(np.float32(0))
    return c.apply("Expand", [value, c.positions("shape")])
