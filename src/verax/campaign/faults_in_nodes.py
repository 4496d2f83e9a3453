"""Kinds of mistakes in normalization, activations, arithmetic, dense layers and moving data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from verax.campaign.faults import Change, Fault, Site
from verax.campaign.network_sketch import op

Make = Callable[[Site], Change | None]
NORM = ("BatchNormalization",)
AFFINE = ("BatchNormalization", "InstanceNormalization", "LayerNormalization")
SCALE, SHIFT, MEAN, VARIANCE = 1, 2, 3, 4
"""Positions of BatchNormalization's constants."""


def attribute(**values: Any) -> Make:
    """Attributes set to other values; where they have these already, nothing is injected."""

    def make(site: Site) -> Change | None:
        own = site.node.op.attributes()
        if all(own[name] == value for name, value in values.items()):
            return None
        return site.rewrite(**values)

    return make


def scaled(name: str, factor: float) -> Make:
    """A numeric attribute times a factor."""
    return lambda site: site.rewrite(**{name: site.node.op.attributes()[name] * factor})


def edited(position: int, edit: Callable[[np.ndarray], np.ndarray]) -> Make:
    """A constant input edited; its shape stays."""

    def make(site: Site) -> Change | None:
        old = site.constant(position)
        if old is None:
            return None
        new = edit(old.copy()).astype(old.dtype)
        return site.rewrite({position: new}) if not np.array_equal(new, old) else None

    return make


def swapped(first: int, second: int) -> Make:
    """Two inputs in each other's place."""

    def make(site: Site) -> Change | None:
        names = site.node.inputs
        if len(names) <= max(first, second) or names[first] == names[second]:
            return None
        return site.rewrite({first: names[second], second: names[first]})

    return make


def instead(kind: str, keep: int | None = 1, **attributes: Any) -> Make:
    """Another operator on the first inputs."""
    return lambda site: site.rewrite(op=op(kind, **attributes), keep=keep)


def clipped(low: float, high: float) -> Make:
    """The operator's result cut off at two ends."""
    return on_output(lambda y: np.clip(y, low, high))


def on_output(edit: Callable[[np.ndarray], np.ndarray]) -> Make:
    """A change of the numbers that came out."""
    return lambda site: lambda arrays, y: edit(y)


def _shift(y: np.ndarray, axis: int) -> np.ndarray:
    return np.roll(y, 1, axis)


def per_channel(constant: np.ndarray, rank: int) -> np.ndarray:
    """[c] as [1, c, 1, ...]."""
    return constant.reshape(1, -1, *(1,) * (rank - 2))


def epsilon_outside(site: Site) -> Change | None:
    """scale / (sqrt(variance) + epsilon)."""
    variance = site.constant(VARIANCE)
    epsilon = site.node.op.attributes()["epsilon"]
    if variance is None:
        return None
    wide = (np.sqrt(variance.astype(np.float64)) + epsilon) ** 2 - epsilon
    return site.rewrite({VARIANCE: wide.astype(np.float32)})


def unbiased_variance(site: Site) -> Change | None:
    """variance N / (N - 1), N being the batch times the pixels."""
    variance, shape = site.constant(VARIANCE), site.output.shape
    count = site.output.size // shape[1]
    if variance is None or count < 2:
        return None
    return site.rewrite({VARIANCE: (variance * (count / (count - 1))).astype(np.float32)})


def deviation(site: Site) -> Change | None:
    """The variance taken for the standard deviation."""
    variance = site.constant(VARIANCE)
    epsilon = site.node.op.attributes()["epsilon"]
    if variance is None:
        return None
    wide = (variance.astype(np.float64) + epsilon) ** 2 - epsilon
    return site.rewrite({VARIANCE: wide.astype(np.float32)}) if wide.min() >= 0 else None


def shift_before_scale(site: Site) -> Change | None:
    """scale (x' + shift) instead of scale x' + shift, x' being normalized."""
    scale, shift = site.constant(SCALE), site.constant(SHIFT)
    return None if scale is None or shift is None else site.rewrite({SHIFT: scale * shift})


