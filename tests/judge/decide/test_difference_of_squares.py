"""Variance as E[x^2] - mean^2: named with what it lost, never rounding, no cover for mistakes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest

from verax.ir.graph import Builder, Graph
from verax.ir.operator import Operator
from verax.ir.types import TensorType
from verax.judge import check
from verax.judge.decide.difference_of_squares import NAME, one_pass_run
from verax.numerics import statistics as st
from verax.ops.pointwise.arithmetic import Mul
from verax.ops.sums.layer_normalization import LayerNormalization, MeanVarianceNormalization
from verax.ops.sums.normalization import (
    BatchNormalization,
    GroupNormalization,
    InstanceNormalization,
)
from verax.records.verdict import Kind, Verdict
from verax.reference.evaluate import promised
from verax.runners.arrays import ArraysRunner

FLOAT = np.float32
SHAPE = (3, 6, 11, 14)
MEANS = {
    # operator, axes of its mean once x is cut into `shape`
    "instance": (InstanceNormalization(), SHAPE, (2, 3)),
    "group": (GroupNormalization(num_groups=2), (3, 2, 3, 11, 14), (2, 3, 4)),
    "layer": (LayerNormalization(axis=2), SHAPE, (2, 3)),
    "mean and variance": (MeanVarianceNormalization(axes=(0, 2, 3)), SHAPE, (0, 2, 3)),
    "batch": (BatchNormalization(training_mode=True), SHAPE, (0, 2, 3)),
}


def offset(ratio: float, seed: int = 0) -> np.ndarray:
    """Deviation 0.1, means around `ratio` times that."""
    rng = np.random.default_rng(seed)
    means = ratio * rng.uniform(0.998, 1.003, (3, 6, 1, 1))
    return ((rng.standard_normal(SHAPE) + means) * 0.1).astype(FLOAT)


def parameters(name: str) -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    if name == "mean and variance":
        return []
    shape = SHAPE[2:] if name == "layer" else SHAPE[1:2]
    found = [rng.uniform(0.5, 2, shape).astype(FLOAT), rng.standard_normal(shape).astype(FLOAT)]
    if name == "batch":
        found += [rng.standard_normal(6).astype(FLOAT), rng.uniform(0.5, 2, 6).astype(FLOAT)]
    return found


def network(name: str, x: np.ndarray) -> Graph:
    op: Operator = MEANS[name][0]
    b = Builder("one")
    names = [b.input("x", TensorType.of(x)), *(b.constant(p) for p in parameters(name))]
    outputs = ["y", "mean", "var"] if name == "batch" else ["y"]
    found = b.add(op, names, outputs, "norm")
    return b.graph([found[0] if name == "batch" else found])


def normalized(
    name: str, x: np.ndarray, way: str, epsilon: float = 1e-5, folded: bool = False
) -> np.ndarray:
    """The operator with its variance by `way`, in x's type.

    way: "squares" (E[x^2] - mean^2), "fused" (the product of the latter is not rounded),
    "centered". folded: y = a x + b, a and b once for each mean.
    """
    _, shape, axes = MEANS[name]
    number = x.dtype.type
    cut = x.reshape(shape)
    mean = cut.mean(axis=axes, keepdims=True)
    if way == "centered":
        variance = np.square(cut - mean).mean(axis=axes, keepdims=True)
    else:
        square = np.square(cut).mean(axis=axes, keepdims=True)
        exact = np.float64 if way == "fused" else number
        variance = (square - np.square(mean, dtype=exact)).astype(number)
        variance = np.maximum(variance, number(0))
    if name == "mean and variance":
        inverse = 1 / (np.sqrt(variance) + number(1e-9))
    else:
        inverse = 1 / np.sqrt(variance + number(epsilon))
    scale, bias = (*parameters(name), np.ones((), FLOAT), np.zeros((), FLOAT))[:2]
    if scale.shape == (6,):
        scale, bias = (np.broadcast_to(v.reshape(1, 6, 1, 1), SHAPE) for v in (scale, bias))
        scale, bias = (v.reshape(shape) for v in (scale, bias))
    scale, bias = scale.astype(number), bias.astype(number)
    if folded:
        return (cut * (inverse * scale) + (bias - mean * (inverse * scale))).reshape(x.shape)
    return ((cut - mean) * inverse * scale + bias).reshape(x.shape)


def judged(name: str, x: np.ndarray, y: np.ndarray, **options: float) -> Verdict:
    graph = network(name, x)
    return check(graph, ArraysRunner({"y": y.astype(FLOAT)}), {"x": x}, explain=False, **options)


@pytest.mark.parametrize("folded", [False, True], ids=["centered", "folded"])
@pytest.mark.parametrize("way", ["squares", "fused"])
@pytest.mark.parametrize("name", MEANS)
def test_it_is_named_with_what_it_lost_and_needs_leave(name: str, way: str, folded: bool) -> None:
    x = offset(300)
    y = normalized(name, x, way, folded=folded)
    found = judged(name, x, y)
    assert found.kind is Kind.precision
    (record,) = found.precisions
    assert record.format == NAME
    true = normalized(name, x.astype(np.float64), "centered")
    error = np.abs(y - true).max() / np.abs(true).max()
    assert 0.3 < 10**record.lost_digits * 2.0**-24 / error < 10
    assert found.exit_code == 1
    assert NAME in "".join(found.reasons) and "--allow" in "".join(found.reasons)
    allowed = judged(name, x, y, allow=(NAME,))
    assert (allowed.kind, allowed.exit_code) == (Kind.precision, 0)
    assert "--allow" not in "".join(allowed.reasons)
    assert dataclasses.replace(found, allowed=("Variance",)).exit_code == 0
    assert dataclasses.replace(found, allowed=("difference", "")).exit_code == 1
    assert Verdict.from_json(allowed.to_json()) == allowed


@pytest.mark.parametrize("ratio", [0, 3, 30, 300, 3000])
@pytest.mark.parametrize("name", MEANS)
def test_stable_algorithms_are_rounding(name: str, ratio: float) -> None:
    x = offset(ratio, 1)
    for y in (
        normalized(name, x, "centered"),
        normalized(name, x, "centered", folded=True),
        promised(network(name, x), {"x": x})["y"],
    ):
        assert judged(name, x, y).kind in (Kind.identical, Kind.rounding)


@pytest.mark.parametrize("ratio", [1, 4, 8])
@pytest.mark.parametrize("name", MEANS)
def test_where_little_is_lost_no_leave_is_needed(name: str, ratio: float) -> None:
    x = offset(ratio, 2)
    found = judged(name, x, normalized(name, x, "squares"))
    assert found.kind in (Kind.rounding, Kind.precision) and found.exit_code == 0


def mistakes(name: str, x: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    wide = x.astype(np.float64)
    for factor in (0.99, 1.01, 1.003):
        yield f"x{factor}", normalized(name, wide, "centered") * factor
    if name != "mean and variance":
        for epsilon in (1e-4, 1e-3):
            yield f"epsilon {epsilon}", normalized(name, wide, "centered", epsilon)


@pytest.mark.parametrize("ratio", [10, 50, 200])
@pytest.mark.parametrize("name", MEANS)
def test_it_covers_no_mistake(name: str, ratio: float) -> None:
    x = offset(ratio, 3)
    for what, y in mistakes(name, x):
        assert judged(name, x, y).kind is Kind.mistake, what


def test_a_mistake_beside_it_is_seen() -> None:
    """One-pass variance, and one channel's bias is wrong by a thousandth."""
    x = offset(300, 4)
    y = normalized("group", x, "squares")
    y[:, 4] += FLOAT(1e-2)
    assert judged("group", x, y).kind is Kind.mistake


