"""MXNet operators on single elements: arithmetic, activations, losses as they are evaluated."""

from __future__ import annotations

import numpy as np

from verax.frontends.conversion import Conversion
from verax.frontends.mxnet.rows import Result, dtype_named, ints, like, plain, row

for _name in ("identity", "_copy", "BlockGrad", "stop_gradient", "make_loss"):
    plain("Identity", _name)
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
    plain(_kind, *_names)


@row("square")
def square(c: Conversion) -> Result:
    return c.result("Mul", [c.required(0), c.required(0)])


@row("rsqrt")
def reciprocal_square_root(c: Conversion) -> Result:
    return c.result("Reciprocal", [c.add("Sqrt", [c.required(0)])])


def _scalar(kind: str, *names: str, swapped: bool = False) -> None:
    """Rows of operators with a number in the place of one input."""

    def convert(c: Conversion) -> Result:
        c.attributes.irrelevant("is_int", "it only says how the number was written")
        sides = [c.required(0), like(c, c.attributes.number("scalar", 1.0))]
        return c.result(kind, sides[::-1] if swapped else sides)

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


@row("Cast", "cast")
def cast(c: Conversion) -> Result:
    return c.operator("Cast", to=dtype_named(c, "dtype"))


@row("clip")
def clip(c: Conversion) -> Result:
    a = c.attributes
    low, high = (like(c, a.number(name)) for name in ("a_min", "a_max"))
    return c.result("Clip", [c.required(0), low, high])


@row("where")
def where(c: Conversion) -> Result:
    """The condition is a number; whatever is not 0 counts."""
    condition = c.add("Cast", [c.required(0)], to="bool")
    return c.result("Where", [condition, c.required(1), c.required(2)])


ACTIVATIONS: dict[str, str] = {
    "relu": "Relu",
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "softrelu": "Softplus",
    "softsign": "Softsign",
    "mish": "Mish",
}


@row("Activation")
def activation(c: Conversion) -> Result:
    kind = c.attributes.text("act_type")
    if kind not in ACTIVATIONS:
        c.attributes.refuse("act_type", "there is no such activation")
    return c.operator(ACTIVATIONS[kind])


@row("LeakyReLU")
def leaky_relu(c: Conversion) -> Result:
    """A family: which one, and which of the parameters it reads, `act_type` says."""
    a = c.attributes
    kind = a.text("act_type", "leaky")
    reads = {"leaky": ("slope",), "elu": ("slope",), "rrelu": ("lower_bound", "upper_bound")}
    for name in ("slope", "lower_bound", "upper_bound"):
        if name not in reads.get(kind, ()):
            a.irrelevant(name, f"{kind} does not read it")
    if kind == "leaky":
        return c.operator("LeakyRelu", alpha=a.number("slope", 0.25))
    if kind == "elu":
        return c.operator("Elu", alpha=a.number("slope", 0.25))
    if kind == "rrelu":
        low, high = (
            np.float32(a.number(n, d)) for n, d in (("lower_bound", 0.125), ("upper_bound", 0.334))
        )
        return c.operator("LeakyRelu", alpha=float((low + high) / np.float32(2)))
    if kind == "prelu":
        return _prelu(c)
    if kind not in ("selu", "gelu"):
        a.refuse("act_type", "there is no such activation")
    return c.operator("Selu" if kind == "selu" else "Gelu")


def _prelu(c: Conversion) -> Result:
    """One slope per channel, or one for all."""
    slope, rank = c.type(1), c.rank()
    if slope.rank == 1 and rank > 2 and slope.dims[0] != 1:
        spread = c.add("Unsqueeze", [c.required(1), c.ints(tuple(range(1, rank - 1)))])
        return c.result("PRelu", [c.required(0), spread])
    return c.operator("PRelu")


@row("hard_sigmoid")
def hard_sigmoid(c: Conversion) -> Result:
    a = c.attributes
    return c.operator("HardSigmoid", alpha=a.number("alpha", 0.2), beta=a.number("beta", 0.5))


@row("Dropout")
def dropout(c: Conversion) -> Result:
    a = c.attributes
    a.expect("mode", "training", why="dropping while evaluating is random")
    a.irrelevant("p", "nothing is dropped while evaluating")
    a.irrelevant("axes", "nothing is dropped while evaluating")
    return c.operator("Identity")


# Softmax in its many forms.


@row("softmax")
def softmax(c: Conversion) -> Result:
    return _softmax(c, "Softmax")


@row("log_softmax")
def log_softmax(c: Conversion) -> Result:
    return _softmax(c, "LogSoftmax")


def _softmax(c: Conversion, kind: str) -> Result:
    a = c.attributes
    a.expect("use_length", False, why="lengths are not supported")
    if a.has("dtype") and dtype_named(c, "dtype") is not c.type(0).dtype:
        a.refuse("dtype", "it differs from the input's")
    temperature = a.number("temperature", 1.0)
    data = c.required(0)
    if temperature != 1.0:
        data = c.add("Div", [data, like(c, temperature)])
    return c.result(kind, [data], axis=a.integer("axis", -1))


