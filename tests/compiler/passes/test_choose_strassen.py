"""Which products are computed by Strassen's algorithm, and what that promises."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
from tests.compiler.renaming import NODE_NAMES, renamed

import verax
from verax.base.option_groups.settings import Settings
from verax.compiler.passes.choose_strassen import WORTH, choose_strassen, gain
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.judge.check import check
from verax.numerics import strassen
from verax.ops.sums.linear import MatMul
from verax.ops.windows.convolution import Conv
from verax.records.recipe import BFLOAT16_PRODUCTS
from verax.records.verdict import Kind
from verax.runners.own import VeraxRunner


def network(
    m: int = 97, k: int = 896, n: int = 928, *, dtype: str = "float32", scale: bool = False
) -> Graph:
    """Two rows of products, bias, GELU; the second one behind values of very different sizes."""
    rng = np.random.default_rng(m + k + n)
    b = Builder("net")
    x = b.input("x", TensorType.parse(f"{dtype}[{m}, {k}]"))
    w = rng.standard_normal((k, n)) / np.sqrt(k)
    w = w * np.exp(2 * rng.standard_normal(n)) if scale else w
    y = b.add(MatMul(), [x, b.constant(w.astype(dtype), "w")], ["p"], "product")
    bias = b.constant(rng.standard_normal(n).astype(dtype), "bias")
    return b.graph([b.add(REGISTRY["Gelu"](), [b.add(REGISTRY["Add"](), [y, bias], ["a"])], ["y"])])


def data(m: int = 97, k: int = 896) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(4)
    spread = np.exp(rng.standard_normal((m, 1)))
    return {"x": (rng.standard_normal((m, k)) * spread).astype(np.float32)}


def kinds(graph: Graph) -> list[str]:
    return [n.op.kind for n in choose_strassen(graph)[0].nodes]


def test_a_large_product_is_taken() -> None:
    graph, trace = choose_strassen(network())
    assert kinds(network()) == ["StrassenMatMul", "Add", "Gelu"]
    assert trace.rewrites == 1 and graph.nodes[0].name == "product"
    assert choose_strassen(network(), 0)[1].rewrites == 0
    assert choose_strassen(network(), None, ("product",))[1].rewrites == 0
    assert choose_strassen(network(), None, ("p",))[1].rewrites == 0


@pytest.mark.parametrize(
    "graph",
    [
        network(16), network(97, 128), network(97, 896, 64), network(97, 897),
        network(97, 896, 912), network(dtype="float64"), network(4699, 896),
    ],
    ids=["few rows", "short sums", "few columns", "odd sums", "no blocks", "float64", "many rows"],
)  # fmt: skip
def test_others_are_left(graph: Graph) -> None:
    assert "StrassenMatMul" not in kinds(graph)


def test_computed_and_infinite_factors_are_left() -> None:
    b = Builder("net")
    x, w = (b.input(v, TensorType.parse("float32[512, 512]")) for v in ("x", "w"))
    assert kinds(b.graph([b.add(MatMul(), [x, w])])) == ["MatMul"]
    graph = network()
    w = graph.constants["w"].copy()
    w[3, 5] = np.inf
    infinite = dataclasses.replace(graph, constants={**graph.constants, "w": w})
    assert "StrassenMatMul" not in kinds(infinite)


def test_a_batch_is_chosen_by_the_size_of_its_items() -> None:
    """Eight items of 97 rows are 2.7 MiB together; of two items with 35 rows each is too small."""
    for shape, taken in (((8, 97, 896), True), ((2, 35, 896), False), ((2, 5, 19, 896), True)):
        b = Builder("net")
        x = b.input("x", TensorType.parse(f"float32[{', '.join(map(str, shape))}]"))
        w = np.random.default_rng(5).standard_normal((896, 928)).astype(np.float32)
        graph = b.graph([b.add(MatMul(), [x, b.constant(w, "w")])])
        assert ("StrassenMatMul" in kinds(graph)) == taken


def image(x: tuple[int, ...] = (2, 256, 15, 13), filters: int = 288, **attributes: object) -> Graph:
    """A convolution with a bias."""
    rng = np.random.default_rng(sum(x) + filters)
    b, ones = Builder("image"), (1,) * (len(x) - 2)
    kernel = attributes.get("kernel_shape", ones)
    shape = filters, x[1] // attributes.get("groups", 1), *kernel
    w = rng.standard_normal(shape).astype(np.float32) / np.float32(np.sqrt(x[1]))
    bias = b.constant(rng.standard_normal(filters).astype(np.float32), "bias")
    value = b.input("x", TensorType.parse(f"float32[{', '.join(map(str, x))}]"))
    y = b.add(Conv(**attributes), [value, b.constant(w, "w"), bias], ["p"], "product")
    return b.graph([b.add(REGISTRY["Relu"](), [y], ["y"])])


def test_pointwise_convolutions_are_taken() -> None:
    graph, trace = choose_strassen(image())
    assert [n.op.kind for n in graph.nodes] == ["StrassenConv", "Add", "Relu"]
    assert trace.rewrites == 1 and graph.nodes[0].name == "product"
    assert kinds(image((1, 512, 211))) == ["StrassenConv", "Add", "Relu"]  # of one axis
    assert choose_strassen(image(), 0)[1].rewrites == 0
    assert choose_strassen(image(), None, ("product",))[1].rewrites == 0


@pytest.mark.parametrize("style", NODE_NAMES)
def test_nodes_and_values_may_have_any_names(style: str) -> None:
    """PyTorch calls a node as its output: the product may not take the name of the sum behind."""
    for graph in (network(), image(), image((1, 512, 211))):
        for seed in range(3):
            found, _ = choose_strassen(renamed(graph, style, seed))
            assert [n.op.kind for n in found.nodes] == kinds(graph)


@pytest.mark.parametrize(
    "graph",
    [
        image(strides=(2, 1)), image(pads=((0, 0), (0, 1))), image(kernel_shape=(1, 2)),
        image(groups=2), image((2, 264, 15, 13)), image(filters=272), image((2, 256, 3, 2)),
        image((2, 64, 15, 13)),
    ],
    ids=["stride", "pads", "kernel", "groups", "no blocks", "no blocks of filters", "few pixels",
         "few channels"],
)  # fmt: skip
def test_other_convolutions_are_left(graph: Graph) -> None:
    assert "StrassenConv" not in kinds(graph)


def test_a_convolution_is_judged_and_certified() -> None:
    """Channels, filters and pixels of very different sizes; two images."""
    rng = np.random.default_rng(14)
    graph = image()
    spread = np.exp(2 * rng.standard_normal((2, 256, 15, 13)))
    inputs = {"x": (rng.standard_normal((2, 256, 15, 13)) * spread).astype(np.float32)}
    verdict = check(graph, VeraxRunner(Settings(opt_level=3)), inputs)
    assert verdict.kind in (Kind.rounding, Kind.precision), verdict.reasons
    exe = verax.compile(graph, opt_level=3, certify=True, samples=inputs, threads=1)
    assert exe.recipe.algorithms == {"product": strassen.NAME}
    held = exe.certificate
    assert held is not None and held.holds and not held.fallbacks
    (layer,) = held.draws[0].layers
    assert (layer.node, layer.algorithm) == ("product", strassen.NAME) and layer.share <= 1


def test_products_in_bfloat16_are_left() -> None:
    exe = verax.compile(network(), opt_level=3, allow=("bf16",), threads=1)
    assert exe.recipe.algorithms == {"product": BFLOAT16_PRODUCTS}


def test_the_gain_by_counting() -> None:
    """Near 8/7 for endless sizes; none for small ones; more with every size."""
    assert gain(1 << 20, 1 << 20, 1 << 20) == pytest.approx(8 / 7, rel=1e-3)
    assert gain(32, 64, 64) < 1 < WORTH < gain(128, 768, 3072)
    assert gain(200, 512, 512) < gain(400, 512, 512) < gain(400, 768, 512) < gain(400, 768, 768)


def test_with_scales_it_errs_as_honest_rounding_does_and_without_them_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for spread in (1.0, 4.0):
        graph = network(scale=spread > 1)
        inputs = {"x": data()["x"] ** np.float32(spread)}
        verdict = check(graph, VeraxRunner(Settings(opt_level=3)), inputs)
        assert verdict.kind in (Kind.rounding, Kind.precision), verdict.reasons
        assert (verdict.kind is Kind.precision) == any(
            strassen.NAME in reason for reason in verdict.reasons
        )
        assert verdict.kind is Kind.rounding or spread > 1


def test_items_of_a_batch_spread_errors_among_their_own_rows() -> None:
    """Rows from 1e-4 to 1e4, in another order in each item."""
    rng = np.random.default_rng(12)
    b = Builder("net")
    x = b.input("x", TensorType.parse("float32[3, 98, 896]"))
    w = rng.standard_normal((896, 928)).astype(np.float32) / 30
    graph = b.graph([b.add(MatMul(), [x, b.constant(w, "w")], ["p"], "product")])
    spread = np.exp(4 * rng.standard_normal((3, 98, 1)))
    inputs = {"x": (rng.standard_normal((3, 98, 896)) * spread).astype(np.float32)}
    verdict = check(graph, VeraxRunner(Settings(opt_level=3)), inputs)
    assert verdict.kind is Kind.precision, verdict.reasons
    assert any(strassen.NAME in reason for reason in verdict.reasons)
    exe = verax.compile(graph, opt_level=3, certify=True, samples=inputs, threads=1)
    held = exe.certificate
    assert held is not None and held.holds and not held.fallbacks
    (layer,) = held.draws[0].layers
    assert (layer.node, layer.algorithm) == ("product", strassen.NAME) and layer.share <= 1


def test_a_certificate_holds_and_names_it() -> None:
    exe = verax.compile(network(scale=True), opt_level=3, certify=True, samples=data(), threads=1)
    held = exe.certificate
    assert held is not None and held.holds and not held.fallbacks
    (layer,) = held.draws[0].layers
    assert (layer.node, layer.algorithm) == ("product", strassen.NAME) and layer.share <= 1
    assert exe.recipe.algorithms == {"product": strassen.NAME}


def test_a_layer_whose_approximation_is_wrong_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels and the promised bits share the fault: only the meaning can tell."""
    healthy = strassen.right_factors

    def wrong(b: np.ndarray) -> list[np.ndarray]:
        return [f * np.float32(1.001) if p == 4 else f for p, f in enumerate(healthy(b))]

    write = strassen.write_right_factor

    def write_wrong(product: int, blocks: Sequence[np.ndarray], out: np.ndarray) -> None:
        write(product, blocks, out)
        if product == 4:
            out *= np.float32(1.001)

    monkeypatch.setattr(strassen, "right_factors", wrong)
    monkeypatch.setattr(strassen, "write_right_factor", write_wrong)
    exe = verax.compile(network(), opt_level=3, certify=True, samples=data(), threads=1)
    assert exe.certificate is not None and exe.certificate.holds
    assert exe.certificate.fallbacks.keys() == {"product"} and exe.recipe.algorithms == {}
