"""ATen operators of angles, distances and order: atan2, hypot, cdist, median, searchsorted, ..."""

from __future__ import annotations

import math

import numpy as np

from verax.frontends.common.context import Result
from verax.frontends.torch.rows import Aten, row
from verax.frontends.torch.tables.elementwise import promoted
from verax.ir.types import DType

MOST_PAIRS = 1 << 24
"""Elements that a comparison of all pairs may make."""


def _pair(t: Aten, first: str, second: str) -> tuple[str, str]:
    """Two tensors in the type in which torch computes with them."""
    x, y = t.tensor(first), t.tensor(second)
    dtype = promoted(t, [x, y])
    if not dtype.is_float:
        t.refuse(f"inputs of {dtype}")
    return t.cast(x, dtype), t.cast(y, dtype)


@row("atan2.default", "hypot.default")
def polar(t: Aten) -> Result:
    """The angle of (other, self), or the distance of that point from the origin."""
    return t.result("Atan2" if t.kind == "atan2" else "Hypot", [*_pair(t, "self", "other")])


def distances(t: Aten, apart: str, p: float) -> Result:
    """Norms along the last axis."""
    axes = t.ints([-1])
    kinds = {1.0: "ReduceL1", 2.0: "ReduceL2"}
    if p in kinds:
        return t.apply(kinds[p], [apart, axes], keepdims=False)
    size = t.add("Abs", [apart])
    if p == math.inf:
        return t.apply("ReduceMax", [size, axes], keepdims=False)
    if p == 0:
        there = t.cast(t.add("Greater", [size, t.like(0, size)]), t.type(size).dtype)
        return t.apply("ReduceSum", [there, axes], keepdims=False)
    if p == -math.inf:
        return t.apply("ReduceMin", [size, axes], keepdims=False)
    total = t.add("ReduceSum", [t.add("Pow", [size, t.like(p, size)]), axes], keepdims=False)
    return t.apply("Pow", [total, t.like(1 / p, size)])


@row("_cdist_forward.default", "cdist.default")
def all_distances(t: Aten) -> Result:
    """Distances [..., n, m] of each of n points [..., n, k] to each of m."""
    x1, x2 = t.tensor("x1"), t.tensor("x2")
    t.irrelevant("compute_mode", reason="it chooses an implementation")
    shape = [*t.type(x1).dims, t.type(x2).dims[-2]]
    t.check_count(math.prod(d for d in shape if isinstance(d, int)), MOST_PAIRS)
    rows = t.add("Unsqueeze", [x1, t.ints([-2])])
    columns = t.add("Unsqueeze", [x2, t.ints([-3])])
    return distances(t, t.add("Sub", [rows, columns]), float(t.scalar("p", 2)))


@row("_pdist_forward.default", "pdist.default")
def pair_distances(t: Aten) -> Result:
    """Distances of each point [n, k] to the ones behind it, row by row."""
    x = t.tensor("self")
    first, second = np.triu_indices(t.type(x).shape[0], 1)
    t.check_count(len(first) * t.type(x).shape[1], MOST_PAIRS)
    sides = [t.add("Gather", [x, t.constant(i, np.int64)], axis=0) for i in (first, second)]
    return distances(t, t.add("Sub", sides), float(t.scalar("p", 2)))


@row("bilinear.default")
def bilinear(t: Aten) -> Result:
    """y_o = x1 W_o x2 + b_o, over the last axes."""
    x1, x2, w = t.tensor("input1"), t.tensor("input2"), t.tensor("weight")
    left = t.add("MatMul", [t.add("Unsqueeze", [x1, t.ints([-2])]), _first_axis_last(t, w)])
    *lead, n, m = (*t.type(x1).dims[:-1], t.type(w).dims[0], t.type(w).dims[2])
    shape = [d if isinstance(d, int) else 0 for d in lead]
    if 0 in shape:
        t.refuse("sizes that are open")
    mixed = t.add("Reshape", [left, t.ints([*shape, int(n), int(m)])])
    y = t.add("MatMul", [mixed, t.add("Unsqueeze", [x2, t.ints([-1])])])
    y = t.add("Squeeze", [y, t.ints([-1])])
    bias = t.maybe("bias")
    return t.result("Identity", [y]) if bias is None else t.result("Add", [y, bias])


