"""Operations of `keras.ops` in functional models: shapes, slices, joining, moving, taking."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.channels_last import static_dims
from verax.frontends.common.context import Conversion, Result
from verax.frontends.keras.rows import Layout, bounded, finish, finish_all, operation
from verax.frontends.keras.table_operations import operands, promoted

END = np.iinfo(np.int64).max
"""As the end of a slice: to the last element; negative and backwards: to the first."""


def axes_of(c: Conversion, name: str) -> tuple[int, ...] | None:
    """An attribute that is an axis or several."""
    found = c.attributes.get(name)
    return (found,) if type(found) is int else found


@operation("Reshape")
def reshape(c: Conversion) -> Result:
    shape = c.integers("newshape", ())
    return c.result("Reshape", [*operands(c, 1), c.ints(shape)], allowzero=True)


@operation("Ravel")
def ravel(c: Conversion) -> Result:
    return c.result("Reshape", [*operands(c, 1), c.ints((-1,))])


@operation("Transpose")
def transpose(c: Conversion) -> Result:
    perm = c.integers("axes", tuple(reversed(range(c.rank()))))
    return c.result("Transpose", operands(c, 1), perm=_counted(perm, c.rank()))


@operation("Swapaxes")
def swap_axes(c: Conversion) -> Result:
    first, second = c.integer("axis1", 0), c.integer("axis2", 0)
    perm = list(range(c.rank()))
    perm[first], perm[second] = perm[second], perm[first]
    return c.result("Transpose", operands(c, 1), perm=tuple(perm))


@operation("Moveaxis")
def move_axis(c: Conversion) -> Result:
    source, target = axes_of(c, "source") or (), axes_of(c, "destination") or ()
    rank = c.rank()
    from_, to = _counted(source, rank), _counted(target, rank)
    if len(from_) != len(to):
        raise ModelError(f"axes {source} go to {target}", place=c.node.place)
    rest = iter(i for i in range(rank) if i not in from_)
    places = dict(zip(to, from_))
    perm = tuple(places[i] if i in places else next(rest) for i in range(rank))
    return c.result("Transpose", operands(c, 1), perm=perm)


def _counted(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Axes counted from the front. Raises `ModelError` for those that the tensor lacks."""
    if any(not -rank <= a < rank for a in axes):
        raise ModelError(f"axes {tuple(axes)} of a tensor of rank {rank}")
    return tuple(a % rank for a in axes)


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
    values = promoted(c, [c.required(i) for i in range(len(c.inputs))])
    return c.result("Concat", values, axis=c.integer("axis", -1))


@operation("Stack")
def stack(c: Conversion) -> Result:
    axis, rank = c.integer("axis", 0), c.rank() + 1
    (at,) = _counted((axis,), rank)
    values = promoted(c, [c.required(i) for i in range(len(c.inputs))])
    return c.result("Concat", [c.add("Unsqueeze", [v, c.ints((at,))]) for v in values], axis=at)


