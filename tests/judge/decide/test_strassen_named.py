"""Honest products by Strassen's algorithm are no mistakes, and it is no cover for one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from verax.ir.graph import Builder, Node
from verax.ir.operator import Inference
from verax.ir.types import TensorType
from verax.judge.decide.local import check_node
from verax.judge.decide.possible import using
from verax.judge.decide.strassen import OURS, Variant, strassen_applies, strassen_run
from verax.judge.regions.network import survey
from verax.numerics import strassen
from verax.ops.pointwise.arithmetic import Add
from verax.ops.pointwise.transcendental import Tanh
from verax.ops.sums.linear import MatMul
from verax.ops.windows.convolution import Conv
from verax.records.verdict import Finding, Kind

HONEST = (Kind.identical, Kind.rounding, Kind.precision)
KINDS = ("normal", "relu", "columns", "rows", "filters", "empty rows", "terms")


def data(kind: str, seed: int, m: int, k: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Factors; some whose sizes differ from row to row, column to column, term to term."""
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    if kind == "relu":
        a = np.maximum(a, 0)
    if kind == "columns":
        a[:, rng.random(k) < 0.02] *= 50
    if kind == "rows":
        a *= np.exp(2 * rng.standard_normal((m, 1)))
    if kind == "filters":
        b *= np.exp(2 * rng.standard_normal(n))
    if kind == "empty rows":
        a[m // 2 + 3 :] = 0
    if kind == "terms":
        a *= np.exp(3 * rng.standard_normal(k))
    return a.astype(np.float32), b.astype(np.float32)


def run_of(a: np.ndarray, b: np.ndarray, variant: Variant) -> np.ndarray:
    node = Node(MatMul(), ("a", "b"), ("y",))
    return strassen_run(node, [a, b], np.zeros((len(a), b.shape[1])), variant)[0]


def by_strassen(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return run_of(a, b, Variant())


def by_two_levels(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return run_of(a, b, Variant(levels=2))


def by_ours(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Rows and columns scaled: it errs little more than direct summation does."""
    return run_of(a, b, OURS)


def by_winograds_variant(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """15 additions; for even sizes."""
    (a11, a12, a21, a22), (b11, b12, b21, b22) = strassen.quarters(a), strassen.quarters(b)
    s1, t1 = a21 + a22, b12 - b11
    s2, t2 = s1 - a11, b22 - t1
    p1, p2, p6 = a11 @ b11, a12 @ b21, s2 @ t2
    u2 = p1 + p6
    u3, u4 = u2 + (a11 - a21) @ (b22 - b12), u2 + s1 @ t1
    upper = [p1 + p2, u4 + (a12 - s2) @ b22]
    return np.block([upper, [u3 - a22 @ (t2 - b21), u3 + s1 @ t1]])


def judge(op: object, arrays: list[np.ndarray], given: np.ndarray, **options: bool) -> Finding:
    node = Node(op, tuple(f"i{i}" for i in range(len(arrays))), ("y",), "node")
    types = tuple(TensorType.of(a) for a in arrays)
    outputs = tuple(op.infer(Inference(types, tuple(arrays))))  # type: ignore[attr-defined]
    return check_node(node, arrays, [given], outputs, **options)[0]


WAYS = [by_strassen, by_two_levels, by_winograds_variant, by_ours]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_honest_ones_are_not_accused(
    kind: str, way: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> None:
    named = 0
    for seed, sizes in enumerate([(64, 64, 64), (198, 384, 96), (40, 768, 128)]):
        a, b = data(kind, seed, *sizes)
        found = judge(MatMul(), [a, b], way(a, b))
        assert found.kind in HONEST, found
        named += found.test == strassen.NAME
        plain = judge(MatMul(), [a, b], a @ b)
        assert plain.kind in (Kind.identical, Kind.rounding), plain
    assert named or kind in ("normal", "relu") or way is by_ours


@pytest.mark.parametrize("kind", ["rows", "filters", "empty rows"])
def test_it_can_be_ruled_out(kind: str) -> None:
    a, b = data(kind, 3, 65, 130, 97)
    with using(frozenset()):
        found = judge(MatMul(), [a, b], by_strassen(a, b))
    assert found.kind is Kind.mistake and "Strassen was ruled out" in found.reason


@pytest.mark.parametrize("stride", [1, 2])
def test_convolutions_of_one_pixel(stride: int) -> None:
    rng = np.random.default_rng(stride)
    x = rng.standard_normal((2, 80, 13, 11)).astype(np.float32)
    x *= np.exp(2 * rng.standard_normal((2, 1, 13, 11))).astype(np.float32)
    w, bias = (rng.standard_normal(s).astype(np.float32) for s in ((64, 80, 1, 1), (64,)))
    op = Conv(strides=(stride, stride))
    rows = np.moveaxis(x[:, :, ::stride, ::stride], 1, -1)
    y = by_strassen(rows.reshape(-1, 80), w[:, :, 0, 0].T) + bias
    y = np.moveaxis(y.reshape(*rows.shape[:-1], 64), -1, 1)
    found = judge(op, [x, w, bias], y)
    assert found.kind is Kind.precision and found.test == strassen.NAME
    wrong = y + np.where(np.arange(64) == 5, bias, 0).reshape(64, 1, 1).astype(np.float32)
    assert judge(op, [x, w, bias], wrong).kind is Kind.mistake


def test_it_applies_where_somebody_gains() -> None:
    node, image = Node(MatMul(), ("a", "b"), ("y",)), Node(Conv(), ("x", "w"), ("y",))
    zeros = np.zeros
    assert strassen_applies(node, [zeros((4, 32, 64)), zeros((64, 32))])
    assert not strassen_applies(node, [zeros((4, 32, 64)), zeros((4, 64, 32))])
    assert not strassen_applies(node, [zeros((31, 64)), zeros((64, 32))])
    assert strassen_applies(image, [zeros((1, 64, 8, 8)), zeros((32, 64, 1, 1))])
    assert not strassen_applies(image, [zeros((1, 64, 8, 8)), zeros((32, 64, 3, 3))])


def faults() -> dict[str, Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]]:
    def column(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return a, b * np.where(np.arange(b.shape[1]) == 7, np.float32(1.0003), np.float32(1))

    def weight(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        wrong = b.copy()
        wrong[3, 5] += 0.01
        return a, wrong

    return {
        "transposed": lambda a, b: (a, np.ascontiguousarray(b.T)),
        "one column scaled": column,
        "one weight": weight,
        "a term less": lambda a, b: (np.where(np.arange(a.shape[1]) == 9, 0, a).astype("f"), b),
    }


@pytest.mark.parametrize("fault", faults())
@pytest.mark.parametrize("kind", ["normal", "relu"])
def test_no_cover_for_a_mistake(kind: str, fault: str) -> None:
    a, b = data(kind, 5, 66, 96, 96)
    given = by_strassen(*faults()[fault](a, b))
    assert judge(MatMul(), [a, b], given).kind is Kind.mistake


@pytest.mark.parametrize("product", range(strassen.PRODUCTS))
def test_a_wrong_sign_is_a_mistake(product: int, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = data("rows", 6, 64, 64, 64)
    for quarter, terms in enumerate(strassen.OUTPUT):
        wrong = [list(t) for t in strassen.OUTPUT]
        wrong[quarter] = [(p, -s if p == product else s) for p, s in terms]
        if tuple(wrong[quarter]) == terms or terms[0][0] == product:
            continue
        with monkeypatch.context() as patch:
            patch.setattr(strassen, "OUTPUT", tuple(map(tuple, wrong)))
            given = by_strassen(a, b)
        assert judge(MatMul(), [a, b], given).kind is Kind.mistake


@pytest.mark.parametrize("fault", [None, "bias", "weights"])
@pytest.mark.parametrize("kind", ["normal", "rows", "filters"])
def test_in_regions(kind: str, fault: str | None) -> None:
    """Product, bias and Tanh, of which only the end is shown."""
    a, w = data(kind, 7, 66, 96, 128)
    a, bias = a / 10, np.linspace(-1, 1, 128, dtype=np.float32)
    b = Builder("net")
    x = b.input("x", TensorType.of(a))
    y = b.add(MatMul(), [x, b.constant(w, "w")], ["p"], "product")
    y = b.add(Add(), [y, b.constant(bias, "bias")], ["s"], "sum")
    graph = b.graph([b.add(Tanh(), [y], ["y"], "tanh")])
    added = bias * np.float32(1.001) if fault == "bias" else bias
    factor = w * np.where(np.arange(128) == 9, np.float32(1.001), 1) if fault == "weights" else w
    given = np.tanh(by_strassen(a, factor.astype(np.float32)) + added)
    (found,) = survey(graph, {"x": a}, {"y": given}, measure_power=False).findings
    if fault is None:
        assert found.kind in HONEST, found
    else:
        assert found.kind is Kind.mistake, found
