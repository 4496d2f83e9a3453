"""Outputs of an approximate program beside O1's: layers that do most harm are named first."""

from __future__ import annotations

import numpy as np
import pytest
from tests.compiler.test_recipe import data, network
from tests.faults.planted import Planted
from tests.judge.regions.test_end_to_end import COLUMNS, ROWS, TERMS, by_strassen

import verax
from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge import output_errors
from verax.judge.output_errors import OutputTrial, OutputTrials, most_harmful
from verax.judge.stress_inputs import stressed_inputs
from verax.numerics import statistics as st
from verax.ops.movement.slicing import Concat
from verax.ops.pointwise.arithmetic import Mul
from verax.ops.pointwise.transcendental import Tanh
from verax.ops.sums.linear import MatMul
from verax.ops.sums.response_normalization import LpNormalization
from verax.records.certificate import Certificate
from verax.records.verdict import Kind


def two_products() -> tuple[Graph, dict[str, np.ndarray]]:
    """One product before a norm, another before Tanh; inputs without any zero row."""
    rng, b = np.random.default_rng(51), Builder("net")
    x = b.input("x", TensorType.parse(f"float32[{ROWS}, {TERMS}]"))
    ends = []
    for name, op in (("harmless", Tanh()), ("harmful", LpNormalization(axis=1))):
        w = (rng.standard_normal((TERMS, COLUMNS)) / 8).astype(np.float32)
        k = b.add(MatMul(), [x, b.constant(w)], [f"k_{name}"], name)
        ends.append(b.add(op, [k], [f"e_{name}"], f"after_{name}"))
    graph = b.graph([b.add(Concat(axis=1), ends, ["y"], "both")])
    return graph, {"x": rng.standard_normal((ROWS, TERMS)).astype(np.float32)}


LAYERS = ("harmless", "harmful")


def test_the_most_harmful_layer_goes_back_on_padded_rows() -> None:
    graph, inputs = two_products()
    trials = OutputTrials(graph, [(inputs, {"x": "given"})], Planted)
    assert trials.failing(Planted(["harmless"], by_strassen), ["harmless"]) == {}
    assert all(r <= st.LOST for one in trials.ratios for r in one.values())
    failing = trials.failing(Planted(LAYERS, by_strassen), LAYERS)
    assert failing.keys() == {"harmful"}
    assert "padded: zero rows at the end" in failing["harmful"]
    assert trials.failing(Planted(["harmless"], by_strassen), ["harmless"]) == {}
    kinds = {o.kind for draw in trials.stressed for o in draw.outputs}
    assert kinds <= {Kind.rounding, Kind.precision} and len(trials.stressed) == 4


def test_with_nothing_left_to_put_back_it_is_a_problem() -> None:
    graph, inputs = two_products()
    trials = OutputTrials(graph, [(inputs, {})], Planted)
    assert trials.failing(Planted(LAYERS, by_strassen), []) == {}
    (problem,) = trials.problems
    assert "more than 16 (padded: zero rows at the end)" in problem
    assert {o.kind for d in trials.stressed for o in d.outputs} > {Kind.precision_lost}


def test_programs_are_bounded() -> None:
    graph, inputs = two_products()
    trials = OutputTrials(graph, [(inputs, {})], Planted)
    subject = Planted(LAYERS, by_strassen)
    for _ in range(output_errors.MOST_ROUNDS):
        assert trials.failing(subject, LAYERS).keys() == {"harmful"}
    assert trials.failing(subject, LAYERS).keys() == {*LAYERS}


def test_harm_is_what_a_layer_alone_does() -> None:
    graph, inputs = two_products()
    inputs = {"x": np.where(np.arange(ROWS)[:, None] < 40, inputs["x"], 0).astype(np.float32)}
    trial = OutputTrial(graph, inputs, {}).evaluate().measure(Planted())
    subject = Planted(LAYERS, by_strassen)
    ratios = trial.ratios(subject.run(graph, inputs))
    harmful = most_harmful(trial, subject, LAYERS, ratios)
    assert harmful.keys() == {"harmful"} and ratios["y"] > 1e4
    assert OutputTrial(graph, inputs, {}).evaluate().ratios(Planted().run(graph, inputs))["y"] <= 2


def test_what_is_stressed() -> None:
    b = Builder("net")
    image = b.input("image", TensorType.parse("float32[2, 3, 20, 30]"))
    words = b.input("words", TensorType.parse("float32[2, 10, 7]"))
    ids = b.input("ids", TensorType.parse("int64[2, 12]"))
    mask = b.input("attention_mask", TensorType.parse("int64[2, 12]"))
    graph = b.graph([b.add(Mul(), [v, v]) for v in (image, words, ids, mask)])
    rng = np.random.default_rng(6)
    inputs = {
        "image": rng.random((2, 3, 20, 30)).astype(np.float32),
        "words": rng.standard_normal((2, 10, 7)).astype(np.float32),
        "ids": rng.integers(1, 50, (2, 12)),
        "attention_mask": np.ones((2, 12), np.int64),
    }
    border, constant, hot, saturated = (arrays for arrays, _ in stressed_inputs(graph, inputs))
    assert not border["image"][:, :, 14:].any() and not border["image"][..., 21:].any()
    assert border["image"][:, :, :14, :21].all()
    assert not border["words"][:, 7:].any() and border["words"][:, :7].all()
    for v in ("ids", "attention_mask"):
        assert not border[v][:, 9:].any() and border[v][:, :9].all()
    assert np.ptp(constant["image"]) == np.ptp(constant["ids"]) == 0 < constant["words"].min()
    assert np.count_nonzero(hot["image"]) == np.count_nonzero(hot["words"]) == 2
    assert {*np.unique(saturated["words"])} == {inputs["words"].min(), inputs["words"].max()}  # type: ignore[attr-defined]
    for one in (constant, hot, saturated):
        np.testing.assert_array_equal(one["attention_mask"], inputs["attention_mask"])


def test_a_certificate_says_how_far_outputs_err_beside_o1() -> None:
    held = verax.compile(network(), opt_level=3, certify=True, seed=61).certificate
    assert held is not None and held.holds and len(held.stressed) == 4
    outputs = [o for d in (*held.draws, *held.stressed) for o in d.outputs]
    assert all(0 < o.ratio <= st.LOST for o in outputs)
    assert "y on a zero border below and to the right: " in str(held)
    assert Certificate.from_json(held.to_json()) == held
    plain = verax.compile(network(), opt_level=2, certify=True, seed=61).certificate
    assert plain is not None and plain.holds and not plain.stressed


def test_layers_go_back_until_the_outputs_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a limit that no program meets all go back, and the certificate does not hold."""
    monkeypatch.setattr(st, "LOST", 1e-3)
    exe = verax.compile(network(), opt_level=3, certify=True, samples=data())
    held = exe.certificate
    assert held is not None and held.fallbacks.keys() == {"conv0", "conv1"}
    assert not exe.recipe.algorithms and not held.holds
    assert any("times what O1's rounding does there" in p for p in held.problems)
