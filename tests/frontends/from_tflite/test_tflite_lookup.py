"""Functions of quantized numbers are tables whose entries may be either neighbor at a tie, and
nothing else.

LiteRT's delegate has 28 where LiteRT's own kernel has 29 for an ELU whose value is 28.5000008.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.frontends.from_tflite.quantised_cases import quantised_cases
from tests.frontends.from_tflite.tflite_writer import T, one

import verax
from verax.frontends.tflite import load_tflite
from verax.ops.quantized.lookup import LookupTable
from verax.records.verdict import Kind

KINDS = ("LOGISTIC", "TANH", "ELU", "EXP", "LOG", "GELU", "ABS", "SQRT", "RSQRT", "HARD_SWISH")
CASES = {n: m for n, m in quantised_cases() if n.split()[0] in KINDS}
EVERY = np.arange(-128, 128, dtype=np.int8).reshape(2, 32, 4)


def elu(scale: float = 0.043, out_scale: float = 0.11) -> verax.Model:
    """x and y int8 [2, 32, 4]."""
    operand = T((2, 32, 4), "int8", scale=[scale], zero=[-5])
    return load_tflite(one("ELU", [operand], T((2, 32, 4), "int8", scale=[out_scale], zero=[7]), 1))


def tables(model: verax.Model) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The entries, the least and the greatest allowed."""
    (node,) = (n for n in model.graph.nodes if isinstance(n.op, LookupTable))
    found = [model.graph.constants[v or ""] for v in node.inputs[1:]]
    return found[0], found[1], found[2]


def judged(model: verax.Model, x: int, by: int) -> verax.Verdict:
    """Of an answer that is off by `by` wherever the input is `x`."""
    ((name, y),) = verax.reference(model, {"x0": EVERY}).items()
    y = np.where(x == EVERY, y + by, y).astype(np.int8)
    return verax.check(model, {name: y}, inputs={"x0": EVERY})


def test_an_entry_at_a_tie_may_be_either_neighbor() -> None:
    verdict = judged(elu(), 50, -1)
    assert verdict.kind is Kind.rounding
    assert "edge between two" in verdict.nodes[0].reason


@pytest.mark.parametrize(("x", "by"), [(50, 1), (50, -2), (49, -1), (-77, 1)])
def test_any_other_entry_that_is_off_is_a_mistake_by_name(x: int, by: int) -> None:
    verdict = judged(elu(), x, by)
    assert verdict.kind is Kind.mistake
    meant = tables(elu())[0][x + 128]
    (explanation,) = verdict.blame[0].explanations
    assert f"an entry is {meant + by} for {x} instead of {meant}" in explanation.words


def test_another_function_is_no_rounding() -> None:
    ((name, y),) = verax.reference(elu(out_scale=0.1105), {"x0": EVERY}).items()
    verdict = verax.check(elu(), {name: y.astype(np.int8)}, inputs={"x0": EVERY})
    assert verdict.kind is Kind.mistake


@pytest.mark.parametrize("label", CASES)
def test_few_entries_are_open(label: str) -> None:
    """A table's own entries are allowed, and what is allowed is one integer nearly everywhere but
    where LiteRT rounds twice (ABS), cuts off (SQRT), or interpolates (16 bits)."""
    entries, lowest, highest = (t.astype(np.int64) for t in tables(load_tflite(CASES[label])))
    assert (lowest <= entries).all() and (entries <= highest).all()
    share = np.mean(lowest < highest)
    if label.split()[0] in ("ABS", "SQRT") or "int16" in label:
        assert share <= 0.6
    else:
        assert share <= 0.005


def test_the_delegate_of_litert_is_not_accused(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    path = tmp_path / "elu.tflite"
    path.write_bytes(CASES["ELU int8"])
    x = np.resize(EVERY, (2, 90, 5))
    verdict = verax.check(path, "litert", inputs={"x0": x})
    assert verdict.kind in (Kind.identical, Kind.rounding)