def negative_scale_through_relu(site: Site) -> Change | None:
    """relu(s x) computed as s relu(x), wrong in channels whose scale s is negative."""
    producer = site.graph.producers.get(site.node.inputs[0] or "")
    if producer is None or producer.op.kind not in NORM or producer.inputs[SCALE] is None:
        return None
    scale = site.graph.constants.get(producer.inputs[SCALE] or "")
    if scale is None or (scale >= 0).all():
        return None
    sign = per_channel(np.where(scale < 0, -1.0, 1.0).astype(np.float32), site.output.ndim)
    return lambda arrays, y: np.maximum(arrays[0] * sign, 0) * sign


def operand_missing(site: Site) -> Change | None:
    """The second operand is not there."""
    if site.arrays[0].shape != site.output.shape:
        return None
    return lambda arrays, y: arrays[0]


def other_axis(site: Site) -> Change | None:
    """Softmax and the like along another axis."""
    rank, own = site.output.ndim, site.node.op.attributes()["axis"] % site.output.ndim
    candidates = [a for a in range(1, rank) if a != own] or [0]
    return site.rewrite(axis=candidates[0]) if candidates[0] != own else None


def reversed_inputs(site: Site) -> Change | None:
    """Concatenation in the other order."""
    if len(set(site.node.inputs)) < 2:
        return None
    axis = site.node.op.attributes()["axis"]
    return lambda arrays, y: np.concatenate(arrays[::-1], axis)


def matrix_layout(site: Site) -> Change | None:
    """The matrix read in the other layout: its memory as it lies."""
    w = site.constant(1)
    if w is None or w.ndim != 2 or 1 in w.shape:
        return None
    return site.rewrite({1: w.T.reshape(w.shape)})


def no_third_input(site: Site) -> Change | None:
    return (
        None if len(site.node.inputs) < 3 or site.node.inputs[2] is None else site.rewrite(keep=2)
    )


def channels_last_flatten(site: Site) -> Change | None:
    """Pixels first, then channels: what flattening NHWC gives."""
    x = site.arrays[0]
    if x.ndim != 4 or x.shape[1] == 1 or x.shape[2] * x.shape[3] == 1:
        return None
    return lambda arrays, y: arrays[0].transpose(0, 2, 3, 1).reshape(y.shape)


def mean_of_more(site: Site) -> Change | None:
    """A mean divided by one more than there are."""
    count = site.arrays[0].size // site.output.size
    return None if count < 2 else lambda arrays, y: y * (count / (count + 1))


def other_mode(*modes: str) -> Make:
    """The mode that follows in the list."""

    def make(site: Site) -> Change | None:
        own = site.node.op.attributes()["mode"]
        return site.rewrite(mode=modes[(modes.index(own) + 1) % len(modes)])

    return make


def pad_ends_swapped(site: Site) -> Change | None:
    widths = site.constant(1)
    if widths is None:
        return None
    half = len(widths) // 2
    new = np.concatenate([widths[half:], widths[:half]])
    return site.rewrite({1: new}) if not np.array_equal(new, widths) else None


def pad_value(site: Site) -> Change | None:
    """Zero for another constant, one for zero."""
    old = site.constant(2)
    if old is None:
        return None
    return site.rewrite({2: np.array(0.0 if old else 1.0, np.float32)})


def slice_moved(site: Site) -> Change | None:
    """A slice that begins and ends one element earlier or later."""
    starts, ends = site.constant(1), site.constant(2)
    if starts is None or ends is None:
        return None
    return site.rewrite({1: starts - 1, 2: ends - 1}) if starts.min() > 0 else None


