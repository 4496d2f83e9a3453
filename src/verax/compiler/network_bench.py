"""A network on the device that runs it: where its time goes, what schedules are worth in it.

All of tuning that needs the network and a clock is here; what is searched, and what is written to a
history, is decided by whoever asks (`compiler.tuner`), in this process or in another one.
"""

from __future__ import annotations

import dataclasses
import functools
import platform
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from verax.base.errors import UnsupportedError
from verax.base.gpu.targets import card_of
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile as compile_graph
from verax.compiler.kernels.registry import Schedule, Spec, schedules, stages
from verax.compiler.kernels.target import Target
from verax.compiler.place.calls import KernelCall
from verax.compiler.place.program import LoweredProgram
from verax.compiler.specialize import reference_call
from verax.compiler.specialized import Specialized
from verax.compiler.tune.gpu_bench import bench_for
from verax.compiler.tune.host import Host
from verax.compiler.tune.kernel_bench import Bench, Workload, nanoseconds
from verax.compiler.tune.racing import BenchRacer
from verax.compiler.tune.successive_halving import Duel, duel
from verax.ir.graph import Graph
from verax.records.environment import environment
from verax.runtime.foreign_program import load_program
from verax.runtime.gpu.arrays import DeviceArray, on_device
from verax.runtime.gpu.devices import device_of
from verax.runtime.gpu.program import GpuProgram
from verax.runtime.program import Program

Arrays = Mapping[str, np.ndarray]
MakeBench = Callable[[Workload, Target, Host, Callable[[], bool]], Bench]
PROFILED, CONFIRMED = 5, 9
"""Runs of the network: to see where the time goes, to time each step."""
COMPARED = (15, 99)
COMPARED_SECONDS = 4.0
"""Turns to time the whole: as many as this takes, between those."""


@dataclasses.dataclass(frozen=True)
class ProfiledKernel:
    """A kernel that has a choice. workload: how the network calls it; calls: how often; seconds: of
    all its calls in a run."""

    workload: Workload
    calls: int
    seconds: float

    @property
    def spec(self) -> Spec:
        return self.workload.spec


@dataclasses.dataclass(frozen=True)
class Worth:
    """What schedules are worth in the network. ratios: of each kernel's time with its schedule, by
    that by rule; equal_bits: whether all outputs are the same with those that gained; comparison:
    of the whole network with those, None where there are none or bits differ."""

    ratios: Mapping[Spec, float]
    equal_bits: bool
    comparison: Duel | None

    @property
    def is_kept(self) -> bool:
        """True if the network as a whole gains."""
        return self.equal_bits and self.comparison is not None and self.comparison.ratio < 1


