"""ATen operators that read and write elements by index: index, gather, scatter, slice_scatter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from verax.frontends.common import shapes
from verax.frontends.common.context import Result
from verax.frontends.common.shapes import inverse
from verax.frontends.torch.rows import TABLE, Aten, row
from verax.frontends.torch.tables.elementwise import in_type, operand, truth
from verax.ir.types import DType

LAST = 2**63 - 1
"""torch's "to the end" of a slice."""
ONLY_GRADIENTS = "it only matters for gradients"


@row("select.int")
def select(t: Aten) -> Result:
    x = t.tensor("self")
    index = t.a.get("index")
    position = t.constant(index, np.int64) if type(index) is int else t.tensor("index")
    return t.result("Gather", [x, position], axis=t.axis("dim", x, 0))


@row("index_select.default", "embedding.default")
def index_select(t: Aten) -> Result:
    if t.kind == "embedding":
        t.irrelevant("padding_idx", "scale_grad_by_freq", "sparse", reason=ONLY_GRADIENTS)
        return t.result("Gather", [t.tensor("weight"), t.tensor("indices")], axis=0)
    x = t.tensor("self")
    return t.result("Gather", [x, t.tensor("index")], axis=t.axis("dim", x))


@row("gather.default")
def gather(t: Aten) -> Result:
    t.irrelevant("sparse_grad", reason=ONLY_GRADIENTS)
    x = t.tensor("self")
    indices = t.cast(t.tensor("index"), DType.int64)
    return t.result("GatherElements", [x, indices], axis=t.axis("dim", x))


@row("take_along_dim.default")
def take_along_dim(t: Aten) -> Result:
    """Gather after both were broadcast to each other outside the axis; flattened without one."""
    x, index = t.tensor("self"), t.tensor("indices")
    if not t.a.has("dim"):
        x, index = (t.add("Reshape", [v, t.ints([-1])]) for v in (x, index))
        return t.result("GatherElements", [x, index], axis=0)
    axis = t.axis("dim", x)
    sizes = t.type(x).dims[:axis] + t.type(x).dims[axis + 1 :]
    index_sizes = t.type(index).dims[:axis] + t.type(index).dims[axis + 1 :]
    if sizes != index_sizes:
        t.refuse(f"{t.type(x)} and {t.type(index)} would have to be broadcast")
    return t.result("GatherElements", [x, index], axis=axis)


# Indexing by tensors


def _index_tuples(t: Aten, x: str) -> tuple[list[int], str, int]:
    """The axes that are indexed, index tuples for them [..., axes], and how many axes `...` is.

    Integer tensors broadcast with each other; a mask stands for the positions where it is true, and
    must then be the only index, as the number of these is known only when running.
    """
    indices = t.tensors("indices")
    tensors = [v for v in indices if v is not None]
    if not tensors:
        t.refuse("no index is given")
    if any(t.type(v).dtype in (DType.bool_, DType.uint8) for v in tensors):
        if len(tensors) > 1 or t.type(tensors[0]).dtype is DType.uint8:
            t.refuse("a mask together with other indices, or of bytes")
        first = indices.index(tensors[0])
        axes = list(range(first, first + t.rank(tensors[0])))
        _mask_fits(t, x, tensors[0], first)
        return axes, t.append(shapes.positions(t, tensors[0])), 1
    axes = [i for i, v in enumerate(indices) if v is not None]
    int64_tensors = [t.cast(v, DType.int64) for v in tensors]
    if len(int64_tensors) == 1:
        depth = t.rank(int64_tensors[0])
        return axes, t.add("Unsqueeze", [int64_tensors[0], t.ints([depth])]), depth
    common = int64_tensors[0]
    for v in int64_tensors[1:]:
        common = t.add("Add", [common, v])
    depth = t.rank(common)
    shape = t.add("Shape", [common])
    columns: list[str | None] = [
        t.add("Unsqueeze", [t.add("Expand", [v, shape]), t.ints([depth])]) for v in int64_tensors
    ]
    return axes, t.add("Concat", columns, axis=depth), depth


def _mask_fits(t: Aten, x: str, mask: str, first: int) -> None:
    """A mask has the sizes of the axes that it covers."""
    dims = t.type(x).dims[first : first + t.rank(mask)]
    if len(dims) != t.rank(mask) or not t.rank(mask):
        t.refuse(f"a mask {t.type(mask)} on {t.type(x)}")
    for a, b in zip(dims, t.type(mask).dims):
        if isinstance(a, int) and isinstance(b, int) and a != b:
            t.wrong("indices", str(t.type(mask)), f"a mask that fits {t.type(x)}")


