"""CoreML layers on single elements: activations, arithmetic, comparisons; reductions.

Layers compute in float32: a comparison gives 1.0 or 0.0.
"""

from __future__ import annotations

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.context import Conversion, Result
from verax.frontends.coreml.rows import TABLE, or_default, row, scaled, weights

TABLE.operators(
    {
        "copy": "Identity",
        "ceil": "Ceil",
        "floor": "Floor",
        "sign": "Sign",
        "round": "Round",
        "sin": "Sin",
        "cos": "Cos",
        "tan": "Tan",
        "asin": "Asin",
        "acos": "Acos",
        "atan": "Atan",
        "sinh": "Sinh",
        "cosh": "Cosh",
        "tanh": "Tanh",
        "asinh": "Asinh",
        "acosh": "Acosh",
        "atanh": "Atanh",
        "erf": "Erf",
        "average": "Mean",
        "max": "Max",
        "min": "Min",
        "maxBroadcastable": "Max",
        "minBroadcastable": "Min",
        "addBroadcastable": "Add",
        "subtractBroadcastable": "Sub",
        "multiplyBroadcastable": "Mul",
        "divideBroadcastable": "Div",
        "powBroadcastable": "Pow",
    }
)


@row("activation")
def activation(c: Conversion) -> Result:
    a = c.attributes
    kind = a.text("NonlinearityType", "")

    def alpha() -> float:
        return float(a.number(f"{kind}.alpha", 0.0))

    def beta() -> float:
        return float(a.number(f"{kind}.beta", 0.0))

    simple = {"ReLU": "Relu", "tanh": "Tanh", "sigmoid": "Sigmoid"}
    simple |= {"softsign": "Softsign", "softplus": "Softplus"}
    if kind in simple:
        return c.operator(simple[kind])
    x = c.required(0)
    match kind:
        case "linear":
            product = c.add("Mul", [x, c.like(alpha())])
            return c.result("Add", [product, c.like(beta())])
        case "leakyReLU":
            return c.operator("LeakyRelu", alpha=alpha())
        case "ELU":
            return c.operator("Elu", alpha=alpha())
        case "sigmoidHard":
            return c.operator("HardSigmoid", alpha=alpha(), beta=beta())
        case "scaledTanh":
            inner = c.add("Tanh", [c.add("Mul", [x, c.like(beta())])])
            return c.result("Mul", [inner, c.like(alpha())])
        case "thresholdedReLU":
            # CoreML keeps x = alpha, which ThresholdedRelu does not.
            kept = c.add("GreaterOrEqual", [x, c.like(alpha())])
            return c.result("Where", [kept, x, c.like(0)])
        case "PReLU":
            return c.result("PRelu", [x, _per_channel(c, "PReLU.alpha")])
        case "parametricSoftplus":
            inner = c.add("Mul", [x, _per_channel(c, "parametricSoftplus.beta")])
            outer = _per_channel(c, "parametricSoftplus.alpha")
            return c.result("Mul", [c.add("Softplus", [inner]), outer])
    c.refuse(f"there is no activation {kind!r}")


def _per_channel(c: Conversion, name: str) -> str:
    """Weights of length 1 or of the channels, which are the third axis from the end."""
    found = c.node.attributes.get(name)
    channels = c.type(0).dims[-3]
    count = 1 if isinstance(found, np.ndarray) and found.size == 1 else channels
    if not isinstance(count, int):
        c.refuse("the number of channels is not known")
    return c.constant(weights(c, name, (count, 1, 1)))


@row("clip")
def clip(c: Conversion) -> Result:
    a = c.attributes
    low, high = (c.like(a.number(n, 0.0)) for n in ("minVal", "maxVal"))
    return c.result("Clip", [c.required(0), low, high])


@row("clampedReLU")
def clamped_relu(c: Conversion) -> Result:
    """min(beta, x) for x >= 0, min(beta, alpha * x) below."""
    a = c.attributes
    leaky = c.add("LeakyRelu", [c.required(0)], alpha=a.number("alpha", 0.0))
    return c.result("Min", [leaky, c.like(a.number("beta", 0.0))])


