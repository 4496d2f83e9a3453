"""ATen normalizations at inference."""

from __future__ import annotations

import math

import numpy as np

from verax.frontends.common.context import Applied, Result
from verax.frontends.torch.rows import Aten, row
from verax.ir.types import DType

ONLY_TRAINING = "it only matters in training"


def _per_channel(t: Aten, name: str, x: str, fill: float) -> str:
    """A tensor per channel, or a constant when it is left out."""
    return t.maybe(name) or t.like(np.full(t.known_sizes(x, (1,)), fill), x)


def _scale_and_bias(t: Aten, x: str) -> tuple[str, str]:
    return _per_channel(t, "weight", x, 1.0), _per_channel(t, "bias", x, 0.0)


@row(
    *("batch_norm.default", "_native_batch_norm_legit_no_training.default"),
    *("_native_batch_norm_legit.default", "_native_batch_norm_legit.no_stats"),
)
def batch_norm(t: Aten) -> Result:
    """By running statistics, or by the batch's own where there are none to change."""
    x = t.tensor("input")
    if t.output_used(1) or t.output_used(2):
        t.refuse("its statistics are used")
    own = t.flag("training")
    if own and t.a.has("running_mean"):
        t.a.refuse("training", "call module.eval() before exporting")
    t.irrelevant("momentum", reason=ONLY_TRAINING)
    t.irrelevant("cudnn_enabled", reason="it chooses an implementation")
    return _by_own_statistics(t, x) if own else _normalized(t, x)


@row("native_batch_norm.default")
def native_batch_norm(t: Aten) -> Result:
    """By running statistics; those that it saves are empty then. Training is read as
    `_native_batch_norm_legit_functional` (`mutation`)."""
    x = t.tensor("input")
    if t.flag("training"):
        t.refuse("statistics that nothing keeps")
    t.irrelevant("momentum", reason=ONLY_TRAINING)
    y = t.append(_normalized(t, x))
    return t.named([y, *(t.constant(np.zeros(0), np.float32) for _ in range(2))])


def _by_own_statistics(t: Aten, x: str) -> Result:
    scale, bias = _scale_and_bias(t, x)
    epsilon = t.scalar("eps", 1e-5)
    if t.type(x).dims[0] == 1 and t.rank(x) > 2:
        return t.result("InstanceNormalization", [x, scale, bias], epsilon=epsilon)
    fields = {"epsilon": epsilon, "training_mode": True}
    return t.result("BatchNormalization", [x, scale, bias, bias, scale], **fields)


@row("_native_batch_norm_legit_functional.default")
def batch_norm_with_statistics(t: Aten) -> Result:
    """By the batch's own statistics, with the running ones' new values as outputs 3 and 4.

    torch's running variance takes the unbiased one of the batch, n / (n - 1) times the operator's:
    the operator gets the old one divided by this factor, and its new one is multiplied by it.
    """
    x, mean, variance = (t.tensor(name) for name in ("input", "running_mean", "running_var"))
    if t.output_used(1) or t.output_used(2):
        t.refuse("its saved statistics are used")
    if not t.flag("training"):
        t.refuse("it changes no statistics outside of training")
    scale, bias = _scale_and_bias(t, x)
    factor = _unbiasing(t, x, t.type(variance).dtype)
    fields = {"epsilon": t.scalar("eps"), "momentum": 1 - t.scalar("momentum")}
    inputs = [x, scale, bias, mean, t.add("Div", [variance, factor])]
    names = [t.name_of(0), t.name_of(3), t.fresh(f"{t.first_output}/variance")]
    op = t.operator("BatchNormalization", training_mode=True, **fields)
    y, new_mean, new_variance = t.builder.add_all(op, inputs, names, t.node.name)
    return (y, "", "", new_mean, t.output(4, "Mul", [new_variance, factor]))


