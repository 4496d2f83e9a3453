"""CoreML layers that pick, place and rank elements by position. Indices are floats in the file."""

from __future__ import annotations

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.context import MAX_MADE, Conversion, Result
from verax.frontends.coreml.rows import bias, row, sizes_of, sliced, weights, windows_along
from verax.frontends.coreml.suppression import padded, picked, suppress, threshold_above


def _index(c: Conversion, position: int) -> str:
    return c.add("Cast", [c.required(position)], to="int64")


def _one(c: Conversion, position: int, what: str) -> int:
    """An input of one element that must be known."""
    value = c.constant_input(position, what)
    if value.size != 1:
        raise ModelError(f"{what} is {value.tolist()}", place=c.node.place)
    return int(value.ravel()[0])


@row("gatherND")
def gather_nd(c: Conversion) -> Result:
    return c.result("GatherND", [c.required(0), _index(c, 1)])


@row("gatherAlongAxis")
def gather_along_axis(c: Conversion) -> Result:
    axis = c.integer("axis", 0)
    return c.result("GatherElements", [c.required(0), _index(c, 1)], axis=axis)


MODES = {
    "SCATTER_UPDATE": "none",
    "SCATTER_ADD": "add",
    "SCATTER_SUB": "add",
    "SCATTER_MUL": "mul",
    "SCATTER_MAX": "max",
    "SCATTER_MIN": "min",
}


def _updates(c: Conversion) -> tuple[str, str]:
    """Input 2, and how it joins the container's elements."""
    mode = c.text("mode", "SCATTER_UPDATE")
    if mode not in MODES:
        c.attributes.refuse("mode", "it is not supported")
    updates = c.required(2)
    return c.add("Neg", [updates]) if mode == "SCATTER_SUB" else updates, MODES[mode]


@row("scatterND")
def scatter_nd(c: Conversion) -> Result:
    updates, mode = _updates(c)
    return c.result("ScatterND", [c.required(0), _index(c, 1), updates], reduction=mode)


@row("scatterAlongAxis")
def scatter_along_axis(c: Conversion) -> Result:
    updates, mode = _updates(c)
    axis = c.integer("axis", 0)
    inputs = [c.required(0), _index(c, 1), updates]
    return c.result("ScatterElements", inputs, axis=axis, reduction=mode)


@row("scatter")
def scatter(c: Conversion) -> Result:
    """Whole slices of the container across `axis`; the axes of the indices stand in its place."""
    updates, mode = _updates(c)
    rank, many = c.rank(), c.rank(1)
    axis = c.integer("axis", 0)
    axis = axis if axis >= 0 else axis + rank
    if not 0 <= axis < rank or c.rank(2) != rank + many - 1:
        raise ModelError(f"axis {axis}, updates {c.type(2)}", place=c.node.place)
    order = (axis, *(i for i in range(rank) if i != axis))
    back = tuple(int(i) for i in np.argsort(order))
    first = range(axis, axis + many)
    turned = (*first, *(i for i in range(rank + many - 1) if i not in first))
    container = c.add("Transpose", [c.required(0)], perm=order)
    updates = c.add("Transpose", [updates], perm=turned)
    index = c.add("Unsqueeze", [_index(c, 1), c.ints((many,))])
    found = c.add("ScatterND", [container, index, updates], reduction=mode)
    return c.result("Transpose", [found], perm=back)


def _ranked(c: Conversion, k: int, axis: int, *, largest: bool) -> tuple[str, str]:
    op = c.operator("TopK", axis=axis, largest=largest)
    names = [c.fresh(f"{c.first_output}/{n}") for n in ("values", "positions")]
    found = c.builder.add_all(op, [c.required(0), c.ints((k,))], names, c.node.name)
    return found[0], found[1]


def _named(c: Conversion, kind: str, values: list[str], **fields: str) -> tuple[str, ...]:
    """Nodes of one kind that give the layer's outputs their names."""
    return tuple(
        c.builder.add(c.operator(kind, **fields), [v], [name], c.node.name)
        for v, name in zip(values, c.node.outputs)
    )


