"""Wrong constants: what a parameter of a node must have been to give the subject's numbers.

A parameter is an input that is smaller than the output and of which each output element reads one
element: a bias, the four vectors of a BatchNormalization, the constant of a Mul or a Pow; and the
factor of each output channel of a weight. Its elements are fitted by Gauss-Newton steps in float64,
and only those that stand out of their own standard error are changed. The usual criterion decides
whether the node with the changed parameter is what the subject computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from verax.base.errors import VeraxError
from verax.ir.types import TensorType
from verax.judge.decide.local import meaning
from verax.judge.explain.hypotheses.base import Edit, Hypothesis, Prior, Suspect, edited
from verax.judge.explain.hypotheses.batch_norm import PARAMETERS, same_by_another
from verax.numerics import statistics as st
from verax.numerics.error_model import TINY

LEAST_EACH = 4
"""Output elements that a fitted number must stand for; fewer prove nothing."""
LARGEST = 4096
"""Elements of a parameter that is fitted."""
LARGEST_OUTPUT = 1 << 20
"""Output elements up to which parameters are fitted: each takes some evaluations of the node."""
STEPS = 8
"""Gauss-Newton steps at most; a linear parameter needs one."""
STEP = 2.0**-20
"""Relative step of a difference quotient."""
BESIDE = 2.0**-10
"""Share of the largest change, in standard errors, below which another element's is rounding: what
all elements share (the error of a sum before them) is no noise."""
LISTED = 4
"""Elements that a sentence lists."""
WEIGHTED = {"Conv": 0, "ConvTranspose": 1, "Gemm": -1, "MatMul": -1}
"""Operators with a weight as input 1, and its axis of output channels."""
UNREAL = (VeraxError, ValueError, LookupError, ArithmeticError, TypeError)


@dataclass(frozen=True)
class _Parameter:
    """Input `index` of the node, or its factor per output channel (`axis`). values: those of the
    node, in float64."""

    index: int
    values: np.ndarray
    axis: int | None = None

    def edit(self, values: np.ndarray) -> Edit:
        """The node's inputs with other values of the parameter."""
        if self.axis is None:
            return edited(self.index, lambda a: values.reshape(a.shape))
        axis = self.axis

        def scaled(w: np.ndarray) -> np.ndarray:
            shape = [1] * w.ndim
            shape[axis] = -1
            return w.astype(np.float64) * values.reshape(shape)

        return edited(self.index, scaled)


def parameters(suspect: Suspect) -> Iterator[Hypothesis]:
    """Each parameter with the elements that the subject's numbers show."""
    rounding = suspect.meaning.roundings[suspect.output]
    given, expected = suspect.wide, suspect.expected
    fits = given.shape == expected.shape and rounding is not None
    if not fits or given.dtype.kind != "f" or not 0 < given.size <= LARGEST_OUTPUT:
        return
    if not (np.isfinite(given).all() and np.isfinite(expected).all()):
        return
    assert rounding is not None
    sigma = np.broadcast_to(rounding.sigma, given.shape) + TINY
    for parameter in _parameters(suspect):
        found = _fitted(suspect, parameter, sigma)
        if found is not None:
            yield from _named(suspect, parameter, *found)


def _parameters(suspect: Suspect) -> Iterator[_Parameter]:
    for i, x in enumerate(suspect.inputs):
        is_small = x is not None and x.dtype.kind == "f" and 0 < x.size <= LARGEST
        if is_small and LEAST_EACH * x.size <= suspect.given.size and (i or x.size == 1):
            yield _Parameter(i, x.astype(np.float64).ravel())
    axis = WEIGHTED.get(suspect.op.kind)
    w = suspect.inputs[1] if suspect.has(1) else None
    if axis is None or w is None or w.ndim < 2 or getattr(suspect.op, "groups", 1) != 1:
        return
    if axis < 0:
        axis = w.ndim - (2 if getattr(suspect.op, "trans_b", False) else 1)
    yield _Parameter(1, np.ones(w.shape[axis]), axis)


def _evaluated(suspect: Suspect, parameter: _Parameter, values: np.ndarray) -> np.ndarray | None:
    arrays = parameter.edit(values)(list(suspect.inputs))
    declared = [None if x is None else TensorType.of(x) for x in suspect.inputs]
    try:
        with np.errstate(all="ignore"):
            found = meaning(suspect.node, arrays, declared, suspect.outputs, errors=False)
    except UNREAL:
        return None
    return None if found.problem else found.outputs[suspect.output].astype(np.float64)


def _read_by(
    suspect: Suspect, parameter: _Parameter, steps: np.ndarray, slope: np.ndarray
) -> np.ndarray | None:
    """Which element of the parameter each output element reads (-1: none); None when one reads
    several."""
    order = np.arange(1, steps.size + 1)
    moved = _evaluated(suspect, parameter, parameter.values + steps * order / steps.size)
    if moved is None:
        return None
    with np.errstate(all="ignore"):
        number = (moved - suspect.expected) / slope * steps.size
    reads = np.abs(slope) > st.FLOAT64_NOISE * np.abs(suspect.expected)
    near = np.rint(np.where(reads & np.isfinite(number), number, 0))
    off = np.abs(np.where(reads, number - near, 0))
    if not reads.any() or np.quantile(off[reads], 0.99) > 0.25 or near.max() > steps.size:
        return None
    return np.where(near >= 1, near - 1, -1).astype(int)


