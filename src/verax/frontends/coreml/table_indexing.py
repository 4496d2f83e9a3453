"""CoreML layers that pick, place and rank elements by position. Indices are floats in the file."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common import shapes
from verax.frontends.common.context import MAX_MADE, Conversion, Result
from verax.frontends.common.table import Fields, flag, integer, scalar
from verax.frontends.coreml.mil_rows import GraphValue, layer
from verax.frontends.coreml.rows import bias, row, weights
from verax.frontends.coreml.suppression import suppressed, threshold_above


def _index(c: Conversion, position: int = 1) -> GraphValue:
    return GraphValue(c.add("Cast", [c.required(position)], to="int64"))


def _one(c: Conversion, position: int, description: str) -> int:
    """An input of one element that must be known."""
    value = c.constant_input(position, description)
    if value.size != 1:
        raise ModelError(f"{description} is {value.tolist()}", place=c.node.place)
    return int(value.ravel()[0])


def _stated(name: str, description: str) -> Callable[[Conversion], int]:
    """Reads an integer that input 1 replaces where there is one."""

    def read(c: Conversion) -> int:
        stated: int = c.integer(name, 0)
        return _one(c, 1, description) if len(c.inputs) == 2 else stated

    return read


layer("gatherND", "gather_nd", indices=_index)
layer("gatherAlongAxis", "gather_along_axis", indices=_index, axis=integer(0))
SCATTERED: Fields = {
    "indices": _index,
    "updates": lambda c: GraphValue(c.required(2)),
    "mode": lambda c: _mode(c),
}
layer("scatterND", "scatter_nd", ("data",), **SCATTERED)
layer("scatterAlongAxis", "scatter_along_axis", ("data",), **SCATTERED, axis=integer(0))
layer("scatter", "scatter", ("data",), **SCATTERED, axis=integer(0))


def _mode(c: Conversion) -> str:
    mode: str = c.text("mode", "SCATTER_UPDATE")
    if mode == "SCATTER_DIV":
        c.attributes.refuse("mode", "unsupported")
    return mode.removeprefix("SCATTER_").lower()


layer(
    "topK",
    "topk",
    k=_stated("K", "the number of elements"),
    axis=integer(0),
    ascending=flag(name="useBottomK"),
    output_indices_dtype="float32",
)
layer(
    "oneHot",
    "one_hot",
    (),
    indices=lambda c: _index(c, 0),
    one_hot_vector_size=_stated("oneHotVectorSize", "the size of the vectors"),
    axis=integer(0),
    on_value=scalar(0.0, "onValue"),
    off_value=scalar(0.0, "offValue"),
)
layer(
    "cumSum",
    "cumsum",
    axis=_stated("axis", "the axis"),
    exclusive=flag(name="excludeFinalSum"),
    reverse=flag(),
)
layer(
    "reverseSeq",
    "reverse_sequence",
    lengths=_index,
    batch_axis=integer(0, "batchAxis"),
    seq_axis=integer(0, "sequenceAxis"),
)
layer(
    "slidingWindows",
    "sliding_windows",
    axis=integer(0),
    size=integer(0, "windowSize"),
    stride=integer(0, "step"),
)


@row("whereNonZero")
def where_non_zero(c: Conversion) -> Result:
    return c.apply("Cast", [c.append(shapes.positions(c, c.required(0)))], to="float32")


@row("argSort")
def arg_sort(c: Conversion) -> Result:
    axis, largest = c.integer("axis", 0), c.flag("descending")
    size = c.ints(c.known_sizes(0, (axis,), "the number of positions"))
    _, positions = c.add_all("TopK", [c.required(0), size], axis=axis, largest=largest)
    return c.apply("Cast", [positions], to="float32")


@row("reverse")
def reverse(c: Conversion) -> Result:
    flags = c.attributes.get("reverseDim", ())
    if len(flags) != c.rank():
        raise ModelError(f"{len(flags)} flags for {c.type(0)}", place=c.node.place)
    return shapes.turned_round(c, c.required(0), [i for i, flag in enumerate(flags) if flag])


@row("sliceBySize")
def slice_by_size(c: Conversion) -> Result:
    """`size` elements from the position on that input 1 gives."""
    axis, size = (c.integer(n, 0) for n in ("axis", "size"))
    if not 0 < size <= MAX_MADE or c.type(1).size != 1:
        raise ModelError(f"{size} elements from {c.type(1)}", place=c.node.place)
    if c.known_value(1) is not None:
        begin = _one(c, 1, "the position")
        if begin < 0 < begin + size:
            raise ModelError(f"{size} elements from {begin}", place=c.node.place)
        return shapes.sliced(c, c.required(0), [axis], [begin], [begin + size or 2**31])
    begin_at = c.add("Reshape", [_index(c, 1), c.ints((1,))])
    indices = c.add("Add", [begin_at, c.constant(np.arange(size), np.int64)])
    return c.result("Gather", [c.required(0), indices], axis=axis)


def _table(c: Conversion, kinds: int, size: int) -> list[str]:
    """The vectors [kinds, size] and, if there is one, their bias."""
    w = weights(c, "weights", (size, kinds))
    more = bias(c, size)
    return [c.constant(v) for v in (np.ascontiguousarray(w.T), more) if v is not None]


@row("embedding")
def embedding(c: Conversion) -> Result:
    """[..., 1, 1, 1] -> [..., outputChannels, 1, 1]."""
    a, rank = c.attributes, c.rank()
    if tuple(c.type(0).dims[-3:]) != (1, 1, 1):
        c.refuse(f"indices {c.type(0)} do not end in [1, 1, 1]")
    table, *extra = _table(c, a.integer("inputDim", 0), a.integer("outputChannels", 0))
    index = c.add("Squeeze", [_index(c, 0), c.ints((rank - 3, rank - 2, rank - 1))])
    rows = c.add("Gather", [table, index], axis=0)
    if extra:
        rows = c.add("Add", [rows, *extra])
    return c.result("Unsqueeze", [rows, c.ints((rank - 2, rank - 1))])


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
    overlap = c.like(a.scalar("iouThreshold", 0.0))
    min_score = c.constant(threshold_above(a.scalar("scoreThreshold", 0.0)))
    overlap, min_score = (c.input(i) or default for i, default in ((2, overlap), (3, min_score)))
    boxes, scores, indices, count = suppressed(
        c, c.required(0), c.required(1), overlap, min_score,
        per_class=a.flag("perClassSuppression"), rows=rows,
    )  # fmt: skip
    floats = [c.add("Cast", [v], to="float32") for v in (indices, count)]
    return c.named([boxes, scores, *floats])