@row("topK")
def top_k(c: Conversion) -> Result:
    """The largest elements and their positions, as floats."""
    a, k = c.attributes, c.integer("K", 0)
    if len(c.inputs) == 2:
        k = _one(c, 1, "the number of elements")
    bottom, axis = a.flag("useBottomK"), a.integer("axis", 0)
    values, positions = _ranked(c, k, axis, largest=not bottom)
    floats = c.add("Cast", [positions], to="float32")
    return _named(c, "Identity", [values, floats])


@row("argSort")
def arg_sort(c: Conversion) -> Result:
    axis = c.integer("axis", 0)
    (size,) = sizes_of(c, 0, (axis,), "the number of positions")
    _, positions = _ranked(c, size, axis, largest=c.flag("descending"))
    return _named(c, "Cast", [positions], to="float32")


@row("oneHot")
def one_hot(c: Conversion) -> Result:
    """onValue where the position is the input's value; a value outside is nowhere."""
    a, size, axis = c.attributes, c.integer("oneHotVectorSize", 0), c.rank()
    given = a.integer("axis", 0)
    if len(c.inputs) == 2:
        size = _one(c, 1, "the size of the vectors")
    axis = given if given >= 0 else given + c.rank() + 1
    if not 0 <= axis <= c.rank() or not 0 < size <= MAX_MADE:
        raise ModelError(f"vectors of {size} along axis {given}", place=c.node.place)
    along = [1] * (c.rank() + 1)
    along[axis] = size
    positions = c.constant(np.arange(size, dtype=np.float32).reshape(along))
    whole = c.add("Cast", [_index(c, 0)], to="float32")
    hot = c.add("Equal", [c.add("Unsqueeze", [whole, c.ints((axis,))]), positions])
    values = [c.constant(a.number(n, 0.0), np.float32) for n in ("onValue", "offValue")]
    return c.result("Where", [hot, *values])


@row("cumSum")
def cum_sum(c: Conversion) -> Result:
    a, axis = c.attributes, c.integer("axis", 0)
    if len(c.inputs) == 2:
        axis = _one(c, 1, "the axis")
    return c.result(
        "CumSum",
        [c.required(0), c.constant(axis, np.int64)],
        exclusive=a.flag("excludeFinalSum"),
        reverse=a.flag("reverse"),
    )


@row("whereNonZero")
def where_non_zero(c: Conversion) -> Result:
    found = c.add("Transpose", [c.add("NonZero", [c.required(0)])], perm=(1, 0))
    return c.result("Cast", [found], to="float32")


@row("reverse")
def reverse(c: Conversion) -> Result:
    flags = c.attributes.get("reverseDim", ())
    if len(flags) != c.rank():
        raise ModelError(f"{len(flags)} flags for {c.type(0)}", place=c.node.place)
    axes = [i for i, flag in enumerate(flags) if flag]
    last = -(2**31) + 1
    return sliced(c, axes, [-1] * len(axes), [last] * len(axes), [-1] * len(axes))


@row("reverseSeq")
def reverse_sequence(c: Conversion) -> Result:
    a, rank = c.attributes, c.rank()
    batch, time = (a.integer(n, 0) % rank for n in ("batchAxis", "sequenceAxis"))
    if batch == time:
        raise ModelError("the batch and the sequence are one axis", place=c.node.place)
    return c.result(
        "ReverseSequence", [c.required(0), _index(c, 1)], batch_axis=batch, time_axis=time
    )


@row("slidingWindows")
def sliding_windows(c: Conversion) -> Result:
    """Axis -> two axes, [windows, windowSize]."""
    a, rank = c.attributes, c.rank()
    given, width, step = (a.integer(n, 0) for n in ("axis", "windowSize", "step"))
    axis = given if given >= 0 else given + rank
    (size,) = sizes_of(c, 0, (axis,), "the number of windows")
    return windows_along(c, c.required(0), axis, size, width=width, step=step)


