"""The arena: what lives together never overlaps, it is hardly larger than what lives at once, and
borders that are written in every run are zeros when they are read."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.executable import Executable
from verax.compiler.place import memory
from verax.compiler.place.convolution import borders
from verax.compiler.place.memory import most_alive, plan_arena
from verax.compiler.place.storage import Buffer, MemorySpace
from verax.ir.graph import Builder, Graph
from verax.ir.printer import print_graph
from verax.ir.types import TensorType
from verax.ops.control.control import If
from verax.ops.pointwise.arithmetic import Add, Mul
from verax.ops.windows.convolution import Conv
from verax.ops.windows.deconvolution import ConvTranspose
from verax.ops.windows.pooling import MaxPool
from verax.reference import promised


def branch(by: int) -> str:
    """The text of a body: three operations, `by` of which are additions."""
    b = Builder("body")
    value = b.input("given", TensorType.parse("float32[2, 3, 19, 26]"))
    for i in range(3):
        value = b.add(Add() if i < by else Mul(), [value, value])
    return print_graph(b.graph([value]))


def network(chooses: bool = False) -> Graph:
    """Images of five sizes, blocked and as NumPy has them, with unequal borders; behind a branch if
    it chooses."""
    rng = np.random.default_rng(31)
    b = Builder("images")

    def weights(*shape: int) -> str:
        return b.constant(rng.standard_normal(shape).astype(np.float32))

    value = b.input("x", TensorType.parse("float32[2, 3, 19, 26]"))
    if chooses:
        truth = b.input("truth", TensorType.parse("bool[1]"))
        value = b.add(If(then_branch=branch(1), else_branch=branch(3)), [truth, value])
    value = b.add(Conv(pads=((1, 2), (2, 0))), [value, weights(17, 3, 3, 3)])
    value = b.add(Conv(pads=((2, 2), (1, 1))), [value, weights(11, 17, 5, 3)])
    value = b.add(MaxPool(kernel_shape=(2, 3), strides=(2, 2)), [value])
    value = b.add(Conv(pads=((1, 1), (0, 2))), [value, weights(5, 11, 3, 3)])
    value = b.add(
        ConvTranspose(strides=(2, 2), pads=((1, 1), (1, 1))), [value, weights(5, 9, 3, 3)]
    )
    value = b.add(Conv(pads=((1, 1), (1, 1))), [value, weights(7, 9, 3, 3)])
    return b.graph([value])


def poisoned(exe: Executable, x: dict[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    """What runs give when all memory that holds nothing is filled with NaN before each."""
    runs = []
    for _ in range(2):
        exe.specialized.program.poison(0x7F)
        runs.append(exe.run(x))
    return runs


@pytest.fixture(params=[0.0, 0.1, 0.25])
def kept_share(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> float:
    monkeypatch.setattr(borders, "SLACK", 0)
    monkeypatch.setattr(borders, "KEPT_SHARE", request.param)
    return float(request.param)


@pytest.mark.parametrize("threads", [1, 3])
def test_borders_are_zeros_when_they_are_read(kept_share: float, threads: int) -> None:
    graph = network()
    x = {"x": np.random.default_rng(32).standard_normal((2, 3, 19, 26)).astype(np.float32)}
    want = promised(graph, x)
    exe = compile(graph, Settings(opt_level=1, threads=threads))
    assert any("zeros around" in line for line in exe.plan.lines)
    for got in poisoned(exe, x):
        assert all(got[name].tobytes() == array.tobytes() for name, array in want.items())


@pytest.mark.parametrize("truth", [True, False])
def test_borders_behind_a_branch_are_written(monkeypatch: pytest.MonkeyPatch, truth: bool) -> None:
    monkeypatch.setattr(borders, "SLACK", 0)
    monkeypatch.setattr(borders, "KEPT_SHARE", 0.0)
    graph = network(chooses=True)
    x = {"x": np.random.default_rng(34).standard_normal((2, 3, 19, 26)).astype(np.float32)}
    x["truth"] = np.array([truth])
    want = promised(graph, x)
    for got in poisoned(compile(graph, Settings(opt_level=1, threads=1)), x):
        assert all(got[name].tobytes() == array.tobytes() for name, array in want.items())


def test_a_border_that_is_not_written_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(borders, "SLACK", 0)
    monkeypatch.setattr(borders, "KEPT_SHARE", 0.0)

    def nothing(*given: object) -> Iterator[object]:
        return iter(())

    monkeypatch.setattr(borders, "_filling", nothing)
    graph = network()
    x = {"x": np.random.default_rng(33).standard_normal((2, 3, 19, 26)).astype(np.float32)}
    want = promised(graph, x)
    got = poisoned(compile(graph, Settings(opt_level=1, threads=1)), x)
    assert any(got[0][name].tobytes() != array.tobytes() for name, array in want.items())


def test_a_small_network_keeps_its_borders() -> None:
    lines = compile(network(), Settings(opt_level=1, threads=1)).plan.lines
    assert not any("zeros around" in line for line in lines)


@pytest.mark.parametrize("seed", range(12))
def test_what_lives_together_does_not_overlap(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lifetimes = {}
    for first in range(40):
        for _ in range(rng.integers(1, 3)):
            size = int(rng.choice([60, 100, 300, 448, 900])) * 4096
            last = first + int(rng.choice([1, 1, 1, 2, 6]))
            lifetimes[Buffer(MemorySpace.arena, size)] = (first, last)
    end = plan_arena(lifetimes, start=128)
    for a, (first, last) in lifetimes.items():
        assert a.offset >= 128 and a.offset + a.nbytes <= end and a.offset % 64 == 0
        for b, (f, t) in lifetimes.items():
            if a is not b and f <= last and first <= t:
                assert a.offset + a.nbytes <= b.offset or b.offset + b.nbytes <= a.offset
    assert end <= 1.2 * most_alive(lifetimes)


def test_most_alive_is_the_largest_sum() -> None:
    sizes = [(64, (0, 2)), (128, (1, 1)), (256, (3, 4)), (32, (2, 3))]
    lifetimes = {Buffer(MemorySpace.arena, size): alive for size, alive in sizes}
    assert most_alive(lifetimes) == 256 + 32
    assert most_alive({}) == 0


def test_other_orders_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain of which the largest-first plan takes more than lives at once."""
    sizes = [(6, (0, 1)), (3, (1, 4)), (3, (2, 4)), (3, (3, 4)), (3, (4, 6))]

    def planned() -> float:
        lifetimes = {Buffer(MemorySpace.arena, n << 20): alive for n, alive in sizes}
        return plan_arena(lifetimes) / most_alive(lifetimes)

    best = planned()
    monkeypatch.setattr(memory, "TRIES", 0)
    assert math.isclose(best, 1, abs_tol=0.01) and planned() > 1.1


def test_kernels_that_reach_far_beyond_a_small_image_are_compiled() -> None:
    """DeepLab's dilation of 36 on 14 x 14 pixels: with its border the input is 37 times as big."""
    rng = np.random.default_rng(36)
    b = Builder("net")
    x = b.input("x", TensorType.parse("float32[1, 160, 14, 13]"))
    w = b.constant(rng.standard_normal((18, 160, 3, 3)).astype(np.float32), "w")
    far = ((36, 36), (36, 36))
    conv = Conv(kernel_shape=(3, 3), dilations=(36, 36), pads=far)
    graph = b.graph([b.add(conv, [x, w])])
    given = {"x": rng.standard_normal((1, 160, 14, 13), np.float32)}
    exe = compile(graph, Settings(opt_level=1, threads=2))
    assert not exe.plan.on_reference
    (want,) = promised(graph, given).values()
    assert exe.run(given).popitem()[1].tobytes() == want.tobytes()
