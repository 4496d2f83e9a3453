"""Operations of `keras.ops` in functional models: shapes, slices, joining, moving, taking."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common import shapes
from verax.frontends.common.channels_last import static_dims
from verax.frontends.common.context import Conversion, Result
from verax.frontends.keras.rows import MAX_PIECES, LayerLayout, operation
from verax.frontends.keras.table_operations import axes_of, operand, operands, promoted

END = np.iinfo(np.int64).max
"""As the end of a slice: to the last element; negative and backwards: to the first."""


@operation("Reshape")
def reshape(c: Conversion) -> Result:
    shape = c.integers("newshape", ())
    return c.result("Reshape", [*operands(c, 1), c.ints(shape)], allowzero=True)


@operation("Ravel")
def ravel(c: Conversion) -> Result:
    return c.result("Reshape", [*operands(c, 1), c.ints((-1,))])


@operation("Transpose")
def transpose(c: Conversion) -> Result:
    rank = c.rank()
    perm = c.integers("axes", tuple(reversed(range(rank))))
    return c.apply("Transpose", operands(c, 1), perm=tuple(c.from_front(a, rank) for a in perm))


@operation("Swapaxes")
def swap_axes(c: Conversion) -> Result:
    return shapes.exchanged(c, operand(c), c.integer("axis1", 0), c.integer("axis2", 0))


@operation("Moveaxis")
def move_axis(c: Conversion) -> Result:
    source, target = axes_of(c, "source") or (), axes_of(c, "destination") or ()
    return shapes.move_axes(c, operand(c), source, target)


@operation("ExpandDims")
def expand_dims(c: Conversion) -> Result:
    axes = axes_of(c, "axis") or ()
    return c.result("Unsqueeze", [*operands(c, 1), c.ints(axes)])


@operation("Squeeze")
def squeeze(c: Conversion) -> Result:
    axes = axes_of(c, "axis")
    if axes is None:
        axes = tuple(i for i, d in enumerate(static_dims(c, 0, "the tensor")) if d == 1)
    return c.result("Squeeze", [*operands(c, 1), c.ints(axes)])


@operation("Concatenate")
def concatenate(c: Conversion) -> Result:
    values = promoted(c, c.operands)
    return c.result("Concat", values, axis=c.integer("axis", -1))


@operation("Stack")
def stack(c: Conversion) -> Result:
    values = promoted(c, c.operands)
    return shapes.stacked(c, values, c.integer("axis", 0))


@operation("Split")
def split(c: Conversion) -> Result:
    """Into equal pieces, or before given positions."""
    a = c.attributes
    (x,), axis, stated = operands(c, 1), a.integer("axis", 0), a.get("indices_or_sections")
    size = c.known_size(0, axis, "the sizes of the pieces")
    if type(stated) is int:
        if stated < 1 or size % stated:
            raise ModelError(f"{size} positions in {stated} pieces", place=c.node.place)
        c.check_count(stated, MAX_PIECES, "pieces")
        cuts = tuple(range(0, size + 1, size // stated)) if size else (0,) * (stated + 1)
    else:
        cuts = (0, *a.integers("indices_or_sections"), size)
    pieces = [end - begin for begin, end in pairwise(cuts)]
    return c.result("Split", [x, c.ints(pieces)], axis=axis, num_outputs=len(pieces))


@operation("Unstack")
def unstack(c: Conversion) -> Result:
    axis = c.integer("axis", 0)
    size = c.known_size(0, axis, "the number of pieces")
    c.check_count(size, MAX_PIECES, "pieces")
    c.attributes.expect("num", size)
    pick = [c.constant(i, np.int64) for i in range(size)]
    return c.named([c.add("Gather", [*operands(c, 1), i], axis=axis) for i in pick])


@operation("Tile")
def tile(c: Conversion) -> Result:
    """Repeats count for the last axes; a rank that is too small grows in front."""
    repeats = axes_of(c, "repeats") or ()
    (x,), missing = operands(c, 1), len(repeats) - c.rank()
    if missing > 0:
        x = c.add("Unsqueeze", [x, c.ints(tuple(range(missing)))])
    return c.result("Tile", [x, c.ints((*[1] * -missing, *repeats))])


@operation("Repeat")
def repeat(c: Conversion) -> Result:
    """Every position of an axis several times in a row."""
    count, axis = c.integer("repeats"), c.integer("axis")
    if axis is None:
        c.refuse("over all axes")
    return shapes.repeated(c, operand(c), count, axis)


@operation("BroadcastTo")
def broadcast_to(c: Conversion) -> Result:
    return c.result("Expand", [*operands(c, 1), c.ints(c.integers("shape", ()))])


@operation("Flip")
def flip(c: Conversion) -> Result:
    axes = axes_of(c, "axis")
    flipped_axes = tuple(range(c.rank())) if axes is None else axes
    return shapes.turned_round(c, operand(c), flipped_axes)


@operation("Roll")
def roll(c: Conversion) -> Result:
    """Positions move up by `shift` and come in again below."""
    shifts, axes = axes_of(c, "shift") or (), axes_of(c, "axis")
    if axes is None or len(shifts) not in (1, len(axes)):
        c.refuse("without an axis per shift")
    (x,) = operands(c, 1)
    for shift, axis in zip(shifts * (len(axes) // len(shifts)), axes):
        x = shapes.rolled(c, x, shift, axis)
    return c.same(x)


@operation("Take")
def take(c: Conversion) -> Result:
    """Entries of an axis by index; TensorFlow clips none of them."""
    axis = c.integer("axis")
    if axis is None:
        c.refuse("over all axes")
    x, index = operands(c, 2)
    return c.result("Gather", [x, c.add("Cast", [index], to="int64")], axis=axis)


@operation("Pad")
def pad(c: Conversion) -> Result:
    """Constant, or mirrored without the border element."""
    a = c.attributes
    mode, value = (
        c.choice("mode", ("constant", "reflect"), "constant"),
        a.scalar("call.constant_values", 0.0),
    )
    stated = a.get("pad_width", ())
    width = np.broadcast_to(np.array(stated), (c.rank(), 2))
    inputs = [*operands(c, 1), c.ints(width.T.ravel().tolist())]
    if mode == "constant" and value:
        inputs.append(c.constant(value, np.float32))
    return c.result("Pad", inputs, mode=mode)


@operation("GetItem")
def get_item(c: Conversion) -> Result:
    """An index of NumPy made of numbers, slices, "..." and new axes."""
    key = json.loads(c.text("call.index", "[]"))
    return c.same(indexed(c, operand(c), key))


def indexed(c: Conversion, x: str, key: Any) -> str:
    """x[key]; key: numbers, None, "..." and {"slice": [start, stop, step]}, one or a list."""
    entries = key if isinstance(key, list) else [key]
    rank = c.rank(x)
    indexed_axes = sum(entry not in (None, "...") for entry in entries)
    full_slice = {"slice": [None, None, None]}
    if entries.count("...") > 1 or indexed_axes > rank:
        raise ModelError(f"the index {key} of a tensor of rank {rank}", place=c.node.place)
    at = entries.index("...") if "..." in entries else len(entries)
    entries = [*entries[:at], *[full_slice] * (rank - indexed_axes), *entries[at + 1 :]]
    cuts, gone, new, axis, out = [], [], [], 0, 0
    for entry in entries:
        if entry is None:
            new.append(out)
            out += 1
            continue
        if type(entry) is int:
            cuts.append((entry, entry + 1 if entry != -1 else END, axis, 1))
            gone.append(axis)
        elif isinstance(entry, dict):
            start, stop, step = entry["slice"]
            step = 1 if step is None else step
            first, last = (0, END) if step > 0 else (-1, -END)
            if entry != full_slice:
                cuts.append((first if start is None else start, last if stop is None else stop,
                             axis, step))  # fmt: skip
            out += 1
        else:
            c.refuse(f"the index {key}")
        axis += 1
    if cuts:
        starts, stops, axes, steps = (c.ints(column) for column in zip(*cuts))
        x = c.add("Slice", [x, starts, stops, axes, steps])
    if gone:
        x = c.add("Squeeze", [x, c.ints(gone)])
    return c.add("Unsqueeze", [x, c.ints(new)]) if new else x


@operation("DepthToSpace", "SpaceToDepth")
def blocks(c: Conversion) -> Result:
    layout = LayerLayout(c)
    size = c.integer("block_size")
    return c.same(layout.back(c.add(c.node.op_type, [layout.first(operand(c))], blocksize=size)))
