"""ATen losses, in simpler operators: what PyTorch's own decompositions make of them, so that a file
needs none."""

from __future__ import annotations

from verax.frontends.common import formulas
from verax.frontends.common.context import Result
from verax.frontends.torch.rows import Aten, composite
from verax.ir.types import DType

NONE, MEAN, SUM = 0, 1, 2
"""PyTorch's numbers of reductions."""
LOWEST_LOG = -100.0
"""What binary_cross_entropy takes for the logarithm of 0."""


def _reduced(t: Aten, loss: str) -> Result:
    """The loss itself, its mean or its sum."""
    mode = t.integer("reduction", MEAN)
    if mode not in (NONE, MEAN, SUM):
        t.a.refuse("reduction")
    if mode == NONE:
        return t.result("Identity", [loss])
    return t.result("ReduceMean" if mode == MEAN else "ReduceSum", [loss], keepdims=False)


def _less(t: Aten, minuend: float, x: str) -> str:
    return t.add("Sub", [t.like(minuend, x), x])


@composite("mse_loss.default", "l1_loss.default", "smooth_l1_loss.default", "huber_loss.default")
def of_differences(t: Aten) -> Result:
    """Squares, sizes, or squares near 0 and sizes beyond: of self - target."""
    apart = t.add("Sub", [t.tensor("self"), t.tensor("target")])
    if t.kind == "mse_loss":
        return _reduced(t, t.append(formulas.square(t, apart)))
    size = t.add("Abs", [apart])
    edge = float(t.scalar("beta" if t.kind == "smooth_l1_loss" else "delta", 1.0) or 0.0)
    if t.kind == "l1_loss" or edge == 0:
        return _reduced(t, size)
    square = t.add("Mul", [t.append(formulas.square(t, apart)), t.like(0.5, apart)])
    line = t.add("Sub", [size, t.like(edge / 2, size)])
    if t.kind == "huber_loss":
        line = t.add("Mul", [line, t.like(edge, size)])
    else:
        square = t.add("Div", [square, t.like(edge, square)])
    near = t.add("LessOrEqual" if t.kind == "huber_loss" else "Less", [size, t.like(edge, size)])
    return _reduced(t, t.add("Where", [near, square, line]))


@composite("kl_div.default")
def kl_div(t: Aten) -> Result:
    """target (log target - self); targets of 0 give 0."""
    x, target = t.tensor("self"), t.tensor("target")
    if t.flag("log_target"):
        apart = t.add("Sub", [target, x])
        return _reduced(t, t.add("Mul", [t.add("Exp", [target]), apart]))
    none = t.add("Equal", [target, t.like(0, target)])
    safe = t.add("Where", [none, t.like(1, target), target])
    own = t.add("Mul", [target, t.add("Log", [safe])])
    return _reduced(t, t.add("Sub", [own, t.add("Mul", [target, x])]))


@composite("binary_cross_entropy.default")
def binary_cross_entropy(t: Aten) -> Result:
    """-(y log x + (1 - y) log(1 - x)), logarithms at least -100, times the weight."""
    x, y = t.tensor("self"), t.tensor("target")
    logs = [t.add("Log", [x]), t.add("Log", [_less(t, 1, x)])]
    logs = [t.add("Max", [v, t.like(LOWEST_LOG, v)]) for v in logs]
    terms = [t.add("Mul", [y, logs[0]]), t.add("Mul", [_less(t, 1, y), logs[1]])]
    return _weighed(t, t.add("Neg", [t.add("Add", terms)]))


@composite("binary_cross_entropy_with_logits.default")
def with_logits(t: Aten) -> Result:
    """(1 - y) x - (1 + (p - 1) y) log sigmoid(x), times the weight."""
    x, y, positive = t.tensor("self"), t.tensor("target"), t.maybe("pos_weight")
    own = t.append(formulas.log_sigmoid(t, x))
    if positive is not None:
        more = t.add("Mul", [t.add("Sub", [positive, t.like(1, positive)]), y])
        own = t.add("Mul", [t.add("Add", [more, t.like(1, y)]), own])
    return _weighed(t, t.add("Sub", [t.add("Mul", [_less(t, 1, y), x]), own]))


def _weighed(t: Aten, loss: str) -> Result:
    weight = t.maybe("weight")
    return _reduced(t, loss if weight is None else t.add("Mul", [loss, weight]))


@composite("soft_margin_loss.default")
def soft_margin(t: Aten) -> Result:
    """log(1 + exp(-target self))."""
    product = t.add("Mul", [t.tensor("target"), t.tensor("self")])
    return _reduced(t, t.add("Softplus", [t.add("Neg", [product])]))


@composite("margin_ranking_loss.default")
def margin_ranking(t: Aten) -> Result:
    """max(0, margin - target (input1 - input2))."""
    apart = t.add("Sub", [t.tensor("input1"), t.tensor("input2")])
    product = t.add("Mul", [t.tensor("target"), apart])
    return _reduced(t, t.add("Relu", [_less(t, float(t.scalar("margin", 0.0)), product)]))


