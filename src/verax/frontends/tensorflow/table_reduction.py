"""TensorFlow reductions, softmax, orderings and cumulative operators."""

from __future__ import annotations

from verax.frontends.common import formulas
from verax.frontends.common.channels_last import constant_ints, longs, running_sum
from verax.frontends.common.context import Conversion, Result
from verax.frontends.tensorflow.rows import TABLE, row
from verax.ir.types import DType

REDUCTIONS = {
    "Mean": "ReduceMean",
    "Sum": "ReduceSum",
    "Max": "ReduceMax",
    "Min": "ReduceMin",
    "Prod": "ReduceProd",
    "EuclideanNorm": "ReduceL2",
}


@row(*REDUCTIONS)
def reduce(c: Conversion) -> Result:
    """No axes at all reduce nothing."""
    axes = constant_ints(c, 1, "the axes")
    keep = c.flag("keep_dims")
    if not axes:
        return c.result("Identity", [c.required(0)])
    return c.result(REDUCTIONS[c.node.op_type], [c.required(0), c.ints(axes)], keepdims=keep)


@row("Any", "All")
def any_or_all(c: Conversion) -> Result:
    axes, keep = constant_ints(c, 1, "the axes"), c.flag("keep_dims")
    if not axes:
        return c.apply("Identity", [c.required(0)])
    kind = "ReduceMax" if c.node.op_type == "Any" else "ReduceMin"
    return formulas.any_or_all(c, c.required(0), kind, c.ints(axes), keepdims=keep)


@row("ArgMax", "ArgMin")
def arg(c: Conversion) -> Result:
    (axis,) = constant_ints(c, 1, "the axis")
    target = c.choice("output_type", ("int32", "int64"), "int64")
    indices = c.add(c.node.op_type, [c.required(0)], axis=axis, keepdims=False)
    return c.result("Cast", [indices], to=DType(target))


TABLE.operator("Softmax", axis=-1)
TABLE.operator("LogSoftmax", axis=-1)


row("Cumsum")(running_sum)
row("Cumprod")(lambda c: running_sum(c, "CumProd"))


@row("TopKV2")
def top_k(c: Conversion) -> Result:
    """Places are int32. k may be computed: detectors sort as many boxes as were kept."""
    k = c.known_value(1)
    if k is None or k.dtype == object:
        count = c.add("Reshape", [longs(c, 1), c.ints((1,))])
    else:
        count = c.ints(constant_ints(c, 1, "k"))
    is_sorted = c.flag("sorted", True)
    target = c.text("index_type", "int32")
    b, names = c.builder, [*c.node.outputs, c.fresh("places")][:2]
    op = c.operator("TopK", axis=-1, largest=True, sorted=is_sorted)
    values, indices = b.add_all(
        op, [c.required(0), count], [names[0], c.fresh(f"{names[0]}/long")], c.node.name
    )
    return values, b.add(c.operator("Cast", to=DType(target)), [indices], [names[1]], c.node.name)


@row("L2Loss")
def l2_loss(c: Conversion) -> Result:
    """Half of the sum of all squares."""
    half = c.like(0.5)
    return c.result("Mul", [c.add("ReduceSumSquare", [c.required(0)], keepdims=False), half])
