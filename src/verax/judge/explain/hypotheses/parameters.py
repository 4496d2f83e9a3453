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
from verax.ir.types import DType, TensorType
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
ALIKE = 2.0**-10
"""Part by which factors of channels that are one factor may differ, in float32's noise."""
LISTED = 4
"""Elements that a sentence lists."""
WEIGHTED = {"Conv": 0, "ConvTranspose": 1, "Gemm": -1, "MatMul": -1}
"""Operators with a weight as input 1, and its axis of output channels."""
FLOATS = frozenset(d.value for d in DType if d.is_float)
UNREAL = (VeraxError, ValueError, LookupError, ArithmeticError, TypeError)


@dataclass(frozen=True)
class NodeParameter:
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
    actual, expected = suspect.wide, suspect.expected
    fits = actual.shape == expected.shape and rounding is not None
    if not fits or actual.dtype.kind != "f" or not 0 < actual.size <= LARGEST_OUTPUT:
        return
    if not (np.isfinite(actual).all() and np.isfinite(expected).all()):
        return
    assert rounding is not None
    sigma = np.broadcast_to(rounding.sigma, actual.shape) + TINY
    for parameter in parameters_of(suspect):
        fit = _fitted(suspect, parameter, sigma)
        if fit is not None:
            yield from named(suspect, parameter, *fit)


def parameters_of(suspect: Suspect) -> Iterator[NodeParameter]:
    """The parameters of a node."""
    for i, x in enumerate(suspect.inputs):
        is_small = x is not None and is_real(x) and 0 < x.size <= LARGEST
        if is_small and LEAST_EACH * x.size <= suspect.actual.size and (i or x.size == 1):
            yield NodeParameter(i, x.astype(np.float64).ravel())
    axis = WEIGHTED.get(suspect.op.kind)
    w = suspect.inputs[1] if suspect.has(1) else None
    if axis is None or w is None or w.ndim < 2 or getattr(suspect.op, "groups", 1) != 1:
        return
    if axis < 0:
        axis = w.ndim - (2 if getattr(suspect.op, "trans_b", False) else 1)
    yield NodeParameter(1, np.ones(w.shape[axis]), axis)


def is_real(x: np.ndarray) -> bool:
    """Whether an input has floating-point numbers, of 16 bits too."""
    return x.dtype.name in FLOATS


def vectors_of(suspect: Suspect) -> Iterator[NodeParameter]:
    """The inputs of a node that have one axis of more than one element."""
    for i, x in enumerate(suspect.inputs):
        is_vector = x is not None and is_real(x) and max(x.shape, default=0) == x.size
        if i and is_vector and 1 < x.size <= min(LARGEST, suspect.actual.size):
            yield NodeParameter(i, x.astype(np.float64).ravel())


def evaluated_with(
    suspect: Suspect, parameter: NodeParameter, values: np.ndarray
) -> np.ndarray | None:
    """The node's float64 output with other values of a parameter; None where it has none."""
    arrays = parameter.edit(values)(list(suspect.inputs))
    declared = [None if x is None else TensorType.of(x) for x in suspect.inputs]
    try:
        with np.errstate(all="ignore"):
            reference = meaning(suspect.node, arrays, declared, suspect.outputs, errors=False)
    except UNREAL:
        return None
    return None if reference.problem else reference.outputs[suspect.output].astype(np.float64)


def _read_by(
    suspect: Suspect, parameter: NodeParameter, steps: np.ndarray, slope: np.ndarray
) -> np.ndarray | None:
    """Which element of the parameter each output element reads (-1: none); None when one reads
    several."""
    order = np.arange(1, steps.size + 1)
    disturbed = evaluated_with(suspect, parameter, parameter.values + steps * order / steps.size)
    if disturbed is None:
        return None
    with np.errstate(all="ignore"):
        fraction = (disturbed - suspect.expected) / slope * steps.size
    reads = np.abs(slope) > st.FLOAT64_NOISE * np.abs(suspect.expected)
    near = np.rint(np.where(reads & np.isfinite(fraction), fraction, 0))
    off = np.abs(np.where(reads, fraction - near, 0))
    if not reads.any() or np.quantile(off[reads], 0.99) > 0.25 or near.max() > steps.size:
        return None
    return np.where(near >= 1, near - 1, -1).astype(int)


