"""CoreML recurrent layers on [sequence, batch, size, 1, 1].

Legacy networks have no sequence here (a tensor is [batch, channel, height, width]); theirs are
refused. Formulas: apple/coremltools, mlmodel/format/NeuralNetwork.proto.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.context import Conversion, Result
from verax.frontends.coreml.recurrent import CURVES, Cell, Curve, beside, read, run
from verax.frontends.coreml.rows import LEGACY, or_default, row, weights

LIMIT = 50.0
"""Preactivations lie between -50 and 50."""

KINDS = {
    "linear": ("linear", 1.0, 0.0),
    "sigmoid": ("sigmoid", 0.0, 0.0),
    "tanh": ("tanh", 0.0, 0.0),
    "ReLU": ("relu", 0.0, 0.0),
    "scaledTanh": ("scaled_tanh", 1.7159, 2 / 3),
    "sigmoidHard": ("hard_sigmoid", 0.2, 0.5),
}
"""Activations with the only numbers they may have here; 0 stands for them."""


def _curve(c: Conversion, prefix: str) -> Curve:
    kind = c.text(f"{prefix}NonlinearityType", "")
    if kind not in KINDS:
        c.refuse(f"the activation {kind or 'is missing'}: recurrent layers have no such one")
    name, *numbers = KINDS[kind]
    for parameter, expected in zip(("alpha", "beta"), numbers):
        stated = c.scalar(f"{prefix}{kind}.{parameter}", 0.0)
        if stated and np.float32(stated) != np.float32(expected):
            c.attributes.refuse(f"{prefix}{kind}.{parameter}", f"it can only be {expected:g} here")
    return CURVES[name]


def _sizes(c: Conversion) -> tuple[int, int]:
    """Sizes of the input's and the output's vectors. The input must be [S, B, size, 1, 1]."""
    in_size, size = (c.integer(f"{n}VectorSize", 0) for n in ("input", "output"))
    if c.version <= LEGACY or c.rank() != 5 or tuple(c.type(0).dims[2:]) != (in_size, 1, 1):
        c.refuse(f"{c.type(0)} is no sequence [steps, batch, {in_size}, 1, 1]")
    if size < 1:
        raise ModelError("the outputs have no size", place=c.node.place)
    return in_size, size


def _flat(c: Conversion, position: int) -> str | None:
    """An input without its last two axes; None when it is left out."""
    if c.input(position) is None and position:
        return None
    return c.add("Squeeze", [c.required(position), c.ints(LIFTED)])


def _gates(c: Conversion, form: str, gates: tuple[str, ...], shape: tuple[int, ...]) -> np.ndarray:
    """Weights of several gates, one after the other; `form` has the gate's name in braces."""
    return np.concatenate([weights(c, form.format(g), shape) for g in gates])


def _named(c: Conversion, values: list[str]) -> Result:
    """Nodes that give the results their last two axes and the outputs' names."""
    return tuple(
        c.builder.add(c.operator("Unsqueeze"), [value, c.ints(LIFTED)], [name], c.node.name)
        for value, name in zip(values, c.node.outputs)
    )


LIFTED = (3, 4)


@row("simpleRecurrent")
def simple_recurrent(c: Conversion) -> Result:
    a = c.attributes
    in_size, size = _sizes(c)
    bias = None
    if a.flag("hasBiasVector"):
        bias = weights(c, "biasVector", (size,))
    a.irrelevant("biasVector", "hasBiasVector is false")
    w, r = weights(c, "weightMatrix", (size, in_size)), weights(c, "recursionMatrix", (size, size))
    return _one(c, "RNN", Cell(w, r, bias), [_curve(c, "activation.")], a.flag("sequenceOutput"))


