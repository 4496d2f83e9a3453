"""O3 on random networks: the judge accepts it, its layers stand, every machine has its bits."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge.certify import examine
from verax.judge.check import check
from verax.judge.inputs import draw_inputs
from verax.ops.pointwise.activation import LeakyRelu, Relu
from verax.ops.pointwise.activation_smooth import Swish
from verax.ops.pointwise.arithmetic import Add
from verax.ops.sums.normalization import BatchNormalization
from verax.ops.windows.convolution import Conv
from verax.ops.windows.pooling import AveragePool, MaxPool
from verax.records.verdict import Kind
from verax.runners.own import VeraxRunner

O3 = Settings(opt_level=3)
SEEDS = range(300, 305)


def random_network(seed: int) -> Graph:
    """Four convolutions, most of them 3x3, with what stands between them in detectors."""
    rng = np.random.default_rng(seed)
    channels = int(rng.integers(16, 40))
    b = Builder(f"net{seed}")
    batch, rows, cols = rng.integers(1, 3), *rng.integers(13, 24, 2)
    value = b.input("x", TensorType.parse(f"float32[{batch}, {channels}, {rows}, {cols}]"))
    for i in range(4):
        before, out = value, int(rng.integers(16, 40))
        out = channels if rng.random() < 0.4 else out
        size = 3 if rng.random() < 0.8 else 1
        w = rng.standard_normal((out, channels, size, size)) * rng.uniform(0.2, 3, (out, 1, 1, 1))
        w = (w / np.sqrt(channels * size * size)).astype(np.float32)
        pads = tuple((int(rng.integers(0, size)), int(rng.integers(0, size))) for _ in range(2))
        inputs = [value, b.constant(w)]
        if rng.random() < 0.5:
            inputs.append(b.constant(rng.standard_normal(out).astype(np.float32)))
        value = b.add(Conv(pads=pads), inputs, name=f"conv{i}")
        if rng.random() < 0.5:
            stats = [rng.standard_normal(out), rng.standard_normal(out), rng.standard_normal(out)]
            arrays = [*stats, rng.uniform(0.3, 2, out)]
            value = b.add(
                BatchNormalization(), [value, *(b.constant(a.astype(np.float32)) for a in arrays)]
            )
        if b.types[value] == b.types[before] and rng.random() < 0.7:
            value = b.add(Add(), [value, before])
        if rng.random() < 0.8:
            acts = (Relu(), LeakyRelu(alpha=0.1), Swish())
            value = b.add(acts[int(rng.integers(3))], [value])
        if rng.random() < 0.2:
            pools = (MaxPool(kernel_shape=(2, 3)), AveragePool(kernel_shape=(3, 2)))
            value = b.add(pools[int(rng.integers(2))], [value])
        channels = out
    return b.graph([value])


@pytest.mark.parametrize("seed", SEEDS)
def test_the_judge_accepts_it_watched_and_from_outputs(seed: int) -> None:
    graph = random_network(seed)
    runner = VeraxRunner(O3)
    for watch in (True, False):
        verdict = check(graph, runner, seed=seed, watch=watch)
        assert verdict.kind in (Kind.identical, Kind.rounding, Kind.precision), verdict.reasons
        assert {p.format for p in verdict.precisions} <= {
            "Winograd F(2x2, 3x3)", "Winograd F(4x4, 3x3)",
        }  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
def test_its_layers_stand_and_its_bits_are_those_of_every_machine(seed: int) -> None:
    graph = random_network(seed)
    inputs, origins = draw_inputs(graph, seed)
    exe = compile(graph, O3)
    found = examine(graph, VeraxRunner(O3, exe), inputs, origins, exe.recipe.algorithms)
    assert not found.failing and not found.problems
    wanted = exe.run(inputs)
    for other in (
        dataclasses.replace(O3, threads=3),
        dataclasses.replace(O3, target="avx2"),
        dataclasses.replace(O3, quick=True, threads=1),
    ):
        again = compile(graph, other).run(inputs)
        for value, array in wanted.items():
            np.testing.assert_array_equal(array.view(np.int32), again[value].view(np.int32))


def test_the_networks_have_such_layers() -> None:
    counts = [len(compile(random_network(s), O3).recipe.algorithms) for s in SEEDS]
    assert sum(counts) > len(SEEDS)
