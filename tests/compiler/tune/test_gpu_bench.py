"""Kernels measured on a GPU: any schedule gives the same bits, and the card's own clock counts the
kernels and nothing else. The card is an emulated one, or a driver of Python's (`fake_cuda`)."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.runtime.fake_cuda import FakeDriver, install

from verax.base.errors import DeviceError
from verax.base.gpu import cuda_driver
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile as compile_graph
from verax.compiler.kernels.canonical import digest
from verax.compiler.kernels.gpu.contraction import PhaseTiles
from verax.compiler.kernels.gpu.tiles import TileSchedule
from verax.compiler.kernels.registry import (
    Schedule,
    Spec,
    admits,
    candidates,
    schedules,
    stages,
)
from verax.compiler.kernels.target import Target
from verax.compiler.network_bench import NetworkBench
from verax.compiler.place.binary.assembly import COMPILED_KERNELS
from verax.compiler.place.calls import KernelCall
from verax.compiler.tune.gpu_bench import GpuKernelBench, bench_for
from verax.compiler.tune.history import ChosenSchedule, History, chosen_line
from verax.compiler.tune.host import ANOTHER, ANOTHER_PROCESSOR, Host
from verax.compiler.tune.kernel_bench import KernelBench, Workload
from verax.compiler.tune.lookup import Tuned, decoded, encoded, read_history
from verax.compiler.tune.racing import OTHER_BITS, BenchRacer, faults_of
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.runtime.gpu.code import unpacked
from verax.runtime.gpu.emulated import EmulatedDevice

EMULATED = Settings(1, threads=1, target="cuda-emulated")
H100, A6000 = ("NVIDIA H100 PCIe", 9, 0), ("NVIDIA RTX A6000", 8, 6)
RNG_SEED = 6204


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng([RNG_SEED, *shape]).standard_normal(shape).astype(np.float32)


def network(filters: int = 20, columns: int = 13) -> Graph:
    """A convolution and a product behind it."""
    b = Builder("two")
    x = b.input("x", TensorType.parse("float32[2, 3, 9, 7]"))
    y = b.add(
        REGISTRY["Relu"](), [b.add(REGISTRY["Conv"](), [x, b.constant(weights(filters, 3, 3, 2))])]
    )
    flat = b.add(REGISTRY["Flatten"](), [y])
    return b.graph(
        [b.add(REGISTRY["MatMul"](), [flat, b.constant(weights(42 * filters, columns))])]
    )


X = np.random.default_rng(RNG_SEED).standard_normal((2, 3, 9, 7)).astype(np.float32)


def graph_of(operator: Any, *shapes: tuple[int, ...], inputs: int = 1) -> Graph:
    """One node; the first `inputs` of its operands are the network's, the others constants."""
    b = Builder("one")
    values = [
        b.input(f"x{i}", TensorType.of(np.zeros(shape, np.float32)))
        if i < inputs
        else b.constant(weights(*shape))
        for i, shape in enumerate(shapes)
    ]
    return b.graph([b.add(operator, values)])


GRAPHS: dict[str, Callable[[], Graph]] = {
    "convolution": lambda: graph_of(
        REGISTRY["Conv"](pads=((0, 1), (2, 1)), strides=(1, 2)), (2, 21, 9, 11), (35, 21, 3, 2)
    ),
    "groups": lambda: graph_of(REGISTRY["Conv"](groups=2), (2, 32, 5, 7), (64, 16, 2, 3)),
    "depthwise": lambda: graph_of(
        REGISTRY["Conv"](groups=21, strides=(1, 2)), (2, 21, 9, 13), (21, 1, 3, 2)
    ),
    "groups that cut blocks": lambda: graph_of(
        REGISTRY["Conv"](groups=3, pads=((1, 0), (0, 1))), (2, 15, 6, 7), (21, 5, 3, 2)
    ),
    "product": lambda: graph_of(REGISTRY["MatMul"](), (3, 17, 42), (42, 52)),
    "product of inputs": lambda: graph_of(REGISTRY["MatMul"](), (3, 17, 42), (3, 42, 26), inputs=2),
    "attention": lambda: graph_of(
        REGISTRY["Attention"](), (2, 3, 19, 16), (2, 3, 21, 16), (2, 3, 21, 12), inputs=3
    ),
}


