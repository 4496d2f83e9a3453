"""ATen operators that move elements: shapes, slices, joins, gathers, pads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from verax.frontends.common import shapes
from verax.frontends.common.context import Result
from verax.frontends.torch.rows import NO_MEANING, TABLE, Aten, row
from verax.frontends.torch.tables.elementwise import promoted
from verax.ir.types import DType

LAST = 2**63 - 1
"""torch's "to the end" of a slice."""
MOST_DIFFERENCES = 64
"""Differences of differences that are written out."""


@row("view.default", "reshape.default", "_unsafe_view.default")
def reshape(t: Aten) -> Result:
    shape = "size" if t.kind == "view" or t.kind == "_unsafe_view" else "shape"
    return t.result("Reshape", [t.tensor("self"), t.sizes(shape)], allowzero=True)


@row("flatten.using_ints")
def flatten(t: Aten) -> Result:
    x = t.tensor("self")
    first, last = t.axis("start_dim", x, 0), t.axis("end_dim", x, -1)
    rank = t.rank(x)
    if rank == 0:
        return t.result("Reshape", [x, t.ints([1])])
    if first == last:
        return t.result("Identity", [x])
    if first > 0 or last < rank - 1:
        sizes: list[str | None] = []
        if first:
            sizes.append(t.add("Shape", [x], end=first))
        sizes.append(t.ints([-1]))
        if last < rank - 1:
            sizes.append(t.add("Shape", [x], start=last + 1))
        return t.result("Reshape", [x, t.add("Concat", sizes, axis=0)])
    return t.result("Reshape", [x, t.ints([-1])])


@row("unflatten.int")
def unflatten(t: Aten) -> Result:
    x = t.tensor("self")
    axis, rank = t.axis("dim", x), t.rank(x)
    sizes: list[str | None] = [t.sizes("sizes")]
    if axis:
        sizes.insert(0, t.add("Shape", [x], end=axis))
    if axis + 1 < rank:
        sizes.append(t.add("Shape", [x], start=axis + 1))
    return t.result("Reshape", [x, t.add("Concat", sizes, axis=0)])


@row("permute.default")
def permute(t: Aten) -> Result:
    x = t.tensor("self")
    perm = tuple(d % max(t.rank(x), 1) for d in t.integers("dims"))
    return t.result("Transpose", [x], perm=perm)


@row("transpose.int", "swapaxes.default", "swapdims.default")
def transpose(t: Aten) -> Result:
    names = ("axis0", "axis1") if t.kind == "swapaxes" else ("dim0", "dim1")
    return shapes.exchanged(t, t.tensor("self"), *(t.integer(name) for name in names))


@row("t.default")
def matrix_transpose(t: Aten) -> Result:
    x = t.tensor("self")
    return t.result("Transpose", [x]) if t.rank(x) == 2 else t.result("Identity", [x])


@row("numpy_T.default", "matrix_H.default", "mT.default", "mH.default", "adjoint.default")
def transposed(t: Aten) -> Result:
    """All axes the other way round, or the last two exchanged; tensors are real here."""
    x = t.tensor("self")
    perm = list(range(t.rank(x)))
    if t.kind == "numpy_T":
        perm.reverse()
    elif len(perm) >= 2:
        perm[-2:] = perm[-1], perm[-2]
    return t.result("Transpose", [x], perm=tuple(perm))


@row("diff.default")
def diff(t: Aten) -> Result:
    """Each element less the one before it, n times; of truth values, whether they differ."""
    x = t.tensor("self")
    n = t.integer("n", 1)
    if not t.rank(x) or not 0 <= n <= MOST_DIFFERENCES:
        t.a.refuse("n", f"0 to {MOST_DIFFERENCES} differences are taken")
    if not n:
        t.irrelevant("dim", "prepend", "append", reason="no difference is taken")
        return t.result("Identity", [x])
    axis = t.axis("dim", x, -1)
    operands = [v for v in (t.maybe("prepend"), x, t.maybe("append")) if v is not None]
    if len(operands) > 1:
        dtype = promoted(t, list(operands))
        x = t.add("Concat", [t.cast(v, dtype) for v in operands], axis=axis)
    kind = "Xor" if t.type(x).dtype is DType.bool_ else "Sub"
    for _ in range(n):
        x = t.add(kind, [_slice(t, x, axis, 1, LAST), _slice(t, x, axis, 0, -1)])
    return t.result("Identity", [x])