@operation("Split")
def split(c: Conversion) -> Result:
    """Into equal pieces, or before given positions."""
    a = c.attributes
    (x,), axis = operands(c, 1), a.integer("axis", 0)
    given, size = a.get("indices_or_sections"), c.type(0).dims[axis]
    if not isinstance(size, int):
        c.refuse("the size of the axis must be known")
    if type(given) is int:
        if given < 1 or size % given:
            raise ModelError(f"{size} positions in {given} pieces", place=c.node.place)
        bounded(c, given, "pieces")
        cuts = tuple(range(0, size + 1, size // given)) if size else (0,) * (given + 1)
    else:
        cuts = (0, *a.integers("indices_or_sections"), size)
    pieces = [end - begin for begin, end in pairwise(cuts)]
    return c.result("Split", [x, c.ints(pieces)], axis=axis, num_outputs=len(pieces))


@operation("Unstack")
def unstack(c: Conversion) -> Result:
    axis = c.integer("axis", 0)
    size = c.type(0).dims[axis]
    if not isinstance(size, int):
        c.refuse("the size of the axis must be known")
    c.attributes.expect("num", bounded(c, size, "pieces"))
    pick = [c.constant(i, np.int64) for i in range(size)]
    return finish_all(c, [c.add("Gather", [*operands(c, 1), i], axis=axis) for i in pick])


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
    return finish(c, repeated(c, operands(c, 1)[0], count, axis))


def repeated(c: Conversion, x: str, count: int, axis: int) -> str:
    """Every position of an axis of known size `count` times in a row."""
    size = c.type(x).dims[axis]
    if not isinstance(size, int):
        c.refuse("the size of the axis must be known")
    bounded(c, size * count, "positions")
    return c.add("Gather", [x, c.ints(np.repeat(np.arange(size), count).tolist())], axis=axis)


@operation("BroadcastTo")
def broadcast_to(c: Conversion) -> Result:
    return c.result("Expand", [*operands(c, 1), c.ints(c.integers("shape", ()))])


@operation("Flip")
def flip(c: Conversion) -> Result:
    axes = axes_of(c, "axis")
    chosen = tuple(range(c.rank())) if axes is None else axes
    return finish(c, reversed_along(c, operands(c, 1)[0], chosen))


def reversed_along(c: Conversion, x: str, axes: Sequence[int]) -> str:
    """The tensor with the order along some axes turned round."""
    back = [-1] * len(axes)
    return c.add("Slice", [x, c.ints(back), c.ints([-END] * len(axes)), c.ints(axes), c.ints(back)])


@operation("Roll")
def roll(c: Conversion) -> Result:
    """Positions move up by `shift` and come in again below."""
    shifts, axes = axes_of(c, "shift") or (), axes_of(c, "axis")
    if axes is None or len(shifts) not in (1, len(axes)):
        c.refuse("without an axis per shift")
    (x,) = operands(c, 1)
    for shift, axis in zip((*shifts, *shifts * (len(axes) - len(shifts))), axes):
        size = c.type(0).dims[axis]
        if not isinstance(size, int):
            c.refuse("the size of the axis must be known")
        bounded(c, size, "positions")
        x = c.add("Gather", [x, c.ints(np.roll(np.arange(size), shift).tolist())], axis=axis)
    return finish(c, x)


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
    mode, value = a.text("mode", "constant"), a.number("call.constant_values", 0.0)
    given = a.get("pad_width", ())
    width = np.broadcast_to(np.array(given), (c.rank(), 2))
    if mode not in ("constant", "reflect"):
        a.refuse("mode", "only constant and reflect are supported")
    inputs = [*operands(c, 1), c.ints(width.T.ravel().tolist())]
    if mode == "constant" and value:
        inputs.append(c.constant(value, np.float32))
    return c.result("Pad", inputs, mode=mode)


@operation("GetItem")
def get_item(c: Conversion) -> Result:
    """An index of NumPy made of numbers, slices, "..." and new axes."""
    key = json.loads(c.text("call.index", "[]"))
    return finish(c, indexed(c, operands(c, 1)[0], key))


def indexed(c: Conversion, x: str, key: Any) -> str:
    """x[key]; key: numbers, None, "..." and {"slice": [start, stop, step]}, one or a list."""
    parts = key if isinstance(key, list) else [key]
    rank = c.rank(x)
    taken = sum(part not in (None, "...") for part in parts)
    whole = {"slice": [None, None, None]}
    if parts.count("...") > 1 or taken > rank:
        raise ModelError(f"the index {key} of a tensor of rank {rank}", place=c.node.place)
    at = parts.index("...") if "..." in parts else len(parts)
    parts = [*parts[:at], *[whole] * (rank - taken), *parts[at + 1 :]]
    cuts, gone, new, axis, out = [], [], [], 0, 0
    for part in parts:
        if part is None:
            new.append(out)
            out += 1
            continue
        if type(part) is int:
            cuts.append((part, part + 1 if part != -1 else END, axis, 1))
            gone.append(axis)
        elif isinstance(part, dict):
            start, stop, step = part["slice"]
            step = 1 if step is None else step
            first, last = (0, END) if step > 0 else (-1, -END)
            if part != whole:
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
    layout = Layout(c)
    size = c.integer("block_size")
    return finish(
        c, layout.back(c.add(c.node.op_type, [layout.first(operands(c, 1)[0])], blocksize=size))
    )