def _first_axis_last(t: Aten, w: str) -> str:
    """[out, in1, in2] as a matrix [in1, out * in2]."""
    n, k, m = (int(d) for d in t.type(w).shape)
    return t.add("Reshape", [t.add("Transpose", [w], perm=(1, 0, 2)), t.ints([k, n * m])])


@row("_trilinear.default")
def trilinear(t: Aten) -> Result:
    """Three tensors, each with new axes at `expand`, multiplied and summed: what a bilinear form
    becomes when it is decomposed."""
    t.irrelevant("unroll_dim", reason="it chooses an implementation")
    factors = []
    for i in (1, 2, 3):
        axes = t.integers(f"expand{i}", ())
        x = t.tensor(f"i{i}")
        factors.append(t.add("Unsqueeze", [x, t.ints(axes)]) if axes else x)
    factor_dims = [t.type(x).dims for x in factors]
    sizes = [max((d for d in axis if isinstance(d, int)), default=1) for axis in zip(*factor_dims)]
    t.check_count(math.prod(sizes), MOST_PAIRS)
    product = t.add("Mul", [t.add("Mul", factors[:2]), factors[2]])
    return t.apply("ReduceSum", [product, t.ints(t.integers("sumdim"))], keepdims=False)


@row("median.dim", "kthvalue.default")
def order_statistic(t: Aten) -> Result:
    """The k-th smallest along an axis, and where it is: the lower of the two middle ones."""
    x = t.tensor("self")
    axis = t.axis("dim", x, -1)
    size = t.type(x).dims[axis] if t.rank(x) else 1
    if not isinstance(size, int):
        t.refuse("an axis whose size is open")
    k = t.integer("k") if t.kind == "kthvalue" else (size + 1) // 2
    if not t.rank(x) or not 1 <= k <= size:
        t.refuse(f"the {k}. of {size} elements")
    sorted_pairs = t.add_all("TopK", [x, t.ints([k])], axis=axis, largest=False)
    if t.output_used(1) and size > 1:
        t.refuse("which of equal elements is meant is torch's choice; its indices are used")
    last = [t.add("Gather", [v, t.ints([k - 1])], axis=axis) for v in sorted_pairs]
    if t.kind == "median" and t.type(x).dtype.is_float:  # NaN wins, which TopK counts as largest
        largest = t.add("ReduceMax", [x, t.ints([axis])], keepdims=True)
        last[0] = t.add("Where", [t.add("IsNaN", [largest]), largest, last[0]])
    if t.flag("keepdim"):
        return t.named(last)
    return t.per_output("Squeeze", [[v, t.ints([axis])] for v in last])


@row("searchsorted.Tensor", "bucketize.Tensor")
def search(t: Aten) -> Result:
    """How many of the sorted numbers lie before each value: those below it, or with `right` those
    that are not above it."""
    is_searchsorted = t.kind == "searchsorted"
    numbers = t.tensor("sorted_sequence" if is_searchsorted else "boundaries")
    values = t.tensor("self")
    if t.a.get("sorter") is not None:
        t.a.refuse("sorter")
    behind = t.flag("right") or (is_searchsorted and t.text("side") == "right")
    lines = t.rank(numbers) > 1
    sizes = [d for d in (*t.type(values).dims, *t.type(numbers).dims) if isinstance(d, int)]
    t.check_count(math.prod(sizes), MOST_PAIRS)
    dtype = promoted(t, [numbers, values])
    elements = t.add("Unsqueeze", [t.cast(values, dtype), t.ints([-1])])
    if lines:  # each line of values has sorted numbers of its own
        numbers = t.add("Unsqueeze", [numbers, t.ints([-2])])
    # Not the opposite comparison: what is not at or behind NaN is before it, and that is all.
    kind = "Greater" if behind else "GreaterOrEqual"
    after = t.add(kind, [t.cast(numbers, dtype), elements])
    before = t.cast(t.add("Not", [after]), "int64")
    count = t.add("ReduceSum", [before, t.ints([-1])], keepdims=False)
    return t.result("Cast", [count], to=DType.int32 if t.flag("out_int32") else DType.int64)
