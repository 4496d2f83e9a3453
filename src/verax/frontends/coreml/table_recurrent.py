"""CoreML recurrent layers on [sequence, batch, size, 1, 1].

Legacy networks have no sequence here (a tensor is [batch, channel, height, width]); theirs are
refused. Formulas: apple/coremltools, mlmodel/format/NeuralNetwork.proto.
"""

from __future__ import annotations

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.conversion import Conversion
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
from verax.frontends.coreml.rows import LEGACY, Result, or_default, row, weights

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


def _function(c: Conversion, prefix: str) -> Function:
    kind = c.attributes.text(f"{prefix}NonlinearityType", "")
    if kind not in KINDS:
        c.refuse(f"the activation {kind or 'is missing'}: recurrent layers have no such one")
    name, *numbers = KINDS[kind]
    for part, wanted in zip(("alpha", "beta"), numbers):
        said = c.attributes.number(f"{prefix}{kind}.{part}", 0.0)
        if said and np.float32(said) != np.float32(wanted):
            c.attributes.refuse(f"{prefix}{kind}.{part}", f"it can only be {wanted:g} here")
    return functions(c)[name]


def _sizes(c: Conversion) -> tuple[int, int]:
    """Sizes of the input's and the output's vectors. The input must be [S, B, size, 1, 1]."""
    taken, size = (c.attributes.integer(f"{n}VectorSize", 0) for n in ("input", "output"))
    if c.version <= LEGACY or c.rank() != 5 or tuple(c.type(0).dims[2:]) != (taken, 1, 1):
        c.refuse(f"{c.type(0)} is no sequence [steps, batch, {taken}, 1, 1]")
    if size < 1:
        raise ModelError("the outputs have no size", place=c.node.place)
    return taken, size


def _flat(c: Conversion, position: int) -> str:
    """An input without its last two axes; a state without its first one, too."""
    axes = (3, 4) if not position else (0, 3, 4)
    return c.add("Squeeze", [c.required(position), c.ints(axes)])


def _state(c: Conversion, position: int, size: int) -> str:
    """An initial state [B, size]: an input, or zeros."""
    if c.input(position) is not None:
        return _flat(c, position)
    batch = c.type(0).dims[1]
    if not isinstance(batch, int):
        c.refuse(f"{c.type(0)} has no known batch")
    return c.constant(np.zeros((batch, size), np.float32))


def _gates(c: Conversion, form: str, gates: tuple[str, ...], shape: tuple[int, ...]) -> np.ndarray:
    """Weights of several gates, one after the other; `form` has the gate's name in braces."""
    return np.concatenate([weights(c, form.format(g), shape) for g in gates])


def _named(c: Conversion, values: list[str], lifts: list[tuple[int, ...]]) -> Result:
    """Nodes that give the results their last two axes and the outputs' names."""
    return tuple(
        c.builder.add(c.operator("Unsqueeze"), [value, c.ints(axes)], [name], c.node.name)
        for value, axes, name in zip(values, lifts, c.node.outputs)
    )


STATE, SEQUENCE = (0, 3, 4), (3, 4)


@row("simpleRecurrent")
def simple_recurrent(c: Conversion) -> Result:
    a = c.attributes
    taken, size = _sizes(c)
    bias = None
    if a.flag("hasBiasVector"):
        bias = weights(c, "biasVector", (size,))
    a.irrelevant("biasVector", "hasBiasVector is false")
    cell = Cell(
        weights(c, "weightMatrix", (size, taken)),
        weights(c, "recursionMatrix", (size, size)),
        bias,
        LIMIT,
        a.flag("reverseInput"),
    )
    found = simple(c, _flat(c, 0), _state(c, 1, size), cell, _function(c, "activation."))
    y = stacked(c, found, sequence=a.flag("sequenceOutput"))
    return _named(c, [y, found.hidden], [SEQUENCE, STATE])


@row("gru")
def gated_recurrent(c: Conversion) -> Result:
    a, gates = c.attributes, ("reset", "output", "update")
    taken, size = _sizes(c)
    bias = None
    if a.flag("hasBiasVectors"):
        bias = _gates(c, "{}GateBiasVector", gates, (size,))
    for gate in gates:
        a.irrelevant(f"{gate}GateBiasVector", "hasBiasVectors is false")
    cell = Cell(
        _gates(c, "{}GateWeightMatrix", gates, (size, taken)),
        _gates(c, "{}GateRecursionMatrix", gates, (size, size)),
        bias,
        LIMIT,
        a.flag("reverseInput"),
    )
    f, g = (_function(c, f"activations.{i}.") for i in (0, 1))
    found = gru(c, _flat(c, 0), _state(c, 1, size), cell, f, g)
    y = stacked(c, found, sequence=a.flag("sequenceOutput"))
    return _named(c, [y, found.hidden], [SEQUENCE, STATE])


def _lstm(
    c: Conversion, prefix: str, activations: str, states: tuple[int, int], *, reverse: bool
) -> Outcome:
    """One direction. prefix, activations: where its weights and functions are."""
    a, gates = c.attributes, ("inputGate", "forgetGate", "outputGate", "blockInput")
    taken, size = _sizes(c)
    bias = None
    if a.flag("params.hasBiasVectors"):
        bias = _gates(c, prefix + "{}BiasVector", gates, (size,))
    peephole = None
    if a.flag("params.hasPeepholeVectors"):
        peephole = _gates(c, prefix + "{}PeepholeVector", gates[:3], (size,))
    for gate in gates:
        a.irrelevant(f"{prefix}{gate}BiasVector", "hasBiasVectors is false")
        a.irrelevant(f"{prefix}{gate}PeepholeVector", "hasPeepholeVectors is false")
    cell = Cell(
        _gates(c, prefix + "{}WeightMatrix", gates, (size, taken)),
        _gates(c, prefix + "{}RecursionMatrix", gates, (size, size)),
        bias,
        LIMIT,
        reverse,
    )
    return lstm(
        c,
        _flat(c, 0),
        _state(c, states[0], size),
        _state(c, states[1], size),
        cell,
        [_function(c, f"{activations}.{i}.") for i in range(3)],
        peephole=peephole,
        cell_limit=or_default(a.number("params.cellClipThreshold", 0.0), LIMIT),
        coupled=a.flag("params.coupledInputAndForgetGate"),
        forget_bias=a.flag("params.forgetBias"),
    )


@row("uniDirectionalLSTM")
def uni_directional_lstm(c: Conversion) -> Result:
    a = c.attributes
    reverse = a.flag("reverseInput")
    found = _lstm(c, "weightParams.", "activations", (1, 2), reverse=reverse)
    y = stacked(c, found, sequence=a.flag("params.sequenceOutput"))
    return _named(c, [y, found.hidden, found.cell], [SEQUENCE, STATE, STATE])


@row("biDirectionalLSTM")
def bi_directional_lstm(c: Conversion) -> Result:
    """The second direction reads the sequence from its end; results lie side by side."""
    sequence = c.attributes.flag("params.sequenceOutput")
    ahead = _lstm(c, "weightParams.0.", "activationsForwardLSTM", (1, 2), reverse=False)
    back = _lstm(c, "weightParams.1.", "activationsBackwardLSTM", (3, 4), reverse=True)
    first = stacked(c, ahead, sequence=sequence)
    y = c.add("Concat", [first, stacked(c, back, sequence=sequence, turned=True)], axis=2)
    states = [ahead.hidden, ahead.cell, back.hidden, back.cell]
    return _named(c, [y, *states], [SEQUENCE, *[STATE] * 4])
