"""ML program operations over sequences [steps, batch, size]: rnn, gru, lstm.

Meanings and defaults: coremltools, converters/mil/mil/ops/defs; where the reset gate of a GRU acts
is what coremltools' own tests of the operation compute.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.conversion import Conversion
from verax.frontends.coreml.mil_rows import (
    dtype_of,
    flag,
    known,
    mil,
    needed,
    number,
    rank_of,
    refuse,
    text,
)
from verax.frontends.coreml.recurrent import (
    Cell,
    Function,
    Outcome,
    functions,
    gru,
    lstm,
    simple,
    stacked,
)
from verax.frontends.coreml.rows import Result


def _function(c: Conversion, name: str, default: str) -> Function:
    said = text(c, name, default)
    found = functions(c).get(said)
    if found is None:
        refuse(c, name, "there is no such activation")
        raise AssertionError
    return found


def _matrix(c: Conversion, name: str, gates: int, *, vector: bool = False) -> np.ndarray:
    found = known(c, name)
    if found is None or np.ndim(found) != (1 if vector else 2) or len(found) % gates:
        raise ModelError(f"{name} is no constant of {gates} gates", place=c.node.place)
    return np.asarray(found)


def _cell(c: Conversion, gates: int, suffix: str = "", *, reverse: bool) -> Cell:
    x = needed(c, "x")
    if rank_of(c, x) != 3:
        raise ModelError(f"the sequence is {c.builder.types[x]}", place=c.node.place)
    bias = None
    if known(c, f"bias{suffix}") is not None:
        bias = _matrix(c, f"bias{suffix}", gates, vector=True)
    w, r = (_matrix(c, f"weight_{n}{suffix}", gates) for n in ("ih", "hh"))
    return Cell(w, r, bias, None, reverse)


def _is_reverse(c: Conversion) -> bool:
    direction = text(c, "direction", "forward")
    if direction not in ("forward", "reverse"):
        refuse(c, "direction", "there is no such direction")
    return direction == "reverse"


def _named(c: Conversion, values: list[str]) -> Result:
    return tuple(
        c.builder.add(c.operator("Identity"), [v], [name], c.node.name)
        for v, name in zip(values, c.node.outputs)
    )


@mil("rnn")
def rnn(c: Conversion) -> Result:
    cell = _cell(c, 1, reverse=_is_reverse(c))
    f = _function(c, "activation", "tanh")
    found = simple(c, needed(c, "x"), needed(c, "initial_h"), cell, f)
    return _named(c, [stacked(c, found, sequence=flag(c, "output_sequence")), found.hidden])


@mil("gru")
def gru_(c: Conversion) -> Result:
    cell = _cell(c, 3, reverse=_is_reverse(c))
    if flag(c, "reset_after"):
        refuse(c, "reset_after", "the format contradicts itself about its meaning")
    if known(c, "input_bias") is not None:
        cell = replace(cell, more=_matrix(c, "input_bias", 3, vector=True))
    f = _function(c, "recurrent_activation", "sigmoid")
    g = _function(c, "activation", "tanh")
    found = gru(c, needed(c, "x"), needed(c, "initial_h"), cell, f, g)
    return _named(c, [stacked(c, found, sequence=flag(c, "output_sequence")), found.hidden])


@mil("lstm")
def lstm_(c: Conversion) -> Result:
    """States of both directions lie side by side."""
    sequence, both = flag(c, "output_sequence"), text(c, "direction", "") == "bidirectional"
    h, state = needed(c, "initial_h"), needed(c, "initial_c")
    if not both:
        for name in ("weight_ih", "weight_hh", "bias", "peephole"):
            c.attributes.irrelevant(f"{name}_back", "there is one direction")
        found = _direction(c, "", h, state, reverse=_is_reverse(c))
        return _named(c, [stacked(c, found, sequence=sequence), found.hidden, found.cell])
    parts = [_halves(c, v) for v in (h, state)]
    ahead = _direction(c, "", parts[0][0], parts[1][0], reverse=False)
    back = _direction(c, "_back", parts[0][1], parts[1][1], reverse=True)
    first = stacked(c, ahead, sequence=sequence)
    y = c.add("Concat", [first, stacked(c, back, sequence=sequence, turned=True)], axis=2)
    hidden = c.add("Concat", [ahead.hidden, back.hidden], axis=1)
    return _named(c, [y, hidden, c.add("Concat", [ahead.cell, back.cell], axis=1)])


def _halves(c: Conversion, state: str) -> tuple[str, str]:
    op = c.operator("Split", num_outputs=2, axis=1)
    names = [c.fresh(f"{c.first_output}/{n}") for n in ("ahead", "back")]
    first, second = c.builder.add_all(op, [state], names, c.node.name)
    return first, second


def _direction(c: Conversion, suffix: str, h: str, state: str, *, reverse: bool) -> Outcome:
    cell = _cell(c, 4, suffix, reverse=reverse)
    peephole = None
    if known(c, f"peephole{suffix}") is not None:
        peephole = _matrix(c, f"peephole{suffix}", 3, vector=True)
        peephole = peephole.astype(dtype_of(c, h))
    activations = [
        _function(c, "recurrent_activation", "sigmoid"),
        _function(c, "cell_activation", "tanh"),
        _function(c, "activation", "tanh"),
    ]
    limit = None if known(c, "clip") is None else number(c, "clip")
    x = needed(c, "x")
    return lstm(c, x, h, state, cell, activations, peephole=peephole, cell_limit=limit)
