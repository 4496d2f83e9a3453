"""A pointwise convolution takes rows as one, also where its result has a border around it."""

from __future__ import annotations

import numpy as np
import pytest
from tests.compiler.test_bits import bits, runnable

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.kernels.convolution import direct as conv_direct
from verax.compiler.kernels.convolution.schedule import ConvSchedule
from verax.compiler.place.calls import KernelCall
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.reference import promised

CHOICES = [
    Settings(opt_level=1, threads=1),
    Settings(opt_level=1, threads=3),
    Settings(opt_level=1, threads=1, target="avx2"),
    Settings(opt_level=1, threads=1, target="avx512"),
]


def network(rows: int, cols: int, channels: int, filters: int, behind: str) -> Graph:
    """Pointwise, with something behind it, read by a window of 3x3 and by a sum."""
    b = Builder("net")
    rng = np.random.default_rng(rows * cols + channels)

    def weights(*shape: int) -> str:
        return b.constant(rng.standard_normal(shape).astype(np.float32))

    x = b.input("x", TensorType.parse(f"float32[2, {channels}, {rows}, {cols}]"))
    first = b.add(REGISTRY["Conv"](), [x, weights(filters, channels, 1, 1), weights(filters)])
    if behind == "long":  # evaluated in a loop over what was stored
        for _ in range(3):
            first = b.add(REGISTRY["HardSwish"](), [first])
            first = b.add(REGISTRY["Mul"](), [first, weights(filters, 1, 1)])
    wide = b.add(REGISTRY["Conv"](pads=((1, 0), (2, 1))), [first, weights(17, filters, 2, 4)])
    again = b.add(REGISTRY["Conv"](), [wide, weights(filters, 17, 1, 1)])
    if behind == "sum":  # an operand with a border
        again = b.add(REGISTRY["Add"](), [again, first])
    last = REGISTRY["Conv"](pads=((0, 1), (1, 1)), groups=filters)
    return b.graph([b.add(last, [again, weights(filters, 1, 2, 3)])])


def hold(graph: Graph) -> None:
    x = np.random.default_rng(5).standard_normal(graph.types["x"].shape, np.float32)
    wanted = promised(graph, {"x": x})
    for choice in filter(runnable, CHOICES):
        exe = compile(graph, choice)
        found = exe.run({"x": x})
        assert not exe.plan.on_reference
        for name, array in wanted.items():
            assert bits(found[name]) == bits(np.asarray(array)), choice


SHAPES = [(7, 9, 19, 35), (5, 3, 16, 48), (1, 13, 3, 17), (11, 1, 32, 16), (14, 14, 33, 20)]


@pytest.mark.checkered
@pytest.mark.parametrize("behind", ["nothing", "long", "sum"])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_bits_are_the_promised_ones(shape: tuple[int, ...], behind: str) -> None:
    hold(network(*shape, behind))  # type: ignore[call-arg]


def test_the_tile_is_as_if_there_were_no_border() -> None:
    """14 columns are no multiple of a tile; all pixels are but for a rest."""
    exe = compile(network(14, 14, 33, 32, "nothing"), CHOICES[2])
    exe.run({"x": np.zeros((2, 33, 14, 14), np.float32)})
    steps = [s for s in exe.specialized.lowered.steps if isinstance(s, KernelCall)]
    tiles = [s.schedule for s in steps if isinstance(s.schedule, ConvSchedule)]
    assert (tiles[0].rows, tiles[0].cols) == (6, 1)


def test_rows_that_are_written_as_one_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The border forgotten: pixels are written one after another."""
    monkeypatch.setattr(conv_direct, "written_densely", lambda spec, phase: True)
    with pytest.raises(AssertionError):
        hold(network(7, 9, 19, 35, "nothing"))
