"""Winograd's convolution keeps what direct summation keeps: exact zeros, where and how something is
not finite, and numbers near the ends of float32. The bits are the promised ones throughout."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.kernels.convolution import winograd_scales, winograd_special
from verax.compiler.kernels.target import Target
from verax.compiler.place.convolution import winograd as lowering
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY, Evaluation
from verax.ir.types import TensorType
from verax.judge.check import check
from verax.numerics import winograd
from verax.ops.pointwise.activation import Relu
from verax.ops.pointwise.arithmetic import Add
from verax.ops.windows.convolution import Conv
from verax.ops.windows.winograd import WinogradConv
from verax.records.verdict import Kind
from verax.reference.evaluate import evaluate, promised
from verax.runners.own import VeraxRunner

OTHERS = [t for t in ("avx2", "avx512", "aarch64") if t != Target.host().name]
TARGETS = ["host", *(t for t in OTHERS if Target.named(t).runs_here())]
WORST = 16
"""How many times O1's error O3's may be."""


@dataclasses.dataclass(frozen=True)
class Layer:
    """A 3 x 3 convolution, behind which a bias, a sum with a tensor and Relu may stand."""

    tile: int
    x: tuple[int, ...] = (2, 19, 11, 14)
    filters: int = 21
    groups: int = 1
    pads: tuple[tuple[int, int], ...] = ((1, 2), (0, 1))
    bias: bool = True
    behind: bool = False

    def weights(self) -> np.ndarray:
        rng = np.random.default_rng(self.tile + self.filters)
        shape = (self.filters, self.x[1] // self.groups, 3, 3)
        w = (rng.standard_normal(shape) / 20).astype(np.float32)
        return np.where(rng.random(shape) < 0.1, np.float32(0), w)

    def offsets(self) -> np.ndarray:
        return np.linspace(-2, 1, self.filters, dtype=np.float32)

    def graph(self, direct: bool = False) -> Graph:
        b = Builder("net")
        inputs = [b.input("x", TensorType.parse(f"float32[{', '.join(map(str, self.x))}]"))]
        inputs.append(b.constant(self.weights(), "w"))
        if self.bias:
            inputs.append(b.constant(self.offsets(), "b"))
        kept = {"pads": self.pads, "groups": self.groups}
        op = Conv(**kept) if direct else WinogradConv(tile=self.tile, **kept)  # type: ignore[arg-type]
        y = b.add(op, inputs, ["c"], "conv")
        if self.behind:
            other = b.input("other", b.types[y])
            y = b.add(Relu(), [b.add(Add(), [y, other])], ["y"], "act")
        return b.graph([y])

    def inputs(self, x: np.ndarray) -> dict[str, np.ndarray]:
        if not self.behind:
            return {"x": x}
        shape = self.graph().types["other"].shape
        return {"x": x, "other": np.random.default_rng(11).standard_normal(shape, np.float32)}

    def data(self, seed: int) -> np.ndarray:
        return np.random.default_rng(seed).standard_normal(self.x, np.float32)


LAYERS = [
    Layer(2),
    Layer(4, behind=True),
    Layer(2, (2, 32, 13, 9), 64, 2, ((0, 1), (2, 1)), bias=False),
    Layer(4, (3, 48, 9, 18), 48, 3, ((2, 1), (1, 1)), behind=True),
    Layer(4, (2, 33, 6, 7), 18, 1, ((1, 1), (1, 1)), bias=False),
]


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays of float32 are equal bit by bit, any NaN being as good as another."""
    one, two = (np.where(np.isnan(v), np.float32(0), v).view(np.int32) for v in (a, b))
    return bool((one == two).all() and (np.isnan(a) == np.isnan(b)).all())


def run(graph: Graph, inputs: dict[str, np.ndarray], **options: Any) -> np.ndarray:
    exe = compile(graph, Settings(require_native=True, **options))
    return np.asarray(exe.run(inputs)[graph.outputs[0]])


