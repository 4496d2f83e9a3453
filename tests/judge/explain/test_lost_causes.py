"""Causes that were found and lost on the way: what watching mends, data quantised otherwise."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge import check
from verax.judge.explain import causes, region
from verax.judge.explain.region import LONGEST, search_region
from verax.ops.movement.reshaping import Transpose
from verax.ops.pointwise.activation import LeakyRelu
from verax.ops.pointwise.arithmetic import Add, Mul
from verax.ops.pointwise.cast import Cast
from verax.ops.quantized.dynamic_quantization import DynamicQuantizeGroups
from verax.ops.sums.linear import MatMul
from verax.ops.sums.softmax import Softmax
from verax.records.verdict import Explanation, Kind
from verax.reference.evaluate import evaluate
from verax.runners.network import NetworkRunner


def product(turned: bool) -> Graph:
    """Rows of x times y with an addend; turned: with x read along its other axis."""
    b = Builder("product")
    x = b.input("x", TensorType.parse("float32[3, 6, 6]"))
    y = b.input("y", TensorType.parse("float32[3, 6, 5]"))
    if turned:
        x = b.add(Transpose(perm=(0, 2, 1)), [x], ["turned"], "turn")
    h = b.add(MatMul(), [x, y], ["product"], "product")
    shift = b.constant(np.linspace(-2, 3, 5, dtype=np.float32), "shift")
    return b.graph([b.add(Add(), [h, shift], ["z"], "shifted")])


class Mended(NetworkRunner):
    """Wrong, and right as soon as somebody watches."""

    def __init__(self) -> None:
        super().__init__(product(turned=True), "mended")

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        if keep is None:
            return super().run(graph, inputs, None)
        values = evaluate(product(turned=False), inputs, work=np.float32, keep=["product", "z"])
        return {v: values[v].astype(np.float32) for v in ("product", "z")}


def test_what_watching_mends_is_explained_by_what_was_given_unwatched() -> None:
    verdict = check(product(turned=False), Mended(), seed=91)
    assert verdict.kind is Kind.mistake
    (blame,) = verdict.blame
    assert blame.explanations[0].hypothesis == "product: first matrix transposed"


def hybrid(symmetric: bool, shift: float) -> tuple[Graph, dict[str, np.ndarray]]:
    """A product of 8-bit weights and data that are quantised row by row, as LiteRT has it."""
    r = np.random.default_rng(92)
    b = Builder("hybrid")
    x = b.input("x", TensorType.parse("float32[3, 40]"))
    weights = b.constant(r.integers(-127, 128, (40, 24)).astype(np.int32), "weights")
    scales = b.constant(r.uniform(0.002, 0.01, 24).astype(np.float32), "scales")
    op = DynamicQuantizeGroups(symmetric=symmetric)
    q, scale = b.add_all(op, [x], ["q", "scale"], "quantised")
    whole = b.add(Cast(to="int32"), [q], ["whole"], "whole")
    sums = b.add(MatMul(), [whole, weights], ["sums"], "sums")
    factor = b.add(Mul(), [scale, scales], ["factor"], "factor")
    wide = b.add(Cast(to="float32"), [sums], ["wide"], "wide")
    data = (r.standard_normal((3, 40)) + shift).astype(np.float32)
    return b.graph([b.add(Mul(), [wide, factor], ["y"], "scaled")]), {"x": data}


@pytest.mark.parametrize("symmetric", [True, False])
def test_data_quantised_the_other_way_are_named_and_set_beside_the_float_model(
    symmetric: bool,
) -> None:
    graph, arrays = hybrid(symmetric, shift=1.5)
    other, _ = hybrid(not symmetric, shift=1.5)
    given = evaluate(other, arrays, work=np.float32)["y"]
    known = {**graph.constants, **arrays}
    (first, *_) = search_region(graph.nodes, known, given, graph.types)[0]
    way = "asymmetrically" if symmetric else "symmetrically"
    assert first.hypothesis == f"quantised: inputs quantized {way}"
    assert "a mistake by the word of the file" in first.words
    nearer = "this reading is nearer" if symmetric else "what the file says is nearer"
    assert nearer in first.words
    weights = graph.constants["weights"] * graph.constants["scales"].astype(np.float64)
    ideal = arrays["x"] @ weights
    error = np.sqrt(np.mean(np.square(given - ideal)))
    assert float(first.words.split("error is ")[1].split(" here")[0]) == pytest.approx(
        error, rel=0.02
    )
    honest = evaluate(graph, arrays, work=np.float32)["y"]
    assert search_region(graph.nodes, known, honest, graph.types)[0] == ()


def autoencoder(wrong: str = "") -> tuple[Graph, dict[str, np.ndarray]]:
    """Six layers of 12 nodes; wrong: the layer whose Relu is a LeakyRelu with another slope."""
    r = np.random.default_rng(98)
    b = Builder("autoencoder")
    h = b.input("x", TensorType.parse("float32[3, 20]"))
    sizes = [20, 16, 11, 7, 11, 16, 20]
    for i, (m, n) in enumerate(itertools.pairwise(sizes)):
        w = b.constant((r.standard_normal((m, n)) / np.sqrt(m)).astype(np.float32), f"w{i}")
        h = b.add(MatMul(), [h, w], [f"p{i}"], f"layer{i}")
        slope = 0.1 if wrong != f"layer{i}" else 0.01
        h = b.add(LeakyRelu(alpha=slope), [h], [f"h{i}"], f"act{i}")
    return b.graph([h]), {"x": r.standard_normal((3, 20)).astype(np.float32)}


def test_a_cause_is_found_behind_more_than_eight_nodes() -> None:
    graph, arrays = autoencoder()
    subject = NetworkRunner(autoencoder("layer1")[0], "logits")
    verdict = check(graph, subject, arrays, watch=False)
    (blame,) = verdict.blame
    assert len(blame.region) == 12
    assert blame.explanations[0].hypothesis == "act1: computed as LeakyRelu with slope 0.01"


def test_where_nothing_is_named_the_next_step_is() -> None:
    graph, arrays = autoencoder()
    w = graph.constants["w2"]
    changed = w * (
        1 + 0.05 * np.random.default_rng(100).standard_normal(w.shape).astype(np.float32)
    )
    other = dataclasses.replace(graph, constants={**graph.constants, "w2": changed})
    (blame,) = check(graph, NetworkRunner(other, "logits"), arrays, watch=False).blame
    assert not blame.explanations
    assert "record values inside them too, 'h2' first" in blame.told_apart


@pytest.mark.parametrize(
    ("wrong", "named"),
    [("scale", "scale of attention: no scale"), ("mask", "mask of attention missing")],
)
def test_scale_and_mask_of_spelled_out_attention_are_named_once(wrong: str, named: str) -> None:
    r = np.random.default_rng(101)
    b = Builder("attention")
    q, k, v = (b.input(n, TensorType.parse("float32[2, 3, 6, 8]")) for n in "qkv")
    mask = b.input("mask", TensorType.parse("float32[2, 1, 1, 6]"))
    turned = b.add(Transpose(perm=(0, 1, 3, 2)), [k], ["kt"], "turn")
    scores = b.add(MatMul(), [q, turned], ["s"], "scores")
    scale = b.constant(np.float32(0.3), "scale")
    scaled = b.add(Mul(), [scores, scale], ["c"], "scaled")
    masked = b.add(Add(), [scaled, mask], ["m"], "masked")
    p = b.add(Softmax(), [masked], ["p"], "softmax")
    graph = b.graph([b.add(MatMul(), [p, v], ["y"], "weighted")])
    arrays = {n: r.standard_normal((2, 3, 6, 8)).astype(np.float32) for n in "qkv"}
    arrays["mask"] = np.zeros((2, 1, 1, 6), np.float32)
    arrays["mask"][0, ..., 4:] = arrays["mask"][1, ..., 2:] = -30
    given = dict(arrays)
    if wrong == "mask":
        given["mask"] = np.zeros_like(arrays["mask"])
    changed = {"scale": np.float32(1)} if wrong == "scale" else {}
    other = dataclasses.replace(graph, constants={**graph.constants, **changed})
    answer = evaluate(other, given, work=np.float32)["y"]
    found = search_region(graph.nodes, {**graph.constants, **arrays}, answer, graph.types)[0]
    assert [e.hypothesis for e in found] == [named]


def chain(count: int, wrong: int | None = None) -> tuple[Graph, dict[str, np.ndarray]]:
    """`count` activations one after the other; one of them may have another slope."""
    b = Builder("chain")
    h = b.input("x", TensorType.parse("float32[3, 20]"))
    for i in range(count):
        slope = 0.9 if i == wrong else 0.99
        h = b.add(LeakyRelu(alpha=slope), [h], [f"h{i}"], f"act{i}")
    return b.graph([h]), {"x": np.random.default_rng(5).standard_normal((3, 20)).astype(np.float32)}


def test_of_too_many_nodes_it_is_said_that_they_were_not_searched() -> None:
    graph, arrays = chain(LONGEST + 2)
    subject = NetworkRunner(chain(LONGEST + 2, wrong=70)[0], "logits")
    (blame,) = check(graph, subject, arrays, watch=False).blame
    assert not blame.explanations and len(blame.region) == LONGEST + 2
    assert f"not tried: the nodes one by one, which is done for up to {LONGEST}" in blame.told_apart
    assert f"record values inside them too, 'h{LONGEST // 2}' first" in blame.told_apart


def test_what_was_not_tried_for_want_of_time_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(region, "WORK", 0)
    subject = NetworkRunner(autoencoder("layer1")[0], "logits")
    graph, arrays = autoencoder()
    (blame,) = check(graph, subject, arrays, watch=False).blame
    assert not blame.explanations and "not tried: the rarer mistakes" in blame.told_apart


def test_several_explanations_come_with_what_would_tell_them_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    two = tuple(Explanation(f"act{i}: another slope", "") for i in (1, 4))
    monkeypatch.setattr(causes, "search_region", lambda *_, **options: (two, ""))
    graph, arrays = autoencoder()
    subject = NetworkRunner(autoencoder("layer1")[0], "logits")
    (blame,) = check(graph, subject, arrays, watch=False).blame
    assert blame.explanations == two
    assert "2 mistakes in these 12 nodes would give this answer: record " in blame.told_apart
