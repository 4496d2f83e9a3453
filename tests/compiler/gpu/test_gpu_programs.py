"""Programs of an emulated GPU have the bits of the CPU's, whatever the order of its threads.

The witness is the CPU's program, whose bits are held to exact definitions elsewhere.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
from tests.compiler.test_bits import bits
from tests.compiler.test_operators import graph_of

from verax.base.errors import UsageError
from verax.base.option_groups.settings import Settings
from verax.campaign.random_networks import random_network
from verax.compiler.compile import compile
from verax.compiler.kernels.llvm.builder import ModuleBuilder
from verax.compiler.kernels.llvm.object_code import object_code
from verax.compiler.kernels.registry import EMITTERS, emit, schedules
from verax.compiler.kernels.target import Target
from verax.compiler.place.calls import KernelCall
from verax.compiler.place.program import lower
from verax.ir.graph import Graph
from verax.ir.operator import REGISTRY, Case
from verax.runtime.gpu.code import unpacked
from verax.runtime.gpu.emulated import VARIABLE
from verax.runtime.gpu.launches import launches

ORDERS = ("", "reversed", "late", "reversed,late")


def check(
    graph: Graph,
    fed: dict[str, np.ndarray],
    level: int,
    monkeypatch: pytest.MonkeyPatch,
    orders: tuple[str, ...] = ORDERS,
) -> None:
    want = compile(graph, Settings(level, threads=1)).run(fed)
    exe = compile(graph, Settings(level, threads=1, target="cuda-emulated"))
    for order in orders:
        monkeypatch.setenv(VARIABLE, order)
        got = exe.run(fed)
        for value, array in want.items():
            assert bits(got[value]) == bits(np.asarray(array)), (value, order)


@pytest.mark.parametrize("level", [0, 1, 2, 3])
@pytest.mark.parametrize("seed", [2, 5, 9])
def test_random_networks(seed: int, level: int, monkeypatch: pytest.MonkeyPatch) -> None:
    network = random_network(seed)
    check(network.graph, network.inputs, level, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(300))
def test_300_random_networks(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    network = random_network(seed)
    for level in (1, 3):
        check(network.graph, network.inputs, level, monkeypatch, (f"fenced,{ORDERS[seed % 4]}",))


def test_a_step_of_the_reference_in_between_sees_what_kernels_made() -> None:
    """Its inputs come from the device, its outputs go there."""
    network = random_network(6)
    graph, fed = network.graph, network.inputs
    exe = compile(graph, Settings(1, threads=1, target="cuda-emulated"))
    got, want = exe.run(fed), compile(graph, Settings(1, threads=1)).run(fed)
    assert exe.plan.on_reference and len(exe.plan.lines) > 2
    assert all(bits(got[v]) == bits(np.asarray(want[v])) for v in want)


def test_an_unknown_order_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.ones((2, 3), np.float32)
    graph, fed = graph_of(Case(REGISTRY["Relu"](), (x,)), False)
    exe = compile(graph, Settings(1, target="cuda-emulated"))
    monkeypatch.setenv(VARIABLE, "backwards")
    with pytest.raises(UsageError, match="VERAX_GPU_ORDER has 'backwards'"):
        exe.run(fed)


def graph_kernels(graph: Graph, target: Target) -> list[bytes]:
    lowered = lower(graph, target, Settings(1, threads=1))
    return list(unpacked(lowered.binary.object_code).ptx.values())


@pytest.mark.parametrize("architecture", ["sm_70", "sm_80", "sm_90"])
def test_ptx_rounds_to_nearest_and_flushes_nothing(architecture: str) -> None:
    """No addition, multiplication or division without `.rn`, none fused, none that flushes."""
    for seed in (2, 5):
        for ptx in graph_kernels(random_network(seed).graph, Target.cuda(architecture)):
            assert b".ftz" not in ptx and b".approx" not in ptx
            found = re.findall(
                rb"^\s*((?:add|sub|mul|div|rcp|sqrt|mad|fma)\S*\.f(?:32|64))", ptx, re.M
            )
            assert all(b".rn" in operation for operation in found), found
            assert f".target {architecture}".encode() in ptx


def test_every_kernel_of_a_gpu_is_an_entry() -> None:
    target = Target.cuda("sm_80")
    lowered = lower(random_network(3).graph, target, Settings(1, threads=1))
    code = unpacked(lowered.binary.object_code)
    for name, ptx in code.ptx.items():
        assert f".entry {name}(".encode() in ptx
    calls = [step for step in lowered.steps if isinstance(step, KernelCall)]
    assert len(calls) == sum(len(steps) for steps in code.segments.values())


def test_families_with_a_mapping_of_their_own() -> None:
    """Another emitter of the same spec. Without it the CPU's would be taken, and nobody told."""
    own = {spec for spec, name in EMITTERS if name == "gpu"}
    assert {spec.__name__ for spec in own} == {
        *("AttentionSpec", "ConvSpec", "GemmSpec", "LoopSpec", "PackSpec", "PoolSpec"),
        *("ReduceSpec", "StrassenSpec", "WinogradInput", "WinogradOutput", "WinogradScales"),
        *("BlockProductSpec", "RowsSpec", "TopSpec", "WidenSpec"),
    }
    assert all((spec, "") in EMITTERS for spec in own)


def test_the_same_spec_gives_the_same_ptx() -> None:
    target = Target.cuda("sm_80")
    (step, *_) = lower(random_network(2).graph, target, Settings(1, threads=1)).steps
    assert isinstance(step, KernelCall)
    made = []
    for _ in range(2):
        module = ModuleBuilder("one", target)
        emit(module, step.spec, schedules(step.spec, target)[0])
        made.append(object_code(module))
    assert made[0] == made[1]


@pytest.mark.parametrize("architecture", ["sm_70", "sm_75", "sm_80"])
def test_blocks_have_no_more_shared_memory_than_their_cards_give(architecture: str) -> None:
    """64 KiB at compute capability 7.5, 99 KiB at least from 8.0 on (CUDA C++ Programming Guide,
    "Compute Capabilities")."""
    limit = (64 if architecture < "sm_80" else 99) << 10
    rng, largest = np.random.default_rng(141), 0
    for rows, terms, columns in ((3, 5, 7), (129, 70, 257), (2050, 300, 2100)):
        arrays = rng.standard_normal((rows, terms)), rng.standard_normal((terms, columns))
        x, w = (a.astype(np.float32) for a in arrays)
        graph, _ = graph_of(Case(REGISTRY["MatMul"](), (x, w)), False)
        lowered = lower(graph, Target.cuda(architecture), Settings(1, threads=1))
        for steps in unpacked(lowered.binary.object_code).segments.values():
            largest = max([largest, *(launch.shared for launch in launches(steps))])
    assert 0 < largest <= limit