@row("gru")
def gated_recurrent(c: Conversion) -> Result:
    a, gates = c.attributes, ("reset", "output", "update")
    in_size, size = _sizes(c)
    bias = None
    if a.flag("hasBiasVectors"):
        bias = _gates(c, "{}GateBiasVector", gates, (size,))
    for gate in gates:
        a.irrelevant(f"{gate}GateBiasVector", "hasBiasVectors is false")
    w = _gates(c, "{}GateWeightMatrix", gates, (size, in_size))
    r = _gates(c, "{}GateRecursionMatrix", gates, (size, size))
    curves = [_curve(c, f"activations.{i}.") for i in (0, 1)]
    return _one(c, "GRU", Cell(w, r, bias), curves, a.flag("sequenceOutput"))


def _one(
    c: Conversion, kind: str, cell: Cell, curves: list[Curve], sequence: bool, **fields: Any
) -> Result:
    """A layer of one direction."""
    reverse = c.flag("reverseInput")
    states = [_flat(c, i) for i in (1, 2)[: 2 if kind == "LSTM" else 1]]
    y, *ends = run(
        c, kind, str(_flat(c, 0)), [cell], states, curves, reverse=reverse, clip=LIMIT, **fields
    )
    return _named(c, [read(c, y, ends[0], sequence=sequence, reverse=reverse), *ends])


def _lstm(c: Conversion, prefix: str) -> Cell:
    """One direction; prefix: where its weights are."""
    a, gates = c.attributes, ("inputGate", "forgetGate", "outputGate", "blockInput")
    in_size, size = _sizes(c)
    bias = peephole = more = None
    if a.flag("params.hasBiasVectors"):
        bias = _gates(c, prefix + "{}BiasVector", gates, (size,))
    if a.flag("params.hasPeepholeVectors"):
        peephole = _gates(c, prefix + "{}PeepholeVector", gates[:3], (size,))
    for gate in gates:
        a.irrelevant(f"{prefix}{gate}BiasVector", "hasBiasVectors is false")
        a.irrelevant(f"{prefix}{gate}PeepholeVector", "hasPeepholeVectors is false")
    if a.flag("params.forgetBias"):
        more = np.repeat(np.array([0, 1, 0, 0], np.float32), size)
    w = _gates(c, prefix + "{}WeightMatrix", gates, (size, in_size))
    r = _gates(c, prefix + "{}RecursionMatrix", gates, (size, size))
    return Cell(w, r, bias, more, peephole)


def _bounds(c: Conversion) -> dict[str, Any]:
    a = c.attributes
    limit = or_default(a.scalar("params.cellClipThreshold", 0.0), LIMIT)
    coupled = a.flag("params.coupledInputAndForgetGate")
    return {"cell_clip": limit, "input_forget": coupled}


@row("uniDirectionalLSTM")
def uni_directional_lstm(c: Conversion) -> Result:
    curves = [_curve(c, f"activations.{i}.") for i in range(3)]
    sequence = c.flag("params.sequenceOutput")
    return _one(c, "LSTM", _lstm(c, "weightParams."), curves, sequence, **_bounds(c))


@row("biDirectionalLSTM")
def bi_directional_lstm(c: Conversion) -> Result:
    """The second direction reads the sequence from its end; results lie side by side."""
    sequence = c.flag("params.sequenceOutput")
    cells = [_lstm(c, f"weightParams.{i}.") for i in (0, 1)]
    curves = [
        [_curve(c, f"activations{name}LSTM.{i}.") for i in range(3)]
        for name in ("Forward", "Backward")
    ]
    states_in = [_flat(c, i) for i in (1, 2, 3, 4)]
    if None in states_in and any(states_in):
        c.refuse("with some of its initial states only")
    states = [beside(c, [str(v) for v in pair], 0) if all(pair) else None
              for pair in (states_in[::2], states_in[1::2])]  # fmt: skip
    y, h, memory = run(
        c, "LSTM", str(_flat(c, 0)), cells, states, curves[0], curves[1], clip=LIMIT, **_bounds(c)
    )
    result = read(c, y, h, sequence=sequence, reverse=False)
    (h, h2), (memory, memory2) = (c.split(v, 2, 0) for v in (h, memory))
    return _named(c, [result, h, memory, h2, memory2])
