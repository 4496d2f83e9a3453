"""1x1 convolutions by Strassen's algorithm give their promised bits, wherever images lie."""

from __future__ import annotations

import numpy as np
import pytest

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.kernels.products import strassen as kernels
from verax.compiler.kernels.products.strassen_spec import StrassenSpec
from verax.compiler.kernels.target import Target
from verax.compiler.place.calls import KernelCall
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.ops.movement.reshaping import Transpose
from verax.ops.windows.convolution import Conv
from verax.ops.windows.strassen import StrassenConv
from verax.reference import promised

TARGETS = [t for t in ("avx2", "avx512", "aarch64") if Target.named(t).runs_here()]
SHAPES = [
    ((2, 32, 7, 5), 64), ((1, 64, 6, 9), 96), ((3, 96, 4, 3), 32), ((2, 32, 1, 1), 160),
    ((1, 32, 29), 64), ((1, 64, 3, 4, 5), 32),
]  # fmt: skip
"""The image, and how many filters."""


def constant(b: Builder, *shape: int) -> str:
    rng = np.random.default_rng(sum(shape))
    return b.constant(rng.standard_normal(shape).astype(np.float32))


def network(x: tuple[int, ...], filters: int, around: str) -> Graph:
    """The convolution between others. around: what stands before and behind it."""
    b, ones = Builder("net"), (1,) * (len(x) - 2)
    value = b.input("x", TensorType.parse(f"float32[{', '.join(map(str, x))}]"))
    value = image = b.add(REGISTRY["Relu"](), [value])
    weights = constant(b, filters, x[1], *ones)
    pads = ((1, 1),) * len(ones)
    window = (3,) * len(ones)
    wide = Conv(kernel_shape=window, pads=pads)
    if around in ("border before", "borders"):  # the image has a border for its other reader
        image = b.add(REGISTRY["Tanh"](), [b.add(wide, [value, constant(b, x[1], x[1], *window)])])
    y = b.add(StrassenConv(), [image, weights], name="product")
    if around in ("bias", "residual", "gelu"):
        y = b.add(REGISTRY["Add"](), [y, constant(b, filters, *ones)])
    if around == "residual":
        other = b.add(Conv(), [value, constant(b, filters, x[1], *ones)])
        y = b.add(REGISTRY["Relu"](), [b.add(REGISTRY["Add"](), [other, y])])
    if around == "gelu":
        y = b.add(REGISTRY["Gelu"](), [y])
    if around in ("border behind", "borders"):
        narrow = Conv(kernel_shape=window, pads=((1, 2),) * len(ones))
        y = b.add(narrow, [b.add(REGISTRY["Relu"](), [y]), constant(b, 17, filters, *window)])
    if around == "pixels":
        y = b.add(Transpose(perm=(0, *range(2, len(x)), 1)), [y])
    outputs = [y]
    if around in ("border before", "borders"):
        outputs.append(b.add(wide, [image, constant(b, 19, x[1], *window)]))
    return b.graph(outputs)


def data(graph: Graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(8)
    return {v: rng.standard_normal(graph.types[v].shape, np.float32) for v in graph.inputs}


def bits(graph: Graph, **options: object) -> list[bytes]:
    exe = compile(graph, Settings(opt_level=1, **{"threads": 1, **options}))
    assert not exe.plan.on_reference
    return [found.tobytes() for found in exe.run(data(graph)).values()]


AROUND = ["", "bias", "residual", "gelu", "border before", "border behind", "borders", "pixels"]


@pytest.mark.checkered
@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize(("x", "filters"), SHAPES)
def test_the_promised_bits(x: tuple[int, ...], filters: int, around: str) -> None:
    graph = network(x, filters, around)
    want = [found.tobytes() for found in promised(graph, data(graph)).values()]
    for target in TARGETS:
        for threads in (1, 3):
            assert bits(graph, target=target, threads=threads) == want, (target, threads)
    exe = compile(graph, Settings(opt_level=1, threads=1))
    specs = [s.spec for s in exe.specialized.lowered.steps if isinstance(s, KernelCall)]
    found = [s for s in specs if isinstance(s, StrassenSpec)]
    assert len(found) == x[0] and all(s.image is not None for s in found)


def test_an_image_knows_nothing_of_the_others() -> None:
    graph, given = network((3, 32, 5, 3), 64, "bias"), network((1, 32, 5, 3), 64, "bias")
    images = data(graph)["x"]
    images[1, 4, 2, 1] = np.inf
    for of in (promised, lambda g, d: compile(g, Settings(opt_level=1, threads=1)).run(d)):
        (together,) = of(graph, {"x": images}).values()
        assert not np.isfinite(together[1]).all() and np.isfinite(together[::2]).all()
        for number in (0, 2):
            (alone,) = of(given, {"x": images[number : number + 1]}).values()
            assert alone.tobytes() == together[number].tobytes()


def test_weights_that_a_product_and_a_convolution_share_are_packed_for_each() -> None:
    """As [terms, columns] for the one and as [filters, channels] for the other."""
    rng = np.random.default_rng(17)
    b, weights = Builder("tied"), rng.standard_normal((288, 288)).astype(np.float32) / 17
    x = b.input("x", TensorType.parse("float32[1, 64, 288]"))
    image = b.input("image", TensorType.parse("float32[1, 288, 8, 8]"))
    rows = b.add(REGISTRY["StrassenMatMul"](), [x, b.constant(weights)])
    filters = b.constant(weights.reshape(288, 288, 1, 1).copy())
    graph = b.graph([rows, b.add(REGISTRY["StrassenConv"](), [image, filters])])
    want = [found.tobytes() for found in promised(graph, data(graph)).values()]
    assert bits(graph) == want


WRONG = {"columns": (2, 64, 6, 5), "half": (2, 64, 4, 5), "depth": (1, 32, 3, 4, 7)}
"""Images that no other test has: the process keeps the kernels that it has made."""


@pytest.mark.parametrize("wrong", list(WRONG))
def test_a_wrong_place_is_noticed(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = network(WRONG[wrong], 96, "" if wrong == "half" else "border behind")
    want = [found.tobytes() for found in promised(graph, data(graph)).values()]
    if wrong == "half":  # channels of the right half begin a block late
        steps = StrassenSpec.steps.fget  # type: ignore[attr-defined]  # what is scaled and added up reads them
        moved = lambda s: (*steps(s)[:2], steps(s)[2] + s.image.block)  # noqa: E731
        monkeypatch.setattr(StrassenSpec, "steps", property(moved))
    else:  # rows of an image with a border are taken to follow one another
        monkeypatch.setattr(kernels, "written_in_line", lambda image, epilogue: True)
    assert bits(graph, checked=True) != want