@pytest.mark.parametrize("name", ["instance", "layer"])
def test_coverage_counts_what_the_own_sigma_lets_through(name: str) -> None:
    for ratio, sees in ((10, True), (30000, False)):
        x = offset(ratio, 5)
        y = normalized(name, x.astype(np.float64), "centered")
        found = judged(name, x, y)
        assert found.kind in (Kind.identical, Kind.rounding)
        assert found.coverage is not None
        assert (found.coverage.seen, found.coverage.tried) == (int(sees), 1)
        assert (found.coverage.weakest <= st.VISIBLE) is sees
        required = judged(name, x, y, require_power=1e-3)
        assert required.kind is (found.kind if sees else Kind.undecided)


def test_the_allowance_is_this_algorithm_s() -> None:
    x = offset(300)
    found = judged("instance", x, normalized("instance", x, "squares"), allow=("bf16 inputs",))
    assert found.exit_code == 1
    mistaken = dataclasses.replace(found, kind=Kind.mistake, allowed=(NAME,))
    assert mistaken.exit_code == 1


@pytest.mark.parametrize("name", MEANS)
def test_own_runs_of_the_formula_are_the_formula(name: str) -> None:
    x = offset(2, 6)
    run = one_pass_run(MEANS[name][0], [x, *parameters(name)])
    assert run.dtype == FLOAT and run.shape == SHAPE
    assert np.abs(run - normalized(name, x.astype(np.float64), "centered")).max() < 1e-5
    far = offset(300, 6)
    found = judged(name, far, one_pass_run(MEANS[name][0], [far, *parameters(name)]))
    assert (found.kind, found.precisions[0].format) == (Kind.precision, NAME)


def hidden(x: np.ndarray) -> Graph:
    """y = 1.7 * norm(1.3 * x), of which the product alone is shown."""
    b = Builder("hidden")
    factors = [b.constant(np.float32(f)) for f in (1.3, 1.7)]
    given = b.add(Mul(), [b.input("x", TensorType.of(x)), factors[0]], ["g"], "before")
    names = [given, *(b.constant(p) for p in parameters("group"))]
    inner = b.add(MEANS["group"][0], names, ["n"], "norm")
    return b.graph([b.add(Mul(), [inner, factors[1]], ["y"], "after")])


def test_where_it_is_hidden_its_size_proves_nothing() -> None:
    x = offset(300, 7)
    graph, given = hidden(x), x * FLOAT(1.3)
    for way, factor, kinds in (
        ("centered", 1, (Kind.rounding,)),
        ("squares", 1, (Kind.undecided,)),
        ("squares", 1.3, (Kind.mistake,)),
    ):
        y = normalized("group", given, way) * FLOAT(1.7 * factor)
        found = check(graph, ArraysRunner({"y": y.astype(FLOAT)}), {"x": x}, explain=False)
        assert found.kind in kinds
        assert way == "centered" or factor > 1 or NAME in "".join(found.reasons)
