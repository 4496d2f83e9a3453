"""MXNet's activations, softmax in its many forms, and losses as they are evaluated."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from verax.frontends.common.context import Conversion, Result
from verax.frontends.common.table import scalar
from verax.frontends.mxnet.rows import TABLE, keep_dtype, row

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
    kind = c.choice("act_type", ACTIVATIONS)
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
        return c.operator("LeakyRelu", alpha=a.scalar("slope", 0.25))
    if kind == "elu":
        return c.operator("Elu", alpha=a.scalar("slope", 0.25))
    if kind == "rrelu":
        low, high = (
            np.float32(a.scalar(n, d)) for n, d in (("lower_bound", 0.125), ("upper_bound", 0.334))
        )
        return c.operator("LeakyRelu", alpha=float((low + high) / np.float32(2)))
    if kind == "prelu":
        return _prelu(c)
    if kind not in ("selu", "gelu"):
        a.refuse("act_type", "unknown activation")
    return c.operator("Selu" if kind == "selu" else "Gelu")


def _prelu(c: Conversion) -> Result:
    """One slope per channel, or one for all."""
    slope, rank = c.type(1), c.rank()
    if slope.rank == 1 and rank > 2 and slope.dims[0] != 1:
        spread = c.add("Unsqueeze", [c.required(1), c.ints(tuple(range(1, rank - 1)))])
        return c.result("PRelu", [c.required(0), spread])
    return c.operator("PRelu")


TABLE.operator("HardSigmoid", "hard_sigmoid", alpha=scalar(0.2), beta=scalar(0.5))


@row("Dropout")
def dropout(c: Conversion) -> Result:
    a = c.attributes
    a.expect("mode", "training", reason="dropping while evaluating is random")
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
    a.expect("use_length", False, reason="lengths are not supported")
    keep_dtype(c)
    temperature = a.scalar("temperature")
    data = c.required(0)
    if temperature not in (None, 1.0):
        data = c.add("Div", [data, c.like(temperature)])
    return c.result(kind, [data], axis=a.integer("axis", -1))


@row("softmin")
def softmin(c: Conversion) -> Result:
    return _softmax(replace(c, inputs=(c.add("Neg", [c.required(0)]), *c.inputs[1:])), "Softmax")


@row("SoftmaxActivation")
def softmax_activation(c: Conversion) -> Result:
    """Mode instance takes the last axis, whatever its documentation says of instances."""
    mode = c.text("mode", "instance")
    if mode == "channel":
        return c.operator("Softmax", axis=1)
    if mode != "instance":
        c.attributes.refuse("mode", "unknown mode")
    return c.operator("Softmax", axis=-1)


TRAINING = ("grad_scale", "ignore_label", "use_ignore", "normalization", "out_grad", "smooth_alpha")


@row("SoftmaxOutput", "Softmax")
def softmax_output(c: Conversion) -> Result:
    """Over channels with multi_output, over the last axis with preserve_shape, else over all."""
    a = c.attributes
    c.irrelevant(*TRAINING, reason="it shapes the gradient only")
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


@row("MakeLoss", "SVMOutput")
def loss(c: Conversion) -> Result:
    c.irrelevant(*TRAINING, *REGULARIZED, reason="it shapes the gradient only")
    return c.result("Identity", [c.required(0)])


REGULARIZED = ("valid_thresh", "margin", "regularization_coefficient", "use_linear")
