"""CoreML layers on single elements: activations, arithmetic, comparisons; reductions.

Layers compute in float32: a comparison gives 1.0 or 0.0. Most are operations of ML programs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common import formulas
from verax.frontends.common.context import Conversion, Result
from verax.frontends.common.table import flag, integer, scalar, text
from verax.frontends.coreml.mil_elementwise import CURVES, REDUCTIONS
from verax.frontends.coreml.mil_rows import GraphValue, cast_to, layer, operation
from verax.frontends.coreml.rows import TABLE, or_default, row, weights

TABLE.operators({"copy": "Identity", "average": "Mean", "max": "Max", "min": "Min"})
TABLE.operators({"maxBroadcastable": "Max", "minBroadcastable": "Min", "addBroadcastable": "Add"})
TABLE.operators({"subtractBroadcastable": "Sub", "multiplyBroadcastable": "Mul"})
TABLE.operators({"divideBroadcastable": "Div", "powBroadcastable": "Pow"})
TABLE.operators({**CURVES, "asinh": "Asinh", "acosh": "Acosh"})
layer("clip", "clip", alpha=scalar(0.0, "minVal"), beta=scalar(0.0, "maxVal"))
layer("clampedReLU", "clamped_relu", alpha=scalar(0.0), beta=scalar(0.0))
layer("gelu", "gelu", mode=text("EXACT"))
layer("exp2", "exp2")
layer("softmax", "softmax", axis=lambda c: c.rank() - 3)
layer("softmaxND", "softmax", axis=integer(0))
layer("floorDivBroadcastable", "floor_div", ("x", "y"))
layer("modBroadcastable", "mod", ("x", "y"))

ACTIVATIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    **{"ReLU": ("relu", ()), "tanh": ("tanh", ()), "sigmoid": ("sigmoid", ())},
    **{"softsign": ("softsign", ()), "softplus": ("softplus", ())},
    **{"linear": ("linear_activation", ("alpha", "beta")), "leakyReLU": ("leaky_relu", ("alpha",))},
    **{"ELU": ("elu", ("alpha",)), "sigmoidHard": ("sigmoid_hard", ("alpha", "beta"))},
    "scaledTanh": ("scaled_tanh", ("alpha", "beta")),
    "thresholdedReLU": ("thresholded_relu", ("alpha",)),
}
"""Activations as operations, with the numbers that they take."""


@row("activation")
def activation(c: Conversion) -> Result:
    kind = c.text("NonlinearityType", "")
    if kind in ACTIVATIONS:
        operation_name, names = ACTIVATIONS[kind]
        numbers = {n: c.scalar(f"{kind}.{n}", 0.0) for n in names}
        return operation(c, operation_name, x=GraphValue(c.required(0)), **numbers)
    if kind == "PReLU":
        return c.apply("PRelu", [c.required(0), _per_channel(c, "PReLU.alpha")])
    if kind != "parametricSoftplus":
        c.refuse(f"unknown activation {kind!r}")
    alpha, beta = (_per_channel(c, f"{kind}.{n}") for n in ("alpha", "beta"))
    return formulas.scaled_softplus(c, c.required(0), alpha, beta)


def _per_channel(c: Conversion, name: str) -> str:
    """Weights of length 1 or of the channels, which are the third axis from the end."""
    stored = c.node.attributes.get(name)
    is_one = isinstance(stored, np.ndarray) and stored.size == 1
    count = 1 if is_one else c.known_size(0, -3, "the number of channels")
    return c.constant(weights(c, name, (count, 1, 1)))


UNARY: dict[str, tuple[str, str]] = {
    **{"SQRT": ("sqrt", ""), "EXP": ("exp", ""), "LOG": ("log", ""), "ABS": ("abs", "")},
    **{"RSQRT": ("rsqrt", "epsilon"), "INVERSE": ("inverse", "epsilon")},
    **{"POWER": ("pow", "y"), "THRESHOLD": ("threshold", "alpha")},
}
"""Kinds of `unary` as operations, and the argument that epsilon or alpha is."""


@row("unary")
def unary(c: Conversion) -> Result:
    """A function of scale * x + shift; a scale of 0 means 1, an epsilon of 0 means 1e-6."""
    kind = c.text("type", "SQRT")
    operation_name, name = UNARY[kind]
    more: dict[str, Any] = {"epsilon": 0.0} if kind == "LOG" else {}
    if name == "epsilon":
        more = {name: or_default(c.scalar("epsilon", 0.0), 1e-6)}
    elif name:
        more = {name: c.scalar("alpha", 0.0)}
    for unread in ("epsilon", "alpha"):
        c.attributes.irrelevant(unread, f"{kind} does not read it")
    x, scale = c.required(0), or_default(c.scalar("scale", 0.0), 1.0)
    x = x if scale == 1 else c.add("Mul", [x, c.like(scale)])
    shift = c.scalar("shift", 0.0)
    x = c.add("Add", [x, c.like(shift)]) if shift else x
    return operation(c, operation_name, x=GraphValue(x), **more)


def _sides(c: Conversion) -> list[str]:
    """The inputs, or the one input and the number alpha."""
    if len(c.inputs) == 1:
        return [c.required(0), c.like(c.scalar("alpha", 0.0))]
    c.attributes.irrelevant("alpha", "it is used only where there is one input")
    return c.operands


def _combined(kind: str) -> Callable[[Conversion], Result]:
    """A row that joins all inputs, from left to right."""

    def convert(c: Conversion) -> Result:
        x, *values, last = _sides(c)
        for value in values:
            x = c.add(kind, [x, value])
        return c.apply(kind, [x, last])

    return convert


row("add")(_combined("Add"))
row("multiply")(_combined("Mul"))


def _compared(name: str, kind: str) -> None:
    def compare(c: Conversion) -> Result:
        x, y = _sides(c)
        return operation(c, kind, x=GraphValue(x), y=GraphValue(y))

    row(name)(lambda c: cast_to(c, "float32", compare))


_compared("equal", "equal")
_compared("notEqual", "not_equal")
_compared("lessThan", "less")
_compared("lessEqual", "less_equal")
_compared("greaterThan", "greater")
_compared("greaterEqual", "greater_equal")


@row("logicalOr", "logicalXor", "logicalAnd", "logicalNot")
def logic(c: Conversion) -> Result:
    """On truth values, which are 1.0 and 0.0."""
    flags = [c.add("Cast", [c.required(i)], to="bool") for i in range(len(c.inputs))]
    kind = c.node.op_type.removeprefix("logical")
    return c.apply("Cast", [c.add(kind, flags)], to="float32")


@row("whereBroadcastable")
def select(c: Conversion) -> Result:
    condition = c.add("Cast", [c.required(0)], to="bool")
    return c.apply("Where", [condition, c.required(1), c.required(2)])


def _broadcast_weights(c: Conversion, name: str, shape_name: str) -> str:
    """Weights of shape [1], [C], [1, H, W] or [C, H, W] on the last three axes."""
    shape = c.integers(shape_name, ())
    if len(shape) not in (1, 3):
        raise ModelError(f"{shape_name} = {shape}", place=c.node.place)
    array = weights(c, name, shape)
    return c.constant(array.reshape(-1, 1, 1) if len(shape) == 1 else array)


@row("scale")
def scale(c: Conversion) -> Result:
    product = [c.required(0), _broadcast_weights(c, "scale", "shapeScale")]
    if not c.flag("hasBias"):
        c.irrelevant("bias", "shapeBias", reason="hasBias is false")
        return c.apply("Mul", product)
    return c.apply("Add", [c.add("Mul", product), _broadcast_weights(c, "bias", "shapeBias")])


@row("bias")
def add_bias(c: Conversion) -> Result:
    return c.apply("Add", [c.required(0), _broadcast_weights(c, "bias", "shape")])


@row("dot")
def dot(c: Conversion) -> Result:
    """The product of vectors along the channels; of their directions, for the cosine."""
    a, b = c.required(0), c.required(1)
    axes = c.ints((c.rank() - 3,))
    total = c.apply("ReduceSum", [c.add("Mul", [a, b]), axes])
    if not c.flag("cosineSimilarity"):
        return total
    lengths = [c.add("ReduceL2", [v, axes]) for v in (a, b)]
    return c.apply("Div", [c.append(total), c.add("Mul", lengths)])


AXES = {"CHW": (3, 2, 1), "HW": (2, 1), "C": (3,), "H": (2,), "W": (1,)}
"""Axes of `reduce`, counted from the end."""
KINDS = {
    **{"SUM": "ReduceSum", "AVG": "ReduceMean", "PROD": "ReduceProd", "LOGSUM": "ReduceSum"},
    **{"SUMSQUARE": "ReduceSumSquare", "L1": "ReduceL1", "L2": "ReduceL2", "MAX": "ReduceMax"},
    "MIN": "ReduceMin",
}


@row("reduce")
def reduce(c: Conversion) -> Result:
    """Reduced axes stay, with size 1. LOGSUM adds logarithms of x + epsilon."""
    x, mode = c.required(0), c.text("mode", "SUM")
    axes = tuple(c.rank() - i for i in AXES[c.text("axis", "CHW")])
    epsilon = or_default(c.scalar("epsilon", 0.0), 1e-6) if mode == "LOGSUM" else 0.0
    c.attributes.irrelevant("epsilon", f"{mode} does not read it")
    if mode == "ARGMAX":
        if len(axes) != 1:
            c.attributes.refuse("axis", "an ARGMAX has one axis")
        return c.apply("Cast", [c.add("ArgMax", [x], axis=axes[0])], to="float32")
    if mode == "LOGSUM":
        x = c.add("Log", [c.add("Add", [x, c.like(epsilon)])])
    return c.apply(KINDS[mode], [x, c.ints(axes)])


def _axes(c: Conversion) -> tuple[int, ...]:
    axes: tuple[int, ...] = c.integers("axes", ())
    axes = tuple(range(c.rank())) if c.flag("reduceAll") else axes
    if not axes:
        c.attributes.refuse("axes", "there are none")
    return axes


for _name, _kind in REDUCTIONS.items():
    layer(f"reduce{_kind}", f"reduce_{_name}", axes=_axes, keep_dims=flag(name="keepDims"))
for _kind in ("argMax", "argMin"):
    layer(
        _kind,
        f"reduce_{_kind.lower()}",
        axis=integer(0),
        keep_dims=lambda c: not c.flag("removeDim"),
        output_dtype="float32",
    )
