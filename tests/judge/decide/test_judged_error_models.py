"""Every operator that rounds: honest float32 passes its error model, planted mistakes do not.

Foreign witnesses are in `test_honest_operators`; here every operator of the registry is held, so a
new one fails until its error model is right for plain NumPy in float32 and for the promised bits,
and sharp enough for a mistake of one part in a thousand.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest

from verax.base.errors import VeraxError
from verax.ir.graph import Node
from verax.ir.operator import REGISTRY, Case, Evaluation, Inference, Operator, as_tuple
from verax.ir.types import DType, TensorType
from verax.judge.decide.local import check_node, meaning
from verax.judge.decide.possible import using
from verax.numerics import statistics as st
from verax.records.verdict import Finding, Kind

RELATIVE = 1e-3
"""Size of the planted mistake."""
GOOD = (Kind.identical, Kind.rounding)
ROUNDING = sorted(name for name, op in REGISTRY.items() if not op.exact and not op.unsupported)


def cases(name: str) -> Iterator[tuple[Case, Evaluation]]:
    """Cases of the operator with a float32 output."""
    for case in REGISTRY[name].cases(np.random.default_rng(4)):
        types = tuple(None if a is None else TensorType.of(np.asarray(a)) for a in case.inputs)
        known = tuple(a if i in case.constant else None for i, a in enumerate(case.inputs))
        outputs = tuple(case.op.infer(Inference(types, known)))
        if any(t.dtype is DType.float32 for t in outputs):
            yield case, Evaluation(types, outputs)


def judged(case: Case, ev: Evaluation, given: list[np.ndarray | None]) -> list[Finding]:
    node = Node(
        case.op,
        tuple(None if a is None else f"x{i}" for i, a in enumerate(case.inputs)),
        tuple(f"y{k}" for k in range(len(ev.outputs))),
    )
    arrays = [None if a is None else np.asarray(a) for a in case.inputs]
    with using(frozenset()):
        return check_node(node, arrays, given, ev.outputs)


def in_float32(case: Case, ev: Evaluation) -> list[np.ndarray]:
    narrow = Evaluation(ev.inputs, ev.outputs, np.dtype(np.float32))
    arrays = [
        a.astype(np.float32) if a is not None and a.dtype.kind in "fV" else a for a in case.inputs
    ]
    with np.errstate(all="ignore"):
        found = as_tuple(case.op.reference(narrow, *arrays))
    return [np.asarray(y).astype(t.dtype.numpy) for y, t in zip(found, ev.outputs)]


def promised(case: Case, ev: Evaluation) -> list[np.ndarray]:
    with np.errstate(all="ignore"):
        return [np.asarray(y) for y in as_tuple(case.op.canonical(ev, *case.inputs))]


@pytest.mark.checkered
@pytest.mark.parametrize("run", [in_float32, promised])
@pytest.mark.parametrize("name", ROUNDING)
def test_honest_float32_is_rounding(name: str, run) -> None:
    tried = 0
    for case, ev in cases(name):
        for found in judged(case, ev, run(case, ev)):
            honest = found.kind in GOOD or found.test == "non-finite"
            assert honest, (case.label, str(case.op), found)
            tried += 1
    assert tried, "no case has a float32 output"


@pytest.mark.parametrize("name", ROUNDING)
def test_a_part_in_a_thousand_is_a_mistake(name: str) -> None:
    """On one channel of at least one case: some cases have too few numbers, or cancel."""
    caught = []
    for case, ev in cases(name):
        good = promised(case, ev)
        for k, y in enumerate(good):
            if y.dtype != np.float32 or not np.isfinite(y).all() or not y.any():
                continue
            wrong = y.copy()
            if y.ndim > 1:
                wrong[:, -1] *= np.float32(1 + RELATIVE)
            else:
                wrong *= np.float32(1 + RELATIVE)
            if np.array_equal(wrong, y):
                continue
            given = [wrong if i == k else None for i in range(len(good))]
            caught += [f.kind is Kind.mistake for f in judged(case, ev, given)]
    assert caught, "no case could carry the mistake"
    assert np.mean(caught) >= 0.5, f"{sum(caught)} of {len(caught)} cases"


def other_values(op: Operator) -> Iterator[tuple[str, Operator]]:
    """The operator with one attribute changed at a time, where that makes sense."""
    for name, value in op.attributes().items():
        for changed in rivals(value):
            try:
                yield f"{name}={changed!r}", dataclasses.replace(op, **{name: changed})
            except (VeraxError, ValueError, TypeError):
                continue


def rivals(value: object) -> Iterator[object]:
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        yield type(value)(value + 1)
        yield type(value)(value * 2)
    elif isinstance(value, tuple) and value and all(isinstance(v, int) for v in value):
        yield value[::-1]
        yield tuple(v + 1 for v in value)
    elif isinstance(value, tuple) and value and all(isinstance(v, tuple) for v in value):
        yield tuple(v[::-1] for v in value)


@pytest.mark.parametrize("name", ROUNDING)
def test_another_attribute_is_a_mistake_unless_it_hardly_changes_the_numbers(name: str) -> None:
    for case, ev in cases(name):
        node = Node(case.op, tuple(f"x{i}" for i in range(len(case.inputs))), ("y",))
        for label, op in other_values(case.op):
            try:
                wrong = promised(dataclasses.replace(case, op=op), ev)
            except (VeraxError, ValueError, IndexError, ZeroDivisionError, OverflowError):
                continue
            found = meaning(node, list(case.inputs), ev.inputs, ev.outputs)
            y, rounding = found.outputs[0], found.roundings[0]
            if wrong[0].shape != y.shape or wrong[0].dtype != np.float32 or rounding is None:
                continue
            if not (np.isfinite(y).all() and np.isfinite(wrong[0]).all()):
                continue
            moved = st.standardised(wrong[0].astype(np.float64) - y, rounding.sigma)
            given = [wrong[0], *[None] * (len(ev.outputs) - 1)]
            (finding,) = judged(case, ev, given)
            far = st.group_test(moved).statistic > CLEAR
            assert finding.kind is Kind.mistake or not far, (
                case.label,
                str(case.op),
                label,
                finding,
            )


CLEAR = 50.0
"""T beyond which another meaning has to be called a mistake."""
