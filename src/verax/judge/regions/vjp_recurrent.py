"""Vector-Jacobian rule of RNN, GRU, LSTM: their step in an arithmetic with a tape (see `vjp`).

Gives the sensitivities of the sequence and the initial states; weights have no rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from verax.judge.regions.vjp_step import Array, VjpStep, derivative_of
from verax.numerics.statistics import DERIVATIVE_FLOOR, DERIVATIVE_STEP
from verax.ops.pointwise.elementwise import Elementwise
from verax.ops.recurrent.recurrent import CELL, HIDDEN, Recurrent, X
from verax.ops.recurrent.recurrent_arithmetic import Plain, StepOps


class TapeValue:
    """An array on the tape with its sensitivity, which `back` adds to those of its operands."""

    def __init__(self, array: Array, back: Callable[[Array], None] | None = None) -> None:
        self.array, self.back = array, back
        self._gradient: Array | None = None

    @property
    def gradient(self) -> Array:
        if self._gradient is None:
            self._gradient = np.zeros(np.shape(self.array))
        return self._gradient

    @property
    def is_reached(self) -> bool:
        return self._gradient is not None


class TapeArithmetic(StepOps[TapeValue]):
    """Float64 reference arithmetic that records every result on a tape for the backward pass."""

    def __init__(self, ev: Any) -> None:
        self.plain, self.tape, self.leaves = Plain(ev), list[TapeValue](), list[TapeValue]()

    def _record(self, array: Array, back: Callable[[Array], None]) -> TapeValue:
        self.tape.append(TapeValue(array, back))
        return self.tape[-1]

    def hand_back(self) -> None:
        """Propagate the seeded gradients to the leaves."""
        for value in reversed(self.tape):
            if value.is_reached and value.back is not None:
                value.back(value.gradient)

    def exact_input(self, x: Array) -> TapeValue:
        self.leaves.append(TapeValue(x))
        return self.leaves[-1]

    def bias(self, first: Array, second: Array) -> TapeValue:
        return TapeValue(first + second)

    def take(self, x: TapeValue, index: Any) -> TapeValue:
        def back(g: Array) -> None:
            x.gradient[index] += g

        return self._record(x.array[index], back)

    def product(self, x: TapeValue, matrix: Array, start: TapeValue) -> TapeValue:
        y = self.plain.product(x.array, matrix, start.array)

        def back(g: Array) -> None:
            x.gradient[...] += g @ matrix
            if start.array.shape == g.shape:  # otherwise a bias
                start.gradient[...] += g

        return self._record(y, back)

    def along(self, total: TapeValue, vector: Array, x: TapeValue) -> TapeValue:
        def back(g: Array) -> None:
            total.gradient[...] += g
            x.gradient[...] += vector * g

        return self._record(total.array + vector * x.array, back)

    def mul(self, a: TapeValue, b: TapeValue) -> TapeValue:
        def back(g: Array) -> None:
            a.gradient[...] += b.array * g
            b.gradient[...] += a.array * g

        return self._record(a.array * b.array, back)

    def add(self, a: TapeValue, b: TapeValue) -> TapeValue:
        def back(g: Array) -> None:
            a.gradient[...] += g
            b.gradient[...] += g

        return self._record(a.array + b.array, back)

    def complement(self, a: TapeValue) -> TapeValue:
        def back(g: Array) -> None:
            a.gradient[...] -= g

        return self._record(1 - a.array, back)

    def blend(self, z: TapeValue, a: TapeValue, b: TapeValue) -> TapeValue:
        return self.add(self.mul(self.complement(z), a), self.mul(z, b))

    def curve(self, op: Elementwise, x: TapeValue) -> TapeValue:
        h = DERIVATIVE_STEP * np.abs(x.array) + DERIVATIVE_FLOOR
        sides = [self.plain.curve(op, v) for v in (x.array + h, x.array - h)]
        slope = np.nan_to_num((sides[0] - sides[1]) / (2 * h), nan=0.0, posinf=0.0, neginf=0.0)

        def back(g: Array) -> None:
            x.gradient[...] += slope * g

        return self._record(self.plain.curve(op, x.array), back)

    def clip(self, x: TapeValue, limit: float | None) -> TapeValue:
        if limit is None:
            return x
        inside = np.abs(x.array) < limit

        def back(g: Array) -> None:
            x.gradient[...] += inside * g

        return self._record(self.plain.clip(x.array, limit), back)

    def choose(self, mask: Array, a: TapeValue, b: TapeValue | None) -> TapeValue:
        def back(g: Array) -> None:
            a.gradient[...] += mask * g
            if b is not None:
                b.gradient[...] += ~mask * g

        return self._record(self.plain.choose(mask, a.array, b.array if b else None), back)


@derivative_of("RNN", "GRU", "LSTM")
def recurrent(step: VjpStep, gradients: Sequence[Array]) -> list[Array | None]:
    op: Recurrent = step.op
    if any(is_needed for i, is_needed in enumerate(step.needed) if i not in (X, HIDDEN, CELL)):
        raise NotImplementedError
    work = TapeArithmetic(step.ev)
    outcomes = op.run(work, step.inputs)
    y, *ends = gradients
    if op.layout:
        y, ends = y.transpose(1, 2, 0, 3), [np.swapaxes(e, 0, 1) for e in ends]
    for d, outcome in enumerate(outcomes):
        for t, value in enumerate(outcome.outputs):
            value.gradient[...] += y[t, d]
        for value, end in zip(outcome.states, ends):
            value.gradient[...] += end[d]
    work.hand_back()
    sequence, *states = (leaf.gradient for leaf in work.leaves)
    back: dict[int, Array] = {X: sequence}
    for i, index in enumerate((HIDDEN, CELL)[: op.states]):
        back[index] = np.stack(states[i :: op.states])
    if op.layout:
        back = {i: np.swapaxes(g, 0, 1) for i, g in back.items()}
    return step.spread({i: g for i, g in back.items() if i < len(step.needed) and step.needed[i]})