@row("SoftmaxActivation")
def softmax_activation(c: Conversion) -> Result:
    """Mode instance takes the last axis, whatever its documentation says of instances."""
    mode = c.attributes.text("mode", "instance")
    if mode == "channel":
        return c.operator("Softmax", axis=1)
    if mode != "instance":
        c.attributes.refuse("mode", "there is no such mode")
    return c.operator("Softmax", axis=-1)


TRAINING = ("grad_scale", "ignore_label", "use_ignore", "normalization", "out_grad", "smooth_alpha")


@row("SoftmaxOutput", "Softmax")
def softmax_output(c: Conversion) -> Result:
    """Over channels with multi_output, over the last axis with preserve_shape, else over all."""
    a = c.attributes
    for name in TRAINING:
        a.irrelevant(name, "it shapes the gradient only")
    if a.flag("multi_output", False):
        a.irrelevant("preserve_shape", "multi_output goes first")
        return c.operator("Softmax", axis=1)
    if a.flag("preserve_shape", False):
        return c.operator("Softmax", axis=-1)
    return c.operator("Softmax", axis=1, flatten=True)


def _regression(name: str, kind: str) -> None:
    def convert(c: Conversion) -> Result:
        c.attributes.irrelevant("grad_scale", "it shapes the gradient only")
        return c.operator(kind)

    row(name)(convert)


_regression("LinearRegressionOutput", "Identity")
_regression("MAERegressionOutput", "Identity")
_regression("LogisticRegressionOutput", "Sigmoid")


def _reduce(kind: str, *names: str) -> None:
    """Rows of reductions: axis None means all; exclude means all others."""

    def convert(c: Conversion) -> Result:
        a, rank = c.attributes, c.rank()
        axes = {axis % rank for axis in ints(c, "axis", ()) or range(rank)}
        if a.flag("exclude", False):
            axes = set(range(rank)) - axes
        chosen = c.ints(tuple(sorted(axes)))
        keep = a.flag("keepdims", False)
        if len(axes) == rank and not keep:
            one = c.add(kind, [c.required(0), chosen], keepdims=False)
            return c.result("Reshape", [one, c.ints((1,))])
        return c.result(kind, [c.required(0), chosen], keepdims=keep, noop_with_empty_axes=True)

    row(*names)(convert)


_reduce("ReduceSum", "sum", "sum_axis")
_reduce("ReduceMean", "mean")
_reduce("ReduceMax", "max", "max_axis")
_reduce("ReduceMin", "min", "min_axis")
_reduce("ReduceProd", "prod")


@row("norm")
def norm(c: Conversion) -> Result:
    a, rank = c.attributes, c.rank()
    order = a.integer("ord", 2)
    if order not in (1, 2):
        a.refuse("ord", "only 1 and 2 are supported")
    axes = c.ints(sorted(axis % rank for axis in ints(c, "axis", ()) or range(rank)))
    kind, keep = "ReduceL2" if order == 2 else "ReduceL1", a.flag("keepdims", False)
    if keep or len(ints(c, "axis", ()) or ()):
        return c.result(kind, [c.required(0), axes], keepdims=keep)
    whole = c.add(kind, [c.required(0), axes], keepdims=False)
    return c.result("Reshape", [whole, c.ints((1,))])


def _position(name: str, kind: str) -> None:
    """The place of the extreme element, as a float like everything in MXNet."""

    def convert(c: Conversion) -> Result:
        a, axis = c.attributes, c.attributes.integer("axis")
        if axis is None:
            a.refuse("axis", "an axis is needed")
        found = c.add(kind, [c.required(0)], axis=axis, keepdims=a.flag("keepdims", False))
        return c.result("Cast", [found], to=c.type(0).dtype)

    row(name)(convert)


_position("argmax", "ArgMax")
_position("argmin", "ArgMin")


def _compared(name: str, kind: str, *, negated: bool = False) -> None:
    """Comparisons give 1 or 0 in the type of the inputs."""

    def convert(c: Conversion) -> Result:
        other = c.input(1)
        if other is None:
            c.attributes.irrelevant("is_int", "it only says how the number was written")
            other = like(c, c.attributes.number("scalar", 0.0))
        found = c.add(kind, [c.required(0), other])
        found = c.add("Not", [found]) if negated else found
        return c.result("Cast", [found], to=c.type(0).dtype)

    row(f"broadcast_{name}", f"_{name}_scalar", f"_{name}")(convert)


_compared("equal", "Equal")
_compared("not_equal", "Equal", negated=True)
_compared("lesser", "Less")
_compared("lesser_equal", "LessOrEqual")
_compared("greater", "Greater")
_compared("greater_equal", "GreaterOrEqual")