def by_tiles(layer: Layer, x: np.ndarray, counts: tuple[int, ...] = (1,)) -> np.ndarray:
    """The result, which every target has to the bit, with so many threads."""
    graph, inputs = layer.graph(), layer.inputs(x)
    wanted = np.asarray(promised(graph, inputs)[graph.outputs[0]])
    for target in TARGETS:
        for threads in counts:
            found = run(graph, inputs, target=target, threads=threads)
            assert same_bits(found, wanted), (target, threads)
    return wanted


def directly(layer: Layer, x: np.ndarray) -> np.ndarray:
    return run(layer.graph(direct=True), layer.inputs(x), opt_level=1, threads=1)


def exact(layer: Layer, x: np.ndarray) -> np.ndarray:
    graph = layer.graph(direct=True)
    return np.asarray(evaluate(graph, layer.inputs(x))[graph.outputs[0]])


def masks(y: np.ndarray) -> list[np.ndarray]:
    return [np.isnan(y), y == np.inf, y == -np.inf]


def with_zeros(layer: Layer) -> np.ndarray:
    """Data with a black border and a black spot: at offsets that no tile has."""
    x = layer.data(21)
    x[..., -5:], x[:, :, :3], x[1, :, 4:8, 1:6] = 0, -0.0, 0
    return x


def with_what_is_not_finite(layer: Layer) -> np.ndarray:
    """Single ones, some beside others, of both signs, in the last channel and at the edge."""
    x = layer.data(22)
    rows, cols = layer.x[2:]
    x[0, 3, 2, 5] = np.nan
    x[1, -1, rows - 1, 0], x[1, 0, 3, 3], x[1, 1, 3, 4] = np.inf, -np.inf, np.inf
    x[0, 0, rows - 2, cols - 1] = np.inf
    x[0, 1, 0, 0] = -np.inf
    return x


@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_an_output_that_sees_zeros_only_is_the_bias(layer: Layer) -> None:
    hold_zeros(dataclasses.replace(layer, behind=False))


