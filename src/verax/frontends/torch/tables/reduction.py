"""ATen reductions, orderings, softmax and cumulative operators."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from verax.frontends.common import formulas
from verax.frontends.common.context import Result
from verax.frontends.torch.rows import Aten, row
from verax.frontends.torch.tables.elementwise import truth
from verax.ir.types import DType

REDUCTIONS = {
    **{"mean": "ReduceMean", "sum": "ReduceSum", "amax": "ReduceMax", "amin": "ReduceMin"},
    **{"prod": "ReduceProd", "logsumexp": "ReduceLogSumExp"},
}


def _typed(t: Aten, x: str) -> str:
    """`x` in the element type that `dtype` asks for; sums of integers are int64."""
    named = t.text("dtype")
    if named is not None:
        return t.cast(x, DType(named))
    if t.kind in ("sum", "prod", "cumsum", "cumprod") and not t.type(x).dtype.is_float:
        return t.cast(x, DType.int64)
    return x


def _axes(t: Aten, x: str) -> list[str]:
    """The reduced axes as an input; none for all."""
    axes = t.integers("dim", ())
    return [t.ints([d % max(t.rank(x), 1) for d in axes])] if axes else []


@row(
    *("mean.default", "mean.dim", "sum.default", "sum.dim_IntList", "amax.default"),
    *("amin.default", "prod.default", "prod.dim_int", "logsumexp.default"),
)
def reduce(t: Aten) -> Result:
    x = _typed(t, t.tensor("self"))
    return t.result(REDUCTIONS[t.kind], [x, *_axes(t, x)], keepdims=t.flag("keepdim"))


@row("max.default", "min.default")
def extreme(t: Aten) -> Result:
    kind = "ReduceMax" if t.kind == "max" else "ReduceMin"
    return t.result(kind, [t.tensor("self")], keepdims=False)


@row("max.dim", "min.dim")
def extreme_and_place(t: Aten) -> Result:
    """Values and the index of the first of equal ones."""
    x = t.tensor("self")
    axis, keep = t.axis("dim", x), t.flag("keepdim")
    upper = t.kind == "max"
    kind = "ReduceMax" if upper else "ReduceMin"
    first = t.output(0, kind, [x, t.ints([axis])], keepdims=keep)
    return first, t.output(1, "ArgMax" if upper else "ArgMin", [x], axis=axis, keepdims=keep)


@row("argmax.default", "argmin.default")
def arg_extreme(t: Aten) -> Result:
    """Without dim, the index in the flattened tensor."""
    x, kind = t.tensor("self"), "ArgMax" if t.kind == "argmax" else "ArgMin"
    keep = t.flag("keepdim")
    if t.integer("dim") is None:
        flat = t.add("Reshape", [x, t.ints([-1])])
        index = t.add(kind, [flat], axis=0, keepdims=False)
        return t.result("Reshape", [index, t.ints([1] * t.rank(x) if keep else [])])
    return t.result(kind, [x], axis=t.axis("dim", x), keepdims=keep)


@row("any.default", "any.dim", "any.dims", "all.default", "all.dim", "all.dims")
def any_or_all(t: Aten) -> Result:
    x = truth(t, t.tensor("self"))
    kind = "ReduceMax" if t.kind == "any" else "ReduceMin"
    axes = next(iter(_axes(t, x)), None)
    return formulas.any_or_all(t, x, kind, axes, keepdims=t.flag("keepdim"))


def _variance(t: Aten, x: str) -> tuple[str, bool]:
    """Mean of squared differences over count - correction; and keepdim."""
    axes, keep = _axes(t, x), t.flag("keepdim")
    correction: Any = (
        t.scalar("correction", 1) if not t.a.has("unbiased") else int(t.flag("unbiased"))
    )
    correction = 1 if correction is None else correction
    count = math.prod(t.known_sizes(x, t.integers("dim", ()) or None, "the mean"))
    apart = t.add("Sub", [x, t.add("ReduceMean", [x, *axes], keepdims=True)])
    total = t.add("ReduceSumSquare", [apart, *axes], keepdims=keep)
    with np.errstate(divide="ignore"):
        share = np.float64(1) / np.float64(max(count - correction, 0))
    return t.add("Mul", [total, t.constant(share, t.type(x).dtype.numpy)]), keep


OVERLOADS = ("correction", "dim", "default")


@row(*(f"{kind}{mean}.{o}" for kind in ("var", "std") for mean in ("", "_mean") for o in OVERLOADS))
def variance(t: Aten) -> Result:
    x = t.tensor("self")
    variances, keep = _variance(t, x)
    kind = "Sqrt" if t.kind.startswith("std") else "Identity"
    if not t.kind.endswith("_mean"):
        return t.result(kind, [variances])
    mean = t.output(1, "ReduceMean", [x, *_axes(t, x)], keepdims=keep)
    return t.output(0, kind, [variances]), mean


@row("aminmax.default")
def both_extremes(t: Aten) -> Result:
    x, keep = t.tensor("self"), t.flag("keepdim")
    axes = _axes(t, x)
    kinds = ("ReduceMin", "ReduceMax")
    return tuple(t.output(i, kind, [x, *axes], keepdims=keep) for i, kind in enumerate(kinds))


@row("count_nonzero.default", "count_nonzero.dim_IntList")
def count_nonzero(t: Aten) -> Result:
    x = t.tensor("self")
    return t.result("ReduceSum", [t.cast(truth(t, x), DType.int64), *_axes(t, x)], keepdims=False)


@row("linalg_vector_norm.default", "norm.ScalarOpt_dim")
def norm(t: Aten) -> Result:
    x = t.tensor("self")
    order = t.scalar("ord" if t.kind.startswith("linalg") else "p", 2)
    x, axes, keep = _typed(t, x), _axes(t, x), t.flag("keepdim")
    if order in (1, 2):
        return t.result("ReduceL1" if order == 1 else "ReduceL2", [x, *axes], keepdims=keep)
    if order not in (math.inf, -math.inf):
        t.refuse(f"the norm of order {order}")
    kind = "ReduceMax" if order > 0 else "ReduceMin"
    return t.result(kind, [t.add("Abs", [x]), *axes], keepdims=keep)


@row("_safe_softmax.default")
def safe_softmax(t: Aten) -> Result:
    """Softmax, and zeros where everything is minus infinity."""
    x = _typed(t, t.tensor("self"))
    return t.result("Softmax", [x], axis=t.axis("dim", x), masked_to_zero=True)


@row("softmax.int", "_softmax.default", "log_softmax.int", "_log_softmax.default")
def softmax(t: Aten) -> Result:
    x = _typed(t, t.tensor("self"))
    if t.kind.startswith("_") and t.flag("half_to_float"):
        t.a.refuse("half_to_float")
    kind = "LogSoftmax" if "log" in t.kind else "Softmax"
    return t.result(kind, [x], axis=t.axis("dim", x))


@row("cumsum.default", "cumprod.default")
def cumulative(t: Aten) -> Result:
    x = t.tensor("self")
    axis = t.axis("dim", x)
    return t.result(
        "CumSum" if t.kind == "cumsum" else "CumProd", [_typed(t, x), t.constant(axis, np.int64)]
    )


@row("topk.default")
def topk(t: Aten) -> Result:
    x = t.tensor("self")
    return t.result(
        "TopK",
        [x, t.ints([t.integer("k")])],
        axis=t.axis("dim", x, -1),
        largest=t.flag("largest", True),
        sorted=t.flag("sorted", True),
    )


@row("sort.default", "sort.stable", "argsort.default", "argsort.stable")
def sort(t: Aten) -> Result:
    """TopK of the whole axis, which is stable."""
    x = t.tensor("self")
    axis = t.axis("dim", x, -1)
    size = t.known_size(x, axis, "how many are sorted")
    t.irrelevant("stable", reason="equal elements keep their order either way")
    descending = t.flag("descending")
    fields = {"axis": axis, "largest": descending, "sorted": True}
    if t.kind == "sort":
        return t.result("TopK", [x, t.ints([size])], **fields)
    return t.apply("Identity", t.add_all("TopK", [x, t.ints([size])], **fields)[1:])