def workloads(graph: Graph) -> list[Workload]:
    """Of the kernels that have a choice."""
    exe = compile_graph(graph, EMULATED)
    lowered, target = exe.specialized.lowered, exe.specializer.target
    calls = [s for s in lowered.steps if isinstance(s, KernelCall)]
    return [Workload.of(c, lowered.binary.weight_bytes) for c in calls if stages(c.spec, target)]


@pytest.mark.parametrize("name", GRAPHS)
def test_no_schedule_of_a_gpu_changes_a_bit(name: str) -> None:
    target = Target.emulated_gpu()
    found = workloads(GRAPHS[name]())
    assert found, "nothing to choose"
    for workload in found:
        bench = bench_for(workload, target, Host.here(target, 1))
        assert isinstance(bench, GpuKernelBench)
        others = candidates(workload.spec, target)
        assert others[0] == workload.schedule and all(
            admits(workload.spec, target, s) and decoded(workload.spec, target, encoded(s)) == s
            for s in others
        )
        expected = bench.result(workload.schedule)
        assert len(set(expected)) > 50
        tried = others[1 :: max(1, len(others) // 4)]
        for schedule in tried:
            assert bench.result(schedule) == expected, schedule
        assert bench.result(workload.schedule) == expected, "nothing is left from another"
        assert len(tried) > 1 and bench.turn(tried[0]) > 0
        bench.close()


def test_a_fault_of_some_tiles_is_told_of_and_never_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = PhaseTiles._following

    def following(self: PhaseTiles, stage: Any) -> Any:
        return stage if self.schedule.stages == 4 else real(self, stage)

    monkeypatch.setattr(PhaseTiles, "_following", following)
    target = Target.emulated_gpu()
    (workload,) = workloads(graph_of(REGISTRY["MatMul"](), (5, 131), (131, 18)))
    rule = workload.schedule
    assert isinstance(rule, TileSchedule) and rule.stages == 3
    wrong, right = (dataclasses.replace(rule, stages=n) for n in (4, 2))
    racer = BenchRacer(bench_for(workload, target, Host.here(target, 1)), rule, lambda: False)
    try:
        race = racer.race(rule, [wrong, right], 1.0)
    finally:
        racer.close()
        COMPILED_KERNELS.forget()
    assert [t.refused for t in race.trials] == [OTHER_BITS, ""]
    assert [bool(t.seconds) for t in race.trials] == [False, True]
    assert [t.schedule for t in faults_of(race.trials)] == [wrong]


def test_weights_are_read_from_beyond_the_cache_of_a_card() -> None:
    """Each call of a turn reads other copies, and so does the next turn."""
    target = Target.emulated_gpu()
    (workload,) = workloads(graph_of(REGISTRY["MatMul"](), (5, 131), (131, 18)))
    host = dataclasses.replace(Host.here(target, 1), caches=(1 << 14, 1 << 19))
    bench = bench_for(dataclasses.replace(workload, reuse=1 << 30), target, host)
    (pool,) = bench._pools(workload.schedule).values()
    assert pool.count * 131 * 32 * 4 >= 1 << 19
    seen: list[int] = []

    def timed(program: Any, arrays: list[Any]) -> float:
        seen.append(arrays[1].array.address)
        return 1e-3

    assert 1 < bench._calls <= pool.count
    bench.drop(workload.schedule)
    bench._calls, bench._runs = 2, 1
    bench._timed = timed  # type: ignore[method-assign]
    for _ in range(3):
        bench.turn(workload.schedule)
    assert [at - seen[0] for at in seen] == [0, 2 * pool.stride, 4 * pool.stride]
    card = dataclasses.replace(target, gpu="cuda")
    of_card = dataclasses.replace(host, caches=(3 << 20, 80 << 30, 132))
    bench.target = card
    assert bench._cache_bytes(of_card) == 3 << 20
    bench.close()


# --- what a history says


def chosen(spec: Spec, host: Host, schedule: Schedule) -> dict[str, Any]:
    return dict(chosen_line(ChosenSchedule(digest(spec), host, encoded(schedule), 1.5)))


def test_a_network_is_compiled_with_what_was_measured_on_the_same_gpu(tmp_path: Path) -> None:
    graph, path = network(), tmp_path / "h.jsonl"
    before = compile_graph(graph, EMULATED)
    target = before.specializer.target
    history, here = History(path), Host.here(target, 1)
    specs = [w.spec for w in workloads(graph)]
    tuned = {s: dataclasses.replace(schedules(s, target)[0], steps=1) for s in specs}  # type: ignore[type-var]
    history.append([chosen(s, here, schedule) for s, schedule in tuned.items()])
    lookup = Tuned(read_history(path, named=True), target, threads=7)
    after = compile_graph(graph, EMULATED, tuned=lookup)
    assert after.plan.tuning.startswith("2 of 2 kernels tuned exactly here")
    assert str(after.plan).count("3 stages of 16 terms") == 2
    assert "3 stages of 16 terms" not in str(before.plan)
    assert after.recipe == before.recipe
    (y,), (z,) = (exe.run({"x": X}).values() for exe in (before, after))
    assert y.tobytes() == z.tobytes()
    processor = Tuned(read_history(path, named=True), Target.host(), 1)
    assert processor.digest == "", "it says nothing of the processor itself"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    """A driver of two cards."""
    fake = FakeDriver(H100, A6000, memory=(80 << 30) - (400 << 20))
    install(monkeypatch, fake)
    yield fake
    gc.collect()
    cuda_driver.driver.cache_clear()


def test_a_card_is_named_with_its_memory_and_is_no_other(fake: FakeDriver, tmp_path: Path) -> None:
    target = Target.named("cuda")
    here = Host.here(target, 5)
    assert target.name == "sm_90" and here.target.startswith("sm_90 nvptx64")
    assert (here.processor, here.family) == ("NVIDIA H100 PCIe", "NVIDIA 9.0")
    assert here.caches == (50 << 20, 80 << 30, 132) and here.threads == 1
    (spec,) = (w.spec for w in workloads(graph_of(REGISTRY["MatMul"](), (5, 131), (131, 18))))
    rule = schedules(spec, target)[0]
    other = dataclasses.replace(rule, steps=4, stages=2)  # type: ignore[type-var]
    history = History(tmp_path / "h.jsonl")
    history.append([chosen(spec, here, other)])
    contents = history.read()
    assert Tuned(contents, target, 3).schedule_for(spec) == other
    assert Host.here(target, 1, card=1).unlike(here) == ANOTHER, "the second card"
    fake.l2_cache = 30 << 20
    assert Host.here(target, 1).unlike(here) == ANOTHER_PROCESSOR
    assert Tuned(contents, target, 3).schedule_for(spec) is None, "a smaller one of this name"
    fake.l2_cache, fake.memory = 50 << 20, (80 << 30) - (390 << 20)
    assert Tuned(contents, target, 3).schedule_for(spec) == other, "another driver's share"
    assert Tuned(contents, Target.cuda("sm_80"), 3).schedule_for(spec) is None
    assert Tuned(contents, Target.emulated_gpu(), 3).schedule_for(spec) is None


def test_a_card_that_is_not_there_has_no_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, FakeDriver())
    here = Host.here(Target.cuda("sm_80"), 3)
    assert (here.processor, here.family, here.caches) == ("", "", ())
    with pytest.raises(DeviceError):
        NetworkBench(network(), Settings(1, target="cuda"), {"x": X})
    cuda_driver.driver.cache_clear()


# --- by whose clock


def between_events(calls: list[str]) -> list[list[str]]:
    """What the driver is asked between pairs of events."""
    marks = [i for i, name in enumerate(calls) if name == "cuEventRecord"]
    return [calls[a + 1 : b] for a, b in zip(marks[::2], marks[1::2], strict=True)]


def test_a_turn_counts_the_kernels_by_the_cards_clock_and_nothing_else(fake: FakeDriver) -> None:
    (workload,) = workloads(graph_of(REGISTRY["MatMul"](), (5, 131), (131, 18)))
    workload = dataclasses.replace(workload, reuse=1 << 20)
    emulated = bench_for(workload, Target.emulated_gpu(), Host.here(Target.emulated_gpu(), 1))
    built = emulated._program(workload.schedule)
    kernels = EmulatedDevice().load(unpacked(built.program.binary.object_code))
    fake.emulated = kernels
    fake.milliseconds = lambda kernel: 0.11
    target = Target.named("cuda")
    bench = GpuKernelBench(workload, target, Host.here(target, 1))
    assert bench.result(workload.schedule) == emulated.result(workload.schedule)
    assert bench._calls == 11, "1.2 ms, as the card says it"
    assert bench.turn(workload.schedule) == pytest.approx(0.11e-3, rel=1e-9)
    fake.calls.clear()
    for k in (0.3, 2.0):
        fake.milliseconds = lambda kernel, k=k: k
        assert bench.turn(workload.schedule) == pytest.approx(k / 1e3, rel=1e-9)
    assert between_events(fake.calls) == [["cuGraphLaunch"]] * 2
    assert "cuGraphExecKernelNodeSetParams" in fake.calls, "other weights, before the turn"
    bench.close()
    emulated.close()


def test_a_network_on_a_card_is_profiled_by_events_of_each_launch(fake: FakeDriver) -> None:
    graph = network()
    emulated = compile_graph(graph, EMULATED)
    expected = emulated.run({"x": X})
    fake.emulate(unpacked(emulated.program.binary.object_code))
    fake.milliseconds = lambda kernel: 5.0 if kernel.startswith("conv_0") else 0.25
    bench = NetworkBench(graph, Settings(1, target="cuda"), {"x": X})
    assert bench.host.processor == "NVIDIA H100 PCIe"
    profiled = bench.profile()
    assert [k.calls for k in profiled] == [1, 1]
    assert [k.seconds for k in profiled] == pytest.approx([5e-3, 0.25e-3], rel=1e-6)
    program = bench._program({})
    (y,) = program.run(bench.arrays)
    assert y.tobytes() == next(iter(expected.values())).tobytes()
    clock = bench._clock_of(program)
    launches = len([s for s in bench.by_rule.lowered.steps if isinstance(s, KernelCall)])
    for _ in range(3):
        fake.calls.clear()
        assert clock() == pytest.approx(5e-3 + (launches - 1) * 0.25e-3, rel=1e-6)
        assert not any("Memcpy" in name for name in fake.calls)
    assert between_events(fake.calls) == [["cuGraphLaunch"]]


def test_a_processor_has_the_bench_that_it_had() -> None:
    exe = compile_graph(network(), Settings(1, threads=1))
    calls = [s for s in exe.specialized.lowered.steps if isinstance(s, KernelCall)]
    call = next(c for c in calls if stages(c.spec, exe.specializer.target))
    target = Target.host()
    bench = bench_for(Workload.of(call, 1 << 16), target, Host.here(target, 1))
    assert type(bench) is KernelBench
    bench.close()


@pytest.mark.parametrize("cols", [0, 7, 10**6, True, 2.0, "4"])
@pytest.mark.parametrize("name", ["depthwise", "groups that cut blocks"])
def test_nonsense_is_not_admitted(name: str, cols: Any) -> None:
    """A row of the depthwise convolution has six outputs; of the other one a thread may have any
    number up to eight."""
    target = Target.emulated_gpu()
    (workload,) = workloads(GRAPHS[name]())
    schedule: Any = dataclasses.replace(workload.schedule, cols=cols)  # type: ignore[type-var]
    assert admits(workload.spec, target, schedule) == (name != "depthwise" and cols == 7)
    other: Any = dataclasses.replace(workload.schedule, rows=2)  # type: ignore[type-var]
    assert not admits(workload.spec, target, other)
    assert not admits(workload.spec, target, TileSchedule())