def slopes(
    suspect: Suspect, parameter: NodeParameter
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Changes of the output, both of its shape, when each element makes its step: the change, which
    element is read (-1: none), and the steps [elements]; None where several are read."""
    old = parameter.values
    steps = STEP * np.maximum(np.abs(old), st.root_mean_square(old) or 1.0)
    disturbed = evaluated_with(suspect, parameter, old + steps)
    if disturbed is None or disturbed.shape != suspect.expected.shape:
        return None
    slope = disturbed - suspect.expected
    reader = _read_by(suspect, parameter, steps, slope)
    return None if reader is None else (slope, reader, steps)


def _fitted(
    suspect: Suspect, parameter: NodeParameter, sigma: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """Values of the parameter, and which of them differ from the node's; None when none do."""
    old = parameter.values
    sloped = slopes(suspect, parameter)
    if sloped is None:
        return None
    slope, reader, steps = sloped
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
        again = [evaluated_with(suspect, parameter, values + s) for s in (0 * steps, steps)]
        if again[0] is None or again[1] is None:
            return None
        expected, slope = again[0], again[1] - again[0]
    apart = np.where(count >= LEAST_EACH, np.abs(values - old) / error, 0.0)
    differing = apart > max(st.RECOVERED, st.SHARED_ERROR * float(np.max(apart)))
    if not differing.any():
        return None
    return np.where(differing, values, old), differing


def named(
    suspect: Suspect, parameter: NodeParameter, values: np.ndarray, differing: np.ndarray
) -> Iterator[Hypothesis]:
    """Yield hypotheses that a parameter had other `values` where they are `differing`."""
    old, indices = parameter.values, np.flatnonzero(differing)
    input_name = f"input {parameter.index}"
    name = suspect.node.inputs[parameter.index] if suspect.node.inputs else None
    label = f"{input_name}, {name!r}," if name else input_name
    ratio = values[differing] / np.where(old[differing] == 0, np.nan, old[differing])
    middle = float(np.median(ratio)) if np.isfinite(ratio).all() else np.nan
    if parameter.axis is not None and len(indices) > 1 and np.ptp(values) <= ALIKE * abs(values[0]):
        words = f"the weight {label} is {middle:.6g} times ours"
        yield _hypothesis(f"{input_name} scaled", words, parameter, old * middle, 1)
        return
    if parameter.axis is not None:
        listed = ", ".join(f"{k}: {values[k]:.6g} times" for k in indices[:LISTED])
        words = f"the weight {label} is another one in output channels {listed} ours"
        yield _hypothesis(
            f"{input_name} scaled in channels", words, parameter, values, len(indices)
        )
        return
    if old.size == 1:
        words = f"the constant {label} is {values[0]:.6g}, not {old[0]:.6g}"
        if abs(values[0] + old[0]) <= st.SHARED_ERROR * abs(old[0]):
            # no number is fitted here: where the whole result changes its sign, this is why
            words += ": the sign of the result was changed"
            yield Hypothesis(
                f"{input_name} negated", words, Prior.usual, inputs=parameter.edit(-old), fitted=0
            )
            return
        yield _hypothesis(f"{input_name} of another value", words, parameter, values, 1)
        return
    if len(indices) == old.size and np.isfinite(middle):
        words = f"{label} is {middle:.6g} times ours"
        yield _hypothesis(f"{input_name} scaled", words, parameter, old * middle, 1)
    if len(indices) <= max(1, old.size // 2):
        listed = "; ".join(f"{values[k]:.6g}, not {old[k]:.6g} at {k}" for k in indices[:LISTED])
        more = f"; and {len(indices) - LISTED} more" if len(indices) > LISTED else ""
        words = f"{label} is {listed}{more}{_same_by_another(suspect, parameter, values, indices)}"
        yield _hypothesis(f"{input_name} of other elements", words, parameter, values, len(indices))


def _same_by_another(
    suspect: Suspect, parameter: NodeParameter, values: np.ndarray, indices: np.ndarray
) -> str:
    """The other vector of a BatchNormalization that would give these numbers, in words."""
    other = (
        None if parameter.axis is not None else same_by_another(suspect, parameter.index, values)
    )
    if other is None or not np.isfinite(other[1][indices]).all():
        return ""
    index, alternatives = other
    old = suspect.inputs[index].astype(np.float64).ravel()
    listed = "; ".join(f"{alternatives[k]:.6g}, not {old[k]:.6g} at {k}" for k in indices[:LISTED])
    name = suspect.node.inputs[index] if suspect.node.inputs else None
    label = f"input {index}, {name!r}," if name else f"input {index}"
    both = " or ".join(PARAMETERS[i] for i in sorted((parameter.index, index)))
    return f", or {label} is {listed}: {both} of one channel give the same numbers"


def _hypothesis(
    name: str, words: str, parameter: NodeParameter, values: np.ndarray, fitted: int
) -> Hypothesis:
    return Hypothesis(name, words, Prior.rare, inputs=parameter.edit(values), fitted=fitted)
