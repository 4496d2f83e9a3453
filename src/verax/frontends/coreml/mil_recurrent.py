"""ML program operations over sequences [steps, batch, size]: rnn, gru, lstm.

Meanings and defaults: coremltools, converters/mil/mil/ops/defs; where the reset gate of a GRU acts
is what coremltools' own tests of the operation compute.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.context import Result
from verax.frontends.coreml.mil_rows import Mil, mil
from verax.frontends.coreml.recurrent import CURVES, Cell, Curve, beside, read, run


def _curve(c: Mil, name: str, default: str) -> Curve:
    curve = CURVES.get(c.text(name, default))
    if curve is None:
        c.attributes.refuse(name, "unknown activation")
        raise AssertionError
    return curve


def _matrix(c: Mil, name: str, gates: int, *, vector: bool = False) -> np.ndarray:
    array = c.fixed(name)
    if array is None or np.ndim(array) != (1 if vector else 2) or len(array) % gates:
        raise ModelError(f"{name} is no constant of {gates} gates", place=c.node.place)
    return np.asarray(array)


def _cell(c: Mil, gates: int, suffix: str = "") -> Cell:
    x = c.tensor("x")
    if c.rank(x) != 3:
        raise ModelError(f"the sequence is {c.type(x)}", place=c.node.place)
    bias = None
    if c.fixed(f"bias{suffix}") is not None:
        bias = _matrix(c, f"bias{suffix}", gates, vector=True)
    w, r = (_matrix(c, f"weight_{n}{suffix}", gates) for n in ("ih", "hh"))
    return Cell(w, r, bias)


def _is_reverse(c: Mil) -> bool:
    direction = c.choice("direction", ("forward", "reverse"), "forward")
    return direction == "reverse"


def _one(c: Mil, kind: str, cell: Cell, curves: list[Curve], **fields: Any) -> Result:
    """One direction; states are [batch, size]."""
    reverse, states = _is_reverse(c), ("initial_h", "initial_c")[: 2 if kind == "LSTM" else 1]
    lifted = [c.add("Unsqueeze", [c.tensor(s), c.ints((0,))]) for s in states]
    y, *ends = run(c, kind, c.tensor("x"), [cell], lifted, curves, reverse=reverse, **fields)
    sequence = read(c, y, ends[0], sequence=c.flag("output_sequence"), reverse=reverse)
    return c.named([sequence, *(c.add("Squeeze", [end, c.ints((0,))]) for end in ends)])


@mil("rnn")
def rnn(c: Mil) -> Result:
    return _one(c, "RNN", _cell(c, 1), [_curve(c, "activation", "tanh")])


@mil("gru")
def gru(c: Mil) -> Result:
    cell = _cell(c, 3)
    if c.flag("reset_after"):
        c.attributes.refuse("reset_after", "the format contradicts itself about its meaning")
    if c.fixed("input_bias") is not None:
        cell = replace(cell, more=_matrix(c, "input_bias", 3, vector=True))
    f = _curve(c, "recurrent_activation", "sigmoid")
    return _one(c, "GRU", cell, [f, _curve(c, "activation", "tanh")])


@mil("lstm")
def lstm(c: Mil) -> Result:
    """States of both directions lie side by side."""
    is_bidirectional = c.text("direction", "") == "bidirectional"
    curves = [
        _curve(c, "recurrent_activation", "sigmoid"),
        _curve(c, "cell_activation", "tanh"),
        _curve(c, "activation", "tanh"),
    ]
    limit = None if c.fixed("clip") is None else c.scalar("clip")
    if not is_bidirectional:
        for name in ("weight_ih", "weight_hh", "bias", "peephole"):
            c.attributes.irrelevant(f"{name}_back", "there is one direction")
        return _one(c, "LSTM", _peeping(c, ""), curves, cell_clip=limit)
    cells = [_peeping(c, suffix) for suffix in ("", "_back")]
    states = [
        beside(c, [c.add("Unsqueeze", [v, c.ints((0,))]) for v in c.split(c.tensor(name), 2, 1)], 0)
        for name in ("initial_h", "initial_c")
    ]
    y, *ends = run(c, "LSTM", c.tensor("x"), cells, states, curves, curves, cell_clip=limit)
    sequence = read(c, y, ends[0], sequence=c.flag("output_sequence"), reverse=False)
    return c.named([sequence, *(_flat(c, end) for end in ends)])


def _flat(c: Mil, end: str) -> str:
    """States [2, batch, size] side by side."""
    return beside(c, [c.add("Squeeze", [v, c.ints((0,))]) for v in c.split(end, 2, 0)], 1)


def _peeping(c: Mil, suffix: str) -> Cell:
    cell = _cell(c, 4, suffix)
    if c.fixed(f"peephole{suffix}") is None:
        return cell
    return replace(cell, peephole=_matrix(c, f"peephole{suffix}", 3, vector=True))
