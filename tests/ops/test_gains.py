"""The table of gains holds: what each operator states of an error in an input is what happens.

Inputs are moved by a ten millionth of their largest number (a normalization's by that of the
numbers that it divides together), in float64. A gain that is stated as bounded has to be, on every
case and on some of its own making; one that is stated as unbounded has to show that it is.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

import verax.ops
from verax.base.errors import VeraxError
from verax.ir.gains import LARGEST_GAIN, Gain, InputGain, normalization
from verax.ir.graph import Node
from verax.ir.operator import REGISTRY, Case, Inference, Operator
from verax.ir.types import TensorType
from verax.ops.movement.reshaping import Flatten, Reshape, Transpose
from verax.ops.pointwise.arithmetic import Pow
from verax.ops.sums.einsum import Einsum
from verax.ops.sums.reduction import ReduceSum
from verax.reference.evaluate import evaluate_node, to_work

assert verax.ops
SMALL = 1e-7
MOST_CASES = 7
"""Of an operator: enough for each attribute; recurrent networks have a hundred."""
Values = list[np.ndarray | None]


def inputs_of(case: Case) -> Values:
    types = types_of(case)
    return [
        a if a is None or t is None else to_work(a, t.dtype, np.dtype(np.float64))
        for a, t in zip(case.inputs, types)
    ]


def types_of(case: Case) -> tuple[TensorType | None, ...]:
    return tuple(None if a is None else TensorType.of(a) for a in case.inputs)


def evaluated(case: Case, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
    """Outputs by meaning, in float64."""
    types = types_of(case)
    known = tuple(a if i in case.constant else None for i, a in enumerate(case.inputs))
    outputs = tuple(case.op.infer(Inference(types, known, case.op.kind)))
    node = Node(case.op, ("",) * len(types), ("",) * len(outputs), case.label)
    with np.errstate(all="ignore"):
        return list(evaluate_node(node, inputs, types, outputs, promised_bits=False))


def float_inputs(case: Case) -> Iterator[tuple[int, InputGain]]:
    """The inputs that hold floats, with their gains where all others are constants."""
    types = types_of(case)
    for i, type_ in enumerate(types):
        if type_ is not None and type_.dtype.is_float and i not in case.constant:
            known = tuple(a if j != i else None for j, a in enumerate(case.inputs))
            yield i, case.op.gain(Inference(types, known, case.op.kind), i)


def scale_of(x: np.ndarray, gain: InputGain) -> np.ndarray:
    """What an error of each number is measured by."""
    if gain.gain is Gain.normalized:
        return np.max(np.abs(x), axis=gain.axes, keepdims=True, initial=0)
    return np.max(np.abs(x), initial=0)


def largest_gain(case: Case, inputs: Values, index: int, gain: InputGain, step: float) -> float:
    """How many times as large an error is in the outputs, each relative to the largest number;
    infinite where an integer or a NaN comes or goes."""
    x = inputs[index]
    assert x is not None
    rng = np.random.default_rng(3)
    before = evaluated(case, inputs)
    found = 0.0
    for signs in (rng.choice([-1.0, 1.0], x.shape), np.ones(x.shape), -np.ones(x.shape)):
        moved = [*inputs]
        moved[index] = x + step * scale_of(x, gain) * signs
        for old, new in zip(before, evaluated(case, moved), strict=True):
            found = max(found, _growth(old, new, gain) / step)
    return found


def _growth(old: np.ndarray, new: np.ndarray, gain: InputGain) -> float:
    if old.shape != new.shape:
        return np.inf
    if old.dtype.kind != "f":
        apart = np.abs(old.astype(np.int64) - new.astype(np.int64)).max(initial=0)
        return 0.0 if apart <= (gain.gain is Gain.none) else np.inf  # a step of its grid
    if not np.array_equal(np.isfinite(old), np.isfinite(new)):
        return np.inf
    old, new = (np.where(np.isfinite(old), a, 0) for a in (old, new))
    size = np.abs(old).max(initial=0)
    return float(np.abs(old - new).max(initial=0) / size) if size else float(np.any(new != 0))


def cases_of(name: str) -> list[Case]:
    cases = REGISTRY[name].cases(np.random.default_rng(zlib.crc32(name.encode()) + 1))
    return [c for c in itertools.islice(cases, 60) if is_finite(c) and any(float_inputs(c))]


def is_finite(case: Case) -> bool:
    return all(a is None or np.isfinite(a.astype(np.float64)).all() for a in case.inputs)


def spread(cases: list[Case]) -> list[Case]:
    """At most so many of them, from first to last."""
    return cases[:: -(-len(cases) // MOST_CASES) or 1]


def states(cls: type[Operator]) -> bool:
    return bool(cls.gains) or cls.gain is not Operator.gain


FLOATS = [n for n, cls in REGISTRY.items() if not cls.unsupported and cases_of(n)]


@pytest.mark.parametrize("name", FLOATS)
def test_it_states_the_gain_of_its_inputs(name: str) -> None:
    assert states(REGISTRY[name]), "add `gains`, or override `gain`"


@pytest.mark.parametrize("name", FLOATS)
def test_a_gain_that_is_stated_as_bounded_is(name: str) -> None:
    for case in spread(cases_of(name)):
        inputs = inputs_of(case)
        for index, gain in float_inputs(case):
            if gain.gain is Gain.unbounded:
                continue
            for tried in (inputs, *variants(inputs, index, case)):
                if any(o.dtype.kind == "f" and not np.any(o) for o in evaluated(case, tried)):
                    continue  # zeros: nothing to measure by
                step = STEPS.get(name, SMALL)
                found = largest_gain(case, tried, index, gain, step)
                assert found <= LARGEST_GAIN, f"{case.op} {case.label}, input {index}: {gain}"


def variants(inputs: Values, index: int, case: Case) -> Iterator[Values]:
    """The input as it is drawn, but small, large, and with a row of zeros."""
    x = inputs[index]
    assert x is not None
    if case.op.kind in DOMAINS:
        return
    for factor in (1e-3, 8.0):
        yield [*inputs[:index], x * factor, *inputs[index + 1 :]]
    if x.ndim and x.shape[0] > 1:
        zeros = x.copy()
        zeros[0] = 0
        yield [*inputs[:index], zeros, *inputs[index + 1 :]]


DOMAINS = {
    *("GridSample", "RoiAlign", "MaxUnpool", "Bfloat16Factor"),
    *("Exp", "Sinh", "Cosh", "ReduceProd", "CumProd", "RNN", "GRU", "LSTM"),
}
"""Operators whose numbers mean places, or grow too large for the yardstick."""
STEPS = {"Bfloat16Factor": 2.0**-5, "Cast": 2.0**-5}
"""Larger ones, for operators that round to fewer digits than a ten millionth."""

SPECIAL = (0.0, 0.5, 1.0, -1.0, 2.0)
"""Numbers at which operators jump or have no derivative."""


@pytest.mark.parametrize("name", FLOATS)
def test_a_gain_that_is_stated_as_unbounded_shows_it(name: str) -> None:
    wanted: dict[int, float] = {}
    for case in cases_of(name):
        for index, gain in float_inputs(case):
            if gain.gain is Gain.unbounded and wanted.get(index, 0) <= LARGEST_GAIN:
                wanted[index] = max(wanted.get(index, 0), demonstrated(case, index, gain))
    bounded = {i for i, found in wanted.items() if found <= LARGEST_GAIN}
    assert not bounded - UNSHOWN.get(name, set()), wanted


def demonstrated(case: Case, index: int, gain: InputGain) -> float:
    """The largest gain at the input as drawn, rounded, and at numbers where functions jump."""
    inputs = inputs_of(case)
    x = inputs[index]
    assert x is not None
    first = np.zeros(x.shape)
    first.ravel()[:1] = 1
    found = 0.0
    if case.op.kind in ("Range", "Loop"):  # a step near 0 makes one without end
        return largest_gain(case, inputs, index, gain, 1e-9)
    candidates = [x, np.round(x), *(np.full(x.shape, v) for v in SPECIAL)]
    candidates += [np.where(first, v, x) for v in (*SPECIAL, getattr(case.op, "alpha", 0.0))]
    candidates += [np.full(x.shape, v) for v in (getattr(case.op, "lambd", 0.0), np.pi / 2)]
    for tried in candidates:
        values = [*inputs[:index], np.asarray(tried, np.float64), *inputs[index + 1 :]]
        for step in (1e-9, 1e-12):
            try:
                found = max(found, largest_gain(case, values, index, gain, step))
            except VeraxError:  # a place that does not exist
                continue
        if found > LARGEST_GAIN:
            break
    return found


UNSHOWN = {
    "Atan2": {1},  # beside a numerator of 0
    "Loop": {2, 4},
    "MultiBoxDetection": {1},
    "NonMaxSuppression": {3, 4},
    "QuantizeLinear": {2},  # a zero point of float8, which is 0
    "Range": {1},
}
"""Inputs that decide only where two numbers are equal, which no case makes so: thresholds, limits,
what a condition inside is computed from."""


def test_a_normalization_is_bounded_by_its_epsilon() -> None:
    assert normalization((1,), 1e-5) == InputGain(Gain.normalized, (1,), guarded=True)
    assert normalization((1,), float(np.float32(1e-6))).gain is Gain.normalized
    assert normalization((1,), 9e-7).gain is Gain.unbounded
    assert normalization((1,), 1e-12).gain is Gain.unbounded
    assert normalization((1,), 0.0).gain is Gain.unbounded


@pytest.mark.parametrize("exponent, gain", [(2, "bounded"), (3, "bounded"), (0.5, "unbounded"),
                                            (-1, "unbounded"), (1.5, "unbounded")])  # fmt: skip
def test_a_power_is_bounded_for_whole_exponents(exponent: float, gain: str) -> None:
    x = TensorType.parse("float32[2, 3]")
    y = np.array(exponent, np.float32)
    ctx = Inference((x, TensorType.of(y)), (None, y))
    assert Pow().gain(ctx, 0).gain == gain
    assert Pow().gain(Inference((x, TensorType.of(y))), 0).gain is Gain.unbounded


def moved(op: Operator, given: str, axes: set[int], known: np.ndarray | None = None) -> object:
    types = [TensorType.parse(f"float32[{given}]")] + ([] if known is None else [
        TensorType.of(known)])  # fmt: skip
    ctx = Inference(tuple(types), (None, known))
    (output,) = op.infer(ctx)
    return op.moved_axes(ctx, 0, frozenset(axes), output)


def test_axes_are_followed_where_elements_move() -> None:
    assert moved(Transpose(perm=(0, 2, 3, 1)), "2, 5, 7, 9", {2, 3}) == {1, 2}
    assert moved(Flatten(), "2, 5, 7, 9", {2, 3}) == {1}
    assert moved(Reshape(), "2, 5, 7, 9", {2, 3}, np.array([2, 5, 63])) == {2}
    assert moved(Reshape(), "2, 6, 7, 9", {2, 3}, np.array([2, 3, 2, 7, 9])) == {3, 4}
    assert moved(Reshape(), "2, 6, 7, 9", {2, 3}, np.array([2, 1, 6, 9, 7])) == {3, 4}
    assert moved(Reshape(), "2, 6, 7, 9", {1}, np.array([2, 2, 3, 63])) == {1, 2}
    assert moved(Reshape(), "12, 7", {1}, np.array([3, 28])) == {0, 1}  # or fewer
    assert moved(ReduceSum(keepdims=False), "2, 6, 7, 9", {2, 3}, np.array([1])) == {1, 2}
    assert moved(Einsum(equation="abcd->adb"), "2, 6, 7, 9", {2, 3}) == {1}