@composite("hinge_embedding_loss.default")
def hinge_embedding(t: Aten) -> Result:
    """self where the target is 1, max(0, margin - self) where it is -1."""
    x, y = t.tensor("self"), t.tensor("target")
    beyond = t.add("Relu", [_less(t, float(t.scalar("margin", 1.0)), x)])
    none = t.like(0, x)
    first = t.add("Where", [t.add("Equal", [y, t.like(1, y)]), none, beyond])
    second = t.add("Where", [t.add("Equal", [y, t.like(-1, y)]), none, x])
    return _reduced(t, t.add("Add", [first, second]))


# Classes


@composite("nll_loss.default", "nll_loss_nd.default", "nll_loss2d.default")
def nll_loss(t: Aten) -> Result:
    return _of_classes(t, t.tensor("self"))


@composite("cross_entropy_loss.default")
def cross_entropy(t: Aten) -> Result:
    """-log softmax(self) of the target's class; or of classes with probabilities."""
    x, target = t.tensor("self"), t.tensor("target")
    logs = t.add("LogSoftmax", [x], axis=min(1, t.rank(x) - 1))
    if t.scalar("label_smoothing", 0.0):
        t.a.refuse("label_smoothing", "an ExportedProgram in memory is decomposed by PyTorch")
    if not t.type(target).dtype.is_float:
        return _of_classes(t, logs)
    if t.maybe("weight") is not None or t.integer("reduction", MEAN) == NONE:
        t.refuse("probabilities as targets with weights, or without a reduction")
    t.irrelevant("ignore_index", reason="targets are probabilities")
    total = t.add("Neg", [t.add("ReduceSum", [t.add("Mul", [logs, target])], keepdims=False)])
    if t.integer("reduction", MEAN) == MEAN:
        sizes = t.known_sizes(x)
        count = 1
        for axis, size in enumerate(sizes):
            count *= 1 if axis == min(1, len(sizes) - 1) else size
        total = t.add("Div", [total, t.like(count, total)])
    return t.result("Identity", [total])


def _of_classes(t: Aten, logs: str) -> Result:
    """Minus the target's entry along axis 1, weighed by its class; those to be ignored give 0."""
    target, weight = t.cast(t.tensor("target"), DType.int64), t.maybe("weight")
    axis = t.ints([min(1, t.rank(logs) - 1)])
    ignored = t.add("Equal", [target, t.constant(t.integer("ignore_index", -100), "int64")])
    safe = t.add("Where", [ignored, t.constant(0, "int64"), target])
    classes = t.add("Unsqueeze", [safe, axis])
    picked = t.add("GatherElements", [logs, classes], axis=min(1, t.rank(logs) - 1))
    loss = t.add("Neg", [t.add("Squeeze", [picked, axis])])
    none = t.like(0, logs)
    counted = t.like(1, logs) if weight is None else t.add("Gather", [weight, safe], axis=0)
    weights = t.add("Where", [ignored, none, counted])
    loss = t.add("Where", [ignored, none, t.add("Mul", [loss, counted])])
    if t.integer("reduction", MEAN) != MEAN:
        return _reduced(t, loss)
    sums = [t.add("ReduceSum", [v], keepdims=False) for v in (loss, weights)]
    return t.result("Div", sums)


@composite("multilabel_margin_loss.default")
def multilabel_margin(t: Aten) -> Result:
    """The mean over classes c that are no target of the sum over targets of max(0, 1 - (x[target] -
    x[c])); targets [..., classes] end at the first -1.

    PyTorch's own decomposition gives other numbers than PyTorch for some targets.
    """
    x, target = t.tensor("self"), t.cast(t.tensor("target"), DType.int64)
    if not t.rank(x):
        x, target = (t.add("Reshape", [v, t.ints([1])]) for v in (x, target))
    dtype, count = t.type(x).dtype, t.known_size(x, -1)
    end = t.cast(t.add("Equal", [target, t.constant(-1, "int64")]), DType.int32)
    before = t.add("CumSum", [end, t.constant(t.rank(x) - 1, "int64")])
    valid = t.add("Equal", [before, t.constant(0, "int32")])
    safe = t.add("Where", [valid, target, t.constant(0, "int64")])
    column, line = t.ints([-1]), t.ints([-2])
    valid = t.add("Unsqueeze", [valid, column])
    classes = t.add("Equal", [t.add("Unsqueeze", [safe, column]), t.ints(range(count))])
    is_target = t.add("And", [classes, valid])
    any_target = t.append(formulas.any_or_all(t, is_target, "ReduceMax", line, keepdims=True))
    own = t.add("GatherElements", [x, safe], axis=t.rank(x) - 1)
    apart = t.add("Sub", [t.add("Unsqueeze", [own, column]), t.add("Unsqueeze", [x, line])])
    loss = t.add("Relu", [_less(t, 1, apart)])
    counted = t.cast(t.add("And", [valid, t.add("Not", [any_target])]), dtype)
    total = t.add("ReduceSum", [t.add("Mul", [loss, counted]), t.ints([-2, -1])], keepdims=False)
    mean = t.add("Div", [total, t.like(count, x)])
    if not t.rank(t.tensor("self")):
        t.irrelevant("reduction", reason="there is one loss")
        return t.result("Identity", [mean])
    return _reduced(t, mean)
