"""ONNX reductions, softmax, selection of the largest, cumulative sums."""

from __future__ import annotations

from verax.frontends.common.context import Conversion, Result
from verax.frontends.common.table import Fields, flag, integer
from verax.frontends.onnx.rows import TABLE, moved_to_input, row
from verax.ir.operator import Operator

PLACE: Fields = {"axis": integer(0), "keepdims": flag(True), "select_last_index": flag()}
TABLE.operator("ArgMax", **PLACE)
TABLE.operator("ArgMin", **PLACE)
TABLE.operator("CumSum", exclusive=flag(), reverse=flag())
TABLE.operator("CumProd", exclusive=flag(), reverse=flag())


def _reduction(since: int, *operators: str) -> None:
    """Rows of reductions whose axes are an input since opset `since`."""

    def reduce(c: Conversion) -> Result:
        axes = moved_to_input(c, "axes", since, 1)
        inputs = [c.required(0)] if axes is None else [c.required(0), axes]
        return c.result(
            c.node.op_type,
            inputs,
            keepdims=c.flag("keepdims", True),
            noop_with_empty_axes=c.flag("noop_with_empty_axes"),
        )

    row(*operators)(reduce)


_reduction(13, "ReduceSum")
_reduction(18, "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2")
_reduction(18, "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")


@row("Softmax", "LogSoftmax", "Hardmax")
def softmax(c: Conversion) -> Operator:
    """Before opset 13 all axes from `axis` on are one."""
    old = c.version < 13
    axis = c.integer("axis", 1 if old else -1)
    is_last = axis in (-1, c.rank(0) - 1)
    return c.operator(c.node.op_type, axis=axis, flatten=old and not is_last)


@row("TopK")
def top_k(c: Conversion) -> Result:
    """The count is an attribute before opset 10."""
    a = c.attributes
    k = c.input(1) if c.version >= 10 else c.ints((a.integer("k", 0),))
    return c.result(
        "TopK",
        [c.required(0), k],
        axis=a.integer("axis", -1),
        largest=a.flag("largest", True),
        sorted=a.flag("sorted", True),
    )
