"""RNN, GRU and LSTM as a GPU computes them: its tanh, and factors in fewer bits.

cuDNN's recurrent networks take a tanh from a table, in float32 as well: odd, the same for equal
arguments, and off by up to 2^-16.5 of its size (measured on one NVIDIA H100 with cuDNN 9.19, on two
LSTMs and a GRU). Which table is not known, so it is fitted: one number for every 1/256 to 1/64 of
the argument, on which all results have to agree. Where the factors are TF32, those of the input are
rounded and those of the state are not; in fp16 both are, and so is the state that is handed on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from verax.ir.operator import Evaluation
from verax.numerics import statistics as st
from verax.numerics.formats import FLOAT16, TF32, FloatFormat, round_to
from verax.ops.pointwise.elementwise import Elementwise
from verax.ops.recurrent.recurrent import Recurrent
from verax.ops.recurrent.recurrent_arithmetic import Plain

TANH_SIGMA = 2.0**-17.7
"""Standard deviation of the relative error of cuDNN's tanh in recurrent networks."""
SEGMENTS = ((0.25, 1 / 256), (0.5, 1 / 128), (2.0, 1 / 64))
"""Where the arguments of the fitted table end, and how far apart they are up to there: an eighth of
the segments of cuDNN's, in each of which its error has the shape of a quadratic's."""
LARGEST = 2.0**-15
"""Largest relative error of a fitted table; measured ones reach 2^-16.5, and fitting adds noise."""
RESULTS_PER_KNOT = 2
"""Fewest results for each number that is fitted."""
TABLE = "cuDNN's tanh"

Array = np.ndarray


def _arguments() -> Array:
    begin, pieces = 0.0, []
    for end, apart in SEGMENTS:
        pieces.append(np.arange(begin, end, apart))
        begin = end
    return np.concatenate([*pieces, [begin]])


ARGUMENTS = _arguments()
KNOTS = len(ARGUMENTS)


@dataclass(frozen=True)
class RecurrentArithmetic:
    """Formats of the factors with the input and with the state (None: as they are given), and of
    what is handed on."""

    name: str
    unit: float
    inputs: FloatFormat | None = None
    state: FloatFormat | None = None
    output: FloatFormat | None = None


RECURRENT = (
    RecurrentArithmetic(TABLE, TANH_SIGMA),
    RecurrentArithmetic("TF32 inputs of the gates", TF32.unit_roundoff, TF32),
    RecurrentArithmetic("TF32 gates", TF32.unit_roundoff, TF32, TF32),
    RecurrentArithmetic("fp16 gates", FLOAT16.unit_roundoff, FLOAT16, FLOAT16, FLOAT16),
)
"""What is tried, in this order."""


class GpuStep(Plain):
    """The meaning in float64 with rounded factors and, given the relative errors of a table at its
    KNOTS arguments, a tanh that errs so."""

    def __init__(
        self, ev: Evaluation, arithmetic: RecurrentArithmetic, table: Array | None = None
    ) -> None:
        super().__init__(ev)
        self.arithmetic, self.table = arithmetic, table

    def bias(self, first: Array, second: Array) -> Array:
        fmt = self.arithmetic.output
        return first + second if fmt is None else round_to(first, fmt) + round_to(second, fmt)

    def product(self, x: Array, matrix: Array, start: Array) -> Array:
        """Products with the whole sequence have three axes, those with a state two."""
        fmt = self.arithmetic.inputs if x.ndim == 3 else self.arithmetic.state
        if fmt is not None:
            x, matrix = round_to(x, fmt), round_to(matrix, fmt)
        y = np.matmul(x, matrix.T)
        if x.ndim == 3 and self.arithmetic.output is not None:
            y = round_to(y, self.arithmetic.output)
        return start + y

    def curve(self, op: Elementwise, x: Array) -> Array:
        y = super().curve(op, x)
        if self.table is None or op.kind != "Tanh":
            return y
        return with_table(y, x, self.table)


def with_table(y: Array, x: Array, table: Array) -> Array:
    """tanh x, which is y, with the relative errors of a table."""
    return np.asarray(y * (1 + np.interp(np.abs(x), ARGUMENTS, table)))


def recurrent_outputs(
    op: Recurrent,
    ev: Evaluation,
    wide: Sequence[Any],
    arithmetic: RecurrentArithmetic,
    table: Array | None = None,
) -> tuple[Array, ...]:
    """The outputs in that arithmetic; inputs and outputs float64, as of the operator's reference.
    table: relative errors of tanh; None takes tanh itself."""
    outputs = op.in_arithmetic(GpuStep(ev, arithmetic, table), wide)
    fmt = arithmetic.output
    return outputs if fmt is None else tuple(round_to(y, fmt) for y in outputs)


def drawn_table(random: np.random.Generator) -> Array:
    """Relative errors of a table, of the size that was measured."""
    return TANH_SIGMA * random.standard_normal(KNOTS)


def fit_table(run: Callable[[Array | None], Array], error: Array) -> Array | None:
    """The part of `error` that the best table of tanh explains; None where there are too few
    results to fit one, or where none of honest size explains most of it.

    run: the float64 results for a table (None: of tanh itself).
    """
    if error.size < RESULTS_PER_KNOT * KNOTS or not np.isfinite(error).all():
        return None
    exact = run(None)
    if exact.shape != error.shape:
        return None
    columns = [(run(TANH_SIGMA * (np.arange(KNOTS) == k)) - exact).ravel() for k in range(KNOTS)]
    effects = np.stack(columns, axis=1)  # of one standard deviation at each argument
    scale = float(np.abs(effects).max(initial=0.0))
    if not scale:
        return None
    # What no result depends on stays where it is: a prior of one standard deviation.
    noise = 0.1 * st.root_mean_square(error)
    gram = effects.T @ effects / noise**2 + np.eye(KNOTS)
    solution = np.linalg.solve(gram, effects.T @ error.ravel() / noise**2)
    if float(np.abs(solution).max()) * TANH_SIGMA > LARGEST:
        return None
    fitted = (effects @ solution).reshape(error.shape)
    left = st.root_mean_square(error - fitted) / st.root_mean_square(error)
    left /= np.sqrt(1 - KNOTS / error.size)  # so much less remains by chance
    return fitted if left <= st.TABLE_LEAVES else None
