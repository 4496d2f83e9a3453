"""Recurrent layers: order of the gates, direction, biases and states left out, where the reset gate
acts, which activation, what lengths and peepholes mean."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from verax.judge.explain.hypotheses.base import (
    Arrays,
    Edit,
    Hypothesis,
    Prior,
    Suspect,
    edited,
    hypotheses_of,
    with_attributes,
)
from verax.ops.recurrent.recurrent import (
    CELL,
    GRU,
    HIDDEN,
    LENGTHS,
    LSTM,
    PEEPHOLES,
    PROJECTION_BIAS,
    B,
    R,
    Recurrent,
    W,
    X,
)

NAMES: dict[str, tuple[str, ...]] = {"RNN": ("only",), "GRU": ("update", "reset", "new"),
         "LSTM": ("input", "output", "forget", "cell")}  # fmt: skip
"""Gates in the order of the operator."""
KNOWN_ORDERS: dict[str, dict[tuple[int, ...], str]] = {
    "GRU": {(1, 0, 2): "PyTorch's and CoreML's", (0, 2, 1): "", (1, 2, 0): ""},
    "LSTM": {
        (0, 2, 3, 1): "PyTorch's",
        (0, 3, 2, 1): "TensorFlow's",
        (0, 2, 1, 3): "Caffe's and CoreML's",
        (2, 0, 1, 3): "MATLAB's",
    },
}
"""Other layouts of weights: which gate of ours lies at each place."""
CURVES = ("Sigmoid", "Tanh", "HardSigmoid", "Relu", "Softsign", "Affine")
COUPLED = ("input_forget", "input_from_forget")
"""Which of LSTM's gates is made of the other; never both."""


