"""Concatenation of channels in the blocked layout: the promised bits, and no copy of what is made
in its place."""

from __future__ import annotations

import numpy as np
import pytest

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.place.convolution import borders
from verax.ir.graph import Builder
from verax.ir.types import TensorType
from verax.ops.movement.slicing import Concat
from verax.ops.pointwise.activation import Relu
from verax.ops.windows.convolution import Conv
from verax.ops.windows.pooling import MaxPool
from verax.reference import promised


class Net:
    """A network being built: `x` has 9 channels."""

    def __init__(self, batch: int, seed: int) -> None:
        self.b, self.rng = Builder("joined"), np.random.default_rng(seed)
        self.shape = (batch, 9, 11, 7)
        self.x = self.b.input("x", TensorType.parse(f"float32[{batch}, 9, 11, 7]"))

    def conv(self, x: str, filters: int, size: int = 1) -> str:
        channels = self.b.types[x].shape[1]
        w = self.rng.standard_normal((filters, channels, size, size)).astype(np.float32) / size
        pads = ((size // 2, size // 2),) * 2
        return self.b.add(Conv(pads=pads), [x, self.b.constant(w)])

    def join(self, *values: str) -> str:
        return self.b.add(Concat(axis=1), list(values), name="join")


def check(net: Net, outputs: list[str], copies: int) -> None:
    """The promised bits twice, from memory full of NaN, on several threads."""
    x = {"x": net.rng.standard_normal(net.shape).astype(np.float32)}
    graph = net.b.graph(outputs)
    want = promised(graph, x)
    for threads in (1, 3):
        exe = compile(graph, Settings(opt_level=1, threads=threads))
        assert sum("join" in line for line in exe.plan.lines) == copies, exe.plan
        for _ in range(2):
            exe.specialized.program.poison(0x7F)
            got = exe.run(x)
            assert all(got[v].tobytes() == array.tobytes() for v, array in want.items())


@pytest.fixture(params=[False, True])
def written_borders(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Borders that keep their zeros, and those that are written in every run."""
    if request.param:
        monkeypatch.setattr(borders, "SLACK", 0)
        monkeypatch.setattr(borders, "KEPT_SHARE", 0.0)


@pytest.mark.usefixtures("written_borders")
def test_parts_are_made_in_their_place() -> None:
    net = Net(1, 41)
    parts = [net.conv(net.x, n, size) for n, size in ((16, 3), (32, 1), (5, 3))]
    check(net, [net.conv(net.join(*parts), 19, 3)], copies=0)


@pytest.mark.usefixtures("written_borders")
def test_what_others_read_too_is_copied() -> None:
    net = Net(1, 42)
    skip = net.conv(net.x, 16, 3)
    pooled = net.b.add(MaxPool(kernel_shape=(3, 3), pads=((1, 1), (1, 1))), [skip])
    deep = net.b.add(Relu(), [net.conv(pooled, 23, 3)])
    check(net, [net.conv(net.join(skip, deep), 10, 3)], copies=1)


def test_a_part_may_be_joined_itself() -> None:
    net = Net(1, 43)
    inner = net.join(net.conv(net.x, 32), net.conv(net.x, 16, 3))
    outer = net.join(net.conv(net.x, 48, 3), inner, net.conv(net.x, 7))
    check(net, [net.conv(outer, 18, 3)], copies=0)


def test_images_are_copied_one_after_another() -> None:
    net = Net(3, 44)
    parts = [net.conv(net.x, n) for n in (16, 32, 21)]
    check(net, [net.conv(net.join(*parts), 9, 3)], copies=4)  # whole blocks, and the last one's


def test_a_value_may_be_joined_with_itself() -> None:
    net = Net(1, 45)
    part = net.conv(net.x, 16)
    check(net, [net.conv(net.join(part, part), 12, 3)], copies=2)


def test_what_ends_inside_a_block_is_joined_row_major() -> None:
    net = Net(1, 46)
    joined = net.join(net.conv(net.x, 9), net.conv(net.x, 20))
    check(net, [net.conv(joined, 12)], copies=4)  # two, and the result into blocks


def test_a_result_and_a_part_may_be_outputs() -> None:
    net = Net(1, 47)
    part = net.conv(net.x, 16)
    joined = net.join(part, net.conv(net.x, 24))
    check(net, [joined, part], copies=3)  # the part, and the result as NumPy has it