class NetworkBench:
    """A network compiled by rule on this machine. target, host: what measurements hold for;
    machine, environment: its name, and versions."""

    def __init__(self, graph: Graph, settings: Settings, inputs: Arrays) -> None:
        """Raises what compiling raises; `UnsupportedError` where the target does not run here."""
        self.settings, self.target = settings, require_here(settings)
        self.card = card_of(settings.target) or 0
        self.host = Host.here(self.target, settings.thread_count, self.card)
        self.machine = platform.node()
        self.environment: Mapping[str, str] = environment()
        self.exe = compile_graph(graph, settings)
        self.exe.run(inputs)
        self.specialized: Specialized = self.exe.specialized
        state = {v: graph.initial[v] for v in graph.state}
        arrays_by_name = {**inputs, **state}
        self.arrays = [np.asarray(arrays_by_name[v]) for v in self.specialized.inputs]
        self._by_rule: _Steps | None = None

    def profile(self) -> list[ProfiledKernel]:
        """Kernels that have a choice, by their share of the time."""
        lowered = self.by_rule.lowered
        calls: dict[Spec, list[KernelCall]] = {}
        for step in lowered.steps:
            if isinstance(step, KernelCall) and stages(step.spec, self.target):
                calls.setdefault(step.spec, []).append(step)
        times = self.by_rule.times(PROFILED)
        weight_bytes = lowered.binary.weight_bytes
        kernels = [
            ProfiledKernel(
                Workload.of(steps[0], weight_bytes), len(steps), statistics.median(times[spec])
            )
            for spec, steps in calls.items()
        ]
        return sorted(kernels, key=lambda kernel: -kernel.seconds)

    def racer(
        self, workload: Workload, stop: Callable[[], bool], bench: MakeBench | None = None
    ) -> BenchRacer:
        """Races of a kernel; to be closed. bench: None for the target's own."""
        rule = schedules(workload.spec, self.target)[0]
        make = bench or functools.partial(bench_for, card=self.card)
        return BenchRacer(make(workload, self.target, self.host, stop), rule, stop)

    def worth(self, winners: Mapping[Spec, Schedule]) -> Worth:
        """What `winners` are worth in the network."""
        ratios = self._in_network(winners) if winners else {}
        gaining = {s: schedule for s, schedule in winners.items() if ratios[s] < 1}
        before, after = self._program({}), self._program(gaining)
        equal = _bits(before.run(self.arrays)) == _bits(after.run(self.arrays))
        comparison = self._compared(before, after) if gaining and equal else None
        return Worth(ratios, equal, comparison)

    def require_sound(self) -> None:
        """Raise `DeviceError` where a kernel has failed on a GPU: its driver gives this process
        nothing more."""
        if self.target.gpu:
            device_of(self.target.name, self.card).synchronize()

    @property
    def by_rule(self) -> _Steps:
        """The program with the rules' schedules, a function for each call."""
        if self._by_rule is None:
            self._by_rule = self._steps({})
        return self._by_rule

    def _in_network(self, winners: Mapping[Spec, Schedule]) -> dict[Spec, float]:
        """Time of each kernel's calls with its winner, by the time by rule: medians of turns."""
        tuned = self._steps(winners)
        ratios: dict[Spec, list[float]] = {spec: [] for spec in winners}
        for _ in range(CONFIRMED):
            mine, theirs = self.by_rule.times(1), tuned.times(1)
            for spec, spec_ratios in ratios.items():
                spec_ratios.append(theirs[spec][0] / max(mine[spec][0], 1e-9))
        return {spec: statistics.median(spec_ratios) for spec, spec_ratios in ratios.items()}

    def _compared(self, before: Program, after: Program) -> Duel:
        """The network as a whole."""
        clocks = {False: self._clock_of(before), True: self._clock_of(after)}

        def turn(tuned: Any) -> float:
            return clocks[tuned]()

        pair_seconds = sum(turn(tuned) for tuned in (False, True))
        min_turns, max_turns = COMPARED
        turns = max(min_turns, min(max_turns, int(COMPARED_SECONDS / max(pair_seconds, 1e-6))))
        return duel(turn, False, True, turns)

    def _clock_of(self, program: Program) -> Callable[[], float]:
        """Seconds of a run, taken at each call. On a GPU inputs and outputs stay on the device,
        where the network is run so (`docs/cuda.md`); otherwise copies count."""
        if isinstance(program, GpuProgram) and program.is_native and not program.binary.state:
            device = program.device
            inputs = [on_device(a, device, None, "") for a in self.arrays]
            outputs = [
                DeviceArray.allocated(device, a.shape, a.dtype) for a in program.run(self.arrays)
            ]
            return lambda: program.time_on_device(inputs, outputs)
        now = nanoseconds(self.host.threads)

        def seconds() -> float:
            start = now()
            program.run(self.arrays)
            return (now() - start) / 1e9

        return seconds

    def _steps(self, schedules: Mapping[Spec, Schedule]) -> _Steps:
        lowered = self.exe.specializer.lower_with(self.specialized, schedules.get, separate=True)
        return _Steps(lowered, self._loaded(lowered), self.arrays, self.host.threads)

    def _program(self, schedules: Mapping[Spec, Schedule]) -> Program:
        return self._loaded(self.exe.specializer.lower_with(self.specialized, schedules.get))

    def _loaded(self, lowered: LoweredProgram) -> Program:
        call = reference_call(lowered.graph)
        return load_program(lowered.binary, self.settings.thread_count, call, self.card)


def require_here(settings: Settings) -> Target:
    """The target of `settings`. Raises `UnsupportedError` where this machine does not run it."""
    target = Target.named(settings.target)
    if not target.runs_here(card_of(settings.target) or 0):
        raise UnsupportedError(
            "schedules are found by running them, and this machine does not run the target",
            place=settings.target,
            next_step="tune on such a machine",
        )
    return target


class _Steps:
    """A program whose kernel calls are timed one by one."""

    def __init__(
        self,
        lowered: LoweredProgram,
        program: Program,
        arrays: Sequence[np.ndarray],
        threads: int,
    ) -> None:
        self.lowered, self._program, self._arrays = lowered, program, arrays
        self._clock = nanoseconds(threads)
        program.time_steps(arrays, 1, chunk_count=lowered.chunk_count)

    def times(self, runs: int) -> dict[Spec, list[float]]:
        """Seconds of all calls of each kernel, per run."""
        seconds: dict[Spec, list[float]] = {}
        timed = self._program.time_steps(self._arrays, runs, self._clock, self.lowered.chunk_count)
        for run, step_times in enumerate(timed):
            for step, elapsed in zip(self.lowered.steps, step_times, strict=True):
                if isinstance(step, KernelCall):
                    mine = seconds.setdefault(step.spec, [0.0] * runs)
                    mine[run] += elapsed / 1e9
        return seconds


def _bits(arrays: Sequence[np.ndarray]) -> list[bytes]:
    return [a.tobytes() for a in arrays]
