"""MXNet's fused recurrent layers, written out step by step: the number of steps must be known.

Equations and the order of weights are those of src/operator/rnn_impl.h of apache/mxnet 1.9.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.conversion import Conversion
from verax.frontends.mxnet.rows import Result, count_inputs, known_dims, like, row

GATES = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}
MAX_STEPS = 2048
"""Steps of a layer; each becomes some twenty nodes."""


@row("_rnn_param_concat", "_npi_rnn_param_concat")
def parameters(c: Conversion) -> Result:
    """All weights and biases in one vector."""
    return c.operator("Concat", axis=c.attributes.integer("dim", 1))


@dataclass(frozen=True)
class Weights:
    """Of one layer in one direction, ready to multiply from the right: w [size, gates * units],
    r [units, gates * units], and their biases."""

    w: str
    r: str
    w_bias: str
    r_bias: str


class _Vector:
    """The vector of parameters, taken apart from its beginning on."""

    def __init__(self, c: Conversion, value: str) -> None:
        self.c, self.value, self.at = c, value, 0
        self.array = c.builder.constants.get(value)

    def take(self, *shape: int) -> str:
        """The next numbers in a shape; a matrix is turned."""
        c, begin = self.c, self.at
        self.at += int(np.prod(shape))
        if self.array is not None:
            return c.constant(np.ascontiguousarray(self.array[begin : self.at].reshape(shape).T))
        bounds = [c.ints((v,)) for v in (begin, self.at, 0)]
        part = c.add("Slice", [self.value, *bounds])
        if len(shape) == 1:
            return part
        return c.add("Transpose", [c.add("Reshape", [part, c.ints(shape)])], perm=(1, 0))


def _sum(c: Conversion, first: str, *more: str) -> str:
    for value in more:
        first = c.add("Add", [first, value])
    return first


def _lstm(c: Conversion, x: str, h: str, memory: str) -> tuple[str, str]:
    """Gates in the order input, forget, new, output."""
    parts = c.split(_sum(c, x, h), 4, 1)
    taken, kept, shown = (c.add("Sigmoid", [parts[i]]) for i in (0, 1, 3))
    fresh = c.add("Mul", [taken, c.add("Tanh", [parts[2]])])
    memory = _sum(c, c.add("Mul", [kept, memory]), fresh)
    return c.add("Mul", [shown, c.add("Tanh", [memory])]), memory


def _gru(c: Conversion, x: str, h: str, state: str) -> str:
    """Gates in the order reset, update, new; the reset gate scales what the state gives to new."""
    xs, hs = c.split(x, 3, 1), c.split(h, 3, 1)
    reset, update = (c.add("Sigmoid", [_sum(c, xs[i], hs[i])]) for i in (0, 1))
    new = c.add("Tanh", [_sum(c, xs[2], c.add("Mul", [reset, hs[2]]))])
    rest = c.add("Sub", [like(c, 1), update])
    return _sum(c, c.add("Mul", [rest, new]), c.add("Mul", [update, state]))


def _layer(
    c: Conversion, kind: str, steps: list[str], own: Weights, h: str, memory: str | None
) -> tuple[list[str], str, str | None]:
    """Outputs of all steps, and the states after them."""
    outputs = []
    for x in steps:
        x = _sum(c, c.add("MatMul", [x, own.w]), own.w_bias)
        y = _sum(c, c.add("MatMul", [h, own.r]), own.r_bias)
        if kind == "lstm":
            assert memory is not None
            h, memory = _lstm(c, x, y, memory)
        elif kind == "gru":
            h = _gru(c, x, y, h)
        else:
            h = c.add("Relu" if kind == "rnn_relu" else "Tanh", [_sum(c, x, y)])
        outputs.append(h)
    return outputs, h, memory


@row("RNN")
def recurrent(c: Conversion) -> Result:
    """data [steps, batch, size], parameters, state and for an LSTM memory, each [layers *
    directions, batch, units]: outputs [steps, batch, directions * units] and states after."""
    a = c.attributes
    kind = a.text("mode")
    if kind not in GATES:
        a.refuse("mode", "there is no such layer")
    a.irrelevant("p", "nothing is dropped while evaluating")
    a.irrelevant("state_outputs", "who reads the states says whether they are outputs")
    a.expect("use_sequence_length", False, why="lengths are not supported")
    for name in ("projection_size", "lstm_state_clip_min", "lstm_state_clip_max"):
        a.expect(name, None, why="it is not supported")
    a.irrelevant("lstm_state_clip_nan", "without bounds it does nothing")
    count_inputs(c, 4 if kind == "lstm" else 3)
    units, layers = a.integer("state_size"), a.integer("num_layers")
    directions = 2 if a.flag("bidirectional", False) else 1
    steps, size = known_dims(c, 0, "the number of steps")[::2]
    gates = GATES[kind] * units
    if not (0 < steps <= MAX_STEPS and 0 < layers <= 64 and units > 0):
        c.refuse(f"{layers} layers of {steps} steps; at most {MAX_STEPS} steps are written out")
    weights = _weights(c, size, units, gates, layers, directions)
    squeeze = c.ints((0,))

    def pieces(value: str, count: int) -> list[str]:
        return [c.add("Squeeze", [p, squeeze]) for p in c.split(value, count, 0)]

    hidden = pieces(c.required(2), layers * directions)
    memories: list[str | None] = [None] * len(hidden)
    if kind == "lstm":
        memories = list(pieces(c.required(3), layers * directions))
    flow = pieces(c.required(0), steps)
    for layer in range(layers):
        made = []
        for i in range(layer * directions, (layer + 1) * directions):
            is_backward = i % directions == 1
            order = flow[::-1] if is_backward else flow
            outputs, *after = _layer(c, kind, order, weights[i], hidden[i], memories[i])
            hidden[i], memories[i] = after[0], after[1]  # type: ignore[assignment]
            made.append(outputs[::-1] if is_backward else outputs)
        flow = made[0]
        if directions == 2:
            flow = [c.add("Concat", list(pair), axis=1) for pair in zip(*made)]
    results = [_stacked(c, flow), _stacked(c, hidden)]
    if kind == "lstm":
        results.append(_stacked(c, [m for m in memories if m is not None]))
    return tuple(results)


def _weights(
    c: Conversion, size: int, units: int, gates: int, layers: int, directions: int
) -> list[Weights]:
    """Weights by layer and direction; all matrices lie before all biases."""
    vector = _Vector(c, c.required(1))
    count = layers * directions
    sizes = [size if i < directions else units * directions for i in range(count)]
    matrices = [(vector.take(gates, n), vector.take(gates, units)) for n in sizes]
    biases = [(vector.take(gates), vector.take(gates)) for _ in sizes]
    if c.type(1).dims != (vector.at,):
        raise ModelError(f"the parameters are {c.type(1)}, not {vector.at}", place=c.node.place)
    return [Weights(*m, *b) for m, b in zip(matrices, biases)]


def _stacked(c: Conversion, values: list[str]) -> str:
    parts = [c.add("Unsqueeze", [v, c.ints((0,))]) for v in values]
    return parts[0] if len(parts) == 1 else c.add("Concat", parts, axis=0)
