"""ATen recurrent layers: rnn_tanh, rnn_relu, gru, lstm, with several layers and projections; cells.

Weights of each layer and direction are [gates, ...] in PyTorch's order: input, forget, cell, output
of an LSTM; reset, update, new of a GRU, whose reset gate acts after the product with the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from verax.base.errors import ModelError
from verax.frontends.common.context import Result
from verax.frontends.common.recurrent import (
    CUDNN_ORDERS,
    MAX_LAYERS,
    Direction,
    deep,
    in_order,
    layer,
)
from verax.frontends.torch.rows import Aten, row

KINDS = {"rnn_tanh": "RNN", "rnn_relu": "RNN", "gru": "GRU", "lstm": "LSTM"}


@row("rnn_tanh.input", "rnn_relu.input", "gru.input", "lstm.input")
def recurrent(t: Aten) -> Result:
    """Outputs: the sequence, then the last states [layers directions, batch, units]."""
    kind, layers = KINDS[t.kind], t.integer("num_layers")
    if not 0 < layers <= MAX_LAYERS:
        t.a.refuse("num_layers", f"there may be up to {MAX_LAYERS}")
    if t.flag("train") and t.scalar("dropout", 0.0) and layers > 1:
        t.a.refuse("dropout", "call module.eval() before exporting")
    t.irrelevant("dropout", reason="it acts in training, between layers")
    first, directions = t.flag("batch_first"), 2 if t.flag("bidirectional") else 1
    x = t.tensor("input")
    x = t.add("Transpose", [x], perm=(1, 0, 2)) if first else x
    states = t.tensors("hx") if kind == "LSTM" else [t.tensor("hx")]
    if len(states) != (2 if kind == "LSTM" else 1) or None in states:
        t.wrong("hx", states, "one state, two of an LSTM")
    weights = _weights(t, kind, layers * directions)
    initial = [str(value) for value in states]
    x, ends = deep(t, kind, x, weights, layers, initial, **_fields(t, directions))
    y = t.output(0, "Transpose", [x], perm=(1, 0, 2) if first else (0, 1, 2))
    return y, *(
        t.output(i, "Concat", layer_states, axis=0) for i, layer_states in enumerate(ends, 1)
    )


def _fields(t: Aten, directions: int) -> dict[str, Any]:
    if t.kind.startswith("rnn_relu"):
        return {"activations": ("Relu",) * directions}
    return {"linear_before_reset": True} if t.kind.startswith("gru") else {}


def _weights(t: Aten, kind: str, count: int) -> list[Direction]:
    """By layer and direction: input, state, both biases where there are some, a projection."""
    params, biased = t.tensors("params"), t.flag("has_biases")
    tensors_per_direction = len(params) // count
    if (
        tensors_per_direction * count != len(params)
        or tensors_per_direction - (4 if biased else 2) not in (0, 1)
        or None in params
    ):
        raise ModelError(
            f"{len(params)} parameters for {count} layers and directions", place=t.node.place
        )
    directions = []
    for i in range(0, len(params), tensors_per_direction):
        own = [str(p) for p in params[i : i + tensors_per_direction]]
        gates, projection = own[: 4 if biased else 2], own[4 if biased else 2 :]
        directions.append(_direction(t, kind, gates, *projection))
    return directions


def _direction(
    t: Aten, kind: str, weights: Sequence[str | None], projection: str | None = None
) -> Direction:
    ordered = [None if v is None else in_order(t, v, CUDNN_ORDERS[kind]) for v in weights]
    w, r, bias, state_bias = (*ordered, None, None)[:4]
    return Direction(str(w), str(r), bias, state_bias, None, projection)


@row("rnn_tanh_cell.default", "rnn_relu_cell.default", "gru_cell.default", "lstm_cell.default")
def cell(t: Aten) -> Result:
    """One step: the input [batch, features] is a sequence of one."""
    kind = KINDS[t.kind.removesuffix("_cell")]
    initial = t.tensors("hx") if kind == "LSTM" else [t.tensor("hx")]
    if len(initial) != (2 if kind == "LSTM" else 1) or None in initial:
        t.wrong("hx", initial, "one state, two of an LSTM")
    names = ("w_ih", "w_hh", "b_ih", "b_hh")
    weights = [t.tensor(n) if n.startswith("w") else t.maybe(n) for n in names]
    front = t.ints([0])
    x, *states = (t.add("Unsqueeze", [v, front]) for v in (t.tensor("input"), *initial))
    own = [_direction(t, kind, weights)]
    _, *ends = layer(t, kind, x, own, states, **_fields(t, 1))
    return tuple(t.output(i, "Squeeze", [end, front]) for i, end in enumerate(ends))
