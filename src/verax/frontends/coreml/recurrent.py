"""What CoreML's recurrent layers and ML programs' operations share: both become RNN, GRU, LSTM.

Equations: the recurrent layers of NeuralNetwork.proto; ML programs state the same ones. One layer
that reads its sequence from the end gives its results in the order of reading, as the tests of
coremltools compute them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.context import Conversion
from verax.frontends.common.recurrent import Direction, layer, side_by_side

ORDERS = {"RNN": (0,), "GRU": (2, 0, 1), "LSTM": (0, 2, 1, 3)}
"""Which of CoreML's gates (reset, output, update; input, forget, output, block input) lies at each
place of the operator's weights."""
END = np.iinfo(np.int64).max

Curve = tuple[str, float, float]
CURVES: dict[str, Curve] = {
    "linear": ("Affine", 1.0, 0.0),
    "sigmoid": ("Sigmoid", 0.0, 0.0),
    "tanh": ("Tanh", 0.0, 0.0),
    "relu": ("Relu", 0.0, 0.0),
    "hard_sigmoid": ("HardSigmoid", float(np.float32(0.2)), 0.5),
    "sigmoid_hard": ("HardSigmoid", float(np.float32(0.2)), 0.5),
    "scaled_tanh": ("ScaledTanh", 1.7159, 2 / 3),
}
"""The activations of recurrent layers by the name that ML programs give them: operator, alpha,
beta."""


@dataclass(frozen=True)
class Cell:
    """One direction. G gates of H units: w [G H, I], r [G H, H], b and more [G H]; peephole [3 H]
    of the first three gates."""

    w: np.ndarray
    r: np.ndarray
    b: np.ndarray | None = None
    more: np.ndarray | None = None
    peephole: np.ndarray | None = None


def run(
    c: Conversion,
    kind: str,
    x: str,
    cells: Sequence[Cell],
    states: Sequence[str | None],
    *curves: Sequence[Curve],
    reverse: bool = False,
    **fields: Any,
) -> list[str]:
    """Append the operator on x [S, B, I], from states [D, B, H]: its outputs. curves: of each
    direction."""
    names, alphas, betas = zip(*(curve for own in curves for curve in own))
    fields |= {"activations": names, "activation_alpha": alphas, "activation_beta": betas}
    if reverse:
        fields["direction"] = "reverse"
    directions = [_direction(c, kind, cell, c.type(x).dtype.numpy) for cell in cells]
    return layer(c, kind, x, directions, states, **fields)


def _direction(c: Conversion, kind: str, cell: Cell, dtype: Any) -> Direction:
    order = ORDERS[kind]
    if cell.r.ndim != 2 or cell.r.shape != (len(order) * cell.r.shape[1], cell.r.shape[1]):
        raise ModelError(f"recurrent weights {cell.r.shape}", place=c.node.place)

    def constant(array: np.ndarray | None, order: Sequence[int] = order) -> str | None:
        if array is None:
            return None
        gates = np.split(array.astype(dtype), len(order))
        return c.constant(np.concatenate([gates[g] for g in order]))

    w, r, b, more = (constant(a) for a in (cell.w, cell.r, cell.b, cell.more))
    return Direction(str(w), str(r), b, more, constant(cell.peephole, (0, 2, 1)))


def read(c: Conversion, y: str, h: str, *, sequence: bool, reverse: bool) -> str:
    """[S, B, D H] of all steps, or [1, B, D H] of the last one, in the order of reading, from the
    operator's outputs."""
    if not sequence:
        return beside(c, c.split(h, int(str(c.type(h).dims[0])), 0), 2)
    y = side_by_side(c, y)
    if not reverse:
        return y
    back = [c.ints((n,)) for n in (-1, -END, 0, -1)]
    return c.add("Slice", [y, *back])


def beside(c: Conversion, values: Sequence[str], axis: int) -> str:
    """Values of both directions side by side."""
    return values[0] if len(values) == 1 else c.add("Concat", list(values), axis=axis)
