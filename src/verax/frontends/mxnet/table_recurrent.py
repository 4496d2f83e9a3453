"""MXNet's fused recurrent layers.

Equations and the order of weights are those of src/operator/rnn_impl.h of apache/mxnet 1.9.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.context import Conversion, Result
from verax.frontends.common.recurrent import (
    CUDNN_ORDERS,
    MAX_LAYERS,
    Direction,
    deep,
    in_order,
    stacked,
)
from verax.frontends.mxnet.rows import count_inputs, known_dims, row
from verax.ir.operator import REGISTRY

KINDS = {"rnn_relu": "RNN", "rnn_tanh": "RNN", "lstm": "LSTM", "gru": "GRU"}


@row("_rnn_param_concat", "_npi_rnn_param_concat")
def parameters(c: Conversion) -> Result:
    """All weights and biases in one vector."""
    return c.operator("Concat", axis=c.integer("dim", 1))


class _Vector:
    """The vector of parameters, taken apart from its beginning on."""

    def __init__(self, c: Conversion, value: str, order: tuple[int, ...]) -> None:
        self.c, self.value, self.order, self.at = c, value, order, 0
        self.array = c.builder.constants.get(value)

    def take(self, *shape: int, gated: bool = True) -> str:
        """The next numbers in a shape, their gates in the operator's order."""
        c, begin = self.c, self.at
        self.at += int(np.prod(shape))
        if self.array is not None:
            parameters = c.constant(self.array[begin : self.at].reshape(shape))
        else:
            parameters = c.add("Slice", [self.value, *(c.ints((v,)) for v in (begin, self.at, 0))])
            parameters = (
                parameters if len(shape) == 1 else c.add("Reshape", [parameters, c.ints(shape)])
            )
        return in_order(c, parameters, self.order) if gated else parameters


@row("RNN")
def recurrent(c: Conversion) -> Result:
    """data [steps, batch, size], parameters, state and for an LSTM memory, each [layers *
    directions, batch, units]: outputs [steps, batch, directions * units] and states after. An LSTM
    may project its units to a state of another size."""
    a = c.attributes
    mode = c.choice("mode", KINDS)
    a.irrelevant("p", "nothing is dropped while evaluating")
    a.irrelevant("state_outputs", "who reads the states says whether they are outputs")
    a.expect("use_sequence_length", False, reason="lengths are not supported")
    for name in ("lstm_state_clip_min", "lstm_state_clip_max"):
        a.expect(name, None, reason="MXNet has it on GPUs only")
    a.irrelevant("lstm_state_clip_nan", "without bounds it does nothing")
    count_inputs(c, 4 if mode == "lstm" else 3)
    units, layers = a.integer("state_size"), a.integer("num_layers")
    directions = 2 if a.flag("bidirectional", False) else 1
    (size,) = known_dims(c, 0, "the number of weights", first=2)
    projected = 0 if a.get("projection_size") is None else a.integer("projection_size")
    if projected < 0 or (projected and mode != "lstm"):
        a.refuse("projection_size", "only an LSTM has a projection")
    if not 0 < layers <= MAX_LAYERS or units < 1:
        c.refuse(f"{layers} layers of {units} units; there may be {MAX_LAYERS} layers")
    fields: dict[str, Any] = {"linear_before_reset": True} if mode == "gru" else {}
    if mode == "rnn_relu":
        fields["activations"] = ("Relu",) * directions
    weights = _weights(c, KINDS[mode], size, units, layers, directions, projected)
    initial = [c.required(i) for i in range(2, len(c.inputs))]
    y, ends = deep(c, KINDS[mode], c.required(0), weights, layers, initial, **fields)
    return y, *(stacked(c, states) for states in ends)


def _weights(
    c: Conversion, kind: str, size: int, units: int, layers: int, directions: int, projected: int
) -> list[Direction]:
    """Weights by layer and direction; all matrices lie before all biases. projected: size of the
    state behind a projection, 0 without one."""
    vector = _Vector(c, c.required(1), CUDNN_ORDERS[kind])
    rows, count = REGISTRY[kind].gates * units, layers * directions  # type: ignore[attr-defined]
    state = projected or units
    directions_of_layers = []
    for i in range(count):
        w = vector.take(rows, size if i < directions else state * directions)
        r = vector.take(rows, state)
        projection = vector.take(projected, units, gated=False) if projected else None
        directions_of_layers.append(Direction(w, r, projection=projection))
    directions_of_layers = [
        replace(d, bias=vector.take(rows), state_bias=vector.take(rows))
        for d in directions_of_layers
    ]
    if c.type(1).dims != (vector.at,):
        raise ModelError(f"the parameters are {c.type(1)}, not {vector.at}", place=c.node.place)
    return directions_of_layers
