"""Recurrent layers step by step, for what ONNX's own operators cannot say: projections, bounds of
the state, an input gate that is made of the forget gate, other activations.

The operator's `step` is run over `Writing`, whose values are names of values [batch, features].
"""

from __future__ import annotations

from typing import Any

import numpy as np

from verax.export.onnx.emission import NodeGroup, OnnxEmission
from verax.ops.pointwise.elementwise import Elementwise
from verax.ops.recurrent.activations import takes
from verax.ops.recurrent.recurrent import (
    CELL,
    HIDDEN,
    LENGTHS,
    WEIGHTS,
    R,
    Recurrent,
    X,
)
from verax.ops.recurrent.recurrent_arithmetic import StepOps

MOST_STEPS = 512
"""Steps that are written out; each is a dozen nodes or more."""
DIRECT = (
    *("Relu", "Tanh", "Sigmoid", "LeakyRelu", "ThresholdedRelu", "HardSigmoid", "Elu"),
    *("Softsign", "Softplus"),
)
"""Activations that are ONNX operators of the same name and attributes."""
MADE = ("Affine", "ScaledTanh", "Clamped")
"""Activations that take several nodes."""


class Writing(StepOps[Any]):
    """A step as ONNX nodes; biases and weights are arrays."""

    def __init__(self, g: NodeGroup) -> None:
        self.g = g

    def scalar(self, array: Any) -> str:
        return self.g.constant(array, self.g.type(X).dtype.numpy)

    def named(self, value: Any) -> str:
        return value if isinstance(value, str) else self.scalar(value)

    def exact_input(self, x: Any) -> Any:
        return x

    def bias(self, first: Any, second: Any) -> Any:
        return first + second

    def take(self, x: str, index: Any) -> str:
        columns = index[-1]
        bounds = (self.g.constant([n]) for n in (columns.start, columns.stop, 1))
        return self.g.add("Slice", x, *bounds)

    def product(self, x: str, matrix: Any, start: Any) -> str:
        return self.g.add("Add", self.g.add("MatMul", x, self.scalar(matrix.T)), self.named(start))

    def along(self, total: str, vector: Any, x: str) -> str:
        return self.g.add("Add", total, self.g.add("Mul", self.scalar(vector), x))

    def mul(self, a: str, b: str) -> str:
        return self.g.add("Mul", a, b)

    def add(self, a: str, b: str) -> str:
        return self.g.add("Add", a, b)

    def complement(self, a: str) -> str:
        return self.g.add("Sub", self.scalar(1), a)

    def blend(self, z: str, a: str, b: str) -> str:
        return self.add(self.mul(self.complement(z), a), self.mul(z, b))

    def curve(self, op: Elementwise, x: str) -> str:
        numbers = {name: getattr(op, name) for name in takes(op.kind)}
        alpha, beta = (self.scalar(numbers.get(name, 0)) for name in ("alpha", "beta"))
        if op.kind == "Affine":
            return self.add(self.mul(alpha, x), beta)
        if op.kind == "ScaledTanh":
            return self.mul(alpha, self.g.add("Tanh", self.mul(beta, x)))
        if op.kind == "Clamped":
            return self.g.add("Clip", x, alpha, beta)
        return self.g.add(op.kind, x, **numbers)

    def clip(self, x: str, limit: float | None) -> str:
        if limit is None:
            return x
        return self.g.add("Clip", x, self.scalar(-limit), self.scalar(limit))

    def choose(self, mask: Any, a: str, b: str | None) -> str:
        raise NotImplementedError


def step_by_step(g: NodeGroup, missing: str) -> OnnxEmission:
    """The layer of `g`, written out. missing: what ONNX's operator lacks, for the refusal."""
    op = g.node.op
    assert isinstance(op, Recurrent)
    curves = op.curves()
    strange = [c.kind for own in curves for c in own if c.kind not in (*DIRECT, *MADE)]
    if strange:
        return g.refuse(f"has no activation {strange[0]}")
    weights_and_biases = {i: g.constant_input(i) if g.has(i) else None for i in WEIGHTS}
    dims = g.type(X).dims
    steps, batch = (dims[1], dims[0]) if op.layout else dims[:2]
    if g.has(LENGTHS) or any(g.has(i) and weights_and_biases[i] is None for i in WEIGHTS):
        return g.refuse(f"has no {missing}, nor can it be written out: it has lengths, or computed "
                        "weights")  # fmt: skip
    if not isinstance(steps, int) or not isinstance(batch, int) or not 0 < steps <= MOST_STEPS:
        return g.refuse(f"has no {missing}; it can be written out for 1 to {MOST_STEPS} steps and "
                        "a batch of a known size: give shapes")  # fmt: skip
    # Axes of the steps, and of the directions in the states; that of the directions in the outputs.
    time, apart = (1, 2) if op.layout else (0, 1)
    rows, output = g.type(R).dims[1:]
    assert isinstance(rows, int)
    sizes = (output, rows // op.gates)
    m, sequences, ends = Writing(g), [], []
    for d, (backwards, own) in enumerate(zip(op.backwards, curves)):
        weights = op._weights(d, own, *(weights_and_biases[i] for i in WEIGHTS))
        start = m.bias(weights.b, op.joined_bias(weights))
        state = tuple(
            g.add("Gather", g.input(i), g.constant(d), axis=time)
            if g.has(i)
            else m.scalar(np.zeros((batch, size)))
            for i, size in zip((HIDDEN, CELL)[: op.states], sizes)
        )
        outputs = [""] * steps
        for t in reversed(range(steps)) if backwards else range(steps):
            x = g.add("Gather", g.input(X), g.constant(t), axis=time)
            state = op.step(m, weights, m.product(x, weights.w, start), state)
            outputs[t] = g.add("Unsqueeze", state[0], g.constant([time]))
        y = g.add("Concat", *outputs, axis=time)
        sequences.append(g.add("Unsqueeze", y, g.constant([apart])))
        ends.append([g.add("Unsqueeze", s, g.constant([time])) for s in state])
    concatenated = [g.add("Concat", *sequences, axis=apart)]
    concatenated += [g.add("Concat", *states, axis=time) for states in zip(*ends)]
    return g.finish(*concatenated)
