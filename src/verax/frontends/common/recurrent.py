"""Recurrent layers of any format as the operators RNN, GRU and LSTM.

A format states, for each direction, where its weights are and in which order they hold the gates;
here they are laid out as the operators take them. What is constant stays one constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.context import Conversion

MAX_LAYERS = 64
"""Layers of one node of a file; each becomes an operator."""
CUDNN_ORDERS = {"RNN": (0,), "GRU": (1, 0, 2), "LSTM": (0, 3, 1, 2)}
"""cuDNN's gates, which are PyTorch's and MXNet's (reset, update, new; input, forget, cell, output):
which of them lies at each place of the operator's weights."""


@dataclass(frozen=True)
class Direction:
    """Weights as graph values, gates in the operator's order. G gates of H units: w [G H, I],
    r [G H, H], bias and state_bias [G H], peepholes [3 H], projection [P, H] and its bias [P]."""

    w: str
    r: str
    bias: str | None = None
    state_bias: str | None = None
    peepholes: str | None = None
    projection: str | None = None
    projection_bias: str | None = None


def layer(
    c: Conversion,
    kind: str,
    x: str,
    directions: Sequence[Direction],
    initial: Sequence[str | None] = (),
    **fields: Any,
) -> list[str]:
    """Append the operator on x; returns its outputs: [T, D, N, H], then the states [D, N, H].

    initial: h and, of an LSTM, c, each [D, N, H], or None for zeros. With layout=1 the batch is
    the first axis of all of them.
    """
    h, memory = (*initial, None, None)[:2]
    columns = [(d.w, d.r, d.peepholes, d.projection, d.projection_bias) for d in directions]
    w, r, *more = (_by_direction(c, values) for values in zip(*columns))
    biases = [(d.bias, d.state_bias) for d in directions]
    bias = None
    if any(b is not None for pair in biases for b in pair):
        rows = _rows(c, directions[0])
        bias = _by_direction(
            c, [concatenated(c, [_or_zeros(c, b, rows) for b in p]) for p in biases]
        )
    if len(directions) == 2:
        fields["direction"] = "bidirectional"
    inputs = [x, w, r, bias, None, h, memory, *more]
    return c.add_all(kind, inputs, **fields)


def deep(
    c: Conversion,
    kind: str,
    x: str,
    weights: Sequence[Direction],
    layers: int,
    initial: Sequence[str],
    **fields: Any,
) -> tuple[str, list[list[str]]]:
    """Append layers, each on what the one before it gives: [T, N, D H], and of each kind of state
    the last ones, layer by layer [D, N, H].

    weights: of each direction, layer by layer. initial: each kind of state [layers D, N, H].
    """
    directions = len(weights) // layers
    states = [c.split(value, layers, 0) for value in initial]
    ends: list[list[str]] = [[] for _ in states]
    for i in range(layers):
        own = weights[i * directions : (i + 1) * directions]
        y, *last = layer(c, kind, x, own, [s[i] for s in states], **fields)
        x = side_by_side(c, y)
        for layer_states, end in zip(ends, last):
            layer_states.append(end)
    return x, ends


def in_order(c: Conversion, value: str, order: Sequence[int]) -> str:
    """A matrix or vector with its gates (parts of the first axis) taken in this order."""
    if list(order) == list(range(len(order))):
        return value
    constant = c.builder.constants.get(value)
    if constant is not None:
        if len(constant) % len(order):
            raise ModelError(f"weights {constant.shape} of {len(order)} gates", place=c.node.place)
        gates = np.split(constant, len(order))
        return c.constant(np.concatenate([gates[g] for g in order]))
    pieces = c.split(value, len(order), 0)
    return c.add("Concat", [pieces[g] for g in order], axis=0)


def side_by_side(c: Conversion, y: str, *, batch_first: bool = False) -> str:
    """[T, D, N, H] (or [N, T, D, H]) as [T, N, D H] (or [N, T, D H])."""
    dims = c.type(y).dims
    axis = 2 if batch_first else 1
    if dims[axis] == 1:
        return c.add("Squeeze", [y, c.ints((axis,))])
    if not batch_first:
        y = c.add("Transpose", [y], perm=(0, 2, 1, 3))
    size = dims[axis] * dims[3]
    assert isinstance(size, int)
    return c.add("Reshape", [y, c.ints((0, 0, size))])


def stacked(c: Conversion, values: Sequence[str], axis: int = 0) -> str:
    """Values joined along an axis that they have."""
    return values[0] if len(values) == 1 else c.add("Concat", list(values), axis=axis)


def concatenated(c: Conversion, values: Sequence[str], axis: int = 0) -> str:
    """As `stacked`; one constant where all of them are constants."""
    arrays = [c.builder.constants.get(v) for v in values]
    constants = [a for a in arrays if a is not None]
    if len(constants) == len(values) > 1:
        return c.constant(np.concatenate(constants, axis))
    return stacked(c, values, axis)


def _by_direction(c: Conversion, values: Sequence[str | None]) -> str | None:
    """The values stacked on a new first axis; None if all are None."""
    there = [v for v in values if v is not None]
    if not there:
        return None
    if len(there) != len(values):
        raise ModelError("only one direction has all of its weights", place=c.node.place)
    contents = [c.builder.constants.get(v) for v in there]
    arrays = [a for a in contents if a is not None]
    if len(arrays) == len(there) and len({a.shape for a in arrays}) == 1:
        return c.constant(np.stack(arrays))
    return stacked(c, [c.add("Unsqueeze", [v, c.ints((0,))]) for v in there])


def _or_zeros(c: Conversion, bias: str | None, rows: tuple[int, Any]) -> str:
    return c.constant(np.zeros(rows[0], rows[1])) if bias is None else bias


def _rows(c: Conversion, direction: Direction) -> tuple[int, Any]:
    return c.known_size(direction.r, 0, "the bias"), c.type(direction.r).dtype.numpy
