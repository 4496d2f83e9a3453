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


@pytest.mark.parametrize("terms", [64, 3072])
def test_three_bf16_products_are_named(terms: int) -> None:
    """To the last bit where the sum is short, and by the numbers of 16-bit factors where not."""
    rng, b = np.random.default_rng(SEED + 3), Builder("net")
    x = b.input("x", TensorType.parse(f"float32[9, {terms}]"))
    weights = rng.standard_normal((terms, 14)).astype(np.float32)
    graph = b.graph([b.add(MatMul(), [x, b.constant(weights, "w")], ["y"], "product")])
    data = rng.standard_normal((9, terms)).astype(np.float32)
    route = ROUTES["JAX, BF16_BF16_F32_X3"]
    y = predicted(route, data, weights).astype(np.float32)
    verdict = judge(graph, data, y)
    assert verdict.kind is Kind.precision, verdict.reasons
    assert verdict.outputs[0].test == "three bf16 products"
    assert ("predicted bit for bit" in verdict.outputs[0].reason) is (terms == 64)
    lost = predicted(route, data[:, :-2], weights[:-2]).astype(np.float32)
    assert judge(graph, data, lost).kind is Kind.mistake


def test_16_bit_factors_of_one_sign_lean_towards_zero() -> None:
    rng, b = np.random.default_rng(SEED + 4), Builder("net")
    x = b.input("x", TensorType.parse("float32[7, 2048]"))
    weights = rng.uniform(0.5, 1, (2048, 11)).astype(np.float16).astype(np.float32)
    graph = b.graph([b.add(MatMul(), [x, b.constant(weights, "w")], ["y"], "product")])
    data = rng.uniform(0.5, 1, (7, 2048)).astype(np.float16).astype(np.float32)
    y = predicted(ROUTES["Triton, fp16"], data, weights).astype(np.float32)
    verdict = judge(graph, data, y)
    assert verdict.kind is Kind.precision, verdict.reasons
    assert verdict.outputs[0].test == "fp16 factors, float32 sums in matrix units"
    y[:, 3] *= np.float32(1.0001)
    assert judge(graph, data, y).kind is Kind.mistake


@pytest.mark.parametrize("terms", [96, 1024])
def test_fp16_accumulation_is_named(terms: int) -> None:
    rng, b = np.random.default_rng(SEED + 5), Builder("net")
    x = b.input("x", TensorType.parse(f"float16[10, {terms}]"))
    weights = rng.standard_normal((terms, 17)).astype(np.float16)
    graph = b.graph([b.add(MatMul(), [x, b.constant(weights, "w")], ["y"], "product")])
    data = rng.standard_normal((10, terms)).astype(np.float16)
    y = predicted(ROUTES["Triton, fp16 accumulation"], data, weights, dtype=np.float16)
    verdict = judge(graph, data, y)
    assert verdict.kind is Kind.precision, verdict.reasons
    assert verdict.outputs[0].test == "fp16 accumulation"
    assert ("predicted bit for bit" in verdict.outputs[0].reason) is (terms == 96)
    lost = predicted(ROUTES["Triton, fp16 accumulation"], data[:, :-8], weights[:-8])
    assert judge(graph, data, lost.astype(np.float16)).kind is Kind.mistake


def test_a_bare_answer_may_come_from_a_gpu() -> None:
    """An array without a name is nobody's in particular, like those with names."""
    import torch

    import verax

    _, x, weights = product()
    y = predicted(ROUTES["JAX, BF16_BF16_F32_X3"], x, weights).astype(np.float32)
    inputs = torch.from_numpy(x), torch.from_numpy(weights.copy())
    verdict = verax.check(torch.matmul, y, inputs)
    assert verdict.kind is Kind.precision, verdict.reasons
    assert "predicted bit for bit" in verdict.outputs[0].reason


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
