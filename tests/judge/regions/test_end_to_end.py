"""A coarser arithmetic whose errors the network makes large is *precision lost*, by name."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tests.faults.planted import Change, Planted

from verax.base.errors import UsageError
from verax.ir.graph import Builder, Graph, Node
from verax.ir.types import TensorType
from verax.judge import check
from verax.judge.bisect import bisect
from verax.judge.regions.end_to_end import NAMED, require_known
from verax.numerics import statistics as st
from verax.numerics.formats import BFLOAT16, TF32, round_to
from verax.ops.pointwise.arithmetic import Mul, Sub
from verax.ops.pointwise.transcendental import Tanh
from verax.ops.sums.linear import MatMul
from verax.ops.sums.response_normalization import LpNormalization
from verax.records.verdict import Kind, Verdict, is_allowed

ROWS, TERMS, COLUMNS = 70, 64, 96


def unscaled_strassen(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """One level, its seven products in float32: rows share them."""
    (a1, a2), (b1, b2) = (np.split(m, 2) for m in (a, b))
    (a11, a12), (a21, a22) = np.split(a1, 2, 1), np.split(a2, 2, 1)
    (b11, b12), (b21, b22) = np.split(b1, 2, 1), np.split(b2, 2, 1)
    p1, p2, p3 = (a11 + a22) @ (b11 + b22), (a21 + a22) @ b11, a11 @ (b12 - b22)
    p4, p5, p6 = a22 @ (b21 - b11), (a11 + a12) @ b22, (a21 - a11) @ (b11 + b12)
    p7 = (a12 - a22) @ (b21 + b22)
    return np.block([[p1 + p4 - p5 + p7, p3 + p5], [p2 + p4, p1 - p2 + p3 + p6]])


def by_strassen(node: Node, arrays: list, y: np.ndarray) -> np.ndarray:
    return unscaled_strassen(arrays[0], arrays[1])


def in_format(fmt: object) -> Change:
    def change(node: Node, arrays: list, y: np.ndarray) -> np.ndarray:
        a, b = (round_to(x.astype(np.float64), fmt) for x in arrays[:2])
        return np.asarray(a @ b)

    return change


def padded(amplifies: bool = True) -> tuple[Graph, dict[str, np.ndarray]]:
    """Products of rows, 23 of which are zero, and what divides them by their norms, or does not."""
    rng, b = np.random.default_rng(41), Builder("net")
    x = b.input("x", TensorType.parse(f"float32[{ROWS}, {TERMS}]"))
    w = b.constant((rng.standard_normal((TERMS, COLUMNS)) / 8).astype(np.float32), "w")
    k = b.add(MatMul(), [x, w], ["k"], "product")
    k = b.add(Mul(), [k, b.constant(np.array(0.7, np.float32), "c")], ["s"], "scaled")
    k = b.add(LpNormalization(axis=1) if amplifies else Tanh(), [k], ["y"], "last")
    rows = rng.standard_normal((ROWS, TERMS)).astype(np.float32)
    rows[-23:] = 0
    return b.graph([k]), {"x": rows}


def difference() -> tuple[Graph, dict[str, np.ndarray]]:
    """Products that all but cancel, and what divides the rest by its norm."""
    rng, b = np.random.default_rng(42), Builder("net")
    x = b.input("x", TensorType.parse(f"float32[{ROWS}, {TERMS}]"))
    weights = rng.standard_normal((TERMS, COLUMNS))
    w = b.constant(weights.astype(np.float32), "w")
    first = 1e6 * rng.standard_normal(TERMS)  # beyond float16
    near = b.constant((first @ weights).astype(np.float32), "near")
    k = b.add(MatMul(), [x, w], ["k"], "product")
    k = b.add(Sub(), [k, near], ["d"], "difference")
    rows = first + 1e3 * rng.standard_normal((ROWS, TERMS))
    graph = b.graph([b.add(LpNormalization(axis=1), [k], ["y"], "last")])
    return graph, {"x": rows.astype(np.float32)}


def judge(
    made: tuple[Graph, dict[str, np.ndarray]], change: Change, watch: bool = True, **options: object
) -> Verdict:
    subject = Planted(["product"], change)
    subject.capabilities = dataclasses.replace(
        subject.capabilities,
        fast_algorithms=frozenset({"Strassen"} if change is by_strassen else ()),
    )
    return check(made[0], subject, made[1], watch=watch, seed=7, **options)


@pytest.mark.parametrize("watch", [True, False])
def test_noise_in_zero_rows_is_lost_before_a_norm(watch: bool) -> None:
    found = judge(padded(), by_strassen, watch)
    assert (found.kind, found.exit_code) == (Kind.precision_lost, 1), found.reasons
    (lost,) = found.losses
    assert (lost.value, lost.amplifier, lost.operator) == ("y", "last", "LpNormalization")
    assert (lost.source, lost.source_operator) == ("product", "MatMul")
    assert lost.ratio > 1e5 and lost.gain > 1e5 and lost.error > 0.1
    assert [f.kind for f in found.outputs] == [Kind.precision_lost]
    assert "last (LpNormalization)" in found.reasons[0] and "product (MatMul)" in found.reasons[0]
    assert Verdict.from_json(found.to_json()) == found


@pytest.mark.parametrize("watch", [True, False])
def test_it_is_precision_where_nothing_amplifies(watch: bool) -> None:
    found = judge(padded(amplifies=False), by_strassen, watch)
    assert found.kind in (Kind.precision, Kind.rounding) and not found.losses, found.reasons
    assert found.kind is Kind.precision or not watch
    assert found.exit_code == 0


def test_what_is_allowed_is_precision() -> None:
    found = judge(padded(), by_strassen, allow=("strassen",))
    assert (found.kind, found.exit_code) == (Kind.precision, 0)
    assert found.losses[0].allowed and any("allowed: " in r for r in found.reasons)
    assert judge(padded(), by_strassen, allow=("Winograd",)).kind is Kind.precision_lost


@pytest.mark.parametrize("text", ["float8", "", "difference", "TF32 outputs", "Winograd's"])
def test_what_would_allow_nothing_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no arithmetic is called") as error:
        require_known((text,))
    assert "variance by difference of squares" in str(error.value.next_step)


@pytest.mark.parametrize("name", NAMED)
def test_what_is_accepted_allows_what_begins_so_in_either_case(name: str) -> None:
    for text in (name, name.upper(), name[:4].lower()):
        assert is_allowed(name, require_known(text))


@pytest.mark.parametrize("watch", [True, False])
def test_tf32_before_a_norm(watch: bool) -> None:
    found = judge(difference(), in_format(TF32), watch)
    assert (found.kind, found.exit_code) == (Kind.precision_lost, 1), found.reasons
    (lost,) = found.losses
    assert lost.formats == ("TF32 inputs",) and lost.amplifier == "difference"
    assert lost.source == "product" and 100 < lost.gain < 1e4
    assert judge(difference(), in_format(TF32), watch, allow=["TF32"]).exit_code == 0


@pytest.mark.parametrize("watch", [True, False])
@pytest.mark.parametrize("fmt", [TF32, BFLOAT16])
def test_coarse_factors_of_an_ordinary_product_are_precision(fmt: object, watch: bool) -> None:
    for amplifies in (False, True):  # zero rows stay zero
        found = judge(padded(amplifies), in_format(fmt), watch)
        assert (found.kind, found.losses) == (Kind.precision, ()), found.reasons


def test_bisect_names_what_amplifies() -> None:
    graph, inputs = padded()
    subject = Planted(["product"], by_strassen)
    subject.capabilities = dataclasses.replace(
        subject.capabilities, fast_algorithms=frozenset({"Strassen"})
    )
    record = bisect(graph, subject, inputs, seed=7).record
    assert record.exit_code == 1 and record.verdict.losses[0].amplifier == "last"


def test_zeros_do_not_round() -> None:
    """What a norm would make of noise in a sum of zeros is no part of what rounding may do."""
    graph, inputs = padded()
    wrong = Planted(["product"], lambda node, arrays, y: y + np.float32(1e-15))
    wrong.capabilities = dataclasses.replace(wrong.capabilities, fast_algorithms=frozenset())
    assert check(graph, wrong, inputs, watch=False, seed=7, explain=False).kind is Kind.mistake


def test_the_ratio_of_a_large_group_is_its_root_mean_square() -> None:
    z = np.random.default_rng(3).standard_normal((200, 300))
    assert st.ratio(5 * z) == pytest.approx(5, rel=0.1)
    one = np.zeros((200, 300))
    one[3, 5] = 8 * st.LOST
    assert st.ratio(one) == pytest.approx(st.LOST, rel=0.05)


def test_a_loss_counts_against_the_limit_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    found = judge(padded(), by_strassen)
    monkeypatch.setattr(st, "LOST", 2 * found.losses[0].ratio)
    again = judge(padded(), by_strassen)
    assert again.kind is Kind.precision and not again.losses
    assert dataclasses.replace(found, kind=Kind.precision).exit_code == 0