@hypotheses_of("RNN", "GRU", "LSTM")
def recurrent(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield hypotheses on RNN, GRU and LSTM."""
    op: Any = suspect.op
    assert isinstance(op, Recurrent)
    yield from _directions(suspect, op)
    yield from _gates(op)
    yield from _left_out(suspect, op)
    yield from _curves(op)
    for field in ("linear_before_reset", *COUPLED):
        if hasattr(op, field):
            opposite = not getattr(op, field)
            apart = {n: False for n in COUPLED if field in COUPLED and getattr(op, n)}
            yield from with_attributes(
                op, f"{field} {opposite}", f"{field} was taken as {opposite}", Prior.usual,
                **{**apart, field: opposite},
            )  # fmt: skip
    for field in ("clip", "cell_clip", "projection_clip"):
        if getattr(op, field, None) is not None:
            yield from with_attributes(
                op, f"{field} ignored", f"{field} was ignored", Prior.usual, **{field: None}
            )
    if isinstance(op, GRU):
        yield Hypothesis(
            "update gate the other way",
            "the new state was (1 - z) h + z n instead of (1 - z) n + z h",
            Prior.usual,
            inputs=_per_gate(op, (W, R, B), lambda gates: [-gates[0], *gates[1:]]),
        )
    if isinstance(op, LSTM):
        yield Hypothesis(
            "1 added to the forget gate",
            "1 was added to the bias of the forget gate",
            Prior.common,
            inputs=_with_forget_bias(op),
        )
    if suspect.inputs[R].shape[1] // op.gates == suspect.inputs[R].shape[2]:
        yield Hypothesis(
            "recurrent weights transposed",
            "the weights of the state were taken transposed",
            Prior.usual,
            inputs=_per_gate(op, (R,), lambda gates: [g.swapaxes(-1, -2) for g in gates]),
        )


def _directions(suspect: Suspect, op: Recurrent) -> Iterator[Hypothesis]:
    orders = {
        (False,): "forward",
        (True,): "reverse",
        (False, False): "forward twice",
        (True, True): "reverse twice",
        (True, False): "the other direction first",
    }
    for order, words in orders.items():
        if len(order) == op.directions and order != op.backwards:
            attributes = {"direction": words} if len(order) == 1 else {"direction": "forward"}
            yield Hypothesis(
                f"direction: {words}",
                f"the sequence was read {words}"
                if len(order) == 1
                else f"the two directions were {words}, not forward and reverse",
                Prior.usual,
                op=_read(op, order),
                attributes=attributes if order != (True, False) else {},
            )
    if op.directions == 2:
        yield Hypothesis(
            "weights of the directions exchanged",
            "the two directions had each other's weights",
            Prior.usual,
            inputs=lambda a: [
                v[::-1] if i in (W, R, B, PEEPHOLES) and v is not None else v
                for i, v in enumerate(a)
            ],
        )
    if suspect.inputs[X].shape[0] == suspect.inputs[X].shape[1]:
        yield Hypothesis(
            "time and batch exchanged",
            "the first two axes of the sequence were exchanged",
            Prior.common,
            inputs=edited(X, lambda x: np.swapaxes(x, 0, 1)),
        )


def _read(op: Recurrent, order: tuple[bool, ...]) -> Recurrent:
    """The operator with its sets of weights going through the sequence in these directions."""
    kind = type(op)
    subclass = type(kind.__name__, (kind,), {"backwards": order})
    return subclass(**op.attributes())


def _gates(op: Recurrent) -> Iterator[Hypothesis]:
    names, documented = NAMES[op.kind], KNOWN_ORDERS.get(op.kind, {})
    for order in itertools.permutations(range(op.gates)):
        if order == tuple(range(op.gates)):
            continue
        whose = f", {documented[order]}" if documented.get(order) else ""
        yield Hypothesis(
            f"gates in the order {', '.join(names[g] for g in order)}",
            f"the weights were taken to hold the gates {', '.join(names[g] for g in order)}{whose}",
            Prior.usual if order in documented else Prior.uncommon,
            inputs=_per_gate(op, (W, R, B), _placed(order)),
        )


def _placed(order: tuple[int, ...]) -> Callable[[list[Any]], list[Any]]:
    """Gates as they are when the weights are taken to hold them in this order."""
    return lambda gates: [gates[order.index(g)] for g in range(len(order))]


def _per_gate(
    op: Recurrent, positions: Sequence[int], change: Callable[[list[Any]], list[Any]]
) -> Edit:
    """Weights with their gates changed; both halves of the biases alike."""

    def of(array: np.ndarray, sections: int) -> np.ndarray:
        chunks = []
        for half in np.split(array, sections, axis=1):
            chunks += change(np.split(half, op.gates, axis=1))
        return np.concatenate(chunks, axis=1)

    def edit(arrays: Arrays) -> Arrays:
        return [
            of(a, 2 if i == B else 1) if i in positions and a is not None else a
            for i, a in enumerate(arrays)
        ]

    return edit


def _with_forget_bias(op: Recurrent) -> Edit:
    def edit(arrays: Arrays) -> Arrays:
        arrays = [*arrays, *[None] * (B + 1 - len(arrays))]
        rows = arrays[R].shape[1]
        old_bias = arrays[B]
        bias = (
            np.zeros((op.directions, 2 * rows), arrays[W].dtype) if old_bias is None else old_bias
        )
        hidden = rows // op.gates
        bias = bias.copy()
        bias[:, 2 * hidden : 3 * hidden] += 1
        arrays[B] = bias
        return arrays

    return edit


def _left_out(suspect: Suspect, op: Recurrent) -> Iterator[Hypothesis]:
    inputs = {
        B: ("bias missing", "the biases were not added"),
        LENGTHS: ("lengths ignored", "the lengths of the sequences were ignored"),
        HIDDEN: ("initial_h ignored", "the initial hidden state was ignored"),
        CELL: ("initial_c ignored", "the initial cell state was ignored"),
        PEEPHOLES: ("peepholes ignored", "the peepholes were ignored"),
        PROJECTION_BIAS: ("bias of the projection missing", "the projection had no bias"),
    }
    for index, (name, words) in inputs.items():
        if suspect.has(index):
            yield Hypothesis(name, words, Prior.usual, inputs=edited(index, lambda a: None))
    if suspect.has(B):
        rows = suspect.inputs[R].shape[1]
        for name, section in (("input", slice(None, rows)), ("state", slice(rows, None))):
            yield Hypothesis(
                f"bias of the {name} missing",
                f"the bias of the {name} was not added",
                Prior.usual,
                inputs=edited(B, lambda b, s=section: _zeroed(b, s)),
            )
    states = [suspect.inputs[i] for i in (HIDDEN, CELL) if suspect.has(i)]
    if len(states) == 2 and states[0].shape == states[1].shape:
        yield Hypothesis(
            "initial states exchanged",
            "the initial hidden and cell states were exchanged",
            Prior.common,
            inputs=lambda a: [*a[:HIDDEN], a[CELL], a[HIDDEN], *a[CELL + 1 :]],
        )
    if suspect.has(PEEPHOLES):
        for order in itertools.permutations(range(3)):
            if order != (0, 1, 2):
                yield Hypothesis(
                    f"peepholes in the order {order}",
                    "the peepholes were taken in the order "
                    + ", ".join(NAMES["LSTM"][g] for g in order),
                    Prior.usual if order == (0, 2, 1) else Prior.uncommon,
                    inputs=edited(PEEPHOLES, lambda p, o=order: _ordered(p, o)),
                )


def _zeroed(array: np.ndarray, section: slice) -> np.ndarray:
    copy = array.copy()
    copy[:, section] = 0
    return copy


def _ordered(p: np.ndarray, order: tuple[int, ...]) -> np.ndarray:
    gates = np.split(p, 3, axis=1)
    return np.concatenate([gates[order.index(g)] for g in range(3)], axis=1)


def _curves(op: Recurrent) -> Iterator[Hypothesis]:
    """One activation of all directions replaced, two of them exchanged, their numbers dropped."""
    count = len(op.usual)
    names = op.activations or op.usual * op.directions
    for i in range(count):
        for curve in CURVES:
            changed = [curve if j % count == i else n for j, n in enumerate(names)]
            yield from _activated(op, changed, f"activation {i} was {curve}, not {names[i]}")
    for i, j in itertools.combinations(range(count), 2):
        order = [
            i if k % count == j else j if k % count == i else k % count for k in range(len(names))
        ]
        changed = [names[k - k % count + o] for k, o in enumerate(order)]
        yield from _activated(op, changed, f"activations {i} and {j} were exchanged")
    for field in ("activation_alpha", "activation_beta"):
        if getattr(op, field):
            yield from with_attributes(
                op, f"{field} ignored", f"{field} was ignored", Prior.usual, **{field: ()}
            )


def _activated(op: Recurrent, names: Sequence[str], words: str) -> Iterator[Hypothesis]:
    own = op.activations or op.usual * op.directions
    if tuple(names) != own:
        alternative = dataclasses.replace(
            op, activations=tuple(names), activation_alpha=(), activation_beta=()
        )
        attributes = {"activations": ", ".join(names)}
        yield Hypothesis(words, words, Prior.common, op=alternative, attributes=attributes)