def _to_front(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """The permutation that brings `axes` to the front."""
    return (*axes, *(a for a in range(rank) if a not in axes))


def _back(axes: Sequence[int], depth: int, rank: int) -> tuple[int, ...]:
    """The permutation that puts `depth` axes in front where torch has them: behind the axes before
    the indexed ones when these are neighbors, in front otherwise."""
    before = axes[0] if list(axes) == list(range(axes[0], axes[0] + len(axes))) else 0
    return (*range(depth, depth + before), *range(depth), *range(depth + before, rank))


@row("index.Tensor")
def index(t: Aten) -> Result:
    x = t.tensor("self")
    indexed = [(i, v) for i, v in enumerate(t.tensors("indices")) if v is not None]
    if len(indexed) == 1 and t.type(indexed[0][1]).dtype in (DType.int32, DType.int64):
        return t.result("Gather", [x, indexed[0][1]], axis=indexed[0][0])
    axes, tuples, depth = _index_tuples(t, x)
    if axes == list(range(len(axes))):
        return t.result("GatherND", [x, tuples])
    gathered = t.add("GatherND", [t.add("Transpose", [x], perm=_to_front(axes, t.rank(x))), tuples])
    return t.result("Transpose", [gathered], perm=_back(axes, depth, t.rank(gathered)))


@row("index_put.default", "_unsafe_index_put.default")
def index_put(t: Aten) -> Result:
    """A copy with `values` at the indexed places, added to what is there with `accumulate`."""
    x, values, add = t.tensor("self"), t.tensor("values"), t.flag("accumulate")
    tensors = [v for v in t.tensors("indices") if v is not None]
    if len(tensors) == 1 and t.type(tensors[0]).dtype is DType.bool_ and t.type(values).size == 1:
        return _fill_mask(t, x, tensors[0], values, add)
    axes, tuples, _ = _index_tuples(t, x)
    return _written(t, x, axes, tuples, _broadcast_values(t, x, axes, tuples, values), add)


def _fill_mask(t: Aten, x: str, mask: str, values: str, add: bool) -> Result:
    """One value wherever the mask is true."""
    first = t.tensors("indices").index(mask)
    _mask_fits(t, x, mask, first)
    behind = t.rank(x) - first - t.rank(mask)
    if behind:
        axes = range(t.rank(mask), t.rank(mask) + behind)
        mask = t.add("Unsqueeze", [mask, t.ints(list(axes))])
    value = t.add("Reshape", [values, t.ints([])])
    return t.result("Where", [mask, t.add("Add", [x, value]) if add else value, x])


def _broadcast_values(t: Aten, x: str, axes: Sequence[int], tuples: str, values: str) -> str:
    """`values` in the shape of what is indexed, the places' axes in front."""
    depth, rank = t.rank(tuples) - 1, t.rank(x)
    indexed_first = t.add("Transpose", [x], perm=_to_front(axes, rank))
    sizes: list[str | None] = [
        t.add("Shape", [tuples], end=depth),
        t.add("Shape", [indexed_first], start=len(axes)),
    ]
    front = depth + rank - len(axes)
    order = _back(axes, depth, front)
    shape = t.add("Gather", [t.add("Concat", sizes, axis=0), t.ints(order)], axis=0)
    wide = t.add("Expand", [t.cast(values, t.type(x).dtype), shape])
    return t.add("Transpose", [wide], perm=inverse(order))


def _written(t: Aten, x: str, axes: Sequence[int], tuples: str, updates: str, add: bool) -> Result:
    """`x` with `updates` [places, other axes] written or added at index tuples of `axes`."""
    reduction = "add" if add else "none"
    if list(axes) == list(range(len(axes))):
        return t.result("ScatterND", [x, tuples, updates], reduction=reduction)
    perm = _to_front(axes, t.rank(x))
    indexed_first = t.add("Transpose", [x], perm=perm)
    scattered = t.add("ScatterND", [indexed_first, tuples, updates], reduction=reduction)
    return t.result("Transpose", [scattered], perm=inverse(perm))


@row("masked_select.default")
def masked_select(t: Aten) -> Result:
    x, mask = t.tensor("self"), t.tensor("mask")
    if t.type(x).dims != t.type(mask).dims or not t.rank(x):
        shape = np.broadcast_shapes(t.known_sizes(x), t.known_sizes(mask)) or (1,)
        x, mask = (t.add("Expand", [v, t.ints(shape)]) for v in (x, mask))
    positions = t.append(shapes.positions(t, mask))
    return t.result("GatherND", [x, positions])


TABLE.formula(shapes.positions, "nonzero.default", "argwhere.default")


@row("nonzero_numpy.default", "where.default")
def nonzero_by_axis(t: Aten) -> Result:
    x = t.tensor("condition" if t.kind == "where" else "self")
    if not t.rank(x):
        t.refuse("its input has no axes")
    positions = t.add("NonZero", [truth(t, x)])
    return t.per_output(
        "Gather", [[positions, t.constant(i, np.int64)] for i in range(t.rank(x))], axis=0
    )


# Scatter


@row(
    *("scatter.value", "scatter.src", "scatter.reduce", "scatter.value_reduce"),
    "scatter_add.default",
)
def scatter(t: Aten) -> Result:
    """Only as much of `src` counts as `index` covers."""
    x, indices = t.tensor("self"), t.cast(t.tensor("index"), DType.int64)
    axis, dtype = t.axis("dim", x), t.type(t.tensor("self")).dtype
    if not t.rank(x):
        t.refuse("its input has no axes")
    if t.a.has("value"):
        updates = t.add("Expand", [in_type(t, t.scalar("value"), dtype), t.add("Shape", [indices])])
    else:
        updates = t.tensor("src")
        if t.type(updates).dims != t.type(indices).dims:
            starts, ends = t.ints([0] * t.rank(x)), t.add("Shape", [indices])
            updates = t.add("Slice", [updates, starts, ends])
    reduction = "add" if t.kind == "scatter_add" else "none"
    if t.a.has("reduce"):
        reduction = _reduction(t)
    return t.result("ScatterElements", [x, indices, updates], axis=axis, reduction=reduction)


REDUCTIONS = {"add": "add", "multiply": "mul"}


def _reduction(t: Aten) -> str:
    return REDUCTIONS[t.choice("reduce", REDUCTIONS)]


@row("index_add.default", "index_copy.default", "index_fill.int_Scalar", "index_fill.int_Tensor")
def index_write(t: Aten) -> Result:
    """Whole slices along one axis, written or added."""
    x, indices = t.tensor("self"), t.cast(t.tensor("index"), DType.int64)
    axis, dtype = t.axis("dim", x), t.type(t.tensor("self")).dtype
    if not t.rank(x) or t.rank(indices) > 1:
        t.refuse("its input or index has no axis of its own")
    if t.kind == "index_copy":
        return _copied_slices(t, x, axis, indices)
    indices = t.add("Reshape", [indices, t.ints([-1, 1])])
    perm = _to_front([axis], t.rank(x))
    if t.kind == "index_fill":
        indexed_first = t.add("Transpose", [x], perm=perm)
        sizes: list[str | None] = [t.add("Shape", [indices], end=1)]
        sizes.append(t.add("Shape", [indexed_first], start=1))
        value = t.cast(in_type(t, operand(t, "value"), dtype), dtype)
        updates = t.add("Expand", [value, t.add("Concat", sizes, axis=0)])
    else:
        source = t.tensor("source")
        alpha = t.scalar("alpha", 1) if t.kind == "index_add" else 1
        if alpha != 1:
            source = t.add("Mul", [source, t.constant(alpha, dtype.numpy)])
        updates = t.add("Transpose", [source], perm=perm)
    return _written(t, x, [axis], indices, updates, t.kind == "index_add")


def _copied_slices(t: Aten, x: str, axis: int, indices: str) -> Result:
    """`source` in the place of slices of x along `axis`. No axis is moved: where x is a cache that
    is kept from run to run, what is not written stays where it is."""
    source, rank = t.tensor("source"), t.rank(x)
    shape = t.ints([-1 if a == axis else 1 for a in range(rank)])
    along = t.add("Reshape", [indices, shape])
    return t.apply("ScatterElements", [x, t.add("Expand", [along, t.add("Shape", [source])]),
                                       source], axis=axis)  # fmt: skip


@row("select_scatter.default", "slice_scatter.default")
def slice_scatter(t: Aten) -> Result:
    """A copy with `src` in the place of what select or slice would give."""
    x, source = t.tensor("self"), t.cast(t.tensor("src"), t.type(t.tensor("self")).dtype)
    axis = t.axis("dim", x, 0)
    size = t.type(x).dims[axis]
    if t.kind == "select_scatter":
        source = t.add("Unsqueeze", [source, t.ints([axis])])
        first = t.a.get("index")
        if type(first) is not int:
            t.a.refuse("index", "it is computed while the network runs")
        bounds: list[Any] = [first, LAST if first == -1 else first + 1, 1]
    else:
        bounds = [t.a.get("start"), t.a.get("end"), t.integer("step", 1)]
    bounds = [d if v is None else v for v, d in zip(bounds, (0, LAST, 1))]
    if isinstance(size, int) and all(type(v) is int for v in bounds):
        positions = range(*slice(*bounds).indices(size))
        if len(positions) == size:
            return t.result("Identity", [source])
        if bounds[2] == 1:
            return _spliced(t, x, source, axis, positions)
    length = t.add("Squeeze", [t.add("Shape", [x], start=axis, end=axis + 1), t.ints([0])])
    everything = t.add("Range", [t.constant(0, np.int64), length, t.constant(1, np.int64)])
    starts, ends = (t.vector([v]) for v in bounds[:2])
    selected = t.add("Slice", [everything, starts, ends, t.ints([0]), t.ints([bounds[2]])])
    tuples = t.add("Unsqueeze", [selected, t.ints([1])])
    updates = t.add("Transpose", [source], perm=_to_front([axis], t.rank(x)))
    return _written(t, x, [axis], tuples, updates, False)


def _spliced(t: Aten, x: str, source: str, axis: int, positions: range) -> Result:
    """`source` between what lies before and behind it."""
    slices: list[str | None] = [source]
    if positions.start > 0 or not len(positions):
        slices.insert(0, _cut(t, x, axis, 0, positions.start))
    if positions.start + len(positions) < int(t.type(x).dims[axis]):
        slices.append(_cut(t, x, axis, positions.start + len(positions), LAST))
    return t.result("Concat", slices, axis=axis)


def _cut(t: Aten, x: str, axis: int, start: int, end: int) -> str:
    return t.add("Slice", [x, *(t.ints([v]) for v in (start, end, axis))])


@row("copy.default")
def copy_into(t: Aten) -> Result:
    """`src` broadcast to the shape, and in the element type, of what it is written to."""
    t.irrelevant("non_blocking", reason="it chooses when, not what")
    x, source = t.tensor("self"), t.tensor("src")
    wide = t.cast(source, t.type(x).dtype)
    if t.type(source).dims == t.type(x).dims:
        return t.result("Identity", [wide])
    return t.result("Expand", [wide, t.add("Shape", [x])])


@row("max_unpool2d.default", "max_unpool3d.default")
def max_unpool(t: Aten) -> Result:
    """Zeros with each element at the position within its channel that its index says."""
    for name in ("stride", "padding"):
        t.irrelevant(name, reason="the indices count positions in the given output size")
    rank = int(t.kind[len("max_unpool")])
    x, indices = t.tensor("self"), t.tensor("indices")
    sizes = t.integers("output_size", None, rank)
    lead = t.add("Shape", [x], end=t.rank(x) - rank)

    def shape(*behind: int) -> str:
        return t.add("Concat", [lead, t.ints(behind)], axis=0)

    zero = t.constant(0, t.type(x).dtype.numpy)
    planes = t.add("Expand", [zero, shape(math.prod(sizes))])
    x, indices = (t.add("Reshape", [v, shape(-1)]) for v in (x, indices))
    unpooled = t.add("ScatterElements", [planes, indices, x], axis=t.rank(x) - 1)
    return t.result("Reshape", [unpooled, shape(*sizes)])


@row("diagonal.default")
def diagonal(t: Aten) -> Result:
    """Elements (i, i + offset) of two axes, as a last axis."""
    x, offset = t.tensor("self"), t.integer("offset", 0)
    first, second = t.axis("dim1", x, 0), t.axis("dim2", x, 1)
    rows, columns = t.type(x).dims[first], t.type(x).dims[second]
    if not isinstance(rows, int) or not isinstance(columns, int):
        t.refuse("the sizes of its axes are not known")
    pairs_of_indices = [(i, i + offset) for i in range(int(rows)) if 0 <= i + offset < int(columns)]
    tuples = t.constant(np.array(pairs_of_indices, np.int64).reshape(-1, 2))
    rank = t.rank(x)
    elements = t.add(
        "GatherND", [t.add("Transpose", [x], perm=_to_front([first, second], rank)), tuples]
    )
    return t.result("Transpose", [elements], perm=(*range(1, rank - 1), 0))
