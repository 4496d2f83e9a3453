"""Products in a GPU's matrix units are named, to the last bit where their order is known, and a
mistake among them is still one."""

import numpy as np
import pytest

from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge.check import check
from verax.numerics.matrix_units.routes import ROUTES, predicted
from verax.ops.sums.linear import MatMul
from verax.ops.windows.convolution import Conv
from verax.records.verdict import Kind, Verdict
from verax.runners.arrays import ArraysRunner

SEED = 36
ROWS, TERMS, COLUMNS = 13, 96, 24


def product() -> tuple[Graph, np.ndarray, np.ndarray]:
    rng, b = np.random.default_rng(SEED), Builder("net")
    x = b.input("x", TensorType.parse(f"float32[{ROWS}, {TERMS}]"))
    weights = rng.standard_normal((TERMS, COLUMNS)).astype(np.float32)
    graph = b.graph([b.add(MatMul(), [x, b.constant(weights, "w")], ["y"], "product")])
    return graph, rng.standard_normal((ROWS, TERMS)).astype(np.float32), weights


def judge(graph: Graph, x: np.ndarray, y: np.ndarray) -> Verdict:
    return check(graph, ArraysRunner({"y": y}), {"x": x}, explain=False)


@pytest.mark.parametrize("name", ["cuBLAS, TF32 allowed", "Triton, tf32", "JAX, default"])
def test_tf32_products_are_predicted_bit_for_bit(name: str) -> None:
    graph, x, weights = product()
    y = predicted(ROUTES[name], x, weights).astype(np.float32)
    verdict = judge(graph, x, y)
    assert verdict.kind is Kind.precision, verdict.reasons
    (finding,) = verdict.outputs
    assert f"{y.size} of {y.size} numbers are predicted bit for bit" in finding.reason
    assert "TF32 in matrix units" in finding.reason


@pytest.mark.parametrize("name", ["cuBLAS, TF32 allowed", "Triton, tf32"])
def test_a_lost_tail_in_tf32_is_a_mistake(name: str) -> None:
    graph, x, weights = product()
    y = predicted(ROUTES[name], x[:, :-8], weights[:-8]).astype(np.float32)
    verdict = judge(graph, x, y)
    assert verdict.kind is Kind.mistake, verdict.reasons
    assert verdict.blame[0].node == "product"


def test_one_wrong_number_among_tf32_products_is_a_mistake() -> None:
    graph, x, weights = product()
    y = predicted(ROUTES["Triton, tf32"], x, weights).astype(np.float32)
    y[7, 5] *= np.float32(1.02)
    assert judge(graph, x, y).kind is Kind.mistake


def test_long_chains_that_lean_towards_zero_are_tf32() -> None:
    """One chain of positive products is low by a hundred units in the last place, honestly."""
    rng, b = np.random.default_rng(SEED + 1), Builder("net")
    x = b.input("x", TensorType.parse("float32[7, 2048]"))
    weights = rng.uniform(0.5, 1, (2048, 11)).astype(np.float32)
    graph = b.graph([b.add(MatMul(), [x, b.constant(weights, "w")], ["y"], "product")])
    data = rng.uniform(0.5, 1, (7, 2048)).astype(np.float32)
    y = predicted(ROUTES["Triton, tf32"], data, weights).astype(np.float32)
    verdict = judge(graph, data, y)
    assert verdict.kind is Kind.precision, verdict.reasons
    assert "matrix units" in verdict.outputs[0].test


def test_a_bias_that_is_added_to_the_stored_sum_is_bf16() -> None:
    import ml_dtypes

    rng, b = np.random.default_rng(SEED + 2), Builder("net")
    x = b.input("x", TensorType.parse("float32[2, 5, 7, 6]"))
    weights = rng.standard_normal((9, 5, 1, 1)).astype(np.float32)
    bias = rng.standard_normal(9).astype(np.float32)
    names = [x, b.constant(weights, "w"), b.constant(bias, "b")]
    graph = b.graph([b.add(Conv(kernel_shape=(1, 1)), names, ["y"], "conv")])

    def short(a: np.ndarray) -> np.ndarray:
        return a.astype(ml_dtypes.bfloat16).astype(np.float32)

    data = rng.standard_normal((2, 5, 7, 6)).astype(np.float32)
    sums = np.einsum("ncij,oc->noij", short(data), short(weights[:, :, 0, 0]))
    y = short(short(sums) + short(bias)[:, None, None])
    finding = judge(graph, data, y).outputs[0]
    assert finding.kind is Kind.precision
    assert finding.test == "bf16 throughout, rounded before the bias"
