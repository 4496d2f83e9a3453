"""Functions that a compiler may write by exponentials and logarithms, as TVM does."""

from collections.abc import Callable

import numpy as np
import pytest

from verax.ir.graph import Node
from verax.ir.operator import Operator
from verax.ir.types import TensorType
from verax.judge.decide.local import check_node
from verax.ops.pointwise.transcendental import Asinh, Atanh, Exp, Sinh, Tanh
from verax.records.verdict import Kind

ONE, TWO = np.float32(1), np.float32(2)


def tanh(x: np.ndarray) -> np.ndarray:
    small = np.exp(-TWO * np.abs(x))
    return np.sign(x) * ((ONE - small) / (ONE + small))


FORMULAS: list[tuple[Operator, Callable[[np.ndarray], np.ndarray], Callable, float]] = [
    (Tanh(), tanh, np.tanh, 3.0),
    (Sinh(), lambda x: (np.exp(x) - np.exp(-x)) / TWO, np.sinh, 3.0),
    (Asinh(), lambda x: np.log(x + np.sqrt(x * x + ONE)), np.arcsinh, 0.3),
    (Atanh(), lambda x: np.log((ONE + x) / (ONE - x)) / TWO, np.arctanh, 0.9),
]


def kind(op: Operator, x: np.ndarray, given: np.ndarray) -> Kind:
    node = Node(op, ("x",), ("y",), "f")
    (found,) = check_node(node, [x], [given], (TensorType.of(given),))
    return found.kind


@pytest.mark.parametrize(("op", "formula", "function", "reach"), FORMULAS)
def test_the_formula_is_rounding_and_a_slope_that_is_off_is_not(
    op: Operator, formula: Callable, function: Callable, reach: float
) -> None:
    random = np.random.default_rng([71, round(10 * reach)])
    for scale in (reach, 1e-2, 1e-4):
        x = random.uniform(-scale, scale, (3, 5, 41)).astype(np.float32)
        assert kind(op, x, formula(x)) in (Kind.rounding, Kind.identical)
    x = random.uniform(-reach, reach, (3, 5, 41)).astype(np.float32)
    wide = x.astype(np.float64)
    assert kind(op, x, (function(wide) * (1 + 2e-5)).astype(np.float32)) is Kind.mistake
    small = x * np.float32(1e-2)
    bent = function(small.astype(np.float64)) * (1 + 1e-3)
    assert kind(op, small, bent.astype(np.float32)) is Kind.mistake


@pytest.mark.parametrize("reach", [0.5, 8.0, 80.0])
def test_exp_by_powers_of_two_is_rounding_and_a_slope_that_is_off_is_not(reach: float) -> None:
    x = np.random.default_rng(73).uniform(-reach, reach, (3, 5, 41)).astype(np.float32)
    given = np.exp2((x * np.float32(np.log2(np.e))).astype(np.float64)).astype(np.float32)
    assert kind(Exp(), x, given) in (Kind.rounding, Kind.identical)
    bent = np.exp(x.astype(np.float64)) * (1 + 5e-5)
    assert kind(Exp(), x, bent.astype(np.float32)) is Kind.mistake
    scaled = np.exp(x.astype(np.float64) * (1 + 1e-5)).astype(np.float32)
    assert kind(Exp(), x, scaled) is Kind.mistake
