"""A border that a Pad writes out and windows read, taken into the windows' own pads: when that
changes no number. Passes and frontends ask the same rule, so that a border of a million positions
costs nothing in any of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from verax.ir.dim import DimLike
from verax.ir.graph import Graph, Node
from verax.ir.operator import Operator
from verax.ops.movement.padding import Pad
from verax.ops.windows.convolution import Conv
from verax.ops.windows.integer_convolution import ConvInteger
from verax.ops.windows.pooling import AveragePool, LpPool, MaxPool, Pool
from verax.ops.windows.windows import Pads, WindowGeometry, lowest


@dataclasses.dataclass(frozen=True)
class Border:
    """What a Pad of known numbers adds: (begin, end) per axis, and the one element it adds."""

    widths: Pads
    fill: np.generic

    def transposed(self, perm: Sequence[int]) -> Border:
        """The border of the padded value once its axes are in the order `perm`."""
        return Border(tuple(self.widths[a] for a in perm), self.fill)


def border_of(graph: Graph, node: Node) -> Border | None:
    """What the node adds around its data; None for what is no Pad of constants, or crops."""
    op = node.op
    if not isinstance(op, Pad) or op.mode != "constant" or len(node.inputs) < 2:
        return None
    constants = graph.constant_inputs(node)
    if any(v is not None and c is None for v, c in zip(node.inputs[1:], constants[1:])):
        return None
    type_ = graph.types[node.outputs[0]]
    pads = constants[1]
    value = constants[2] if len(constants) > 2 else None
    axes = constants[3] if len(constants) > 3 else None
    if pads is None or (value is not None and value.size != 1):
        return None
    rank = type_.rank
    padded_axes = [int(a) % rank for a in axes.ravel()] if axes is not None else list(range(rank))
    widths = {a: (0, 0) for a in range(rank)}
    for i, axis in enumerate(padded_axes):
        widths[axis] = (int(pads[i]), int(pads[i + len(padded_axes)]))
    if any(w < 0 for pair in widths.values() for w in pair):
        return None
    fill = type_.dtype.numpy.type(0) if value is None else np.ravel(value)[0]
    return Border(tuple(widths[a] for a in range(rank)), fill)


def with_border(
    op: Operator, border: Border, sizes: Sequence[DimLike], zero: int = 0
) -> Operator | None:
    """The operator that makes of its unpadded data what `op` makes of the padded; None for none.

    sizes: spatial sizes of the unpadded data. zero: the zero point of a ConvInteger.
    A convolution's padding is zeros. A mean counts the border as its elements, so that whatever
    else it has for padding must count as well; a p-norm's padding is zeros; the largest element
    takes what no element is below. Windows that lie in the border alone give the same either way.
    """
    if not isinstance(op, Conv | ConvInteger | AveragePool | LpPool | MaxPool):
        return None
    spatial = border.widths[2:]
    if len(border.widths) < 3 or any(map(any, border.widths[:2])) or isinstance(op.pads, str):
        return None
    own = op.pads or ((0, 0),) * len(spatial)
    pads = tuple((a + c, b + d) for (a, b), (c, d) in zip(own, spatial))
    if isinstance(op, Conv | ConvInteger):
        same = border.fill == (zero if isinstance(op, ConvInteger) else 0)
        return dataclasses.replace(op, pads=pads) if same else None
    new: Pool = dataclasses.replace(op, pads=pads)
    if isinstance(op, MaxPool):
        if op.with_indices or border.fill != lowest(np.asarray(border.fill).dtype):
            return None
    elif border.fill != 0:
        return None
    elif isinstance(op, AveragePool):
        if any(map(any, own)) and not op.count_include_pad:
            return None
        new = dataclasses.replace(op, pads=pads, count_include_pad=True)
    padded = [n + a + b for n, (a, b) in zip(sizes, spatial)]
    before, after = op.geometry(len(padded)), new.geometry(len(padded))
    # A last window of ceil mode may begin in what was data and is padding now.
    same_windows = _dims(before, padded) == _dims(after, list(sizes))
    return new if same_windows else None


def _dims(form: WindowGeometry, sizes: Sequence[DimLike]) -> tuple[DimLike, ...]:
    return form.output_dims(sizes)
