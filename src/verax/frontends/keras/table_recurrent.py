"""Keras recurrent layers, written out step by step: the number of steps must be known.

Masks are refused where they come from (Embedding, Masking), so that every step counts. Also what is
around layers: TimeDistributed, Bidirectional, SpectralNormalization.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.conversion import Conversion
from verax.frontends.keras.rows import (
    Result,
    activated,
    array_of,
    bounded,
    finish,
    finish_all,
    gives_more,
    known_sizes,
    row,
    weights,
)
from verax.frontends.keras.table_movement import reversed_along

GATES = {"SimpleRNN": 1, "GRU": 3, "LSTM": 4}
UNUSED = {
    "dropout": "it matters in training only",
    "recurrent_dropout": "it matters in training only",
    "unroll": "it chooses a way to compute the same",
    "implementation": "it chooses a way to compute the same",
    "unit_forget_bias": "the file has the values",
    "zero_output_for_mask": "there are no masks",
}


@dataclass
class Recurrence:
    """One recurrent layer being written out. biases: per gate; GRU has a second, recurrent one.

    State is None as long as it is zero: products with it are left out, which changes no value.
    matrices: the recurrent one gate by gate, where a step needs it so.
    """

    c: Conversion
    units: int
    recurrent: str
    biases: list[str]
    states: list[str | None]
    matrices: list[str] = field(default_factory=list)

    def product(self, matrix: str) -> str | None:
        """The state times a matrix."""
        state = self.states[0]
        return None if state is None else self.c.add("MatMul", [state, matrix])

    def sum(self, *terms: str | None) -> str:
        """The terms that are there, added up from the left."""
        there = [t for t in terms if t is not None]
        total = there[0]
        for term in there[1:]:
            total = self.c.add("Add", [total, term])
        return total

    def piece(self, value: str | None, index: int) -> str | None:
        """One of the gates that lie side by side in a value."""
        if value is None:
            return None
        bounds = [self.c.ints((n,)) for n in (index * self.units, (index + 1) * self.units, -1)]
        return self.c.add("Slice", [value, *bounds])

    def curve(self, value: str | None, attribute: str = "activation") -> str:
        return activated(self.c, str(value), attribute)

    def gate(self, value: str | None) -> str:
        return self.curve(value, "recurrent_activation")

    def simple(self, x: str) -> None:
        self.states = [self.curve(self.sum(x, self.product(self.recurrent)))]

    def lstm(self, x: str) -> None:
        """Gates lie in the order input, forget, cell, output."""
        c, cell = self.c, self.states[1]
        gates = self.sum(x, self.product(self.recurrent))
        fresh = c.add("Mul", [self.gate(self.piece(gates, 0)), self.curve(self.piece(gates, 2))])
        kept = None if cell is None else c.add("Mul", [self.gate(self.piece(gates, 1)), cell])
        cell = self.sum(kept, fresh)
        self.states = [c.add("Mul", [self.gate(self.piece(gates, 3)), self.curve(cell)]), cell]

    def gru_after(self, x: str) -> None:
        """The reset gate acts after the product with the state. Gates: update, reset, new."""
        c = self.c
        terms = [t for t in (self.product(self.recurrent), *self.biases) if t is not None]
        h = self._row(self.sum(*terms)) if terms else None
        new = self.piece(x, 2)
        if h is not None:
            reset = self.gate(self.sum(self.piece(x, 1), self.piece(h, 1)))
            new = self.sum(new, c.add("Mul", [reset, self.piece(h, 2)]))
        update = self.gate(self.sum(self.piece(x, 0), self.piece(h, 0)))
        self._gru_finish(update, self.curve(new))

    def _row(self, value: str) -> str:
        """A bias alone as a row; what is one already, as it is."""
        rank = self.c.builder.types[value].rank
        return value if rank > 1 else self.c.add("Unsqueeze", [value, self.c.ints((0,))])

    def gru_before(self, x: str) -> None:
        """The reset gate acts on the state before its product."""
        c, state, new = self.c, self.states[0], self.piece(x, 2)
        if state is None:
            self._gru_finish(self.gate(self.piece(x, 0)), self.curve(new))
            return
        self.matrices = self.matrices or [str(self.piece(self.recurrent, i)) for i in range(3)]
        update, reset = (
            self.gate(self.sum(self.piece(x, i), self.product(self.matrices[i]))) for i in (0, 1)
        )
        kept = c.add("MatMul", [c.add("Mul", [reset, state]), self.matrices[2]])
        self._gru_finish(update, self.curve(self.sum(new, kept)))

    def _gru_finish(self, update: str, new: str) -> None:
        c, state = self.c, self.states[0]
        rest = c.add("Sub", [c.constant(1.0, np.float32), update])
        fresh = c.add("Mul", [rest, new])
        kept = None if state is None else c.add("Mul", [update, state])
        self.states = [self.sum(kept, fresh)]


@row("SimpleRNN", "GRU", "LSTM")
def recurrent(c: Conversion) -> Result:
    """Weights: kernel [in, gates units], recurrent kernel [units, gates units], bias; GRU with
    reset_after has two biases. Outputs: the sequence or its last entry, then the states."""
    a, kind = c.attributes, c.node.op_type
    for name, reason in UNUSED.items():
        a.irrelevant(name, reason)
    for name in ("stateful", "time_major"):
        a.expect(name, False)
    after = kind == "GRU" and a.flag("reset_after")
    biased = a.flag("use_bias", True)
    kernel, matrix, *bias = weights(c, 2 + biased)
    gates, units = GATES[kind], array_of(c, matrix).shape[0]
    a.expect("units", units, why="the weights have another number")
    if array_of(c, matrix).shape != (units, gates * units):
        raise ModelError(f"recurrent weights are {array_of(c, matrix).shape}", place=c.node.place)
    if not a.has("activation") or (kind != "SimpleRNN" and not a.has("recurrent_activation")):
        c.refuse("without its activation")
    biases = _biases(c, bias, after, gates * units)
    states = _states(c, 2 + biased, 2 if kind == "LSTM" else 1)
    work = Recurrence(c, units, matrix, biases[1:], states)
    step = {"SimpleRNN": work.simple, "LSTM": work.lstm,
            "GRU": work.gru_after if after else work.gru_before}[kind]  # fmt: skip
    outputs = []
    for x in _steps(c, kernel, biases[:1]):
        step(x)
        outputs.append(str(work.states[0]))
    made = _sequence(c, outputs) if a.flag("return_sequences") else outputs[-1]
    ends = [str(s) for s in work.states] if gives_more(c, "return_state") else []
    return finish_all(c, [made, *ends])


def _biases(c: Conversion, bias: Sequence[str], after: bool, size: int) -> list[str]:
    """Biases as vectors: of the inputs, and with reset_after of the state."""
    if not bias:
        return []
    array = array_of(c, bias[0])
    if array.shape != ((2, size) if after else (size,)):
        raise ModelError(f"the bias is {array.shape}", place=c.node.place)
    return [c.constant(row_) for row_ in array] if after else [bias[0]]


def _states(c: Conversion, weight_count: int, count: int) -> list[str | None]:
    """Initial states: none, or all, as further operands."""
    given = c.inputs[1 : len(c.inputs) - weight_count]
    said = c.attributes.get("call.initial_state", "states")
    listed = said if isinstance(said, tuple) else (said,)
    named = tuple(f"operand {i + 1}" for i in range(len(given)))
    if len(given) not in (0, count) or listed not in (named, ("states",)):
        c.refuse(f"called on {1 + len(given)} tensors")
    return [c.required(1 + i) for i in range(count)] if given else [None] * count


def _steps(c: Conversion, kernel: str, bias: Sequence[str]) -> list[str]:
    """What the input gives to every step, in their order: x @ kernel + bias."""
    (length,) = known_sizes(c, (1,))
    if c.rank() != 3 or length == 0:
        raise ModelError(f"it is called on {c.type(0)}", place=c.node.place)
    x = c.add("MatMul", [c.required(0), kernel])
    x = c.add("Add", [x, *bias]) if bias else x
    order = range(bounded(c, length, "steps"))
    if c.attributes.flag("go_backwards"):
        order = order[::-1]
    return [c.add("Gather", [x, c.constant(t, np.int64)], axis=1) for t in order]


def _sequence(c: Conversion, outputs: Sequence[str]) -> str:
    """[batch, units] of every step as [batch, steps, units]."""
    return c.add("Concat", [c.add("Unsqueeze", [y, c.ints((1,))]) for y in outputs], axis=1)


MERGES = {"sum": "Add", "ave": "Add", "mul": "Mul"}


@row("Bidirectional")
def bidirectional(c: Conversion) -> Result:
    """Inputs: outputs of both layers, then their states. The second's sequence runs backwards."""
    weights(c, 0)
    forward, backward, *states = (c.required(i) for i in range(len(c.inputs)))
    mode = c.attributes.text("merge_mode", "concat")
    if c.attributes.flag("return_sequences"):
        backward = reversed_along(c, backward, (1,))
    if mode == "None":
        return finish_all(c, [forward, backward, *states])
    if mode == "concat":
        y = c.add("Concat", [forward, backward], axis=-1)
    elif mode in MERGES:
        y = c.add(MERGES[mode], [forward, backward])
    else:
        c.attributes.refuse("merge_mode", "there is no such mode")
    if mode == "ave":
        y = c.add("Div", [y, c.constant(2.0, np.float32)])
    return finish_all(c, [y, *states])


@row("TimeDistributed.fold")
def fold(c: Conversion) -> Result:
    """[batch, time, ...] -> [batch time, ...]."""
    sizes = known_sizes(c, range(2, max(3, c.rank())))
    return c.result("Reshape", [c.required(0), c.ints((-1, *sizes))])


@row("TimeDistributed")
def unfold(c: Conversion) -> Result:
    """[batch time, ...] -> [batch, time, ...], of which the second input has the time."""
    weights(c, 0)
    time, sizes = c.type(1).dims[1], c.type(0).dims[1:]
    if not all(isinstance(n, int) for n in (time, *sizes)):
        c.refuse(f"the sizes of {c.type(1)} must be known: give shapes")
    numbers = [int(str(n)) for n in (time, *sizes)]
    return c.result("Reshape", [c.required(0), c.ints((-1, *numbers))])


@row("SpectralNormalization")
def spectral_normalization(c: Conversion) -> Result:
    weights(c, 0)
    c.attributes.irrelevant("power_iterations", "it matters in training only")
    return finish(c, c.required(0))
