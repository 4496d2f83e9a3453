"""Mistakes smaller than one rounding to 16 bits are found by the bits of all numbers together."""

import ml_dtypes
import numpy as np
import pytest

from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge.check import check
from verax.judge.explain.below_rounding import TEST
from verax.ops.sums.layer_normalization import LayerNormalization
from verax.ops.sums.normalization import BatchNormalization
from verax.records.verdict import Kind, Verdict
from verax.runners.arrays import ArraysRunner

SEED = 363
SHORT = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


def normed(dtype: str) -> tuple[Graph, dict[str, np.ndarray], np.ndarray]:
    rng, b = np.random.default_rng(SEED), Builder("net")
    x = b.input("x", TensorType.parse(f"{dtype}[3, 23, 7, 9]"))
    parameters = {
        "scale": rng.uniform(0.5, 2, 23), "bias": rng.normal(0, 0.3, 23),
        "mean": rng.normal(0, 0.3, 23), "variance": rng.uniform(0.3, 1.5, 23),
    }  # fmt: skip
    arrays = {n: a.astype(SHORT[dtype]) for n, a in parameters.items()}
    names = [b.constant(a, n) for n, a in arrays.items()]
    graph = b.graph([b.add(BatchNormalization(epsilon=1e-5), [x, *names], ["y"], "norm")])
    return graph, arrays, rng.normal(0.2, 1, (3, 23, 7, 9)).astype(SHORT[dtype])


def computed(arrays: dict[str, np.ndarray], x: np.ndarray, epsilon: float) -> np.ndarray:
    """In float32, rounded once."""
    wide = {n: a.astype(np.float32).reshape(-1, 1, 1) for n, a in arrays.items()}
    factor = wide["scale"] / np.sqrt(wide["variance"] + np.float32(epsilon))
    y = (x.astype(np.float32) - wide["mean"]) * factor + wide["bias"]
    return y.astype(x.dtype)


def judge(graph: Graph, x: np.ndarray, y: np.ndarray) -> Verdict:
    return check(graph, ArraysRunner({"y": y}), {"x": x})


@pytest.mark.parametrize("dtype", SHORT)
def test_an_epsilon_below_one_rounding_is_found_and_named(dtype: str) -> None:
    graph, arrays, x = normed(dtype)
    y = computed(arrays, x, 1e-3)
    verdict = judge(graph, x, y)
    assert verdict.kind is Kind.mistake, verdict.reasons
    if dtype == "bfloat16":
        assert verdict.outputs[0].test == TEST
        assert verdict.outputs[0].statistic < 1  # no test of sizes sees it
    assert "epsilon was 0.001" in verdict.blame[0].explanations[0].words


@pytest.mark.parametrize("dtype", SHORT)
def test_the_meaning_rounded_once_is_no_mistake(dtype: str) -> None:
    graph, arrays, x = normed(dtype)
    assert judge(graph, x, computed(arrays, x, 1e-5)).kind in (Kind.rounding, Kind.identical)


def test_other_roundings_inside_are_no_mistake() -> None:
    """Scale and shift rounded to bfloat16 first, as some kernels do: no hypothesis gives that."""
    graph, arrays, x = normed("bfloat16")
    wide = {n: a.astype(np.float32).reshape(-1, 1, 1) for n, a in arrays.items()}
    factor = wide["scale"] / np.sqrt(wide["variance"] + np.float32(1e-5))
    factor = factor.astype(x.dtype).astype(np.float32)
    y = ((x.astype(np.float32) - wide["mean"]) * factor + wide["bias"]).astype(x.dtype)
    assert judge(graph, x, y).kind is not Kind.mistake


def test_lanes_behind_the_end_of_a_row_are_named() -> None:
    rng, b = np.random.default_rng(SEED + 1), Builder("net")
    x = b.input("x", TensorType.parse("float32[5, 11, 40]"))
    scale, bias = (rng.uniform(0.5, 1.5, 40).astype(np.float32) for _ in range(2))
    names = [x, b.constant(scale, "scale"), b.constant(bias, "bias")]
    graph = b.graph([b.add(LayerNormalization(epsilon=1e-5), names, ["y"], "norm")])
    data = rng.normal(0.3, 1, (5, 11, 40)).astype(np.float32)
    mean = data.mean(-1, keepdims=True)
    squares = ((data - mean) ** 2).sum(-1, keepdims=True) + 24 * mean**2  # a block of 64
    y = (data - mean) / np.sqrt(squares / 40 + np.float32(1e-5)) * scale + bias
    verdict = judge(graph, data, y.astype(np.float32))
    assert verdict.kind is Kind.mistake
    assert "counted 24 zeros behind the end of each row" in verdict.blame[0].explanations[0].words
