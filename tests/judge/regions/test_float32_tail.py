"""Networks in bfloat16 whose last nodes, and sums along the residual stream, are in float32."""

import dataclasses

import numpy as np
import pytest

from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge.check import check
from verax.judge.regions.end_to_end import region_of
from verax.judge.regions.float32_tail import Float32Tail
from verax.numerics.formats import BFLOAT16, round_to
from verax.ops.pointwise.activation import Relu
from verax.ops.pointwise.arithmetic import Add
from verax.ops.sums.layer_normalization import LayerNormalization
from verax.ops.sums.linear import MatMul
from verax.records.verdict import Kind, Verdict
from verax.reference.evaluate import evaluate
from verax.runners.arrays import ArraysRunner

SEED, WIDTH, HIDDEN = 3641, 24, 40
STATED = frozenset({"bfloat16"})
Arrays = dict[str, np.ndarray]


def residual(tokens: int = 37, outputs: int = 24) -> tuple[Graph, Arrays]:
    """A projection, two blocks of normalization and two products around a residual stream, and a
    last product where `outputs` is not the stream's width."""
    rng, b = np.random.default_rng(SEED), Builder("residual")
    w: Arrays = {"w0": rng.standard_normal((17, WIDTH)) / 17**0.5}
    for i in "12":
        w[f"a{i}"] = rng.standard_normal((WIDTH, HIDDEN)) / WIDTH**0.5
        w[f"c{i}"] = rng.standard_normal(HIDDEN)
        w[f"b{i}"] = rng.standard_normal((HIDDEN, WIDTH)) / HIDDEN**0.5
        w[f"g{i}"], w[f"s{i}"] = 1 + rng.random(WIDTH), rng.standard_normal(WIDTH)
    w["head"] = rng.standard_normal((WIDTH, outputs)) / WIDTH**0.5
    w = {k: a.astype(np.float32) for k, a in w.items()}
    x = b.input("x", TensorType.parse(f"float32[{tokens}, 17]"))
    of = {k: b.constant(a, k) for k, a in w.items() if k != "head" or outputs != WIDTH}
    y = b.add(MatMul(), [x, of["w0"]], ["y0"], "project")
    for i in "12":
        normal = b.add(LayerNormalization(), [y, of[f"g{i}"], of[f"s{i}"]], [f"n{i}"], f"norm{i}")
        up = b.add(MatMul(), [normal, of[f"a{i}"]], [f"u{i}"], f"up{i}")
        biased = b.add(Add(), [up, of[f"c{i}"]], [f"d{i}"], f"bias{i}")
        active = b.add(Relu(), [biased], [f"r{i}"], f"relu{i}")
        down = b.add(MatMul(), [active, of[f"b{i}"]], [f"v{i}"], f"down{i}")
        y = b.add(Add(), [y, down], [f"y{i}"], f"sum{i}")
    if outputs != WIDTH:
        y = b.add(MatMul(), [y, of["head"]], ["out"], "head")
    return b.graph([y]), {"x": rng.standard_normal((tokens, 17)).astype(np.float32), **w}


def low(a: np.ndarray) -> np.ndarray:
    return round_to(np.asarray(a, np.float64), BFLOAT16)


def with_tail(w: Arrays, outputs: int = WIDTH, lost: str = "") -> np.ndarray:
    """What a runtime gives that keeps the residual stream of this network in float32 where no
    product follows it. lost: a constant that it takes for zero."""
    w = {k: np.zeros_like(a) if k == lost else a for k, a in w.items()}
    stream = low if outputs != WIDTH else (lambda a: np.asarray(a, np.float32).astype(np.float64))
    y = low(low(w["x"]) @ low(w["w0"]))
    for i in "12":
        wide = low(y)
        normal = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
        scaled = low(low(normal) * w[f"g{i}"] + w[f"s{i}"])
        active = low(np.maximum(scaled @ low(w[f"a{i}"]) + w[f"c{i}"], 0))
        y = stream(y + low(active @ low(w[f"b{i}"])))
    return (y if outputs == WIDTH else y @ low(w["head"])).astype(np.float32)


def judge(graph: Graph, x: np.ndarray, y: np.ndarray, stated: frozenset[str]) -> Verdict:
    runner = ArraysRunner({graph.outputs[0]: y})
    runner.capabilities = dataclasses.replace(
        runner.capabilities, stores_in=stated, any_device=False
    )
    return check(graph, runner, {"x": x}, explain=False)


@pytest.mark.parametrize("stated", [STATED, frozenset()])
def test_bf16_with_a_residual_stream_in_float32_is_named(stated):
    graph, arrays = residual()
    verdict = judge(graph, arrays["x"], with_tail(arrays), stated)
    assert verdict.kind is Kind.precision
    assert verdict.precisions[0].format == "bf16, float32 tail"


@pytest.mark.parametrize("stated", [STATED, frozenset()])
@pytest.mark.parametrize("lost", ["c1", "s2"])
def test_a_lost_bias_is_a_mistake_in_it(stated, lost):
    graph, arrays = residual()
    verdict = judge(graph, arrays["x"], with_tail(arrays, lost=lost), stated)
    assert verdict.kind is Kind.mistake


def test_few_numbers_of_a_subject_that_states_bf16_are_told_by_their_size():
    graph, arrays = residual(tokens=2, outputs=3)
    (exact,) = evaluate(graph, {"x": arrays["x"]}).values()
    noise = np.random.default_rng(SEED + 1).standard_normal(exact.shape)
    both = (Kind.mistake, Kind.mistake)
    for size, kinds in ((1.0, (Kind.precision, Kind.mistake)), (64.0, both)):
        error = size * BFLOAT16.unit_roundoff * np.abs(exact).mean() * noise
        y = (exact + error).astype(np.float32)
        stated = tuple(judge(graph, arrays["x"], y, f).kind for f in (STATED, frozenset()))
        assert stated == kinds


def test_nothing_of_the_stream_is_stored_behind_the_last_product_that_reads_it():
    graph, _ = residual()
    region = region_of(graph, graph.outputs)
    tail = Float32Tail(graph, region, {"d1", "d2"}, {"u1", "u2"}, ())
    assert tail.stored == {"y0", "n1", "r1", "v1", "n2", "r2", "v2"}
    followed, _ = residual(outputs=3)
    assert {"y1", "y2"} <= Float32Tail(
        followed, region_of(followed, followed.outputs), {"d1"}, (), ()
    ).stored