def _fitted(
    suspect: Suspect, parameter: _Parameter, sigma: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """Values of the parameter, and which of them differ from the node's; None when none do."""
    old = parameter.values
    steps = STEP * np.maximum(np.abs(old), st.root_mean_square(old) or 1.0)
    moved = _evaluated(suspect, parameter, old + steps)
    if moved is None or moved.shape != suspect.expected.shape:
        return None
    slope = moved - suspect.expected
    reader = _read_by(suspect, parameter, steps, slope)
    if reader is None:
        return None
    use = reader >= 0
    count = np.bincount(reader[use], minlength=old.size)
    values, expected = old.copy(), suspect.expected.astype(np.float64)
    for _ in range(STEPS):
        with np.errstate(all="ignore"):
            b = (slope / steps[np.maximum(reader, 0)] / sigma)[use]
            e = ((suspect.wide - expected) / sigma)[use]
            square = np.bincount(reader[use], b * b, old.size)
            change = np.bincount(reader[use], b * e, old.size) / np.maximum(square, TINY)
            error = 1 / np.sqrt(np.maximum(square, TINY))
        change = np.where(count >= LEAST_EACH, change, 0.0)
        if not np.isfinite(change).all():
            return None
        values = values + change
        if (np.abs(change) <= error).all():
            break
        again = [_evaluated(suspect, parameter, values + s) for s in (0 * steps, steps)]
        if again[0] is None or again[1] is None:
            return None
        expected, slope = again[0], again[1] - again[0]
    apart = np.where(count >= LEAST_EACH, np.abs(values - old) / error, 0.0)
    differing = apart > max(st.RECOVERED, BESIDE * float(np.max(apart)))
    if not differing.any():
        return None
    return np.where(differing, values, old), differing


def _named(
    suspect: Suspect, parameter: _Parameter, values: np.ndarray, differing: np.ndarray
) -> Iterator[Hypothesis]:
    old, where = parameter.values, np.flatnonzero(differing)
    what = f"input {parameter.index}"
    name = suspect.node.inputs[parameter.index] if suspect.node.inputs else None
    told = f"{what}, {name!r}," if name else what
    ratio = values[differing] / np.where(old[differing] == 0, np.nan, old[differing])
    middle = float(np.median(ratio)) if np.isfinite(ratio).all() else np.nan
    if parameter.axis is not None:
        listed = ", ".join(f"{k}: {values[k]:.6g} times" for k in where[:LISTED])
        words = f"the weight {told} is another one in output channels {listed} ours"
        yield _hypothesis(f"{what} scaled in channels", words, parameter, values, len(where))
        return
    if old.size == 1:
        words = f"the constant {told} is {values[0]:.6g}, not {old[0]:.6g}"
        if np.isclose(values[0], -old[0], rtol=BESIDE, atol=0):
            # no number is fitted here: where the whole result changes its sign, this is why
            words += ": the sign of the result was changed"
            yield Hypothesis(
                f"{what} negated", words, Prior.usual, inputs=parameter.edit(-old), fitted=0
            )
            return
        yield _hypothesis(f"{what} of another value", words, parameter, values, 1)
        return
    if len(where) == old.size and np.isfinite(middle):
        words = f"{told} is {middle:.6g} times ours"
        yield _hypothesis(f"{what} scaled", words, parameter, old * middle, 1)
    if len(where) <= max(1, old.size // 2):
        listed = "; ".join(f"{values[k]:.6g}, not {old[k]:.6g} at {k}" for k in where[:LISTED])
        more = f"; and {len(where) - LISTED} more" if len(where) > LISTED else ""
        words = f"{told} is {listed}{more}{_same_by_another(suspect, parameter, values, where)}"
        yield _hypothesis(f"{what} of other elements", words, parameter, values, len(where))


def _same_by_another(
    suspect: Suspect, parameter: _Parameter, values: np.ndarray, where: np.ndarray
) -> str:
    """The other vector of a BatchNormalization that would give these numbers, in words."""
    other = (
        None if parameter.axis is not None else same_by_another(suspect, parameter.index, values)
    )
    if other is None or not np.isfinite(other[1][where]).all():
        return ""
    index, others = other
    old = suspect.inputs[index].astype(np.float64).ravel()
    listed = "; ".join(f"{others[k]:.6g}, not {old[k]:.6g} at {k}" for k in where[:LISTED])
    name = suspect.node.inputs[index] if suspect.node.inputs else None
    told = f"input {index}, {name!r}," if name else f"input {index}"
    both = " or ".join(PARAMETERS[i] for i in sorted((parameter.index, index)))
    return f", or {told} is {listed}: {both} of one channel give the same numbers"


def _hypothesis(
    name: str, words: str, parameter: _Parameter, values: np.ndarray, fitted: int
) -> Hypothesis:
    return Hypothesis(name, words, Prior.rare, inputs=parameter.edit(values), fitted=fitted)
