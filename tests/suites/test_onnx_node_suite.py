"""ONNX's own operator suites: a measured floor of right answers, and nothing wrong."""

from collections import Counter

import numpy as np
import pytest
from onnx_mutations import campaign
from onnx_suite import Outcome, converted_cases, difference, node_cases, run_suite

from verax.base.settings import Settings

NODE_CASES_RIGHT = 1746
"""Of 1,884 in onnx 1.23; all others are refused by name."""


@pytest.fixture(scope="module")
def cases():
    return node_cases()


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
    assert all("not supported" in o.detail or "not a tensor" in o.detail for o in refused)


def test_the_compiler_answers_the_node_suite(cases, capsys):
    outcomes = run_suite(cases, "compiler", Settings(opt_level=1, threads=1))
    counts = Counter(o.kind for o in outcomes)
    with capsys.disabled():
        print(f"\ncompiler at O1, ONNX node suite: {dict(counts)}")
    assert failures(outcomes) == ""
    assert counts["right"] >= NODE_CASES_RIGHT


@pytest.mark.parametrize(
    ("seed", "seconds"), [(1, 15), pytest.param(2, 600, marks=pytest.mark.slow)]
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
