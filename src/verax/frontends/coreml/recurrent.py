"""Recurrent layers step by step, out of the operators of the house: simple, GRU and LSTM.

A layer of S steps becomes S copies of its equations, so S must be known. Equations: the recurrent
layers of NeuralNetwork.proto; ML programs state the same ones. One layer that reads its sequence
from the end gives its results in the order of reading, as the tests of coremltools compute them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.conversion import Conversion

MAX_STEPS = 2048
"""Steps of one layer; each becomes some twenty nodes."""

Function = Callable[[str], str]


@dataclass(frozen=True)
class Cell:
    """What all steps share. G gates of H units: w [G * H, I], r [G * H, H], b, more [G * H].

    limit: preactivations are held between -limit and limit; None: they are not.
    """

    w: np.ndarray
    r: np.ndarray
    b: np.ndarray | None
    limit: float | None
    reverse: bool
    more: np.ndarray | None = None


@dataclass(frozen=True)
class Outcome:
    """outputs: [B, H] per step, in the order of reading. hidden, cell: states after all."""

    outputs: list[str]
    hidden: str
    cell: str = ""


def functions(c: Conversion) -> dict[str, Function]:
    """The activations of recurrent layers by the name that ML programs give them."""

    def hard(x: str) -> str:
        return c.add("HardSigmoid", [x], alpha=float(np.float32(0.2)), beta=0.5)

    def scaled(x: str) -> str:
        inner = c.add("Tanh", [c.add("Mul", [x, _number(c, x, 2 / 3)])])
        return c.add("Mul", [inner, _number(c, x, 1.7159)])

    return {
        "linear": lambda x: x,
        "sigmoid": lambda x: c.add("Sigmoid", [x]),
        "tanh": lambda x: c.add("Tanh", [x]),
        "relu": lambda x: c.add("Relu", [x]),
        "hard_sigmoid": hard,
        "sigmoid_hard": hard,
        "scaled_tanh": scaled,
    }


def _number(c: Conversion, x: str, value: float) -> str:
    return c.constant(value, c.builder.types[x].dtype.numpy)


def _columns(c: Conversion, x: str, size: int, gate: int) -> str:
    """The part of one gate of x [B, G * size]."""
    begin, end = c.ints((gate * size,)), c.ints(((gate + 1) * size,))
    return c.add("Slice", [x, begin, end, c.ints((1,))])


MOVES = ("Unsqueeze", "Squeeze", "Identity", "Split")


def _is_zero(c: Conversion, x: str) -> bool:
    """Whether a state is a constant of zeros, perhaps moved: what multiplies it means nothing."""
    for node in reversed(c.builder.nodes):
        if x in node.outputs:
            first = node.inputs[0] if node.inputs else None
            if first is None or type(node.op).__name__ not in MOVES:
                return False
            x = first
    value = c.builder.constants.get(x)
    return value is not None and not value.any()


def _clipped(c: Conversion, x: str, limit: float | None) -> str:
    if limit is None:
        return x
    return c.add("Clip", [x, _number(c, x, -limit), _number(c, x, limit)])


def _steps(c: Conversion, x: str, cell: Cell) -> list[str]:
    """W x + b of each step, [B, G * H], in the order in which the steps are taken."""
    steps, _, size = c.builder.types[x].dims
    if not isinstance(steps, int) or not 0 < steps <= MAX_STEPS:
        c.refuse(f"a sequence of {steps} steps; it must be a number up to {MAX_STEPS}")
    if cell.w.ndim != 2 or cell.w.shape[1] != size or cell.r.shape[0] != cell.w.shape[0]:
        raise ModelError(f"weights {cell.w.shape} for {c.builder.types[x]}", place=c.node.place)
    product = c.add("MatMul", [x, c.constant(np.ascontiguousarray(cell.w.T))])
    for bias in (cell.b, cell.more):
        if bias is not None:
            product = c.add("Add", [product, c.constant(bias)])
    parts = c.split(product, steps, 0)
    flat = [c.add("Squeeze", [p, c.ints((0,))]) for p in parts]
    return flat[::-1] if cell.reverse else flat


def simple(c: Conversion, x: str, h: str, cell: Cell, f: Function) -> Outcome:
    """y = f(clip(W x + R y + b)) over x [S, B, I] from h [B, H]."""
    r = c.constant(np.ascontiguousarray(cell.r.T))
    outputs = []
    for part in _steps(c, x, cell):
        total = c.add("Add", [part, c.add("MatMul", [h, r])])
        h = f(_clipped(c, total, cell.limit))
        outputs.append(h)
    return Outcome(outputs, h)


def gru(c: Conversion, x: str, h: str, cell: Cell, f: Function, g: Function) -> Outcome:
    """Gates in the order reset, output, update; the reset gate scales the state before R."""
    size = cell.r.shape[1]
    both = c.constant(np.ascontiguousarray(np.concatenate([cell.r[:size], cell.r[2 * size :]]).T))
    alone = c.constant(np.ascontiguousarray(cell.r[size : 2 * size].T))
    outputs = []
    for part in _steps(c, x, cell):
        output_x, update_x = (_columns(c, part, size, i) for i in (1, 2))
        told = c.add("MatMul", [h, both])
        total = c.add("Add", [update_x, _columns(c, told, size, 1)])
        update = f(_clipped(c, total, cell.limit))
        memory = h
        if not _is_zero(c, h):
            total = c.add("Add", [_columns(c, part, size, 0), _columns(c, told, size, 0)])
            memory = c.add("Mul", [h, f(_clipped(c, total, cell.limit))])
        memory = c.add("MatMul", [memory, alone])
        output = g(_clipped(c, c.add("Add", [output_x, memory]), cell.limit))
        fresh = c.add("Mul", [c.add("Sub", [_number(c, h, 1), update]), output])
        h = c.add("Add", [fresh, c.add("Mul", [update, h])])
        outputs.append(h)
    return Outcome(outputs, h)


def lstm(
    c: Conversion, x: str, h: str, state: str, cell: Cell, activations: Sequence[Function], *,
    peephole: np.ndarray | None, cell_limit: float | None, coupled: bool = False,
    forget_bias: bool = False,
) -> Outcome:  # fmt: skip
    """Gates in the order input, forget, output, block input; activations f, g, h.

    peephole: [3 * H] of the first three gates. cell_limit: bound of the memory's magnitude.
    coupled: the memory forgets what the input gate takes in. forget_bias: 1 is added to the
    forget gate's preactivation.
    """
    f, g, last = activations
    r = c.constant(np.ascontiguousarray(cell.r.T))
    looks = [] if peephole is None else [c.constant(p) for p in np.split(peephole, 3)]
    outputs = []

    def gate(total: str, index: int, memory: str) -> str:
        if looks:
            total = c.add("Add", [total, c.add("Mul", [memory, looks[index]])])
        return f(_clipped(c, total, cell.limit))

    for part in _steps(c, x, cell):
        total = c.add("Add", [part, c.add("MatMul", [h, r])])
        starts = _is_zero(c, state)
        if starts or coupled:  # A forget gate that nothing reads is not computed.
            size = cell.r.shape[1]
            taken, shown, block = (_columns(c, total, size, i) for i in (0, 2, 3))
            kept = ""
        else:
            taken, kept, shown, block = c.split(total, 4, 1)
        taken = gate(taken, 0, state)
        fresh = c.add("Mul", [taken, g(_clipped(c, block, cell.limit))])
        if starts:
            state = fresh
        else:
            if coupled:
                kept = c.add("Sub", [_number(c, taken, 1), taken])
            else:
                if forget_bias:
                    kept = c.add("Add", [kept, _number(c, kept, 1)])
                kept = gate(kept, 1, state)
            state = c.add("Add", [c.add("Mul", [state, kept]), fresh])
        state = _clipped(c, state, cell_limit)
        h = c.add("Mul", [last(state), gate(shown, 2, state)])
        outputs.append(h)
    return Outcome(outputs, h, state)


def stacked(c: Conversion, outcome: Outcome, *, sequence: bool, turned: bool = False) -> str:
    """[S, B, H] of all steps, or [1, B, H] of the last one; turned: the last step goes first."""
    chosen = outcome.outputs if sequence else [outcome.hidden]
    chosen = chosen[::-1] if turned else chosen
    parts = [c.add("Unsqueeze", [v, c.ints((0,))]) for v in chosen]
    return parts[0] if len(parts) == 1 else c.add("Concat", parts, axis=0)
