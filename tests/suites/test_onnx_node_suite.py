"""ONNX's own operator suites: a measured floor of right answers, and nothing wrong."""

import unittest
from collections import Counter

import numpy as np
import pytest
from onnx_mutations import campaign
from onnx_suite import Outcome, converted_cases, difference, node_cases, run_suite

import verax.onnx_backend as backend
from verax.base.option_groups.settings import Settings

NODE_CASES_RIGHT = 1839
"""Of 1,884 in onnx 1.23; all others are refused by name."""


@pytest.fixture(scope="module")
def cases():
    return node_cases()


REFUSALS = ("not supported", "not a tensor", "text is no number")
"""What every refusal says."""


def failures(outcomes: list[Outcome]) -> str:
    return "\n".join(f"{o.name}: {o.detail}" for o in outcomes if o.kind in ("wrong", "error"))


def test_the_reference_answers_the_node_suite(cases, capsys):
    outcomes = run_suite(cases, "reference", Settings(threads=1))
    counts = Counter(o.kind for o in outcomes)
    with capsys.disabled():
        print(f"\nreference, ONNX node suite: {dict(counts)}")
    assert failures(outcomes) == ""
    assert counts["right"] >= NODE_CASES_RIGHT
    refused = [o for o in outcomes if o.kind == "refused"]
    assert [o.detail for o in refused if not any(r in o.detail for r in REFUSALS)] == []
    assert len(refused) + counts["right"] == len(cases)


EVERY = 6
"""Of so many operators written out by ONNX's own definitions one is compiled; all are in `slow`."""


@pytest.mark.parametrize("every", [EVERY, pytest.param(1, marks=pytest.mark.slow)])
def test_the_compiler_answers_the_node_suite(cases, capsys, every):
    written_out = [c for c in cases if "_expanded" in c.name]
    assert len(written_out) > 400
    plain = [c for c in cases if "_expanded" not in c.name]
    compiled = [*plain, *written_out[::every]]
    outcomes = run_suite(compiled, "compiler", Settings(opt_level=1, threads=1, quick=True))
    counts = Counter(o.kind for o in outcomes)
    with capsys.disabled():
        print(f"\ncompiler at O1, ONNX node suite: {dict(counts)}")
    assert failures(outcomes) == ""
    assert len(compiled) - counts["right"] <= len(cases) - NODE_CASES_RIGHT


@pytest.mark.parametrize(
    ("seed", "seconds"), [(1, 6), pytest.param(2, 600, marks=pytest.mark.slow)]
)
def test_mutated_cases_are_refused_or_keep_the_promised_bits(cases, tmp_path, seed, seconds):
    counts, bugs = campaign(cases, seed, seconds, tmp_path / "mutant.onnx")
    assert bugs == {}
    assert counts["same"] > 20 and counts["refused"] > 20


@pytest.mark.parametrize("engine", ["reference", "compiler"])
def test_networks_converted_from_pytorch_are_all_right(engine):
    outcomes = run_suite(converted_cases(), engine, Settings(threads=1))
    assert failures(outcomes) == ""
    assert Counter(o.kind for o in outcomes) == {"right": len(outcomes)}
    assert len(outcomes) >= 80


SCOREBOARD = {
    **dict.fromkeys(("relu", "conv_with_strides_padding", "gru_batchwise", "top_k"), ""),
    **dict.fromkeys(("loop11", "loop13_seq", "sequence_map_add_2_sequences", "if_opt"), ""),
    **dict.fromkeys(("optional_has_element_empty_optional_input", "identity_sequence"), ""),
    **dict.fromkeys(("dft", "stft_with_window", "bitcast_float32_to_int32", "not_2d"), ""),
    **dict.fromkeys(
        ("adam_multiple", "tensorscatter_circular", "layer_normalization_2d_axis0"), ""
    ),
    "string_concat": "StringConcat",
    "bernoulli": "RandomUniformLike",
    "training_dropout_default": "training is not supported",
    "loop16_seq_none": "unsized",
}
"""Cases, and what is said of those that are not right: the last one's first tensor has no axes,
which ONNX's comparison of sequences cannot take, whoever gives it."""


def test_the_scoreboard_of_onnx_counts_right_and_skipped(cases, monkeypatch):
    """onnx/backend-scoreboard makes its tests by BackendTest, and runs them."""
    from onnx.backend.test import BackendTest, runner

    chosen = [c for c in cases if c.name.removeprefix("test_") in SCOREBOARD]
    assert len(chosen) == len(SCOREBOARD)
    # ONNX's own runner passes what is refused; the scoreboard lets it through, as skipped.
    monkeypatch.setattr(runner, "BackendIsNotSupposedToImplementIt", InterruptedError)
    monkeypatch.setattr(runner, "load_model_tests", lambda kind: chosen if kind == "node" else [])
    made = BackendTest(backend, __name__)
    result = unittest.TestResult()
    made.test_suite.run(result)
    said = {test.id().rpartition(".test_")[2]: text for test, text in result.skipped}
    assert {name for name in said if name.endswith("_cuda")} == {f"{n}_cuda" for n in SCOREBOARD}
    said |= {test.id().rpartition(".test_")[2]: text for test, text in result.errors}
    assert not result.failures
    found = {name: said.get(f"{name}_cpu", "") for name in SCOREBOARD}
    assert {n for n, text in found.items() if text} == {n for n, why in SCOREBOARD.items() if why}
    for name, why in SCOREBOARD.items():
        assert why in found[name]


def test_the_suite_sees_differences():
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    close, rtol, atol = a * np.float32(1.0005), 1e-3, 1e-7
    assert difference(close, a, rtol, atol) == ""
    assert "1 of 6 differ" in difference(a + (a == 5) * np.float32(0.1), a, rtol, atol)
    assert "shape" in difference(a.T, a, rtol, atol)
    assert "type" in difference(a.astype(np.float64), a, rtol, atol)
    assert difference(a * np.nan, a * np.nan, rtol, atol) == ""
    assert "differ" in difference(np.float32([np.nan]), np.float32([1]), rtol, atol)
    assert "differ" in difference(np.float32([-np.inf]), np.float32([np.inf]), rtol, atol)
    integers = np.arange(3)
    assert "differ" in difference(integers + 1, integers, rtol, atol)