@row("sliceBySize")
def slice_by_size(c: Conversion) -> Result:
    """`size` elements from the position on that input 1 gives."""
    axis, size = (c.integer(n, 0) for n in ("axis", "size"))
    if not 0 < size <= MAX_MADE or c.type(1).size != 1:
        raise ModelError(f"{size} elements from {c.type(1)}", place=c.node.place)
    if c.known(1) is not None:
        begin = _one(c, 1, "the position")
        if begin < 0 < begin + size:
            raise ModelError(f"{size} elements from {begin}", place=c.node.place)
        return sliced(c, [axis], [begin], [begin + size or 2**31])
    begin_at = c.add("Reshape", [_index(c, 1), c.ints((1,))])
    places = c.add("Add", [begin_at, c.constant(np.arange(size), np.int64)])
    return c.result("Gather", [c.required(0), places], axis=axis)


def _table(c: Conversion, kinds: int, size: int) -> list[str]:
    """The vectors [kinds, size] and, if there is one, their bias."""
    w = weights(c, "weights", (size, kinds))
    return [c.constant(np.ascontiguousarray(w.T)), *bias(c, size)]


@row("embedding")
def embedding(c: Conversion) -> Result:
    """[..., 1, 1, 1] -> [..., outputChannels, 1, 1]."""
    a, rank = c.attributes, c.rank()
    if tuple(c.type(0).dims[-3:]) != (1, 1, 1):
        c.refuse(f"indices {c.type(0)} do not end in [1, 1, 1]")
    table, *extra = _table(c, a.integer("inputDim", 0), a.integer("outputChannels", 0))
    index = c.add("Squeeze", [_index(c, 0), c.ints((rank - 3, rank - 2, rank - 1))])
    found = c.add("Gather", [table, index], axis=0)
    if extra:
        found = c.add("Add", [found, *extra])
    return c.result("Unsqueeze", [found, c.ints((rank - 2, rank - 1))])


@row("embeddingND")
def embedding_nd(c: Conversion) -> Result:
    """[..., 1] -> [..., embeddingSize]."""
    a, rank = c.attributes, c.rank()
    if rank < 2 or c.type(0).dims[-1] != 1:
        c.refuse(f"indices {c.type(0)} do not end in [1]")
    table, *extra = _table(c, a.integer("vocabSize", 0), a.integer("embeddingSize", 0))
    index = c.add("Squeeze", [_index(c, 0), c.ints((rank - 1,))])
    if not extra:
        return c.result("Gather", [table, index], axis=0)
    return c.result("Add", [c.add("Gather", [table, index], axis=0), *extra])


@row("NonMaximumSuppression")
def non_maximum_suppression(c: Conversion) -> Result:
    """Boxes, scores, positions (all filled up to maxBoxes) and the number of boxes that stay."""
    a, rows = c.attributes, c.integer("maxBoxes", 0)
    if len(c.inputs) > 4:
        rows = _one(c, 4, "the number of boxes")
    if not 0 < rows <= MAX_MADE:
        raise ModelError(f"{rows} boxes", place=c.node.place)
    overlap = c.like(a.number("iouThreshold", 0.0))
    least = c.constant(threshold_above(a.number("scoreThreshold", 0.0)))
    overlap, least = (c.input(i) or default for i, default in ((2, overlap), (3, least)))
    boxes, scores = c.required(0), c.required(1)
    kept = suppress(
        c, boxes, scores, overlap, least,
        per_class=a.flag("perClassSuppression"), rows=rows, never_empty=True,
    )  # fmt: skip
    have = c.type(kept.order).dims[1]
    assert isinstance(have, int)
    places = c.add("Cast", [kept.order], to="float32")
    places = c.add("Where", [kept.alive, places, c.constant(-1, np.float32)])
    outputs = [picked(c, kept, boxes, rows), picked(c, kept, scores, rows)]
    outputs.append(padded(c, places, have, rows, -1.0))
    outputs.append(c.add("Cast", [kept.count], to="float32"))
    return _named(c, "Identity", outputs)
