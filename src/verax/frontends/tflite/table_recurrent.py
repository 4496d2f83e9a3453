"""TFLite recurrent operators: LSTM, RNN, SVDF, their sequences in one and two directions.

Each writes its state to variable tensors among its operands (see `state`). Equations and positions
of the operands: tensorflow/lite/kernels/lstm_eval.cc, basic_rnn.cc, svdf.cc and their neighbors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.context import Conversion, Result
from verax.frontends.common.recurrent import Direction, concatenated, in_order, layer
from verax.frontends.tflite.rows import row
from verax.frontends.tflite.state import VARIABLES

Activation = tuple[str, float, float]
CURVES: dict[str, Activation] = {
    "NONE": ("Affine", 1.0, 0.0),
    "RELU": ("Relu", 0.0, 0.0),
    "RELU_N1_TO_1": ("Clamped", -1.0, 1.0),
    "RELU6": ("Clamped", 0.0, 6.0),
    "TANH": ("Tanh", 0.0, 0.0),
}
"""Fused activations as the operators name theirs: name, alpha, beta."""
SIGMOID = ("Sigmoid", 0.0, 0.0)
GATES = (0, 3, 1, 2)
"""Which of LSTM's gates (input, forget, cell, output) lies at each place of the operator's."""
BASIC_GATES = (0, 3, 2, 1)
"""The same of the basic kernel, whose gates are input, cell, forget, output."""
FULL = (20, 24)
"""Operands of LSTM's full kernel; the last four are those of layer normalization."""
BACKWARD = 17
"""How far the weights of the second direction lie behind those of the first."""


def _activation(c: Conversion) -> Activation:
    name = c.choice("fused_activation_function", CURVES, "NONE")
    return CURVES[name]


def _states(c: Conversion, batch_axis: int, *positions: int) -> list[str]:
    """Operands that are state, which must be variable tensors of as many rows as the batch has."""
    c.attributes.irrelevant("asymmetric_quantize_inputs", "nothing is quantised")
    if c.integers(VARIABLES) != positions:
        c.attributes.refuse(
            VARIABLES, f"LiteRT demands variable tensors as its operands {positions}"
        )
    batch = c.known_size(0, batch_axis, "whether the state fits the batch")
    for i in positions:
        if c.type(i).dims[0] != batch:
            raise ModelError(
                f"the state {c.type(i)} is not that of a batch of {batch}", place=c.node.place
            )
    return [c.required(i) for i in positions]


def _numbers(*curves: Activation) -> dict[str, Any]:
    names, alphas, betas = zip(*curves)
    return {"activations": names, "activation_alpha": alphas, "activation_beta": betas}


def _run(
    c: Conversion,
    kind: str,
    x: str,
    own: Direction,
    states: Sequence[str],
    time_major: bool,
    **fields: Any,
) -> tuple[str, list[str]]:
    """The operator of one direction over x, batch first unless time_major: its outputs
    [T, 1, N, H] or [N, T, 1, H], and the states [1, N, H] or [N, 1, H]."""
    axis = c.ints((0 if time_major else 1,))
    initial = [c.add("Unsqueeze", [s, axis]) for s in states]
    y, *ends = layer(c, kind, x, [own], initial, layout=0 if time_major else 1, **fields)
    return y, ends


def _finished(
    c: Conversion, results: Sequence[tuple[str, list[str]]], time_major: bool, merged: bool = False
) -> Result:
    """Values of the node's outputs from the results of `_run` for each direction: sequences, along
    one axis when merged, and then the states."""
    ends = [end for _, own in results for end in own]
    count = 1 if merged else len(results)
    names = iter(c.node.outputs)
    if len(c.node.outputs) != count + len(ends):
        raise ModelError(f"it has no {count} outputs", place=c.node.place)
    steps = c.ints((1 if time_major else 2,))
    if merged:
        squeezed = [c.add("Squeeze", [y, steps]) for y, _ in results]
        sequences = [_named(c, "Concat", squeezed, names, axis=2)]
    else:
        sequences = [_named(c, "Squeeze", [y, steps], names) for y, _ in results]
    axis = c.ints((0 if time_major else 1,))
    return (*sequences, *(_named(c, "Squeeze", [end, axis], names) for end in ends))


