"""Keras recurrent layers.

Masks are refused where they come from (Embedding, Masking), so that every step counts. Also what is
around layers: TimeDistributed, Bidirectional, SpectralNormalization.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common import shapes
from verax.frontends.common.context import Conversion, Result
from verax.frontends.common.recurrent import Direction, layer, side_by_side
from verax.frontends.keras.rows import (
    activated,
    array_of,
    gives_more,
    row,
    weights,
)
from verax.ir.graph import Builder
from verax.ir.types import DType, TensorType
from verax.ops.pointwise.elementwise import Elementwise
from verax.ops.recurrent.activations import curve

ORDERS = {"SimpleRNN": (0,), "GRU": (0, 1, 2), "LSTM": (0, 3, 1, 2)}
"""Which of Keras's gates lies at each place of the operator's weights."""
UNUSED = {
    "dropout": "it matters in training only",
    "recurrent_dropout": "it matters in training only",
    "unroll": "it chooses a way to compute the same",
    "implementation": "it chooses a way to compute the same",
    "unit_forget_bias": "the file has the values",
    "zero_output_for_mask": "there are no masks",
}


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
    kernel, matrix, *bias = (array_of(c, w) for w in weights(c, 2 + biased))
    gates, units = len(ORDERS[kind]), len(matrix)
    a.expect("units", units, reason="the weights have another number")
    if matrix.shape != (units, gates * units) or kernel.shape[1:] != matrix.shape[1:]:
        raise ModelError(f"weights {kernel.shape} and {matrix.shape}", place=c.node.place)
    if not a.has("activation") or (kind != "SimpleRNN" and not a.has("recurrent_activation")):
        c.refuse("without its activation")
    if c.rank() != 3 or c.type(0).dims[1] == 0:
        raise ModelError(f"it is called on {c.type(0)}", place=c.node.place)
    back = a.flag("go_backwards")
    initial = [c.add("Unsqueeze", [s, c.ints((1,))]) for s in _states(c, 2 + biased, kind)]
    fields: dict[str, Any] = {"linear_before_reset": True} if after else {}
    own = Direction(*_reordered_gates(c, kernel.T, matrix.T, *_biases(c, bias, after, units)))
    fields |= {"layout": 1, "direction": "reverse" if back else "forward", **_curves(c, kind)}
    name = "RNN" if kind == "SimpleRNN" else kind
    y, *ends = layer(c, name, c.required(0), [own], initial, **fields)
    states = [c.add("Squeeze", [end, c.ints((1,))]) for end in ends]
    result = states[0]
    if a.flag("return_sequences"):
        result = side_by_side(c, y, batch_first=True)
        if back:  # in the order of reading
            result = c.append(shapes.turned_round(c, result, (1,)))
    return c.named([result, *(states if gives_more(c, "return_state") else [])])


def _reordered_gates(c: Conversion, *arrays: np.ndarray) -> list[str]:
    """Constants with their gates (parts of the first axis) in the operator's order."""
    order = ORDERS[c.node.op_type]
    splits = [np.split(array, len(order)) for array in arrays]
    return [c.constant(np.concatenate([split[g] for g in order])) for split in splits]


def _biases(
    c: Conversion, bias: Sequence[np.ndarray], after: bool, units: int
) -> Sequence[np.ndarray]:
    """Biases as vectors: of the inputs, and with reset_after of the state."""
    size = units * len(ORDERS[c.node.op_type])
    if bias and bias[0].shape != ((2, size) if after else (size,)):
        raise ModelError(f"the bias is {bias[0].shape}", place=c.node.place)
    return list(bias[0]) if bias and after else bias


def _curves(c: Conversion, kind: str) -> dict[str, Any]:
    """The activations as the operator names them."""
    own = _curve(c, "activation")
    gates = [] if kind == "SimpleRNN" else [_curve(c, "recurrent_activation")]
    activations = [*gates, *[own] * (2 if kind == "LSTM" else 1)]
    names, alphas, betas = zip(*activations)
    return {"activations": names, "activation_alpha": alphas, "activation_beta": betas}


def _curve(c: Conversion, attribute: str) -> tuple[str, float, float]:
    """An activation by name, alpha and beta: what its layer becomes is one such operator."""
    scratch = Builder("activation")
    x = scratch.input("x", TensorType(DType.float32, (1, 1)))
    activated(replace(c, builder=scratch), x, attribute)
    op: Any = scratch.nodes[0].op if scratch.nodes else curve("Affine")
    if len(scratch.nodes) < 2 and isinstance(op, Elementwise) and op.max_inputs == 1:
        alpha, beta = (getattr(op, key, 0.0) for key in ("alpha", "beta"))
        if curve(op.kind, alpha, beta) == op:
            return op.kind, alpha, beta
    c.attributes.refuse(attribute, "Verax has no such activation inside a recurrent layer")
    raise AssertionError


def _states(c: Conversion, weight_count: int, kind: str) -> list[str]:
    """Initial states: none, or all, as further operands."""
    state_inputs = c.inputs[1 : len(c.inputs) - weight_count]
    stated = c.attributes.get("call.initial_state", "states")
    listed = stated if isinstance(stated, tuple) else (stated,)
    named = tuple(f"operand {i + 1}" for i in range(len(state_inputs)))
    count = 2 if kind == "LSTM" else 1
    if len(state_inputs) not in (0, count) or listed not in (named, ("states",)):
        c.refuse(f"called on {1 + len(state_inputs)} tensors")
    return [c.required(1 + i) for i in range(len(state_inputs))]


MERGES = {"sum": "Add", "ave": "Add", "mul": "Mul"}


@row("Bidirectional")
def bidirectional(c: Conversion) -> Result:
    """Inputs: outputs of both layers, then their states. The second's sequence runs backwards."""
    weights(c, 0)
    forward, backward, *states = (c.required(i) for i in range(len(c.inputs)))
    mode = c.text("merge_mode", "concat")
    if c.flag("return_sequences"):
        backward = c.append(shapes.turned_round(c, backward, (1,)))
    if mode == "None":
        return c.named([forward, backward, *states])
    if mode == "concat":
        y = c.add("Concat", [forward, backward], axis=-1)
    elif mode in MERGES:
        y = c.add(MERGES[mode], [forward, backward])
    else:
        c.attributes.refuse("merge_mode", "unknown mode")
    if mode == "ave":
        y = c.add("Div", [y, c.constant(2.0, np.float32)])
    return c.named([y, *states])


@row("TimeDistributed.fold")
def fold(c: Conversion) -> Result:
    """[batch, time, ...] -> [batch time, ...]."""
    sizes = c.known_sizes(0, range(2, max(3, c.rank())))
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
    return c.same(c.required(0))
