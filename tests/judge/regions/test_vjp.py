"""Every derivative rule against differences of the operator's own meaning, on its own cases."""

import numpy as np
import pytest

from verax.ir.graph import Builder
from verax.ir.operator import REGISTRY, Case, Evaluation, as_tuple
from verax.ir.types import TensorType
from verax.judge.regions.vjp import RULES, rule_of
from verax.judge.regions.vjp_step import VjpStep
from verax.ops.pointwise.elementwise import Elementwise

RULED = sorted(
    name
    for name, op in REGISTRY.items()
    if name in RULES or (issubclass(op, Elementwise) and not op.jumps)
)
"""Operators with a rule; a region with another is judged by Monte Carlo arithmetic."""
NO_FLOATS = ("Trilu",)
"""Operators whose cases hold no float32 numbers."""
ONLY_FIRST = ("Norm", "Pad", "Resize", "Dropout", "Reduce", "ConvTranspose", "Compress")

RECURRENT, STATES = ("RNN", "GRU", "LSTM"), (0, 5, 6)
"""Recurrent layers hand back to the sequence and the initial states."""


def steps(name: str):
    for case in REGISTRY[name].cases(np.random.default_rng(5)):
        found = step_of(case)
        if found is not None:
            yield case, found


def step_of(case: Case) -> tuple[VjpStep, tuple, np.ndarray] | None:
    b, names = Builder("case"), []
    for i, array in enumerate(case.inputs):
        constant = i in case.constant
        names.append(
            None if array is None
            else b.constant(np.array(array), f"c{i}") if constant
            else b.input(f"x{i}", TensorType.of(np.asarray(array)))
        )  # fmt: skip
    graph = b.graph(b.add_all(case.op, names, [f"y{k}" for k in range(case.op.output_count)]))
    node, types = graph.nodes[0], graph.output_types(graph.nodes[0])
    rule = rule_of(node, types)
    if rule is None:
        return None
    # A little beside the case's numbers: ties, zeros and kinks have no derivative to compare.
    random = np.random.default_rng(7)
    wide = [
        a
        if a is None or a.dtype.kind not in "fV" or i in case.constant
        else a + 2e-3 * random.standard_normal(a.shape)
        for i, a in enumerate(case.inputs)
    ]
    if any(a is not None and a.dtype.kind == "f" and not np.isfinite(a).all() for a in wide):
        return None
    last = 1 if any(part in node.op.kind for part in ONLY_FIRST) else len(wide)
    through = STATES if node.op.kind in RECURRENT else range(last)
    wanted = tuple(
        a is not None and a.dtype.kind == "f" and i in through and i not in case.constant
        for i, a in enumerate(wide)
    )
    if not any(wanted) or not any(t.dtype.is_float for t in types):
        return None
    ev = Evaluation(graph.input_types(node), types)
    outputs = tuple(np.asarray(y, np.float64) for y in as_tuple(case.op.reference(ev, *wide)))
    return VjpStep(case.op, ev, tuple(wide), outputs, wanted), rule


ROUNDING = ("Cast", "BitCast", "Bfloat16Factor")
"""Steps, whose slope is none: the rule is that of the line through them."""


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", [n for n in RULED if n not in ROUNDING])
def test_a_rule_hands_back_what_differences_show(name: str) -> None:
    random, tried = np.random.default_rng(6), 0
    for case, (step, rule) in steps(name):
        floats = [t.dtype.is_float for t in step.ev.outputs]
        cotangents = [
            random.standard_normal(y.shape) if f else np.zeros(y.shape)
            for y, f in zip(step.outputs, floats)
        ]
        with np.errstate(all="ignore"):
            back = rule(step, cotangents)
        for i, wanted in enumerate(step.needed):
            if not wanted:
                continue
            x = step.inputs[i]
            direction = random.standard_normal(x.shape) * np.maximum(np.abs(x), 1e-3)
            h = 1e-7
            sides = []
            for v in (x + h * direction, x - h * direction):
                inputs = (*step.inputs[:i], v, *step.inputs[i + 1 :])
                with np.errstate(all="ignore"):
                    sides.append(as_tuple(step.op.reference(step.ev, *inputs)))
            slopes = [(np.asarray(a, float) - b) / (2 * h) for a, b in zip(*sides)]
            if not all(np.isfinite(s).all() for s in slopes):
                continue
            seen = sum(float((g * s).sum()) for g, s, f in zip(cotangents, slopes, floats) if f)
            scale = sum(
                float(np.abs(g * s).sum()) for g, s, f in zip(cotangents, slopes, floats) if f
            )
            assert back[i] is not None and back[i].shape == x.shape, (case.label, str(case.op), i)
            told = float((back[i] * direction).sum())
            assert abs(told - seen) <= 1e-3 * scale + 1e-6, (
                case.label,
                str(case.op),
                i,
                told,
                seen,
            )
            tried += 1
    assert tried or name in NO_FLOATS, "no case of it was tried"


def test_a_cast_hands_back_as_if_it_did_not_round() -> None:
    for case, (step, rule) in steps("Cast"):
        cotangents = [np.ones(y.shape) for y in step.outputs]
        assert np.array_equal(rule(step, cotangents)[0], cotangents[0]), case.label


@pytest.mark.parametrize("size", [1e-24, 1e-12, 1.0, 1e12])
@pytest.mark.parametrize("name", ["Sqrt", "Rsqrt", "Reciprocal", "Div", "Max", "Min", "Clip"])
def test_slopes_at_small_and_large_numbers_are_right(name: str, size: float) -> None:
    """A guarded norm is made of these: differences by a fixed step would hand back nothing."""
    x, other = np.array([1.5, 2.5, 7.0]) * size, np.array([2.0]) * size
    case = {"Div": (x, other), "Max": (x, other), "Min": (x, other), "Clip": (x, other[0])}
    inputs = case.get(name, (x,))
    op = REGISTRY[name]()
    types = tuple(TensorType.of(np.asarray(a)) for a in inputs)
    ev = Evaluation(types, types[:1])
    (y,) = (np.asarray(v) for v in as_tuple(op.reference(ev, *inputs)))
    found = RULES[name](VjpStep(op, ev, inputs, (y,), (True,) + (False,) * (len(inputs) - 1)),
                        [np.ones(3)])[0]  # fmt: skip
    above = x > other
    wanted = {
        "Sqrt": 0.5 / np.sqrt(x), "Rsqrt": -0.5 / x**1.5, "Reciprocal": -1 / x**2,
        "Div": np.full(3, 1 / other[0]), "Max": above * 1.0, "Min": ~above * 1.0,
        "Clip": above * 1.0,
    }[name]  # fmt: skip
    np.testing.assert_allclose(found, wanted, rtol=1e-9)