def _named(
    c: Conversion, kind: str, inputs: Sequence[str], names: Iterator[str], **fields: Any
) -> str:
    """Append a node under the next of the names."""
    name = next(names, None)
    if name is None:
        raise ModelError(f"it has only {len(c.node.outputs)} outputs", place=c.node.place)
    return c.builder.add(c.operator(kind, **fields), inputs, [name], c.node.name)


# LSTM


def _gates(c: Conversion, first: int, optional: bool = False) -> str | None:
    """Weights of four gates as one matrix or vector. Without those of the input gate it is made of
    the forget gate, and zeros stand in their place."""
    if optional and c.input(first + 1) is None:
        return None
    gates = [c.input(first + g) for g in range(4)]
    if gates[0] is None:
        gates[0] = c.like(_zeros(c, first + 1), first + 1)
    return concatenated(c, [c.value(gates[g] or first + g) for g in GATES])


def _zeros(c: Conversion, position: int) -> Any:
    """Zeros in the shape of an operand."""
    sizes = c.known_sizes(position, dependent="the weights of the missing gate")
    return np.zeros(sizes)


def _lstm_direction(c: Conversion, first: int, aux: int | None) -> Direction:
    """Weights behind the position `first`; aux: where those of the auxiliary input begin."""
    w, r, bias = (str(_gates(c, first + i)) for i in (1, 5, 12))
    if aux is not None:
        w = concatenated(c, [w, str(_gates(c, aux))], axis=1)
    peepholes = None
    if c.input(first + 11) is not None:
        gates = [c.input(first + 9), c.required(first + 11), c.required(first + 10)]
        gates[0] = gates[0] or c.like(_zeros(c, first + 10), first + 10)
        peepholes = concatenated(c, [str(p) for p in gates])
    projection, its_bias = c.input(first + 16), c.input(first + 17)
    return Direction(w, r, bias, None, peepholes, projection, its_bias if projection else None)


def _lstm_fields(c: Conversion, first: int) -> dict[str, Any]:
    """Attributes of the operator whose weights lie behind `first`."""
    act = _activation(c)
    if act == CURVES["NONE"]:
        reason = (
            "LiteRT's LSTM then multiplies the output gate with the cell gate, not with the cell"
        )
        c.attributes.refuse("fused_activation_function", reason)
    fields = {**_numbers(SIGMOID, act, act), "cell_clip": c.scalar("cell_clip", 0.0) or None}
    fields["input_from_forget"] = c.input(first + 1) is None
    if c.input(first + 16) is None:
        c.attributes.irrelevant("proj_clip", "there is no projection")
    else:
        fields["projection_clip"] = c.scalar("proj_clip", 0.0) or None
    return fields


def has_layer_norm(c: Conversion) -> bool:
    """Whether the gates are normalized. Refuses numbers of operands that LiteRT does not know."""
    if len(c.inputs) not in FULL:
        raise ModelError(f"it has {len(c.inputs)} operands, not {FULL[0]}", place=c.node.place)
    return any(name is not None for name in c.inputs[FULL[0] :])


def whole_sequence(c: Conversion) -> Result:
    """UNIDIRECTIONAL_SEQUENCE_LSTM on floats, without layer normalization."""
    time_major = c.flag("time_major")
    states = _states(c, 1 if time_major else 0, 18, 19)
    fields, own = _lstm_fields(c, 0), _lstm_direction(c, 0, None)
    result = _run(c, "LSTM", c.required(0), own, states, time_major, **fields)
    return _finished(c, [result], time_major)


