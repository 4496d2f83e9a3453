"""Products of 8-bit factors in a GPU's matrix units are `precision` by name; a mistake among them
stays one, and a subject on the processor gets no such excuse."""

import dataclasses

import ml_dtypes
import numpy as np
import pytest

from verax.ir.graph import Builder, Graph
from verax.ir.types import DType, TensorType
from verax.judge.check import check
from verax.numerics.matrix_units.routes import ROUTES, predicted
from verax.ops.pointwise.arithmetic import Mul
from verax.ops.pointwise.cast import Cast
from verax.ops.sums.linear import MatMul
from verax.records.verdict import Kind, Verdict
from verax.runners.arrays import ArraysRunner

SEED = 361
ROWS, TERMS, COLUMNS = 12, 160, 21
FAST, SLOW = "scaled_mm e4m3, fast accumulation", "scaled_mm e4m3"


def fp8_product(terms: int = TERMS, scale: float | None = None, output: str = "") -> Graph:
    b = Builder("net")
    x = b.input("x", TensorType.parse(f"float8_e4m3fn[{ROWS}, {terms}]"))
    w = b.input("w", TensorType.parse(f"float8_e4m3fn[{terms}, {COLUMNS}]"))
    wide = [b.add(Cast(to=DType.float32), [v], [f"{v}32"], f"cast_{v}") for v in (x, w)]
    if scale is not None:
        number = b.constant(np.float32(scale), "scale")
        wide[0] = b.add(Mul(), [wide[0], number], ["scaled"], "scaling")
    y = b.add(MatMul(), wide, ["y"], "product")
    if output:
        y = b.add(Cast(to=DType(output)), [y], ["stored"], "storing")
    return b.graph([y])


def factors(terms: int = TERMS, positive: bool = False) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(SEED)
    shapes = (ROWS, terms), (terms, COLUMNS)
    draw = (lambda s: rng.uniform(0.5, 1, s)) if positive else rng.standard_normal
    left, right = (draw(shape).astype(ml_dtypes.float8_e4m3fn) for shape in shapes)
    return left, right


def judge(
    graph: Graph, x: np.ndarray, w: np.ndarray, y: np.ndarray, device: bool = True
) -> Verdict:
    runner = ArraysRunner({graph.outputs[0]: y})
    runner.capabilities = dataclasses.replace(runner.capabilities, any_device=device)
    return check(graph, runner, {"x": x, "w": w}, explain=False)


NAMES = {FAST: "fp8 with fast accumulation", SLOW: "fp8, float32 sums of 128 products"}


@pytest.mark.parametrize("route", [FAST, SLOW])
def test_fp8_products_are_predicted_bit_for_bit(route: str) -> None:
    x, w = factors()
    y = predicted(ROUTES[route], x, w).astype(np.float32)
    verdict = judge(fp8_product(), x, w, y)
    assert verdict.kind is Kind.precision, verdict.reasons
    (finding,) = verdict.outputs
    assert finding.test == NAMES[route]
    assert f"{y.size} of {y.size} numbers are predicted bit for bit" in finding.reason


def test_a_product_that_is_stored_in_bf16_is_predicted_too() -> None:
    x, w = factors(1024, positive=True)
    y = predicted(ROUTES[FAST], x, w).astype(ml_dtypes.bfloat16)
    verdict = judge(fp8_product(1024, output="bfloat16"), x, w, y)
    assert verdict.kind is Kind.precision, verdict.reasons
    assert verdict.outputs[0].test == NAMES[FAST]
    assert "predicted bit for bit" in verdict.outputs[0].reason


def test_a_processor_has_no_such_units() -> None:
    x, w = factors()
    y = predicted(ROUTES[FAST], x, w).astype(np.float32)
    assert judge(fp8_product(), x, w, y, device=False).kind is Kind.mistake


@pytest.mark.parametrize("route", [FAST, SLOW])
def test_a_lost_tail_of_fp8_factors_is_a_mistake(route: str) -> None:
    x, w = factors()
    y = predicted(ROUTES[route], x[:, :-8], w[:-8]).astype(np.float32)
    assert judge(fp8_product(), x, w, y).kind is Kind.mistake


def test_a_wrong_scale_of_fp8_products_is_a_mistake() -> None:
    x, w = factors()
    y = predicted(ROUTES[FAST], x, w).astype(np.float32) * np.float32(1.0625)
    assert judge(fp8_product(), x, w, y).kind is Kind.mistake


def test_one_number_that_no_unit_gives_is_not_acquitted_by_its_size() -> None:
    x, w = factors()
    y = predicted(ROUTES[FAST], x, w).astype(np.float32)
    at = np.unravel_index(np.argmin(np.abs(y)), y.shape)
    y[at] *= np.float32(1.02)
    verdict = judge(fp8_product(), x, w, y)
    assert verdict.kind is Kind.undecided, verdict.reasons
    assert f"{y.size - 1} of {y.size} numbers are predicted" in verdict.outputs[0].reason


def test_a_long_chain_of_positive_products_is_percents_too_small_honestly() -> None:
    x, w = factors(8192, positive=True)
    route = ROUTES[FAST].with_part(2816)  # as cuBLAS splits it; too long to simulate in a verdict
    y = predicted(route, x, w).astype(np.float32)
    exact = x.astype(np.float64) @ w.astype(np.float64)
    assert np.mean(y / exact) < 0.97
    verdict = judge(fp8_product(8192), x, w, y)
    assert verdict.kind is Kind.precision, verdict.reasons
    assert verdict.outputs[0].test == "fp8 with fast accumulation"
    y[-3:] *= np.float32(0.7)  # a size alone leaves room for a tenth
    assert judge(fp8_product(8192), x, w, y).kind is Kind.mistake


def test_scaled_fp8_factors_are_judged_by_the_size_of_their_errors() -> None:
    x, w = factors()
    y = predicted(ROUTES[FAST], x, w).astype(np.float32) * np.float32(0.37)
    graph = fp8_product(scale=0.37)
    verdict = judge(graph, x, w, y)
    assert verdict.kind is Kind.precision, verdict.reasons
    assert verdict.outputs[0].test.startswith("fp8")
    lost = predicted(ROUTES[FAST], x[:, :-8], w[:-8]).astype(np.float32) * np.float32(0.37)
    assert judge(graph, x, w, lost).kind is Kind.mistake


def test_float32_numbers_that_fit_fp8_are_no_fp8_product() -> None:
    """Small integers are FP8 numbers, too: a sum that is 0.4 % too small is no unit's."""
    rng, b = np.random.default_rng(SEED + 1), Builder("net")
    x = b.input("x", TensorType.parse(f"float32[{ROWS}, {TERMS}]"))
    weights = rng.integers(1, 9, (TERMS, COLUMNS)).astype(np.float32)
    graph = b.graph([b.add(MatMul(), [x, b.constant(weights, "w")], ["y"], "product")])
    data = rng.integers(1, 9, (ROWS, TERMS)).astype(np.float32)
    y = (data @ weights) * np.float32(0.996)
    assert check(graph, ArraysRunner({"y": y}), {"x": data}, explain=False).kind is Kind.mistake