@row("squeeze.default", "squeeze.dim", "squeeze.dims")
def squeeze(t: Aten) -> Result:
    """Axes whose size is not 1 are left alone."""
    x = t.tensor("self")
    dims = t.type(x).dims
    if t.a.has("dim"):
        axes = sorted({d % max(len(dims), 1) for d in t.integers("dim")})
    else:
        axes = list(range(len(dims)))
    if any(not isinstance(dims[a], int) for a in axes):
        t.refuse("whether an axis goes depends on a size that is not known")
    gone = [a for a in axes if dims and dims[a] == 1]
    return t.result("Squeeze", [x, t.ints(gone)]) if gone else t.result("Identity", [x])


@row("unsqueeze.default")
def unsqueeze(t: Aten) -> Result:
    x = t.tensor("self")
    return t.result("Unsqueeze", [x, t.ints([t.integer("dim") % (t.rank(x) + 1)])])


@row("expand.default", "broadcast_to.default")
def expand(t: Aten) -> Result:
    """-1 keeps an axis."""
    x = t.tensor("self")
    t.irrelevant("implicit", reason=NO_MEANING)
    requested = t.a.get("size", ())
    sizes = [1 if type(v) is int and v == -1 else v for v in requested]
    return t.result("Expand", [x, t.vector(sizes)])


@row("movedim.int", "movedim.intlist")
def movedim(t: Aten) -> Result:
    return shapes.move_axes(t, t.tensor("self"), t.integers("source"), t.integers("destination"))


TABLE.row("expand_as.default")(lambda t: t.apply("Expand", [t.tensor("self"), _shape_of(t)]))
TABLE.row("view_as.default", "reshape_as.default")(
    lambda t: t.apply("Reshape", [t.tensor("self"), _shape_of(t)])
)


def _shape_of(t: Aten) -> str:
    return t.add("Shape", [t.tensor("other")])


@row("repeat.default", "tile.default")
def repeat(t: Aten) -> Result:
    """More repeats than axes add axes in front; `tile` may name fewer, which are the last."""
    x, name = t.tensor("self"), "repeats" if t.kind == "repeat" else "dims"
    more = len(t.a.values.get(name, ())) - t.rank(x)
    if more > 0:
        x = t.add("Unsqueeze", [x, t.ints(range(more))])
    repeats = t.sizes(name)
    if more < 0 and t.kind == "tile":
        repeats = t.add("Concat", [t.ints([1] * -more), repeats], axis=0)
    return t.result("Tile", [x, repeats])


@row("repeat_interleave.self_int")
def repeat_interleave(t: Aten) -> Result:
    """Each element so many times in a row, along an axis or in the flattened tensor."""
    x, count = t.tensor("self"), t.integer("repeats")
    t.irrelevant("output_size", reason="it repeats what repeats says")
    if t.a.has("dim"):
        axis = t.axis("dim", x)
    else:
        x, axis = t.add("Reshape", [x, t.ints([-1])]), 0
    before, behind = t.add("Shape", [x], end=axis + 1), t.add("Shape", [x], start=axis + 1)
    single = t.add("Unsqueeze", [x, t.ints([axis + 1])])
    wide = t.add("Concat", [before, t.ints([count]), behind], axis=0)
    copies = t.add("Expand", [single, wide])
    shape: list[str | None] = [t.add("Shape", [x], end=axis), t.ints([-1]), behind]
    return t.result("Reshape", [copies, t.add("Concat", shape, axis=0)])


@row("cat.default", "stack.default")
def cat(t: Aten) -> Result:
    values: list[Any] = t.tensors("tensors")
    axis = t.integer("dim", 0)
    if t.kind == "stack":
        axis %= t.rank(values[0]) + 1
        values = [t.add("Unsqueeze", [v, t.ints([axis])]) for v in values]
    dtypes = {t.type(v).dtype for v in values}
    if len(dtypes) > 1:
        t.refuse("tensors of different element types")
    # torch skips empty vectors in a list of tensors of another rank.
    rank = max(t.rank(v) for v in values)
    values = [v for v in values if t.rank(v) == rank]
    # What adds nothing is no operand: rotary positions of all features leave an empty rest.
    filled = [v for v in values if t.type(v).dims[axis] != 0]
    values = filled or values[:1]
    return t.result("Concat", values, axis=axis)


def _slice(t: Aten, x: str, axis: int, start: int, end: int) -> str:
    return t.append(shapes.sliced(t, x, (axis,), (start,), (end,)))


@row("slice.Tensor")
def slice_(t: Aten) -> Result:
    x = t.tensor("self")
    axis, step = t.axis("dim", x, 0), t.integer("step", 1)
    ends = []
    for name, default in (("start", 0), ("end", LAST)):
        bound = t.a.get(name)
        ends.append(t.vector([default if bound is None else bound]))
    return t.result("Slice", [x, *ends, t.ints([axis]), t.ints([step])])