@row("gelu")
def gelu(c: Conversion) -> Result:
    mode = c.text("mode", "EXACT")
    if mode == "SIGMOID_APPROXIMATION":
        return c.operator("Swish", alpha=1.702)
    return c.operator("Gelu", approximate="tanh" if mode == "TANH_APPROXIMATION" else "none")


@row("exp2")
def exp2(c: Conversion) -> Result:
    return c.result("Pow", [c.like(2), c.required(0)])


@row("unary")
def unary(c: Conversion) -> Result:
    """A function of scale * x + shift; a scale of 0 means 1, an epsilon of 0 means 1e-6."""
    a = c.attributes
    kind = a.text("type", "SQRT")
    epsilon = or_default(a.number("epsilon", 0.0), 1e-6) if kind in ("RSQRT", "INVERSE") else 0.0
    a.irrelevant("epsilon", f"{kind} does not read it")
    alpha = a.number("alpha", 0.0) if kind in ("POWER", "THRESHOLD") else 0.0
    a.irrelevant("alpha", f"{kind} does not read it")
    x = scaled(c, c.required(0), or_default(a.number("scale", 0.0), 1.0), a.number("shift", 0.0))
    match kind:
        case "SQRT" | "EXP" | "LOG" | "ABS":
            return c.result(kind.title(), [x])
        case "RSQRT":
            root = c.add("Sqrt", [c.add("Add", [x, c.like(epsilon)])])
            return c.result("Reciprocal", [root])
        case "INVERSE":
            return c.result("Reciprocal", [c.add("Add", [x, c.like(epsilon)])])
        case "POWER":
            return c.result("Pow", [x, c.like(alpha)])
    return c.result("Max", [x, c.like(alpha)])


def _combined(name: str, kind: str) -> None:
    """A row that joins all inputs, or the one input and the number alpha."""

    def convert(c: Conversion) -> Result:
        if len(c.inputs) == 1:
            return c.result(kind, [c.required(0), c.like(c.number("alpha", 0.0))])
        c.attributes.irrelevant("alpha", "it is used only where there is one input")
        x = c.required(0)
        for i in range(1, len(c.inputs) - 1):
            x = c.add(kind, [x, c.required(i)])
        return c.result(kind, [x, c.required(len(c.inputs) - 1)])

    row(name)(convert)


_combined("add", "Add")
_combined("multiply", "Mul")


def _compared(name: str, kind: str, *, negated: bool = False) -> None:
    """A comparison of two inputs, or of one and the number alpha."""

    def convert(c: Conversion) -> Result:
        if len(c.inputs) == 1:
            other = c.like(c.number("alpha", 0.0))
        else:
            c.attributes.irrelevant("alpha", "it is used only where there is one input")
            other = c.required(1)
        found = c.add(kind, [c.required(0), other])
        return c.result("Cast", [c.add("Not", [found]) if negated else found], to="float32")

    row(name)(convert)


_compared("equal", "Equal")
_compared("notEqual", "Equal", negated=True)
_compared("lessThan", "Less")
_compared("lessEqual", "LessOrEqual")
_compared("greaterThan", "Greater")
_compared("greaterEqual", "GreaterOrEqual")


def _broadcast_weights(c: Conversion, name: str, shape_name: str) -> str:
    """Weights of shape [1], [C], [1, H, W] or [C, H, W] on the last three axes."""
    shape = c.integers(shape_name, ())
    if len(shape) not in (1, 3):
        raise ModelError(f"{shape_name} = {shape}", place=c.node.place)
    found = weights(c, name, shape)
    return c.constant(found.reshape(-1, 1, 1) if len(shape) == 1 else found)


@row("scale")
def scale(c: Conversion) -> Result:
    product = [c.required(0), _broadcast_weights(c, "scale", "shapeScale")]
    if not c.flag("hasBias"):
        for name in ("bias", "shapeBias"):
            c.attributes.irrelevant(name, "hasBias is false")
        return c.result("Mul", product)
    return c.result("Add", [c.add("Mul", product), _broadcast_weights(c, "bias", "shapeBias")])