def single_step(c: Conversion) -> Result:
    """LSTM's full kernel on floats, without layer normalization."""
    states = _states(c, 0, 18, 19)
    return _cell(c, "LSTM", _lstm_direction(c, 0, None), states, **_lstm_fields(c, 0))


def basic_cell(c: Conversion) -> Result:
    """LSTM's basic kernel, which has its weights in one matrix, on the input and the state."""
    a = c.attributes
    a.expect("fused_activation_function", "TANH", reason="the basic kernel has no other")
    for name in ("cell_clip", "proj_clip"):
        a.expect(name, 0.0, reason="the basic kernel has no bounds")
    h, memory = _states(c, 0, 1, 4)
    weights, size = c.constant_input(2, "the weights"), c.known_size(0, 1, "the weights")
    parameters = (c.constant(weights[:, :size]), c.constant(weights[:, size:]), c.required(3))
    w, r, bias = (in_order(c, v, BASIC_GATES) for v in parameters)
    return _cell(c, "LSTM", Direction(w, r, bias), [h, memory])


def _cell(c: Conversion, kind: str, own: Direction, states: Sequence[str], **fields: Any) -> Result:
    """A sequence of one: the outputs are the first states after it, as many as the node names."""
    x = c.add("Unsqueeze", [c.required(0), c.ints((0,))])
    _, ends = _run(c, kind, x, own, states, True, **fields)
    count = len(c.node.outputs) - len(ends)
    if not 0 < count <= len(ends):
        raise ModelError(f"it has {count} outputs", place=c.node.place)
    names, front = iter(c.node.outputs), c.ints((0,))
    return tuple(_named(c, "Squeeze", [end, front], names) for end in (*ends[:count], *ends))


@row("BIDIRECTIONAL_SEQUENCE_LSTM")
def bidirectional_lstm(c: Conversion) -> Result:
    if len(c.inputs) != 48:
        raise ModelError(f"it has {len(c.inputs)} operands, not 48", place=c.node.place)
    time_major = c.flag("time_major", True)
    states = _states(c, 1 if time_major else 0, 35, 36, 37, 38)
    aux = None if c.input(41) is None else 40
    if aux is not None and c.type(0).dims[2] != c.type(39).dims[2]:
        c.refuse("LiteRT misreads an auxiliary input of another size")
    if c.flag("merge_outputs") and not time_major and c.type(0).dims[0] != 1:
        c.refuse("in batch-major order LiteRT reads merged states of the wrong sequence")
    return _bidirectional(
        c,
        "LSTM",
        [
            (_lstm_direction(c, 0, aux), states[:2], _lstm_fields(c, 0)),
            (_lstm_direction(c, BACKWARD, aux and aux + 4), states[2:], _lstm_fields(c, BACKWARD)),
        ],
        c.input(39),
        aux is not None,
        time_major,
    )


def _bidirectional(
    c: Conversion,
    kind: str,
    directions: Sequence[tuple[Direction, Sequence[str], dict[str, Any]]],
    auxiliary: str | None,
    joins: bool,
    time_major: bool,
) -> Result:
    """A bidirectional layer; directions: weights, states and attributes of each.

    auxiliary: the second input, which is concatenated to the first, or the input of the second
    direction."""
    x = c.required(0)
    if joins:
        if auxiliary is None:
            raise ModelError("weights of an auxiliary input that it lacks", place=c.node.place)
        x, auxiliary = c.add("Concat", [x, auxiliary], axis=2), None
    results = [
        _run(c, kind, sequence, own, states, time_major, direction=name, **fields)
        for name, sequence, (own, states, fields) in zip(
            ("forward", "reverse"), (x, auxiliary or x), directions
        )
    ]
    return _finished(c, results, time_major, c.flag("merge_outputs"))


# RNN


def _rnn_direction(c: Conversion, first: int, aux: int | None) -> Direction:
    w = c.required(first)
    if aux is not None:
        w = concatenated(c, [w, c.required(aux)], axis=1)
    return Direction(w, c.required(first + 1), c.required(first + 2))


