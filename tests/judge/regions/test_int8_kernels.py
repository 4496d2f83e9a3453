"""Kernels of LiteRT that compute integers in another way than they are meant: a named precision,
and a mistake of one step beside it stays a mistake."""

from __future__ import annotations

import numpy as np
import pytest
from tests.frontends.from_tflite.quantised_cases import quantised_cases

import verax
from verax.ir.graph import Builder, Graph
from verax.ir.types import DType, TensorType
from verax.numerics.fixed_point import quantized_factor
from verax.numerics.fixed_point_words import stepped_sigmoid, stepped_tanh
from verax.ops.images.resize_integer import ResizeInteger
from verax.ops.pointwise.arithmetic import Sub
from verax.ops.pointwise.cast import Cast
from verax.ops.quantized.requantization import Requantize
from verax.ops.sums.reduction import ReduceSum
from verax.records.verdict import Kind

IN, OUT, COUNT, SCALE = -96, -88, 20, 2.4526
"""Zero points, elements of a mean, and the scale of the input over that of the output."""


def mean() -> Graph:
    """The mean as a TFLite file states it."""
    b = Builder("mean")
    x = b.input("x", TensorType.parse("int8[2, 5, 4, 16]"))
    moved = b.add(Sub(), [b.add(Cast(to=DType.int32), [x]), b.constant(np.array(IN, np.int32))])
    total = b.add(ReduceSum(keepdims=False), [moved, b.constant(np.array([1, 2]))])
    factors = [b.constant(np.array(v, np.int32)) for v in quantized_factor(SCALE / COUNT)]
    return b.graph([b.add(Requantize(zero_point=OUT), [total, *factors], ["y"], "mean")])


def optimized_mean(x: np.ndarray) -> np.ndarray:
    """As LiteRT's kernel: the zero point's share is a whole number."""
    sums = x.astype(np.int64).sum((1, 2))
    whole = np.rint(sums * SCALE / COUNT) + OUT - np.rint(IN * SCALE)
    return np.clip(whole, -128, 127).astype(np.int8)


def test_a_share_that_is_rounded_by_itself_is_named() -> None:
    x = np.random.default_rng(77).integers(-128, -60, (2, 5, 4, 16)).astype(np.int8)
    (stated,) = verax.reference(mean(), {"x": x}).values()
    assert (optimized_mean(x) != stated).any()
    found = verax.check(mean(), optimized_mean, {"x": x}, explain=False)
    assert found.kind is Kind.precision
    assert "zero point's share" in found.precisions[0].format


@pytest.mark.parametrize("off", ["all", "one", "down"])
def test_results_that_are_one_off_stay_mistakes(off: str) -> None:
    x = np.random.default_rng(78).integers(-128, -60, (2, 5, 4, 16)).astype(np.int8)
    (stated,) = verax.reference(mean(), {"x": x}).values()
    wrong = stated + np.int8(-1 if off == "down" else 1)
    if off == "one":
        wrong = optimized_mean(x)
        wrong[1, 7] += 1
    assert verax.check(mean(), lambda x: wrong, {"x": x}, explain=False).kind is Kind.mistake


def resize() -> Graph:
    b = Builder("resize")
    x = b.input("x", TensorType.parse("int8[2, 5, 7, 3]"))
    return b.graph([b.add(ResizeInteger(sizes=(11, 4)), [x], ["y"], "resize")])


def resized(x: np.ndarray, bits: int) -> np.ndarray:
    """As XNNPACK: positions in float32, weights of so many bits, halves up."""
    value = x.astype(np.int64)
    for axis, size in ((1, 11), (2, 4)):
        at = np.arange(size, dtype=np.float32) * np.float32(x.shape[axis] / size)
        low = at.astype(np.int64)
        lanes = (-1, *(1,) * (3 - axis))
        weight = np.rint((at - low) * 2**bits).astype(np.int64).reshape(lanes)
        high = np.minimum(low + 1, x.shape[axis] - 1)
        value = np.take(value, low, axis) * (2**bits - weight) + np.take(value, high, axis) * weight
    return ((value + (1 << 2 * bits - 1)) >> 2 * bits).astype(np.int8)


@pytest.mark.parametrize(("bits", "kind"), [(11, Kind.precision), (7, Kind.mistake)])
def test_weights_of_11_bits_are_named_and_of_7_are_wrong(bits: int, kind: Kind) -> None:
    x = np.random.default_rng(79).integers(-128, 128, (2, 5, 7, 3)).astype(np.int8)
    (stated,) = verax.reference(resize(), {"x": x}).values()
    assert (resized(x, bits) != stated).any()
    found = verax.check(resize(), lambda x: resized(x, bits), {"x": x}, explain=False)
    assert found.kind is kind
    assert kind is Kind.mistake or "11 bits" in found.precisions[0].format


@pytest.mark.parametrize(
    "case",
    [
        *(f"RESIZE_BILINEAR int8 {c}" for c in ("00 (11, 4)", "10 (14, 12)", "01 (11, 4)")),
        *(f"TANH int16 {scale}" for scale in (2.0**-12, 2.0**-11, 0.0007)),
        *(f"LOGISTIC int16 {scale}" for scale in (2.0**-12, 2.0**-11, 0.0007)),
    ],
)
def test_litert_itself(case: str, tmp_path) -> None:
    pytest.importorskip("ai_edge_litert")
    path = tmp_path / "one.tflite"
    path.write_bytes(dict(quantised_cases())[case])
    found = verax.check(path, "litert", explain=False)
    assert found.kind in (Kind.identical, Kind.rounding, Kind.precision), found.reasons


def test_steps_come_near_the_curves_and_are_as_symmetric() -> None:
    x = np.arange(-(2**15), 2**15)
    found = stepped_tanh(x)
    assert np.abs(found - np.tanh(x / 2**12) * 2**15).max() <= 12
    assert (found[1:] == -found[:0:-1]).all()
    found = stepped_sigmoid(x)
    assert np.abs(found - 2**15 / (1 + np.exp(-x / 2**12))).max() <= 12
    apart = x[1:] != 0
    assert (found[1:] + found[:0:-1] == 2**15 - 1)[apart].all()


def test_a_tanh_that_is_neither_table_nor_steps_is_a_mistake(tmp_path) -> None:
    path = tmp_path / "tanh.tflite"
    path.write_bytes(dict(quantised_cases())[f"TANH int16 {2.0**-12}"])
    graph = verax.load(path).graph
    name = next(iter(graph.inputs))
    x = np.random.default_rng(80).integers(-(2**15), 2**15, (2, 90, 10)).astype(np.int16)
    steps = stepped_tanh(x).astype(np.int16)
    kind = verax.check(graph, lambda *_: steps, {name: x}, explain=False).kind
    assert kind is Kind.precision
    wrong = (stepped_tanh(x) + (x > 20000)).astype(np.int16)
    kind = verax.check(graph, lambda *_: wrong, {name: x}, explain=False).kind
    assert kind is Kind.mistake
