"""Strassen's product gives its promised bits, and planted mistakes in it are noticed."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from verax.base.settings import Settings
from verax.compiler.driver import compile
from verax.compiler.kernels.products.strassen import StrassenSpec, left_sums
from verax.compiler.kernels.target import Target
from verax.compiler.lower.lowering import KernelCall
from verax.compiler.lower.products import strassen as lowering
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.numerics import strassen
from verax.ops.sums.strassen import StrassenMatMul
from verax.reference import promised

TARGETS = [t for t in ("avx2", "avx512", "aarch64") if Target.named(t).runs_here()]
SHAPES = [
    ((37,), 34, 96), ((1,), 36, 64), ((2,), 18, 32), ((3, 13), 50, 160), ((5, 7, 3), 98, 32),
    ((2, 64), 66, 352),
]  # fmt: skip
"""Leading axes of the left factor, terms, columns."""


def network(rows: tuple[int, ...], k: int, n: int, behind: str) -> Graph:
    """The product, and what is fused behind it."""
    rng = np.random.default_rng(sum(rows) + k + n)
    b = Builder("net")
    x = b.input("x", TensorType.parse(f"float32[{', '.join(map(str, (*rows, k)))}]"))
    w = b.constant(rng.standard_normal((k, n)).astype(np.float32), "w")
    y = b.add(StrassenMatMul(), [x, w], name="product")
    if behind:
        bias = b.constant(rng.standard_normal(n).astype(np.float32), "bias")
        y = b.add(REGISTRY["Add"](), [y, bias])
    if behind == "residual":
        other = b.input("r", b.types[y])
        y = b.add(REGISTRY["Add"](), [other, b.add(REGISTRY["Relu"](), [y])])
    if behind == "gelu":
        y = b.add(REGISTRY["Gelu"](), [y])
    if behind == "half":
        y = b.add(REGISTRY["Cast"](to="float16"), [y])
    return b.graph([y])


def data(graph: Graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(8)
    return {v: rng.standard_normal(graph.types[v].shape, np.float32) for v in graph.inputs}


def bits(graph: Graph, **options: object) -> bytes:
    exe = compile(graph, Settings(opt_level=1, **{"threads": 1, **options}))
    assert not exe.plan.on_reference
    (found,) = exe.run(data(graph)).values()
    return found.tobytes()


@pytest.mark.parametrize("behind", ["", "bias", "residual", "gelu", "half"])
@pytest.mark.parametrize(("rows", "k", "n"), SHAPES)
def test_the_promised_bits(rows: tuple[int, ...], k: int, n: int, behind: str) -> None:
    graph = network(rows, k, n, behind)
    (want,) = promised(graph, data(graph)).values()
    for target in TARGETS:
        for threads in (1, 2, 3):
            assert bits(graph, target=target, threads=threads) == want.tobytes(), (target, threads)
    exe = compile(graph, Settings(opt_level=1, threads=1))
    specs = [s.spec for s in exe.specialised.lowered.steps if isinstance(s, KernelCall)]
    found = [s for s in specs if isinstance(s, StrassenSpec)]
    assert len(found) == (rows[0] if len(rows) > 1 else 1)
    assert all(bool(s.epilogue) == bool(behind) for s in found)  # nothing runs after it


def test_infinities_and_nan_too() -> None:
    """They spread over the quarters, in the same manner."""
    graph = network((1, 15), 36, 64, "bias")
    given = data(graph)
    given["x"][0, 12, 5], given["x"][0, 1, 30], given["x"][0, 4, 2] = np.inf, np.nan, -0.0
    (want,) = promised(graph, given).values()
    (found,) = compile(graph, Settings(opt_level=1, threads=1)).run(given).values()
    np.testing.assert_array_equal(np.isnan(found), np.isnan(want))
    np.testing.assert_array_equal(found, want)
    assert 0 < np.isnan(want).sum() < want.size


def test_an_item_of_a_batch_knows_nothing_of_the_others() -> None:
    batch, given = network((3, 13), 50, 160, "gelu"), network((1, 13), 50, 160, "gelu")
    graph = dataclasses.replace(given, constants=batch.constants)
    images = data(batch)["x"]
    images[1, 4, 7] = np.inf
    for of in (promised, lambda g, d: compile(g, Settings(opt_level=1, threads=1)).run(d)):
        (together,) = of(batch, {"x": images}).values()
        assert np.isnan(together[1]).any() and not np.isnan(together[::2]).any()
        for number in (0, 2):
            (alone,) = of(graph, {"x": images[number : number + 1]}).values()
            assert alone.tobytes() == together[number].tobytes()


def test_negative_zeros_of_an_odd_row() -> None:
    """0 - 0 and -0 + 0 are +0: the row of zeros is added, not left out."""
    b = Builder("net")
    x = b.input("x", TensorType.parse("float32[3, 2]"))
    w = np.zeros((2, 32), np.float32)
    w[:, ::3] = -1.0
    graph = b.graph([b.add(StrassenMatMul(), [x, b.constant(w)])])
    given = {"x": np.full((3, 2), -0.0, np.float32)}
    (want,) = promised(graph, given).values()
    (found,) = compile(graph, Settings(opt_level=1, threads=1)).run(given).values()
    assert found.tobytes() == want.tobytes()


@pytest.mark.parametrize("product", range(strassen.PRODUCTS))
def test_a_wrong_sign_is_noticed(product: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the twelve places where a product is added."""
    for at, (quarter, sign) in enumerate(strassen.OUTPUT_OF[product]):
        graph = network((9 + 2 * at,), 34 + 2 * product, 64, "")
        (want,) = promised(graph, data(graph)).values()
        terms = list(strassen.OUTPUT_OF[product])
        terms[at] = (quarter, -sign)
        wrong = list(strassen.OUTPUT_OF)
        wrong[product] = tuple(terms)
        first = strassen.OUTPUT[quarter][0][0] == product
        with monkeypatch.context() as patch:
            patch.setattr(strassen, "OUTPUT_OF", tuple(wrong))
            # the first term of a quarter is stored: its sign is + in the table and in no code
            assert (bits(graph, checked=True) == want.tobytes()) == first


def test_a_dropped_odd_row_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = network((9,), 34, 64, "")
    (want,) = promised(graph, data(graph)).values()
    monkeypatch.setattr(lowering, "left_sums", lambda spec: left_sums(spec)[:1])
    assert bits(graph, checked=True) != want.tobytes()


def test_a_wrong_half_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The left factors of two products exchanged, in the kernel alone."""
    graph = network((9,), 34, 64, "gelu")
    (want,) = promised(graph, data(graph)).values()
    assert StrassenSpec(9, 64, 34).summed == (0, 1, 3, 4, 5, 6)
    monkeypatch.setattr(StrassenSpec, "summed", property(lambda self: (0, 1, 3, 4, 6, 5)))
    assert bits(graph, checked=True) == want.tobytes()  # only another place for the same sums
    healthy = strassen.left_factor
    swapped = lambda m, p, parts: healthy(m, {5: 6, 6: 5}.get(p, p), parts)  # noqa: E731
    monkeypatch.setattr(strassen, "left_factor", swapped)
    assert bits(graph, checked=True) != want.tobytes()
