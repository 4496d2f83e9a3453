"""Tuning a network: its kernels are searched one by one, then proved where they stand.

Kernels are searched by their share of the time. What wins by itself is timed again inside of the
network, step by step and in turns with the schedules chosen by rule; what does not gain there goes
back, and if the network as a whole does not gain, all of it does. The network's outputs before and
after are compared bit for bit. The history says all of it, as soon as it is measured.

What measures is a `Measuring`: a `NetworkBench` of this process, or a device elsewhere.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from verax.base.errors import VeraxError
from verax.base.option_groups.compile_options import BUDGET
from verax.base.option_groups.settings import Settings
from verax.compiler.kernels.canonical import digest
from verax.compiler.kernels.registry import Schedule, Spec, admits, schedules, stages
from verax.compiler.kernels.target import Target
from verax.compiler.network_bench import (
    Arrays,
    MakeBench,
    NetworkBench,
    ProfiledKernel,
    Worth,
    require_here,
)
from verax.compiler.place.schedule_words import schedule_words, words_beside
from verax.compiler.tune.cost_model import LEAST_EXAMPLES, cost_model
from verax.compiler.tune.history import ChosenSchedule, History, chosen_line
from verax.compiler.tune.host import Host, LineOrigin
from verax.compiler.tune.kernel_bench import Workload
from verax.compiler.tune.lookup import Tuned, encoded
from verax.compiler.tune.measurements import earlier_trials, measured_lines, workload_line
from verax.compiler.tune.racing import Racer, Trial
from verax.compiler.tune.search import SearchResult, search_on
from verax.compiler.tune.successive_halving import NOISY
from verax.ir.graph import Graph
from verax.records.tuning import (
    BY_RULE,
    NOT_REACHED,
    ROLLED_BACK,
    TUNED,
    TunedKernel,
    TuningRecord,
)

Progress = Callable[[str, float], None]
SEARCHED = 0.85
"""Of the budget; the rest is for proving."""
LEAST_SHARE = 0.004
"""Of the network's time: kernels with less are not searched."""


class DistrustedError(VeraxError):
    """What measures gave other bits: nothing that it chose is kept."""


class Measuring(Protocol):
    """A network on the device that runs it. target, host: what is measured there holds for;
    machine: the computer's name; environment: its versions, as records say them."""

    target: Target
    host: Host
    machine: str
    environment: Mapping[str, str]

    def profile(self) -> Sequence[ProfiledKernel]:
        """Kernels that have a choice, by their share of the time."""

    def racer(self, workload: Workload, stop: Callable[[], bool], bench: MakeBench | None) -> Racer:
        """Races of a kernel; to be closed."""

    def worth(self, winners: Mapping[Spec, Schedule]) -> Worth:
        """What `winners` are worth in the network."""


@dataclasses.dataclass(frozen=True)
class Searching:
    """How a network is searched. budget: seconds, as far as whole turns allow. trials: how many
    candidates a kernel may have. resume: what the history has of exactly a kernel and host is not
    measured again. learns: candidates come in the order of a model of cost, where the history has
    enough and a package fits it. device: label of what measures; model: the network's name.
    progress: gets what is done, and the share done."""

    budget: float = BUDGET
    trials: int | None = None
    resume: bool = False
    learns: bool = True
    device: str = ""
    model: str = ""
    progress: Progress = lambda message, share: None
    clock: Callable[[], float] = time.monotonic


def tune(
    graph: Graph,
    settings: Settings,
    inputs: Arrays,
    history: History,
    searching: Searching = Searching(),
    *,
    bench: MakeBench | None = None,
) -> TuningRecord:
    """Search schedules for `graph` as `settings` compile it, on this machine, and write what is
    found to `history`.

    inputs: what the network is run with. bench: what times kernels, None for the target's own.
    An interruption leaves all that was measured and won so far in the history. Raises what
    compiling raises, `UsageError` when the history cannot be written or read.
    """
    Host.here(require_here(settings), 1)  # tells what is not installed
    history.read()
    history.append([])  # an unwritable one is told of before the work
    return tune_on(NetworkBench(graph, settings, inputs), settings, history, searching, bench)


def tune_on(
    network: Measuring,
    settings: Settings,
    history: History,
    searching: Searching,
    bench: MakeBench | None = None,
) -> TuningRecord:
    """`tune` where `network` measures."""
    return _Tuner(network, settings, history, searching).run(bench)


