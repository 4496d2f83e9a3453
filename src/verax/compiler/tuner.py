"""Tuning a network: its kernels are searched one by one, then proved where they stand.

Kernels are searched by their share of the time. What wins by itself is timed again inside of the
network, step by step and in turns with the schedules chosen by rule; what does not gain there goes
back, and if the network as a whole does not gain, all of it does. The network's outputs before and
after are compared bit for bit. The history says all of it.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from typing import Any

import numpy as np

from verax.base.compile_options import BUDGET
from verax.base.errors import UnsupportedError
from verax.base.settings import Settings
from verax.compiler.compile import compile as compile_graph
from verax.compiler.kernels.canonical import digest
from verax.compiler.kernels.registry import Schedule, Spec, admits, stages
from verax.compiler.kernels.target import Target
from verax.compiler.place.calls import KernelCall
from verax.compiler.place.program import LoweredProgram
from verax.compiler.specialize import reference_call
from verax.compiler.specialized import Specialized
from verax.compiler.tune.history import ChosenSchedule, History, chosen_line
from verax.compiler.tune.host import Host
from verax.compiler.tune.kernel_bench import Bench, KernelBench, Workload, nanoseconds
from verax.compiler.tune.lookup import Tuned, encoded
from verax.compiler.tune.search import SearchResult, search
from verax.compiler.tune.successive_halving import Duel, duel
from verax.ir.graph import Graph
from verax.records.environment import environment
from verax.records.tuning import (
    BY_RULE,
    NOT_REACHED,
    ROLLED_BACK,
    TUNED,
    TunedKernel,
    TuningRecord,
)
from verax.runtime.program import Program

Arrays = Mapping[str, np.ndarray]
Progress = Callable[[str, float], None]
SEARCHED = 0.85
"""Of the budget; the rest is for proving."""
LEAST_SHARE = 0.004
"""Of the network's time: kernels with less are not searched."""
PROFILED, CONFIRMED = 5, 9
"""Runs of the network: to see where the time goes, to time each step."""
COMPARED = (15, 99)
COMPARED_SECONDS = 4.0
"""Turns to time the whole: as many as this takes, between those."""


def tune(
    graph: Graph,
    settings: Settings,
    inputs: Arrays,
    history: History,
    *,
    budget: float = BUDGET,
    trials: int | None = None,
    progress: Progress | None = None,
    model: str = "",
    bench: Callable[[Workload, Target, Host, Callable[[], bool]], Bench] = KernelBench,
    clock: Callable[[], float] = time.monotonic,
) -> TuningRecord:
    """Search schedules for `graph` as `settings` compile it, and write what is found to `history`.

    inputs: what the network is run with. budget: seconds, as far as whole turns allow. trials: how
    many candidates a kernel may have. bench, clock: what times kernels, and tells the time.
    An interruption leaves all that was measured and won so far in the history. Raises what
    compiling raises, `UsageError` when the history cannot be written or read.
    """
    return _Tuner(graph, settings, inputs, history, budget, trials, progress, model).run(
        bench, clock
    )


