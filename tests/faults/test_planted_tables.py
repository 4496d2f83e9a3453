"""Planted mistakes in tables of quantized functions: an entry that is off by one is a mistake of
its node, unless honest arithmetic has that integer too."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from planted import Change, Planted, on_output

from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge import check
from verax.ops.quantized.lookup import LookupTable
from verax.ops.quantized.quantization import DequantizeLinear, QuantizeLinear
from verax.ops.windows.convolution import Conv
from verax.records.verdict import Kind, Verdict

NUMBERS = np.arange(-128, 128)
TIE = -3
"""Whose entry honest arithmetic may round either way."""


def network() -> Graph:
    """x float32 [2, 3, 9, 7] -> bytes, a table of tanh, floats, a convolution."""
    random = np.random.default_rng(53)
    b = Builder("table")
    table = np.rint(100 * np.tanh(NUMBERS / 40)).astype(np.int8)
    lowest = table - (NUMBERS == TIE).astype(np.int8)
    scale, out_scale = (b.constant(np.array(s, np.float32)) for s in (0.02, 0.013))
    zero = b.constant(np.array(0, np.int8))
    x = b.input("x", TensorType.parse("float32[2, 3, 9, 7]"))
    q = b.add(QuantizeLinear(), [x, scale, zero], ["bytes"], "bytes")
    tables = [b.constant(t) for t in (table, lowest, table)]
    y = b.add(LookupTable(), [q, *tables], ["squashed"], "squashed")
    y = b.add(DequantizeLinear(), [y, out_scale, zero], ["floats"], "floats")
    weights = b.constant((random.standard_normal((4, 3, 2, 3)) / 4).astype(np.float32))
    return b.graph([b.add(Conv(), [y, weights], ["y"], "conv")])


GRAPH = network()


def off(x: int, by: int) -> Change:
    """An entry off by `by`, wherever the input is `x`."""

    def change(node, arrays, y):
        return np.where(np.asarray(arrays[0]) == x, y + by, y).astype(y.dtype)

    return change


def judged(change: Change, *, watches: bool = True) -> Verdict:
    subject = Planted(["squashed"], change)
    subject.capabilities = dataclasses.replace(subject.capabilities, watches=watches)
    return check(GRAPH, subject)


@pytest.mark.parametrize("watches", [True, False])
def test_an_entry_at_a_tie_is_rounding(watches: bool) -> None:
    assert judged(off(TIE, -1), watches=watches).kind is Kind.rounding


@pytest.mark.parametrize(("x", "by"), [(TIE, 1), (TIE, -2), (11, 1), (-30, -1)])
def test_another_entry_is_a_mistake_by_name(x: int, by: int) -> None:
    verdict = judged(off(x, by))
    assert verdict.kind is Kind.mistake
    (blame,) = verdict.blame
    entry = int(np.rint(100 * np.tanh(x / 40)))
    assert blame.node == "squashed"
    assert f"an entry is {entry + by} for {x} instead of {entry}" in blame.explanations[0].words


def test_another_entry_shows_at_the_outputs() -> None:
    """By more than the quantization before it may tip: a single step there is one of its own."""
    verdict = judged(off(11, 40), watches=False)
    assert verdict.kind is Kind.mistake
    assert any("squashed" in (b.node, *b.region) for b in verdict.blame)


def test_noise_behind_a_table_is_no_other_entry() -> None:
    noise = on_output(lambda y: (y + np.random.default_rng(5).integers(0, 2, y.shape)).astype("i1"))
    (blame,) = judged(noise).blame
    assert not any("entry" in e.words or "entries" in e.words for e in blame.explanations)
