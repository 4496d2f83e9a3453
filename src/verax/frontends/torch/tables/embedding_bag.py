"""ATen operators that collect elements by places that data tell: embedding_bag, masked_scatter,
histc."""

from __future__ import annotations

import numpy as np

from verax.frontends.common.context import Result
from verax.frontends.torch.rows import Aten, row

ONLY_TRAINING = "it is about gradients"
SUM, MEAN, MAX = range(3)


@row("embedding_bag.default", "embedding_bag.padding_idx")
@row("_embedding_bag.default", "_embedding_bag_forward_only.default")
def embedding_bag(t: Aten) -> Result:
    """Rows of a table, summed, averaged or their largest taken, in bags that begin at `offsets`.
    Bags of nothing are zeros."""
    t.irrelevant("scale_grad_by_freq", "sparse", reason=ONLY_TRAINING)
    if any(t.output_used(i) for i in (1, 2, 3)):
        t.refuse("its bags' sizes and places are used")
    table, indices, offsets = (t.tensor(n) for n in ("weight", "indices", "offsets"))
    mode, padding = t.integer("mode", SUM), t.integer("padding_idx")
    if mode not in (SUM, MEAN, MAX):
        t.wrong("mode", mode, "0, 1 or 2")
    if t.flag("include_last_offset"):
        ends = [t.ints([n]) for n in (0, -1, 0)]
        offsets = t.add("Slice", [offsets, *ends])
    dtype = t.type(table).dtype.numpy
    bags, width = t.add("Shape", [offsets]), t.add("Shape", [table], start=1)
    count = t.add("Shape", [indices])
    positions = t.add("Range", [t.constant(0, np.int64), t.add("Squeeze", [count]),
                                t.constant(1, np.int64)])  # fmt: skip
    begun = t.add(
        "GreaterOrEqual", [t.add("Unsqueeze", [positions, t.ints([1])]), t.cast(offsets, "int64")]
    )
    bag_indices = t.add("ReduceSum", [t.cast(begun, "int64"), t.ints([1])], keepdims=True)
    bag_indices = t.add("Sub", [bag_indices, t.constant(1, np.int64)])
    rows = t.add("Gather", [table, indices], axis=0)
    weights = t.maybe("per_sample_weights")
    if weights is not None:
        rows = t.add("Mul", [rows, t.add("Unsqueeze", [weights, t.ints([1])])])
    start = t.constant(-np.inf if mode == MAX else 0, dtype)
    real = None
    if padding is not None and padding != -1:
        padded = t.add("Equal", [indices, t.like(padding, indices)])
        real = t.add("Unsqueeze", [t.add("Not", [padded]), t.ints([1])])
        rows = t.add("Where", [real, rows, start])
    into = t.add("Expand", [start, t.add("Concat", [bags, width], axis=0)])
    y = t.add("ScatterND", [into, bag_indices, rows], reduction="max" if mode == MAX else "add")
    if mode == SUM:
        return t.output(0, "Identity", [y]), "", "", ""
    one, zero = t.constant(1, dtype), t.constant(0, dtype)
    elements = t.add("Expand", [one, t.add("Concat", [count, t.ints([1])], axis=0)])
    if real is not None:
        elements = t.cast(real, t.type(table).dtype)
    none = t.add("Expand", [zero, t.add("Concat", [bags, t.ints([1])], axis=0)])
    sizes = t.add("ScatterND", [none, bag_indices, elements], reduction="add")
    if mode == MEAN:
        return t.output(0, "Div", [y, t.add("Max", [sizes, one])]), "", "", ""
    return t.output(0, "Where", [t.add("Greater", [sizes, zero]), y, zero]), "", "", ""


def _grows(t: Aten, x: str, mask: str) -> bool:
    """True if `x` must be broadcast to the shape of `mask`."""
    own, mask_dims = t.type(x).dims, t.type(mask).dims
    behind = own[len(own) - len(mask_dims) :] if len(mask_dims) <= len(own) else ()
    return len(mask_dims) > len(own) or any(a == 1 and b != 1 for a, b in zip(behind, mask_dims))


@row("masked_scatter.default")
def masked_scatter(t: Aten) -> Result:
    """Where the mask holds, the elements of `source` in their order."""
    x, mask, source = (t.tensor(n) for n in ("self", "mask", "source"))
    dims = np.broadcast_shapes(t.known_sizes(x), t.known_sizes(mask)) if _grows(t, x, mask) else ()
    shape = t.add("Shape", [x])
    if dims:
        shape = t.ints(dims)
        x = t.add("Expand", [x, shape])
    mask = t.add("Expand", [mask, shape])
    flat = t.cast(t.add("Reshape", [mask, t.ints([-1])]), "int64")
    source_indices = t.add("CumSum", [flat, t.constant(0, np.int64)])
    source_indices = t.add(
        "Max", [t.add("Sub", [source_indices, t.constant(1, np.int64)]), t.constant(0, np.int64)]
    )
    # Places behind the source belong to elements that the mask leaves alone.
    line = t.add("Reshape", [source, t.ints([-1])])
    last = t.add("Sub", [t.add("Squeeze", [t.add("Shape", [line])]), t.constant(1, np.int64)])
    elements = t.add("Gather", [line, t.add("Min", [source_indices, last])], axis=0)
    return t.result("Where", [mask, t.add("Reshape", [elements, shape]), x])


@row("histc.default")
def histogram(t: Aten) -> Result:
    """How many elements lie in each of `bins` equal parts from min to max, both ends included."""
    x, bins = t.add("Reshape", [t.tensor("self"), t.ints([-1])]), t.integer("bins", 100)
    low, high = t.scalar("min", 0), t.scalar("max", 0)
    dtype = t.type(x).dtype
    if not dtype.is_float or bins < 1:
        t.refuse(f"{bins} bins of {dtype}")
    t.check_count(bins)
    if low == high:
        t.refuse("ends that the elements themselves tell")
    a, b = t.like(low, x), t.like(high, x)
    scaled = t.add("Mul", [t.add("Sub", [x, a]), t.like(bins, x)])
    bin_indices = t.add("Floor", [t.add("Div", [scaled, t.add("Sub", [b, a])])])
    bin_indices = t.add("Min", [bin_indices, t.like(bins - 1, x)])
    inside = t.add("And", [t.add("GreaterOrEqual", [x, a]), t.add("LessOrEqual", [x, b])])
    bin_indices = t.add(
        "Unsqueeze", [t.add("Where", [inside, bin_indices, t.like(-1, x)]), t.ints([1])]
    )
    hits = t.add("Equal", [bin_indices, t.constant(np.arange(bins), dtype.numpy)])
    return t.result("ReduceSum", [t.cast(hits, dtype), t.ints([0])], keepdims=False)