def hold_zeros(layer: Layer) -> None:
    x = with_zeros(layer)
    sizes = np.pad(np.abs(x).reshape(layer.x[0], layer.groups, -1, *layer.x[2:]).max(axis=2),
                   [(0, 0), (0, 0), *layer.pads])  # fmt: skip
    fields = np.lib.stride_tricks.sliding_window_view(sizes, (3, 3), axis=(2, 3)).max((-2, -1))
    empty = np.repeat(fields == 0, layer.filters // layer.groups, axis=1)
    assert 0.1 < empty.mean() < 0.9
    y = by_tiles(layer, x, (1, 2))
    offsets = layer.offsets() if layer.bias else np.zeros(layer.filters, np.float32)
    wanted = np.broadcast_to(offsets.reshape(1, -1, 1, 1), y.shape)
    assert same_bits(y[empty], wanted[empty])


@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_what_is_not_finite_is_where_direct_summation_has_it(layer: Layer) -> None:
    hold_masks(layer)


def hold_masks(layer: Layer) -> None:
    x = with_what_is_not_finite(layer)
    y, direct = by_tiles(layer, x, (1, 2)), directly(layer, x)
    assert [m.any() for m in masks(direct)] == [True, True, not layer.behind]
    for ours, wanted in zip(masks(y), masks(direct), strict=True):
        np.testing.assert_array_equal(ours, wanted)
    hold_accuracy(layer, x, y, direct)


def hold_accuracy(layer: Layer, x: np.ndarray, y: np.ndarray, direct: np.ndarray) -> None:
    with np.errstate(all="ignore"):
        wanted = exact(layer, x)
    finite = np.isfinite(direct)
    ours, theirs = (np.abs(v[finite] - wanted[finite]).max() for v in (y, direct))
    assert ours <= WORST * theirs


@pytest.mark.parametrize(
    ("layer", "size"),
    [*((layer, size) for layer in LAYERS[1:4] for size in (1e37, 1e-38)),
     *((LAYERS[1], size) for size in (1e12, 3e12, 3e-13, 1e-20))],
    ids=str,
)  # fmt: skip
def test_numbers_near_the_ends_of_float32_are_as_accurate_as_others(
    layer: Layer, size: float
) -> None:
    hold_sizes(layer, size)


def hold_sizes(layer: Layer, size: float) -> None:
    x = layer.data(23) * np.float32(size)
    layer = dataclasses.replace(layer, bias=False, behind=False)
    y, direct = by_tiles(layer, x), directly(layer, x)
    assert np.isfinite(direct).all()
    assert np.isfinite(y).all()
    hold_accuracy(layer, x, y, direct)


def test_a_tile_of_the_largest_numbers_beside_an_infinity_and_beside_small_ones() -> None:
    layer = Layer(4, (2, 20, 13, 16), 17, bias=False)
    x = layer.data(24)
    x[0, :, :6] *= np.float32(1e-30)
    x[0, 7, 2, 2] = np.inf
    x[1, :, :, :7] *= np.float32(1e30)
    x[1, 3] = np.float32(3.4e38)
    y, direct = by_tiles(layer, x), directly(layer, x)
    with np.errstate(all="ignore"):
        wanted = exact(layer, x)
    # rows of tiles apart: neither what is large nor the infinity reaches over
    finite = np.isfinite(direct) & np.isfinite(y)
    for image, rows in ((0, slice(2)), (0, slice(8, None)), (1, slice(None))):
        there = finite[image, :, rows]
        assert there.mean() > 0.5
        ours, theirs = (
            np.abs(v[image, :, rows][there] - wanted[image, :, rows][there]).max()
            for v in (y, direct)
        )
        assert ours <= WORST * theirs
    overflown = ~np.isfinite(y[1])
    assert (np.abs(wanted[1])[overflown] > 3.4e38).all()


@pytest.mark.parametrize("tile", winograd.TILES)
def test_an_image_has_the_bits_that_it_has_alone(tile: int) -> None:
    batch = Layer(tile, (3, 19, 10, 9), 18)
    alone = dataclasses.replace(batch, x=(1, *batch.x[1:]))
    x = batch.data(25)
    x[0] *= np.float32(1e37)
    x[2, 4, 5, 6] = np.nan
    together = by_tiles(batch, x)
    for i in (0, 1):
        assert same_bits(together[i : i + 1], by_tiles(alone, x[i : i + 1]))


@pytest.mark.parametrize(("most", "count"), [(50_000, 6), (100_000, 3)])
def test_bands_keep_them(monkeypatch: pytest.MonkeyPatch, most: int, count: int) -> None:
    layer = Layer(4, (3, 17, 18, 13), 20, behind=True)
    monkeypatch.setattr(lowering, "BAND_BYTES", most)
    lines = compile(layer.graph(), Settings()).plan.lines
    assert sum("scales of F(4x4" in line for line in lines) == count
    hold_zeros(dataclasses.replace(layer, behind=False))
    hold_masks(layer)


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_registers_of_any_width_find_the_same(lanes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What other targets are given runs here as well."""
    monkeypatch.setattr(winograd_scales, "lanes_of", lambda target: lanes)
    for layer in (Layer(2, (2, 19, 12, 15)), Layer(4, (2, 35, 7, 23), 17)):
        x = with_zeros(layer)
        x[0, 2, 6, 2], x[1, -1, 3, 9] = np.inf, 1e38
        by_tiles(layer, x)


def _no_zeros(m: Any, field: Any, inverse: Any) -> Any:
    nan = m.const(float("nan"), "float32")
    return m.select(m.ge(field, m.like(winograd.NOT_FINITE, field)), nan, inverse)


def _off_by_one(m: Any, largest: Any) -> tuple[Any, Any]:
    scale, inverse = SCALES(m, largest)
    one = m.const(1.0, "float32")
    doubled = m.add(inverse, inverse)
    return scale, m.select(m.eq(scale, one), one, doubled)


def _never(m: Any, largest: Any) -> tuple[Any, Any]:
    one = m.select(m.ge(largest, largest), m.const(1.0, "float32"), m.const(1.0, "float32"))
    return one, one


SCALES, PACK_SIGNS = winograd.scales, winograd_special.pack_signs
BROKEN: dict[str, tuple[Any, str, Any, Callable[[Layer], None]]] = {
    "zeros are not looked for": (winograd, "factor", _no_zeros, hold_zeros),
    "scaled back once too often": (winograd, "scales", _off_by_one, lambda n: hold_sizes(n, 1e37)),
    "never scaled up": (winograd, "scales", _never, lambda n: hold_sizes(n, 1e-38)),
    "never scaled down": (winograd, "scales", _never, lambda n: hold_sizes(n, 1e37)),
    "signs the other way round": (
        winograd_special, "pack_signs", lambda w: PACK_SIGNS(-w), hold_masks
    ),
    "zero weights forgotten": (
        winograd_special, "pack_signs", lambda w: PACK_SIGNS(np.where(w == 0, 1, w)), hold_masks
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_broken_ones_are_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, attribute, wrong, hold = BROKEN[name]
    monkeypatch.setattr(place, attribute, wrong)
    if place is winograd_special:
        monkeypatch.setattr(lowering, attribute, wrong)
    with pytest.raises(AssertionError):
        hold(Layer(4))


def test_zeros_stay_that_a_norm_divides() -> None:
    """Noise of 1e-7 would become as large as the numbers of the image. O3 leaves such a layer alone
    by its rule; here the algorithm is asked for."""
    rng, b = np.random.default_rng(31), Builder("net")
    x = b.input("x", TensorType.parse("float32[2, 32, 25, 23]"))
    w = b.constant((rng.standard_normal((48, 32, 3, 3)) / 17).astype(np.float32))
    norm: Any = REGISTRY["LpNormalization"]
    pads = ((1, 1), (1, 1))
    outputs = [
        b.add(norm(axis=1, p=2), [b.add(conv, [x, w])])
        for conv in (Conv(pads=pads), WinogradConv(tile=4, pads=pads))
    ]
    graph = b.graph(outputs)
    data = rng.standard_normal((2, 32, 25, 23), np.float32)
    data[..., 14:] = 0
    found, wanted = compile(graph, Settings(1)).run({"x": data}), evaluate(graph, {"x": data})
    errors = [np.abs(np.nan_to_num(found[v]) - np.nan_to_num(wanted[v])).max() for v in outputs]
    assert errors[1] <= WORST * errors[0]


@pytest.mark.parametrize(("kind", "judged"), [("large", Kind.precision), ("odd", Kind.undecided)])
def test_the_judge_finds_no_mistake_in_it(kind: str, judged: Kind) -> None:
    rng, b = np.random.default_rng(32), Builder("net")
    x = b.input("x", TensorType.parse("float32[2, 48, 29, 31]"))
    w = b.constant((rng.standard_normal((48, 48, 3, 3)) / 21).astype(np.float32))
    graph = b.graph([b.add(Conv(pads=((1, 1), (1, 1))), [x, w], [], "conv")])
    data = rng.standard_normal((2, 48, 29, 31), np.float32)
    if kind == "large":
        data *= np.float32(1e37)
    else:
        data[1, 5, 7, 9], data[0, 2, 3, 4] = np.nan, np.inf
    verdict = check(graph, VeraxRunner(Settings(opt_level=3)), {"x": data})
    assert verdict.kind is judged
    assert {p.format for p in verdict.precisions} <= {"Winograd F(4x4, 3x3)"}


@pytest.mark.parametrize("tile", winograd.TILES)
def test_the_error_model_knows_them(tile: int) -> None:
    """Zeros are exact; the neighbors of what is not finite have a bound, and keep it."""
    layer = Layer(tile, bias=False)
    x = with_zeros(layer)
    x[0, 2, 6, 2], x[1, :, 9:, :4] = np.inf, x[1, :, 9:, :4] * np.float32(1e36)
    graph = layer.graph()
    (node,) = graph.nodes
    with np.errstate(all="ignore"):
        y, wanted = by_tiles(layer, x), exact(layer, x)
        inputs = [x.astype(np.float64), layer.weights().astype(np.float64)]
        ev = Evaluation(graph.input_types(node), graph.output_types(node))
        (found,) = node.op.error(ev, inputs, [wanted])
    assert found is not None
    finite = np.isfinite(y)
    sigma, bound = (np.broadcast_to(a, y.shape) for a in (found.sigma, found.bound))
    assert (np.abs(y[finite] - wanted[finite]) <= bound[finite]).all()
    zero = (wanted == 0) & finite
    assert zero.any()
    assert (sigma[zero] == 0).all()