@row("bias")
def add_bias(c: Conversion) -> Result:
    return c.result("Add", [c.required(0), _broadcast_weights(c, "bias", "shape")])


@row("dot")
def dot(c: Conversion) -> Result:
    """The product of vectors along the channels; of their directions, for the cosine."""
    a, b = c.required(0), c.required(1)
    axes = c.ints((c.rank() - 3,))
    product = c.add("Mul", [a, b])
    if not c.flag("cosineSimilarity"):
        return c.result("ReduceSum", [product, axes])
    lengths = [c.add("ReduceL2", [v, axes]) for v in (a, b)]
    return c.result("Div", [c.add("ReduceSum", [product, axes]), c.add("Mul", lengths)])


@row("softmax")
def softmax(c: Conversion) -> Result:
    return c.operator("Softmax", axis=c.rank() - 3)


@row("softmaxND")
def softmax_nd(c: Conversion) -> Result:
    return c.operator("Softmax", axis=c.integer("axis", 0))


AXES = {"CHW": (3, 2, 1), "HW": (2, 1), "C": (3,), "H": (2,), "W": (1,)}
"""Axes of `reduce`, counted from the end."""

KINDS = {
    "SUM": "ReduceSum",
    "AVG": "ReduceMean",
    "PROD": "ReduceProd",
    "LOGSUM": "ReduceSum",
    "SUMSQUARE": "ReduceSumSquare",
    "L1": "ReduceL1",
    "L2": "ReduceL2",
    "MAX": "ReduceMax",
    "MIN": "ReduceMin",
}


@row("reduce")
def reduce(c: Conversion) -> Result:
    """Reduced axes stay, with size 1. LOGSUM adds logarithms of x + epsilon."""
    a, x = c.attributes, c.required(0)
    mode = a.text("mode", "SUM")
    axes = tuple(c.rank() - i for i in AXES[a.text("axis", "CHW")])
    epsilon = or_default(a.number("epsilon", 0.0), 1e-6) if mode == "LOGSUM" else 0.0
    a.irrelevant("epsilon", f"{mode} does not read it")
    if mode == "ARGMAX":
        if len(axes) != 1:
            a.refuse("axis", "an ARGMAX has one axis")
        return c.result("Cast", [c.add("ArgMax", [x], axis=axes[0])], to="float32")
    if mode == "LOGSUM":
        x = c.add("Log", [c.add("Add", [x, c.like(epsilon)])])
    return c.result(KINDS[mode], [x, c.ints(axes)])


def _reduction(name: str, kind: str) -> None:
    """Rows of the reductions over any axes."""

    def convert(c: Conversion) -> Result:
        a, axes = c.attributes, c.integers("axes", ())
        if a.flag("reduceAll"):
            axes = tuple(range(c.rank()))
        if not axes:
            a.refuse("axes", "there are none")
        return c.result(kind, [c.required(0), c.ints(axes)], keepdims=a.flag("keepDims"))

    row(name)(convert)


for _name in ("L1", "L2", "Max", "Min", "Sum", "Prod", "Mean", "LogSum", "SumSquare", "LogSumExp"):
    _reduction(f"reduce{_name}", f"Reduce{_name}")


def _arg(name: str, kind: str) -> None:
    def convert(c: Conversion) -> Result:
        a = c.attributes
        found = c.add(
            kind, [c.required(0)], axis=a.integer("axis", 0), keepdims=not a.flag("removeDim")
        )
        return c.result("Cast", [found], to="float32")

    row(name)(convert)


_arg("argMax", "ArgMax")
_arg("argMin", "ArgMin")


@row("whereBroadcastable")
def where(c: Conversion) -> Result:
    condition = c.add("Cast", [c.required(0)], to="bool")
    return c.result("Where", [condition, c.required(1), c.required(2)])