def _unbiasing(t: Aten, x: str, dtype: DType) -> str:
    """n / (n - 1) for the n elements of a channel."""
    dims = (*t.type(x).dims[:1], *t.type(x).dims[2:])
    if all(isinstance(d, int) for d in dims):
        count = math.prod(int(d) for d in dims)
        if count < 2:
            t.refuse("a channel with one element has no variance")
        return t.constant(count / (count - 1), dtype.numpy)
    shape = t.add("Shape", [x])
    axes = t.ints([0, *range(2, t.rank(x))])
    sizes = t.add("Gather", [shape, axes], axis=0)
    count_ = t.cast(t.add("ReduceProd", [sizes], keepdims=False), dtype)
    return t.add("Div", [count_, t.add("Sub", [count_, t.constant(1, dtype.numpy)])])


def _normalized(t: Aten, x: str) -> Applied:
    mean, variance = t.tensor("running_mean"), t.tensor("running_var")
    scale, bias = _scale_and_bias(t, x)
    return t.apply(
        "BatchNormalization", [x, scale, bias, mean, variance], epsilon=t.scalar("eps", 1e-5)
    )


@row("instance_norm.default")
def instance_norm(t: Aten) -> Result:
    x = t.tensor("input")
    t.irrelevant("momentum", reason=ONLY_TRAINING)
    t.irrelevant("cudnn_enabled", reason="it chooses an implementation")
    if not t.flag("use_input_stats"):
        return _normalized(t, x)
    t.irrelevant("running_mean", "running_var", reason="statistics are the input's own")
    scale, bias = _scale_and_bias(t, x)
    return t.result("InstanceNormalization", [x, scale, bias], epsilon=t.scalar("eps", 1e-5))


@row("group_norm.default")
def group_norm(t: Aten) -> Result:
    x = t.tensor("input")
    t.irrelevant("cudnn_enabled", reason="it chooses an implementation")
    scale, bias = _scale_and_bias(t, x)
    return t.result(
        "GroupNormalization",
        [x, scale, bias],
        num_groups=t.integer("num_groups"),
        epsilon=t.scalar("eps", 1e-5),
    )


@row("native_group_norm.default")
def native_group_norm(t: Aten) -> Result:
    x = t.tensor("input")
    if t.output_used(1) or t.output_used(2):
        t.refuse("its statistics are used")
    t.irrelevant("N", "C", "HxW", reason="they repeat the input's sizes")
    scale, bias = _scale_and_bias(t, x)
    return t.result(
        "GroupNormalization",
        [x, scale, bias],
        num_groups=t.integer("group"),
        epsilon=t.scalar("eps"),
    )


def _normalized_shape(t: Aten, x: str) -> tuple[int, ...]:
    """The sizes of the last axes, over which statistics are taken."""
    shape: tuple[int, ...] = t.integers("normalized_shape")
    dims = t.type(x).dims[-len(shape) :] if shape else ()
    if len(dims) != len(shape) or any(isinstance(d, int) and d != n for d, n in zip(dims, shape)):
        t.wrong("normalized_shape", shape, f"the last sizes of {t.type(x)}")
    return shape


@row("layer_norm.default", "native_layer_norm.default")
def layer_norm(t: Aten) -> Result:
    x = t.tensor("input")
    shape = _normalized_shape(t, x)
    if t.output_used(1) or t.output_used(2):
        t.refuse("its statistics are used")
    t.irrelevant("cudnn_enable", reason="it chooses an implementation")
    scale = t.maybe("weight") or t.constant(np.ones(shape, t.type(x).dtype.numpy))
    return t.result(
        "LayerNormalization",
        [x, scale, t.maybe("bias")],
        axis=-len(shape),
        epsilon=t.scalar("eps", 1e-5),
    )


@row("rms_norm.default")
def rms_norm(t: Aten) -> Result:
    """Without eps, torch takes the element type's machine epsilon."""
    x = t.tensor("input")
    shape, dtype = _normalized_shape(t, x), t.type(x).dtype.numpy
    scale = t.maybe("weight") or t.constant(np.ones(shape, dtype))
    epsilon = t.scalar("eps")
    if epsilon is None:
        epsilon = float(np.finfo(dtype).eps)
    return t.result("RMSNormalization", [x, scale], axis=-len(shape), epsilon=epsilon)