@row("narrow.default")
def narrow(t: Aten) -> Result:
    x = t.tensor("self")
    axis, start = t.axis("dim", x), t.integer("start")
    end = start + t.integer("length")
    size = t.type(x).dims[axis]
    if isinstance(size, int) and not 0 <= start <= end <= size:
        t.wrong("length", end - start, f"within the axis of size {size}")
    return t.result("Slice", [x, t.ints([start]), t.ints([end]), t.ints([axis])])


def _split(t: Aten, x: str, axis: int, sizes: Sequence[int]) -> Result:
    return t.result("Split", [x, t.ints(sizes)], num_outputs=len(sizes), axis=axis)


@row(
    *("split.Tensor", "split.sizes", "split_with_sizes.default", "chunk.default"),
    *("unsafe_split.Tensor", "unsafe_split_with_sizes.default", "unsafe_chunk.default"),
)
def split(t: Aten) -> Result:
    x = t.tensor("self")
    axis = t.axis("dim", x, 0)
    if t.a.has("split_sizes"):
        return _split(t, x, axis, t.integers("split_sizes"))
    if t.node.op_type == "split.sizes":
        return _split(t, x, axis, t.integers("split_size"))
    total = t.known_size(x, axis, "the sizes of the parts")
    if t.a.has("chunks"):
        step = -(-total // t.integer("chunks")) or 1
    else:
        step = t.integer("split_size")
    sizes = [min(step, total - i) for i in range(0, total, step)] or [0]
    return _split(t, x, axis, sizes)


@row("unbind.int")
def unbind(t: Aten) -> Result:
    x = t.tensor("self")
    axis = t.axis("dim", x, 0)
    count = len(t.node.outputs)
    return t.per_output("Gather", [[x, t.constant(i, np.int64)] for i in range(count)], axis=axis)


# Pads

MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def _widths(t: Aten, x: str) -> tuple[list[Any], list[Any]]:
    """Pads before and behind every axis: torch lists (begin, end) from the last axis forwards."""
    name = "pad" if t.a.has("pad") else "padding"
    widths, rank = t.a.get(name, ()), t.rank(x)
    if not isinstance(widths, tuple) or len(widths) % 2 or len(widths) > 2 * rank:
        t.wrong(name, widths, f"pairs for at most {rank} axes")
    begins, ends = [0] * rank, [0] * rank
    for i, (begin, end) in enumerate(zip(widths[::2], widths[1::2])):
        begins[rank - 1 - i], ends[rank - 1 - i] = begin, end
    return begins, ends


def _pads(t: Aten, x: str) -> str:
    """The same as the operator has them; negative ones crop."""
    begins, ends = _widths(t, x)
    return t.vector([*begins, *ends])


def _crops(t: Aten, x: str) -> bool:
    """Whether some pad is negative."""
    return any(type(n) is int and n < 0 for side in _widths(t, x) for n in side)


def _edges(t: Aten, x: str) -> Result:
    """The numbers at the ends repeated, and what negative pads name cropped from that: torch lets
    them crop all that was there, too."""
    widths = _widths(t, x)
    if not all(type(n) is int for side in widths for n in side):
        t.refuse("a pad that is not known, beside one that crops")
    wide = t.add("Pad", [x, t.ints([max(n, 0) for side in widths for n in side])], mode="edge")
    begins, ends = ([max(-n, 0) for n in side] for side in widths)
    axes = [a for a, cut in enumerate(zip(begins, ends)) if any(cut)]
    if not axes:
        return t.result("Identity", [wide])
    last = [-ends[a] if ends[a] else LAST for a in axes]
    return shapes.sliced(t, wide, axes, [begins[a] for a in axes], last)


@row("pad.default", "constant_pad_nd.default")
def pad(t: Aten) -> Result:
    x = t.tensor("self")
    mode, value = t.choice("mode", MODES, "constant"), t.scalar("value", 0)
    if mode == "replicate" and not value and _crops(t, x):
        return _edges(t, x)
    inputs = [x, _pads(t, x)]
    if mode == "constant":
        inputs.append(t.constant(value or 0, t.type(x).dtype.numpy))
    elif value:
        t.a.refuse("value", f"the mode is {mode}")
    return t.result("Pad", inputs, mode=MODES[mode])


@row(*(f"{m}_pad{n}d.default" for m in ("reflection", "replication") for n in (1, 2, 3)))
def edge_pad(t: Aten) -> Result:
    x = t.tensor("self")
    mode = "reflect" if t.kind.startswith("reflection") else "edge"
    if mode == "edge" and _crops(t, x):
        return _edges(t, x)
    return t.result("Pad", [x, _pads(t, x)], mode=mode)


@row("flip.default")
def flip(t: Aten) -> Result:
    x = t.tensor("self")
    axes = [d % max(t.rank(x), 1) for d in t.integers("dims")]
    return shapes.turned_round(t, x, axes)


@row("roll.default")
def roll(t: Aten) -> Result:
    """Elements shifted beyond the end come in at the front, axis by axis."""
    x = t.tensor("self")
    if 0 in t.type(x).dims:
        t.irrelevant("shifts", "dims", reason="there are no elements to shift")
        return t.result("Identity", [x])
    shifts, axes = t.integers("shifts"), t.integers("dims", ())
    shape = None if axes else t.add("Shape", [x])
    if shape is not None:
        x, axes = t.add("Reshape", [x, t.ints([-1])]), (0,)
    for shift, axis in zip(shifts, axes, strict=True):
        x = shapes.rolled(t, x, shift, axis)
    return t.result("Identity", [x]) if shape is None else t.result("Reshape", [x, shape])


@row("pixel_shuffle.default", "pixel_unshuffle.default")
def pixel_shuffle(t: Aten) -> Result:
    """Channels c * r * r + i * r + j become pixel (i, j) of channel c; and back."""
    x = t.tensor("self")
    if t.rank(x) != 4:
        t.refuse(f"its input has rank {t.rank(x)}")
    if t.kind == "pixel_shuffle":
        return t.result("DepthToSpace", [x], blocksize=t.integer("upscale_factor"), mode="CRD")
    return t.result("SpaceToDepth", [x], blocksize=t.integer("downscale_factor"), mode="CRD")


@row("channel_shuffle.default")
def channel_shuffle(t: Aten) -> Result:
    x, groups = t.tensor("self"), t.integer("groups")
    rank, channels = t.rank(x), t.type(x).dims[1]
    if not isinstance(channels, int) or channels % groups:
        t.refuse(f"{channels} channels in {groups} groups")
    shape = t.add("Shape", [x])
    batch, space = t.add("Shape", [x], end=1), t.add("Shape", [x], start=2)
    pair = t.ints([groups, int(channels) // groups])
    y = t.add("Reshape", [x, t.add("Concat", [batch, pair, space], axis=0)])
    y = t.add("Transpose", [y], perm=(0, 2, 1, *range(3, rank + 1)))
    return t.result("Reshape", [y, shape])


@row("meshgrid.indexing", "meshgrid.default")
def meshgrid(t: Aten) -> Result:
    tensors = [v for v in t.tensors("tensors") if v is not None]
    values = [v if t.rank(v) else t.add("Unsqueeze", [v, t.ints([0])]) for v in tensors]
    indexing = t.choice("indexing", ("ij", "xy"), "ij")
    xy = indexing == "xy" and len(values) > 1
    order = [1, 0, *range(2, len(values))] if xy else list(range(len(values)))
    sizes = [t.add("Shape", [values[i]]) for i in order]
    target = t.add("Concat", sizes, axis=0)
    wide = []
    for i, value in enumerate(values):
        axes = [a for a in range(len(values)) if order[a] != i]
        wide.append([t.add("Unsqueeze", [value, t.ints(axes)]), target])
    return t.per_output("Expand", wide)


# Copies that keep the values


@row(
    *("contiguous.default", "detach.default", "alias.default", "lift_fresh_copy.default"),
    *("lift_fresh.default", "to.dtype", "to.dtype_layout", "to.device", "_to_copy.default"),
    *("to.other", "type_as.default", "positive.default"),
)
def copy(t: Aten) -> Result:
    """The same numbers, in another element type where one is named."""
    t.irrelevant(
        "memory_format", "device", "layout", "pin_memory", "non_blocking", "copy", reason=NO_MEANING
    )
    x = t.tensor("self")
    if t.a.has("other"):
        dtype: DType | None = t.type(t.tensor("other")).dtype
    else:
        named = t.text("dtype")
        dtype = None if named is None else DType(named)
    if dtype is None or dtype == t.type(x).dtype:
        return t.result("Identity", [x])
    return t.converted(x, dtype)


@row("copy", domain="verax")
def output_copy(t: Aten) -> Result:
    return t.result("Identity", [t.required(0)])


@row("dropout.default", "feature_dropout.default", "alpha_dropout.default")
def dropout(t: Aten) -> Result:
    x = t.tensor("input" if t.a.has("input") else "self")
    if t.flag("train"):
        t.a.refuse("train", "call module.eval() before exporting")
    t.irrelevant("p", reason="nothing is dropped at inference")
    return t.result("Identity", [x])