class _Tuner:
    def __init__(
        self, network: Measuring, settings: Settings, history: History, searching: Searching
    ) -> None:
        self.network, self.history, self.searching = network, history, searching
        self.settings = settings
        self.target, self.host = network.target, network.host
        self.history_lookup = Tuned.on(history.read(), self.target, self.host)
        here = self.host, searching.device, network.machine
        self.earlier = earlier_trials(history.path, *here) if searching.resume else {}
        self.cost = cost_model(history.path, self.host) if searching.learns else None
        self.measured = 0
        self.progress = searching.progress

    def run(self, bench: MakeBench | None) -> TuningRecord:
        clock, budget = self.searching.clock, self.searching.budget
        begin = clock()
        self.progress("where the time goes", 0.0)
        kernels = self.network.profile()
        total = sum(kernel.seconds for kernel in kernels) or 1.0
        searched = [kernel for kernel in kernels if kernel.seconds >= LEAST_SHARE * total]
        results: dict[Spec, SearchResult] = {}
        try:
            for i, kernel in enumerate(searched):
                left = begin + SEARCHED * budget - clock()
                if left <= 0:
                    break
                shares = sum(math.sqrt(k.seconds) for k in searched[i:])
                until = clock() + left * math.sqrt(kernel.seconds) / shares
                self.progress(str(kernel.spec), SEARCHED * (1 - left / (SEARCHED * budget)))
                stop = lambda until=until: clock() >= until  # noqa: E731
                results[kernel.spec] = self._search(
                    kernel.workload, bench, stop, list(results.values())
                )
        except DistrustedError:
            raise
        except BaseException:
            self._write_chosen(self._winners(results), results, {})
            raise
        return self._proved(results, kernels, total, begin)

    def _search(
        self,
        workload: Workload,
        bench: MakeBench | None,
        stop: Callable[[], bool],
        before: Sequence[SearchResult],
    ) -> SearchResult:
        """One kernel; what was measured is in the history as soon as a race has ended."""
        spec, trials = workload.spec, self.searching.trials
        earlier = self._earlier(spec)
        self._learn()
        self.history.append([workload_line(spec, self.target, self.host, self._origin(spec))])

        def measured(trials: Sequence[Trial]) -> None:
            self.measured += len(trials)
            self.history.append(measured_lines(spec, self.host, self._origin(spec), trials))

        racer = self.network.racer(workload, stop, bench)
        try:
            return search_on(
                spec,
                self.target,
                racer,
                first=self._first(workload, before),
                stop=stop,
                earlier=earlier,
                rank=self._rank if self.cost is not None else None,
                measured=measured,
                **({} if trials is None else {"trials": trials}),
            )
        finally:
            racer.close()

    def _learn(self) -> None:
        """Fit the model of cost anew where this run has measured half as much again."""
        examples = 0 if self.cost is None else self.cost.count
        if self.searching.learns and self.measured > max(LEAST_EXAMPLES, examples // 2):
            self.cost, self.measured = cost_model(self.history.path, self.host), 0

    def _rank(self, spec: Spec, several: Sequence[Schedule]) -> Sequence[Schedule]:
        assert self.cost is not None
        return self.cost.rank(spec, self.target, several)

    def _earlier(self, spec: Spec) -> Mapping[Schedule, Trial]:
        """What an earlier run measured of this kernel, by schedules that it may have now."""
        return {
            schedule: dataclasses.replace(trial, schedule=schedule)
            for entry, trial in self.earlier.get(digest(spec), {}).items()
            if (schedule := self.history_lookup.decoded(spec, entry)) is not None
        }

    def _origin(self, spec: Spec) -> LineOrigin:
        searching = self.searching
        return LineOrigin.now(searching.device, self.network.machine, searching.model, str(spec))

    def _first(self, workload: Workload, before: Sequence[SearchResult]) -> list[Schedule]:
        """What was found for this kernel earlier, here or on a relative; then what won for the
        others, but their tiles."""
        earlier = self.history_lookup.schedule_for(workload.spec)
        first: list[Schedule] = [] if earlier is None else [earlier]
        first += self.history_lookup.relatives(workload.spec)[:1]
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
        fitting = [s for s in dict.fromkeys(first) if admits(workload.spec, self.target, s)][:4]
        if self.cost is not None:
            fitting += self.cost.proposals(workload.spec, self.target)
        return list(dict.fromkeys(fitting))

    def _proved(
        self,
        results: Mapping[Spec, SearchResult],
        kernels: Sequence[ProfiledKernel],
        total: float,
        begin: float,
    ) -> TuningRecord:
        """In the network."""
        winners = self._winners(results)
        self.progress("in the network", SEARCHED)
        worth = self.network.worth(winners)
        winners = {s: schedule for s, schedule in winners.items() if worth.ratios[s] < 1}
        self._write_chosen(winners if worth.is_kept else {}, results, worth.ratios)
        self.progress("done", 1.0)
        faults = tuple(
            f"{f.spec}: {t.refused} with {schedule_words(t.schedule)}"
            for f in results.values()
            for t in f.faults
        )
        if not worth.equal_bits:
            faults += ("the network's outputs differ; nothing is kept",)
        comparison = worth.comparison
        return TuningRecord(
            model=self.searching.model,
            opt_level=self.settings.opt_level,
            threads=self.host.threads,
            kernels=tuple(
                self._kernel(kernel, results.get(kernel.spec), total, worth.ratios,
                             worth.is_kept and kernel.spec in winners)
                for kernel in kernels
            ),
            before=tuple(1e3 * t for t in comparison.defender) if comparison else (),
            after=tuple(1e3 * t for t in comparison.challenger) if comparison else (),
            ratio=comparison.ratio if comparison else 1.0,
            noise=comparison.noise if comparison else 0.0,
            kept=worth.is_kept,
            equal_bits=worth.equal_bits,
            seconds=self.searching.clock() - begin,
            budget=self.searching.budget,
            history=str(self.history.path),
            faults=faults,
            host={name: str(value) for name, value in dataclasses.asdict(self.host).items()},
            environment=self.network.environment,
            device=self.searching.device,
            notes=self._notes(results),
        )  # fmt: skip

    def _notes(self, results: Mapping[Spec, SearchResult]) -> tuple[str, ...]:
        """What a reader should know of how it was measured."""
        notes = []
        noisy = [result.noise for result in results.values() if result.noise > NOISY]
        if noisy:
            notes.append(
                f"noisy: the same schedule differed from itself by up to {100 * max(noisy):.1f} % "
                f"in {len(noisy)} of {len(results)} kernels, which took more turns"
            )
        if self.cost is not None:
            notes.append(
                f"candidates in the order of a model of cost, fitted by {self.cost.engine} from "
                f"{self.cost.count} measured ones"
            )
        earlier = sum(result.earlier for result in results.values())
        if earlier:
            notes.append(f"resumed: {earlier} candidates were in the history, not measured again")
        return tuple(notes)

    def _kernel(
        self,
        kernel: ProfiledKernel,
        result: SearchResult | None,
        total: float,
        ratios: Mapping[Spec, float],
        is_kept: bool,
    ) -> TunedKernel:
        spec, seconds = kernel.spec, kernel.seconds
        won = result is not None and result.last is not None
        outcome = TUNED if is_kept else ROLLED_BACK if won else BY_RULE if result else NOT_REACHED
        rule = schedules(spec, self.target)[0]
        best = result.best if result is not None else rule
        last = result.last if result is not None else None
        ratio = ratios.get(spec, 1.0)
        return TunedKernel(
            kernel=digest(spec),
            spec=str(spec),
            calls=kernel.calls,
            share=seconds / total,
            rule_us=1e6 * seconds,
            best_us=1e6 * seconds * (ratio if is_kept else 1.0),
            rule=words_beside(rule, best),
            schedule=words_beside(best, rule),
            outcome=outcome,
            alone=last.ratio if last else 1.0,
            in_network=ratio,
            noise=last.noise if last else 0.0,
            trials=len(result.trials) if result is not None else 0,
        )

    def _winners(self, results: Mapping[Spec, SearchResult]) -> dict[Spec, Schedule]:
        return {s: f.best for s, f in results.items() if f.last is not None}

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
                digest(spec),
                self.host,
                encoded(best),
                gain if spec in winners else 1.0,
                self._origin(spec),
            )
            lines.append(
                {
                    **chosen_line(entry),
                    "rule": list(encoded(one.rule)),
                    "alone": one.last.ratio if one.last else 1.0,
                    "noise": one.last.noise if one.last else 0.0,
                    "in_network": ratios.get(spec),
                }
            )
        self.history.append(lines)
