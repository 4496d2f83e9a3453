"""Strassen's product gives its promised bits, and planted mistakes in it are noticed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.kernels.convolution.schedule import ConvSchedule
from verax.compiler.kernels.products.strassen import pack_right, right_elements
from verax.compiler.kernels.products.strassen_spec import StrassenSpec
from verax.compiler.kernels.products.strassen_sums import left_sums
from verax.compiler.kernels.target import Target
from verax.compiler.place.calls import KernelCall
from verax.compiler.place.products import strassen as lowering
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.numerics import power_of_two, strassen
from verax.numerics.error_model import U
from verax.ops.sums.strassen import StrassenMatMul
from verax.reference import promised

TARGETS = [t for t in ("avx2", "avx512", "aarch64") if Target.named(t).runs_here()]
SHAPES = [
    ((37,), 34, 96), ((1,), 36, 64), ((2,), 18, 32), ((3, 13), 50, 160), ((5, 7, 3), 98, 32),
    ((2, 64), 66, 352),
]  # fmt: skip
"""Leading axes of the left factor, terms, columns."""


@pytest.fixture(autouse=True)
def _fresh_sums() -> Iterator[None]:
    """What the sums of a spec are is remembered, and faults are planted in it here."""
    left_sums.cache_clear()
    yield
    left_sums.cache_clear()


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


@pytest.mark.checkered
@pytest.mark.parametrize("behind", ["", "bias", "residual", "gelu", "half"])
@pytest.mark.parametrize(("rows", "k", "n"), SHAPES)
def test_the_promised_bits(rows: tuple[int, ...], k: int, n: int, behind: str) -> None:
    graph = network(rows, k, n, behind)
    (want,) = promised(graph, data(graph)).values()
    for target in TARGETS:
        for threads in (1, 2, 3):
            assert bits(graph, target=target, threads=threads) == want.tobytes(), (target, threads)
    exe = compile(graph, Settings(opt_level=1, threads=1))
    specs = [s.spec for s in exe.specialized.lowered.steps if isinstance(s, KernelCall)]
    found = [s for s in specs if isinstance(s, StrassenSpec)]
    assert len(found) == (rows[0] if len(rows) > 1 else 1)
    assert all(bool(s.epilogue) == bool(behind) for s in found)  # nothing runs after it


SPECIAL = {
    "an infinity": {(3, 5): np.inf}, "two of one sign": {(3, 5): np.inf, (3, 30): np.inf},
    "of both signs": {(12, 0): -np.inf, (12, 35): np.inf}, "NaN": {(0, 17): np.nan},
    "NaN beside infinity": {(14, 2): np.nan, (14, 3): -np.inf},
    "rows that share products": {(2, 1): np.inf, (10, 20): np.nan},
}  # fmt: skip
"""Rows and terms of a left factor [15, 36], of which rows 2 and 10 are added up."""


@pytest.mark.parametrize("behind", ["", "residual", "gelu"])
@pytest.mark.parametrize("special", SPECIAL)
def test_infinities_and_nan_stay_in_their_rows_as_in_direct_summation(
    special: str, behind: str
) -> None:
    graph = network((1, 15), 36, 64, behind)
    weights = graph.constants["w"].copy()
    weights[::7, ::5] = 0.0  # an infinity times zero
    weights[::3, ::4] = np.float32(-1e-42)  # its sign alone tells
    graph = dataclasses.replace(graph, constants={**graph.constants, "w": weights})
    usual, given = data(graph), data(graph)
    for (row, term), value in SPECIAL[special].items():
        given["x"][0, row, term] = value
    (want,) = promised(graph, given).values()
    nodes = [
        dataclasses.replace(n, op=REGISTRY["MatMul"]()) if n.name == "product" else n
        for n in graph.nodes
    ]
    (direct,) = promised(dataclasses.replace(graph, nodes=tuple(nodes)), given).values()
    rows = sorted({row for row, _ in SPECIAL[special]})
    others = np.delete(np.arange(15), rows)
    np.testing.assert_array_equal(want[0, rows], direct[0, rows])
    assert not np.isfinite(want[0, rows]).all() and np.isfinite(want[0, others]).all()
    for target in TARGETS:
        exe = compile(graph, Settings(opt_level=1, threads=2, target=target))
        (found,) = exe.run(given).values()
        np.testing.assert_array_equal(found, want)
        (without,) = exe.run(usual).values()
        assert np.isfinite(without).all()


def test_rows_of_zeros_give_zeros_and_a_row_errs_as_it_is_large_itself() -> None:
    """Rows 3 and 12 of 18 share products, and so do 5 and 14, 6 and 15, 7 and 16."""
    graph = network((18,), 240, 96, "")
    x = data(graph)["x"]
    x[3], x[14], x[6], x[7] = 0, x[14] * 1e-20, x[6] * 1e30, 3e38 * np.sign(x[7])
    weights = graph.constants["w"].astype(np.float64) * 1e-3
    weights[:, 5] *= 1e-12
    weights[:, 60] = 0
    scaled = weights.astype(np.float32)
    graph = dataclasses.replace(graph, constants={"w": scaled})
    (want,) = promised(graph, {"x": x}).values()
    exact = x.astype(np.float64) @ scaled.astype(np.float64)
    sizes = np.linalg.norm(x.astype(np.float64), axis=1)[:, None] * np.linalg.norm(
        scaled.astype(np.float64), axis=0
    )
    assert not want[3].any() and not np.signbit(want[3]).any()
    assert not want[:, 60].any()
    some = sizes > 0
    assert (np.abs(want - exact)[some] / sizes[some]).max() < 8 * U
    for target in TARGETS:
        (found,) = compile(graph, Settings(opt_level=1, target=target)).run({"x": x}).values()
        assert found.tobytes() == want.tobytes()


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


def test_wrong_sums_of_quarters_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The left factors of two products exchanged, in the kernel alone."""
    graph = network((9,), 34, 64, "gelu")
    (want,) = promised(graph, data(graph)).values()
    healthy = strassen.left_factor
    swapped = lambda m, p, parts: healthy(m, {5: 6, 6: 5}.get(p, p), parts)  # noqa: E731
    monkeypatch.setattr(strassen, "left_factor", swapped)
    assert bits(graph, checked=True) != want.tobytes()