@row("RNN")
def rnn_cell(c: Conversion) -> Result:
    states = _states(c, 0, 4)
    return _cell(c, "RNN", _rnn_direction(c, 1, None), states, **_numbers(_activation(c)))


@row("UNIDIRECTIONAL_SEQUENCE_RNN")
def sequence_rnn(c: Conversion) -> Result:
    time_major = c.flag("time_major")
    states = _states(c, 1 if time_major else 0, 4)
    own, fields = _rnn_direction(c, 1, None), _numbers(_activation(c))
    result = _run(c, "RNN", c.required(0), own, states, time_major, **fields)
    return _finished(c, [result], time_major)


@row("BIDIRECTIONAL_SEQUENCE_RNN")
def bidirectional_rnn(c: Conversion) -> Result:
    if len(c.inputs) != 12:
        raise ModelError(f"it has {len(c.inputs)} operands, not 12", place=c.node.place)
    time_major = c.flag("time_major")
    states = _states(c, 1 if time_major else 0, 4, 8)
    joins, fields = c.input(10) is not None, _numbers(_activation(c))
    if time_major and not c.flag("merge_outputs"):
        c.refuse("in time-major order LiteRT exchanges sizes of the second output: merge them")
    if joins and time_major and c.type(0).dims[2] != c.type(9).dims[2]:
        c.refuse("in time-major order LiteRT misreads an auxiliary input of another size")
    if c.input(9) is not None and not joins and not time_major:
        c.refuse("in batch-major order LiteRT ignores the second direction's own input")
    directions = [
        (_rnn_direction(c, first, aux if joins else None), [state], fields)
        for first, aux, state in ((1, 10, states[0]), (5, 11, states[1]))
    ]
    return _bidirectional(c, "RNN", directions, c.input(9), joins, time_major)


# SVDF


@row("SVDF")
def svdf(c: Conversion) -> Result:
    """Operands: x [batch, size], weights of features [filters, size] and of time [filters,
    memory], bias [units], state [batch, filters memory]. Each filter remembers its last `memory`
    features; a unit adds up those of `rank` filters, weighted by their age."""
    x, (state,), rank = c.required(0), _states(c, 0, 4), c.integer("rank", 0)
    filters, memory = c.known_sizes(2, dependent="the state")
    (batch,) = c.known_sizes(0, (0,))
    if rank < 1 or filters % rank:
        raise ModelError(f"{filters} filters of rank {rank}", place=c.node.place)
    feature = c.add("Gemm", [x, c.required(1)], trans_b=True)
    features = c.add("Reshape", [state, c.ints((batch, filters, memory))])
    if memory > 1:
        features = c.add("Slice", [features, *(c.ints((n,)) for n in (1, memory, 2))])
    newest = c.add("Unsqueeze", [feature, c.ints((2,))])
    features = c.add("Concat", [features, newest], axis=2) if memory > 1 else newest
    weighted = c.add("Mul", [features, c.required(2)])
    windows = c.add("Reshape", [weighted, c.ints((batch, filters // rank, rank * memory))])
    y = c.add("ReduceSum", [windows, c.ints((2,))], keepdims=False)
    if c.input(3) is not None:
        y = c.add("Add", [y, c.required(3)])
    names = iter(c.node.outputs)
    output = _curve(c, _activation(c), y, names)
    return output, _named(c, "Reshape", [features, c.ints((batch, filters * memory))], names)


def _curve(c: Conversion, act: Activation, x: str, names: Iterator[str]) -> str:
    """The activation of x as a node of its own."""
    name, alpha, beta = act
    if name == "Clamped":
        return _named(c, "Clip", [x, c.like(alpha, x), c.like(beta, x)], names)
    return _named(c, "Identity" if name == "Affine" else name, [x], names)