NODE_FAULTS: tuple[Fault, ...] = (
    Fault("epsilon 1e-3", AFFINE, attribute(epsilon=1e-3)),
    Fault("epsilon 1e-5", AFFINE, attribute(epsilon=1e-5)),
    Fault("epsilon 0", AFFINE, attribute(epsilon=0.0)),
    Fault("epsilon outside of the root", NORM, epsilon_outside),
    Fault("variance N / (N - 1)", NORM, unbiased_variance),
    Fault("variance taken for the deviation", NORM, deviation),
    Fault("scale missing", AFFINE, edited(SCALE, np.ones_like)),
    Fault("shift missing", AFFINE, edited(SHIFT, np.zeros_like)),
    Fault("mean missing", NORM, edited(MEAN, np.zeros_like)),
    Fault("mean and shift swapped", NORM, swapped(SHIFT, MEAN)),
    Fault("shift before scale", NORM, shift_before_scale),
    Fault("negative scale folded through Relu", ("Relu",), negative_scale_through_relu),
    Fault("Relu left out", ("Relu",), lambda s: lambda arrays, y: arrays[0]),
    Fault("Relu as LeakyRelu", ("Relu",), instead("LeakyRelu", alpha=0.01)),
    Fault("Relu as Relu6", ("Relu",), clipped(0, 6)),
    Fault("Relu for LeakyRelu", ("LeakyRelu", "Elu", "PRelu"), instead("Relu")),
    Fault("slope 0.01", ("LeakyRelu",), attribute(alpha=0.01)),
    Fault("slope 0.2", ("LeakyRelu",), attribute(alpha=0.2)),
    Fault("slopes of the channels rolled", ("PRelu",), edited(1, lambda a: _shift(a, 0))),
    Fault("upper bound left out", ("Clip",), lambda s: s.rewrite(keep=2)),
    Fault("lower bound left out", ("Clip",), lambda s: s.rewrite({1: None})),
    Fault("tanh in Gelu", ("Gelu",), attribute(approximate="tanh")),
    Fault("erf in Gelu", ("Gelu",), attribute(approximate="none")),
    Fault("Relu6 / 6 for Sigmoid", ("Sigmoid",), instead("HardSigmoid")),
    Fault("Swish for HardSwish", ("HardSwish",), instead("Swish")),
    Fault("Elu alpha", ("Elu",), scaled("alpha", 2.0)),
    Fault("operand missing", ("Add", "Sub", "Mul", "Div"), operand_missing),
    Fault("operands exchanged", ("Sub", "Div"), swapped(0, 1)),
    Fault(
        "first operand twice",
        ("Add", "Mul", "Max", "Min"),
        lambda s: s.rewrite({1: s.node.inputs[0]}),
    ),
    Fault("Sub for Add", ("Add",), instead("Sub", None)),
    Fault("Add for Mul", ("Mul",), instead("Add", None)),
    Fault("Mul for Div", ("Div",), instead("Mul", None)),
    Fault("softmax along another axis", ("Softmax",), other_axis),
    Fault(
        "log of softmax",
        ("Softmax",),
        lambda s: s.rewrite(op=op("LogSoftmax", axis=s.node.op.attributes()["axis"])),
    ),
    Fault(
        "LRN alpha not divided by size",
        ("LRN",),
        lambda s: s.rewrite(alpha=s.node.op.attributes()["alpha"] * s.node.op.attributes()["size"]),
    ),
    Fault("LRN size", ("LRN",), lambda s: s.rewrite(size=s.node.op.attributes()["size"] + 2)),
    Fault("LRN bias 1", ("LRN",), attribute(bias=1.0)),
    Fault(
        "LRN beta",
        ("LRN",),
        lambda s: s.rewrite(beta=0.5 if s.node.op.attributes()["beta"] == 0.75 else 0.75),
    ),
    Fault("concatenated in the other order", ("Concat",), reversed_inputs),
    Fault("matrix in the other layout", ("Gemm", "MatMul"), matrix_layout),
    Fault("bias of Gemm missing", ("Gemm",), no_third_input),
    Fault("alpha of Gemm ignored", ("Gemm",), attribute(alpha=1.0)),
    Fault("beta of Gemm ignored", ("Gemm",), attribute(beta=1.0)),
    Fault("flattened channels last", ("Flatten",), channels_last_flatten),
    Fault("mean over N + 1", ("GlobalAveragePool", "ReduceMean"), mean_of_more),
    Fault("maximum for mean", ("GlobalAveragePool",), instead("GlobalMaxPool")),
    Fault("sum for mean", ("ReduceMean",), instead("ReduceSum", None)),
    Fault("mode of Pad", ("Pad",), other_mode("constant", "edge", "reflect")),
    Fault("Pad: begin and end swapped", ("Pad",), pad_ends_swapped),
    Fault("Pad: value", ("Pad",), pad_value),
    Fault("slice moved by one", ("Slice",), slice_moved),
    Fault("DepthToSpace in the other mode", ("DepthToSpace",), other_mode("DCR", "CRD")),
)
"""Kinds of mistakes in operators without windows."""