@pytest.mark.parametrize("what", ["inverse_scale", "scale", "NOT_FINITE"])
def test_a_wrong_scale_is_noticed(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the kernel alone; each network has a shape of its own, as kernels are kept."""
    shapes = {"inverse_scale": (11,), "scale": (12,), "NOT_FINITE": (13,)}
    graph = network(shapes[what], 34, 64, "")
    given = data(graph)
    given["x"][1], given["x"][2], given["x"][3, 3] = 0, given["x"][2] * 1e-3, np.inf
    (want,) = promised(graph, given).values()
    healthy = getattr(power_of_two, what)
    wrong = {
        "inverse_scale": lambda m, largest: healthy(m, m.max(largest, m.const(1 << 29, "int32"))),
        "scale": lambda m, inverse: healthy(m, m.mul(inverse, m.const(0.5, "float32"))),
        "NOT_FINITE": 0.0,
    }
    monkeypatch.setattr(power_of_two, what, wrong[what])
    found = compile(graph, Settings(opt_level=1, threads=1, checked=True)).run(given)
    assert next(iter(found.values())).tobytes() != want.tobytes()


@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_factors_are_packed_alike_however_they_lie(blocks: int) -> None:
    """Rows or columns one behind the other; also columns of zeros, and what is not finite."""
    b = np.random.default_rng(97).standard_normal((38, 224)).astype(np.float32)
    b[:, 5], b[3, 9], b[7, 130] = 0, np.inf, 1e-42
    spec, schedule = StrassenSpec(11, b.shape[1], b.shape[0]), ConvSchedule(blocks=blocks)
    rooms = []
    for factor in (b, np.asfortranarray(b)):
        rooms.append(np.full(right_elements(spec, schedule), 7, np.float32))
        pack_right(factor, spec, schedule, rooms[-1])
    scaled = strassen.scaled_right(b)[0]
    first = strassen.right_factors(scaled)[0][:, : 16 * blocks]
    np.testing.assert_array_equal(rooms[0][: first.size].reshape(first.shape), first)
    assert rooms[0].tobytes() == rooms[1].tobytes()
