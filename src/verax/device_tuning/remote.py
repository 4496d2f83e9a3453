"""A network on a device elsewhere, as `compiler.tuner` asks for it; and whether to believe it.

What a kernel writes is told by its SHA-256. It has to be the same on every machine of a target, so
builders that run the target compute it, too: of the rule's schedule for each kernel, and of a
candidate whose bits a device calls wrong. Where builder and device differ the device is at fault,
and `QuarantinedError` ends its tuning; where they agree it is the compiler.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from verax.compiler.kernels.registry import Schedule, Spec, schedules
from verax.compiler.kernels.target import Target
from verax.compiler.network_bench import MakeBench, ProfiledKernel, Worth
from verax.compiler.place.schedule_words import schedule_words
from verax.compiler.tune.history import History
from verax.compiler.tune.host import Host, LineOrigin
from verax.compiler.tune.kernel_bench import Workload
from verax.compiler.tune.measurements import quarantine_line
from verax.compiler.tune.plain import of_plain, to_plain, workload_of_plain, workload_to_plain
from verax.compiler.tune.racing import OTHER_BITS, Race, Trial
from verax.compiler.tune.search import AT_ONCE
from verax.compiler.tune.successive_halving import Duel
from verax.compiler.tuner import DistrustedError
from verax.device_tuning.builders import Builders
from verax.device_tuning.measuring import duel_of_plain
from verax.device_tuning.quarantine import write_repro
from verax.distributed import Actor

AHEAD = 2
"""Candidates for each builder that are made while others are raced."""


class QuarantinedError(DistrustedError):
    """A device gave other bits than builders on the same numbers. repro: the file that shows it."""

    def __init__(self, cause: str, *, repro: str = "", **context: str) -> None:
        super().__init__(cause, **context)
        self.repro = repro


class RemoteNetwork:
    """See `tuner.Measuring`. patience: seconds that one answer may take, beyond what was asked for;
    label: the device's; network: the network's name."""

    def __init__(
        self,
        actor: Actor,
        builders: Builders,
        history: History,
        label: str,
        patience: float,
        network: str,
    ) -> None:
        self.actor, self.builders, self.history = actor, builders, history
        self.label, self.patience, self.network = label, patience, network
        facts = self.ask("describe")
        host = dict(facts["host"])
        self.host = Host(**{**host, "caches": tuple(host["caches"])})
        self.target_name = facts["target"]
        self.target = Target.named(self.target_name)
        self.machine, self.environment = facts["machine"], facts["environment"]
        self.racing: list[Schedule] = []
        self.spec: Spec | None = None

    def ask(self, method: str, value: Any = None, seconds: float = 0.0) -> Any:
        """The device's answer. Raises what it raises, `WorkerDiedError` and `WorkerLateError`."""
        return self.actor.call(method, value, timeout=seconds + self.patience).result()

    def profile(self) -> Sequence[ProfiledKernel]:
        """See `Measuring`."""
        return [
            ProfiledKernel(workload_of_plain(k["workload"]), int(k["calls"]), float(k["seconds"]))
            for k in self.ask("profile")
        ]

    def racer(
        self, workload: Workload, stop: Callable[[], bool], bench: MakeBench | None
    ) -> RemoteRacer:
        """See `Measuring`; the bench is the device's own."""
        return RemoteRacer(self, workload)

    def worth(self, winners: Mapping[Spec, Schedule]) -> Worth:
        """See `Measuring`."""
        winning = [[to_plain(spec), to_plain(schedule)] for spec, schedule in winners.items()]
        answer = self.ask("worth", winning)
        comparison = answer["comparison"]
        return Worth(
            dict(zip(winners, map(float, answer["ratios"]), strict=True)),
            bool(answer["equal_bits"]),
            None if comparison is None else duel_of_plain(comparison),
        )

    def quarantine(
        self, workload: Workload, schedule: Schedule, expected: str, written: str
    ) -> QuarantinedError:
        """What ends a device's tuning, written down."""
        repro = write_repro(
            self.history.path, self.label, workload, schedule, self.target_name, expected, written
        )
        origin = LineOrigin.now(self.label, self.machine, self.network, str(workload.spec))
        self.history.append(
            [quarantine_line(workload.spec, self.host, origin, schedule, str(repro))]
        )
        return QuarantinedError(
            "the device gives other bits than the same code elsewhere: it is in quarantine, and "
            "nothing is taken from it",
            place=f"{self.label} on {self.machine}: {workload.spec} with "
            + schedule_words(schedule),
            next_step=f"python -m verax.device_tuning.quarantine {repro}",
            repro=str(repro),
        )


class RemoteRacer:
    """See `racing.Racer`."""

    def __init__(self, network: RemoteNetwork, workload: Workload) -> None:
        self._network, self._workload = network, workload
        self._rule = schedules(workload.spec, network.target)[0]
        self._next: list[Schedule] = []
        self._begin = time.monotonic()
        written = network.ask(
            "open", {"workload": workload_to_plain(workload), "seconds": network.patience}
        )["written"]
        self._expected = self._elsewhere(self._rule) or written
        if written != self._expected:
            raise network.quarantine(workload, self._rule, self._expected, written)

    def ahead(self, candidates: Sequence[Schedule]) -> None:
        """See `Racer`: the first of them are made now."""
        self._next = list(candidates)
        self._make_ahead()

    def race(self, best: Schedule, candidates: Sequence[Schedule], standing: float) -> Race:
        """See `Racer`. Raises `QuarantinedError`."""
        network = self._network
        network.racing, network.spec = list(candidates), self._workload.spec
        self._next = [s for s in self._next if s not in candidates]
        objects = self._make(candidates)
        self._make_ahead()
        request = {
            "best": to_plain(best),
            "candidates": [to_plain(s) for s in candidates],
            "objects": [product.result() for product in objects],
            "standing": standing,
        }
        plain = network.ask("race", request)
        network.racing = []
        trials = [
            Trial(**{**t, "schedule": of_plain(t["schedule"]), "seconds": tuple(t["seconds"])})
            for t in plain["trials"]
        ]
        for trial in trials:
            self._judge(trial)
        winner = None if plain["winner"] is None else of_plain(plain["winner"])
        fought = None if plain["duel"] is None else duel_of_plain(plain["duel"])
        return Race(tuple(trials), winner, fought)

    def last(self, best: Schedule) -> Duel:
        """See `Racer`."""
        return duel_of_plain(self._network.ask("last", to_plain(best)))

    def close(self) -> None:
        """See `Racer`; the device does it when it begins another kernel."""

    def _make_ahead(self) -> None:
        """Keep builders busy with what may be raced next."""
        self._make(self._next[: AT_ONCE + AHEAD * self._network.builders.count])

    def _make(self, candidates: Sequence[Schedule]) -> list[Any]:
        builders, target = self._network.builders, self._network.target_name
        return [builders.object(self._workload.spec, s, target) for s in candidates]

    def _judge(self, trial: Trial) -> None:
        """Raise `QuarantinedError` where a device errs in what it wrote, or what it says of it."""
        if trial.refused not in ("", OTHER_BITS):
            return
        claims_equal = trial.bits and not trial.refused
        if claims_equal and trial.written == self._expected:
            return
        right = self._elsewhere(trial.schedule)
        if claims_equal or (right and right != trial.written):
            expected = right or self._expected
            raise self._network.quarantine(self._workload, trial.schedule, expected, trial.written)

    def _elsewhere(self, schedule: Schedule) -> str:
        """What a builder writes with a schedule; "" where none runs the target."""
        network = self._network
        return network.builders.written(self._workload, schedule, network.target_name)