class _Tuner:
    def __init__(
        self,
        graph: Graph,
        settings: Settings,
        inputs: Arrays,
        history: History,
        budget: float,
        trials: int | None,
        progress: Progress | None,
        model: str,
    ) -> None:
        self.history, self.budget, self.trials = history, budget, trials
        self.settings, self.model = settings, model
        self.progress = progress or (lambda message, share: None)
        self.target = Target.named(settings.target)
        if not self.target.runs_here():
            raise UnsupportedError(
                "schedules are found by running them, and this machine does not run the target",
                place=settings.target,
                next_step="tune on such a machine",
            )
        self.host = Host.here(self.target, settings.thread_count)
        self.history_lookup = Tuned(history.read(), self.target, settings.thread_count)
        history.append([])  # an unwritable one is told of before the work
        self.exe = compile_graph(graph, settings)
        self.exe.run(inputs)
        self.specialized: Specialized = self.exe.specialized
        state = {v: graph.initial[v] for v in graph.state}
        arrays_by_name = {**inputs, **state}
        self.arrays = [np.asarray(arrays_by_name[v]) for v in self.specialized.inputs]
        self.lines: list[Mapping[str, Any]] = []

    def run(
        self,
        bench: Callable[[Workload, Target, Host, Callable[[], bool]], Bench],
        clock: Callable[[], float],
    ) -> TuningRecord:
        begin = clock()
        self.progress("where the time goes", 0.0)
        by_rule = self._steps({})
        calls = self._calls(by_rule.lowered)
        times = {spec: statistics.median(t) for spec, t in by_rule.times(PROFILED).items()}
        total_seconds = sum(times.values()) or 1.0
        order = sorted(calls, key=lambda spec: -times[spec])
        searched = [s for s in order if times[s] >= LEAST_SHARE * total_seconds]
        weight_bytes = by_rule.lowered.binary.weight_bytes
        results: dict[Spec, SearchResult] = {}
        try:
            for i, spec in enumerate(searched):
                left = begin + SEARCHED * self.budget - clock()
                if left <= 0:
                    break
                shares = sum(math.sqrt(times[s]) for s in searched[i:])
                until = clock() + left * math.sqrt(times[spec]) / shares
                self.progress(str(spec), SEARCHED * (1 - left / (SEARCHED * self.budget)))
                workload = Workload.of(calls[spec][0], weight_bytes)
                stop = lambda until=until: clock() >= until  # noqa: E731
                results[spec] = self._search(workload, bench, stop, list(results.values()))
        except BaseException:
            self._write_chosen(self._winners(results), results, {})
            raise
        return self._proved(results, by_rule, times, order, clock() - begin, begin, clock)

    def _search(
        self,
        workload: Workload,
        bench: Callable[[Workload, Target, Host, Callable[[], bool]], Bench],
        stop: Callable[[], bool],
        before: Sequence[SearchResult],
    ) -> SearchResult:
        """One kernel; what was measured is in the history when this ends."""
        spec = workload.spec
        stand = bench(workload, self.target, self.host, stop)
        try:
            first = self._first(workload, before)
            limit = {} if self.trials is None else {"trials": self.trials}
            result = search(spec, self.target, stand, first=first, stop=stop, **limit)
        finally:
            if isinstance(stand, KernelBench):
                stand.close()
        self.history.append(self._measured(result))
        return result

    def _first(self, workload: Workload, before: Sequence[SearchResult]) -> list[Schedule]:
        """What was found for this kernel earlier; then what won for the others, but their tiles."""
        earlier = self.history_lookup.schedule_for(workload.spec)
        first: list[Schedule] = [] if earlier is None else [earlier]
        respects = len(stages(workload.spec, self.target))
        for result in before[::-1]:
            alike = len(stages(result.spec, self.target)) == respects
            if (
                alike
                and type(result.best) is type(workload.schedule)
                and result.best != result.rule
            ):
                changed = {
                    name: value
                    for name, value in encoded(result.best)[1].items()
                    if value != encoded(result.rule)[1][name]
                    and name not in ("blocks", "rows", "cols", "chunk")
                }
                first.append(dataclasses.replace(workload.schedule, **changed))  # type: ignore[type-var]
        fitting = [s for s in dict.fromkeys(first) if admits(workload.spec, self.target, s)]
        return fitting[:4]

    def _proved(
        self,
        results: Mapping[Spec, SearchResult],
        by_rule: _Steps,
        times: Mapping[Spec, float],
        order: Sequence[Spec],
        duration: float,
        begin: float,
        clock: Callable[[], float],
    ) -> TuningRecord:
        """In the network."""
        winners = self._winners(results)
        self.progress("in the network", SEARCHED)
        ratios: dict[Spec, float] = {}
        if winners:
            ratios = self._in_network(by_rule, winners)
            winners = {s: schedule for s, schedule in winners.items() if ratios[s] < 1}
        before, after = self._program({}), self._program(winners)
        equal = _bits(before.run(self.arrays)) == _bits(after.run(self.arrays))
        comparison = self._compared(before, after) if winners and equal else None
        is_kept = bool(winners) and equal and comparison is not None and comparison.ratio < 1
        self._write_chosen(winners if is_kept else {}, results, ratios)
        self.progress("done", 1.0)
        total = sum(times.values()) or 1.0
        kernels = tuple(
            self._kernel(spec, results.get(spec), times[spec], total, by_rule, ratios,
                         is_kept and spec in winners)
            for spec in order
        )  # fmt: skip
        faults = tuple(
            f"{f.spec}: {t.refused} with {t.schedule}" for f in results.values() for t in f.faults
        )
        if not equal:
            faults += ("the network's outputs differ; nothing is kept",)
        return TuningRecord(
            model=self.model,
            opt_level=self.settings.opt_level,
            threads=self.settings.thread_count,
            kernels=kernels,
            before=tuple(1e3 * t for t in comparison.defender) if comparison else (),
            after=tuple(1e3 * t for t in comparison.challenger) if comparison else (),
            ratio=comparison.ratio if comparison else 1.0,
            noise=comparison.noise if comparison else 0.0,
            kept=is_kept,
            equal_bits=equal,
            seconds=clock() - begin,
            budget=self.budget,
            history=str(self.history.path),
            faults=faults,
            host={name: str(value) for name, value in dataclasses.asdict(self.host).items()},
            environment=environment(),
        )

    def _kernel(
        self,
        spec: Spec,
        result: SearchResult | None,
        seconds: float,
        total: float,
        by_rule: _Steps,
        ratios: Mapping[Spec, float],
        is_kept: bool,
    ) -> TunedKernel:
        calls = self._calls(by_rule.lowered)[spec]
        won = result is not None and result.last is not None
        outcome = TUNED if is_kept else ROLLED_BACK if won else BY_RULE if result else NOT_REACHED
        best = result.best if result is not None else calls[0].schedule
        last = result.last if result is not None else None
        ratio = ratios.get(spec, 1.0)
        return TunedKernel(
            kernel=digest(spec),
            spec=str(spec),
            calls=len(calls),
            share=seconds / total,
            rule_us=1e6 * seconds,
            best_us=1e6 * seconds * (ratio if is_kept else 1.0),
            rule=str(calls[0].schedule),
            schedule=str(best),
            outcome=outcome,
            alone=last.ratio if last else 1.0,
            in_network=ratio,
            noise=last.noise if last else 0.0,
            trials=len(result.trials) if result is not None else 0,
        )

    def _in_network(self, by_rule: _Steps, winners: Mapping[Spec, Schedule]) -> dict[Spec, float]:
        """Time of each kernel's calls with its winner, by the time by rule: medians of turns."""
        tuned = self._steps(winners)
        ratios: dict[Spec, list[float]] = {spec: [] for spec in winners}
        for _ in range(CONFIRMED):
            mine, theirs = by_rule.times(1), tuned.times(1)
            for spec, spec_ratios in ratios.items():
                spec_ratios.append(theirs[spec][0] / max(mine[spec][0], 1e-9))
        return {spec: statistics.median(spec_ratios) for spec, spec_ratios in ratios.items()}

    def _compared(self, before: Program, after: Program) -> Duel:
        """The network as a whole."""
        programs, now = {False: before, True: after}, nanoseconds(self.host.threads)

        def turn(tuned: Any) -> float:
            start = now()
            programs[tuned].run(self.arrays)
            return (now() - start) / 1e9

        pair_seconds = sum(turn(tuned) for tuned in (False, True))
        min_turns, max_turns = COMPARED
        turns = max(min_turns, min(max_turns, int(COMPARED_SECONDS / max(pair_seconds, 1e-6))))
        return duel(turn, False, True, turns)

    def _winners(self, results: Mapping[Spec, SearchResult]) -> dict[Spec, Schedule]:
        return {s: f.best for s, f in results.items() if f.last is not None}

    def _calls(self, lowered: LoweredProgram) -> dict[Spec, list[KernelCall]]:
        """The calls of each kernel that has a choice."""
        calls: dict[Spec, list[KernelCall]] = {}
        for step in lowered.steps:
            if isinstance(step, KernelCall) and stages(step.spec, self.target):
                calls.setdefault(step.spec, []).append(step)
        return calls

    def _steps(self, schedules: Mapping[Spec, Schedule]) -> _Steps:
        lowered = self.exe.specializer.lower_with(self.specialized, schedules.get, separate=True)
        return _Steps(lowered, self._loaded(lowered), self.arrays, self.host.threads)

    def _program(self, schedules: Mapping[Spec, Schedule]) -> Program:
        return self._loaded(self.exe.specializer.lower_with(self.specialized, schedules.get))

    def _loaded(self, lowered: LoweredProgram) -> Program:
        call = reference_call(lowered.graph)
        return Program(lowered.binary, self.settings.thread_count, call)

    def _measured(self, result: SearchResult) -> list[Mapping[str, Any]]:
        """Lines for all candidates of a kernel."""
        common = {
            "kernel": digest(result.spec),
            "spec": str(result.spec),
            "host": dataclasses.asdict(self.host),
            "network": self.model,
        }
        return [
            {
                "kind": "fault" if trial in result.faults else "measured",
                **common,
                "schedule": list(encoded(trial.schedule)),
                "bits": "equal" if trial.bits else trial.refused,
                "microseconds": [float(f"{1e6 * s:.4g}") for s in trial.seconds],
            }
            for trial in result.trials
        ]

    def _write_chosen(
        self,
        winners: Mapping[Spec, Schedule],
        results: Mapping[Spec, SearchResult],
        ratios: Mapping[Spec, float],
    ) -> None:
        """The last word for each kernel that was searched: also that rules are best after all,
        where something else was chosen before."""
        lines: list[Mapping[str, Any]] = []
        for spec, one in results.items():
            best = winners.get(spec, one.rule)
            if best == one.rule and self.history_lookup.schedule_for(spec) in (None, one.rule):
                continue
            gain = 1 / ratios.get(spec, one.last.ratio if one.last else 1.0)
            entry = ChosenSchedule(
                digest(spec), self.host, encoded(best), gain if spec in winners else 1.0
            )
            lines.append(
                {
                    **chosen_line(entry),
                    "spec": str(spec),
                    "rule": list(encoded(one.rule)),
                    "alone": one.last.ratio if one.last else 1.0,
                    "noise": one.last.noise if one.last else 0.0,
                    "in_network": ratios.get(spec),
                    "network": self.model,
                    "verax": metadata.version("verax"),
                    "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
                }
            )
        self.history.append(lines)


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
