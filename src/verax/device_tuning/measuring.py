"""`MeasuringDevice`: what runs on a device. It holds the network, and races what it is given."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from verax.api import with_examples
from verax.base.errors import DeviceError, UsageError
from verax.base.option_groups.settings import Settings
from verax.base.storage.npz import read_npz
from verax.compiler.artifacts.saved_program import SavedExecutable
from verax.compiler.network_bench import NetworkBench
from verax.compiler.place.binary.kernel_objects import take_object
from verax.compiler.tune.gpu_bench import bench_for
from verax.compiler.tune.host import code_digest
from verax.compiler.tune.kernel_bench import Bench, Workload
from verax.compiler.tune.plain import of_plain, to_plain, workload_of_plain, workload_to_plain
from verax.compiler.tune.racing import BenchRacer, Race, digest_of
from verax.compiler.tune.successive_halving import Duel
from verax.compiling import graph_of
from verax.distributed import fetch
from verax.distributed.contents import host_name
from verax.judge.inputs import draw_inputs
from verax.loading import load

FAILED_CARD = 70
"""Exit code of a process whose card has failed."""


class MeasuringDevice:
    """A network on this device, as plain data asks for it: see `remote.RemoteNetwork`.

    settings: "model", a reference to its file, and "params" to that of its arrays or None;
    "reading", keywords of `verax.load`; "inputs", a reference to an .npz file, or None to draw them
    by "seed" and "sizes"; "opt_level", "threads", "target"; "label", the device's.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        reading = reading_of_plain(settings["reading"])
        if settings["params"] is not None:
            reading["params"] = fetch(settings["params"])
        loaded = load(fetch(settings["model"]), **reading)
        if isinstance(loaded, SavedExecutable):
            raise UsageError("a compiled program has its schedules", next_step="give the model")
        network, _ = with_examples(loaded, None)
        graph = graph_of(network)
        if settings["inputs"] is not None:
            inputs: Mapping[str, np.ndarray] = read_npz(fetch(settings["inputs"]))
        else:
            sizes = {s: 1 for s in graph.symbols()} | dict(settings["sizes"])
            drawn, _ = draw_inputs(graph, settings["seed"], sizes)
            inputs = {name: drawn[name] for name in graph.arguments}
        names = "opt_level", "threads", "target"
        compiled = Settings(**{name: settings[name] for name in names})
        self.network = NetworkBench(graph, compiled, inputs)
        self.workloads: dict[int, Workload] = {}
        self._racer: BenchRacer | None = None
        self._until = 0.0

    def describe(self, _: Any = None) -> dict[str, Any]:
        """What measurements of this device hold for."""
        network = self.network
        return {
            "host": dataclasses.asdict(network.host),
            "target": target_name(network.target.name),
            "machine": host_name(),
            "environment": dict(network.environment),
        }

    def profile(self, _: Any = None) -> list[dict[str, Any]]:
        """Kernels that have a choice, by their share of the time."""
        kernels = self.network.profile()
        self.workloads = dict(enumerate(kernel.workload for kernel in kernels))
        return [
            {
                "workload": workload_to_plain(kernel.workload),
                "calls": kernel.calls,
                "seconds": kernel.seconds,
            }
            for kernel in kernels
        ]

    def open(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Begin races of a kernel for "seconds"; what its rule's schedule writes, as a digest."""
        self.close()
        self._until = time.monotonic() + request["seconds"]
        workload = workload_of_plain(request["workload"])
        self._racer = self.network.racer(workload, self._is_late, self.make_bench)
        self._spec = workload.spec
        return {"written": digest_of(self._racer.expected)}

    def race(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Race "candidates" against "best", whose "objects" were made elsewhere where they have
        one made by this version."""
        assert self._racer is not None
        schedules = [of_plain(plain) for plain in request["candidates"]]
        for schedule, product in zip(schedules, request["objects"], strict=True):
            if product is not None and product["version"] == code_digest():
                take_object(self._spec, schedule, self.network.target, product)
        race = self._racer.race(of_plain(request["best"]), schedules, request["standing"])
        self._end_if_failed()
        return race_to_plain(race)

    def last(self, best: Any) -> dict[str, Any]:
        """The long duel between the rule's schedule and `best`."""
        assert self._racer is not None
        return dataclasses.asdict(self._racer.last(of_plain(best)))

    def close(self, _: Any = None) -> None:
        """End the races of a kernel."""
        if self._racer is not None:
            self._racer.close()
            self._racer = None

    def worth(self, winners: list[tuple[Any, Any]]) -> dict[str, Any]:
        """What schedules are worth in the network: pairs of a spec and a schedule."""
        specs = [of_plain(spec) for spec, _ in winners]
        worth = self.network.worth(
            {spec: of_plain(plain) for spec, (_, plain) in zip(specs, winners, strict=True)}
        )
        comparison = worth.comparison
        return {
            "ratios": [worth.ratios[spec] for spec in specs],
            "equal_bits": worth.equal_bits,
            "comparison": None if comparison is None else dataclasses.asdict(comparison),
        }

    def make_bench(
        self, workload: Workload, target: Any, host: Any, stop: Callable[[], bool]
    ) -> Bench:
        """What times kernels."""
        return bench_for(workload, target, host, stop)

    def _end_if_failed(self) -> None:
        """End this process where a kernel has failed on its card, to be begun again in another one:
        what was raced behind it says nothing."""
        try:
            self.network.require_sound()
        except DeviceError as error:
            print(f"error: {error}", file=sys.stderr, flush=True)
            os._exit(FAILED_CARD)

    def _is_late(self) -> bool:
        return time.monotonic() >= self._until


def reading_to_plain(reading: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords of `verax.load` as plain data: arrays as lists with their type."""

    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return {"dtype": value.dtype.name, "items": value.tolist()}
        if isinstance(value, Mapping):
            return {"items": {k: plain(v) for k, v in value.items()}}
        if isinstance(value, tuple):
            return [plain(v) for v in value]
        return value

    return {name: plain(value) for name, value in reading.items()}


def reading_of_plain(plain: Mapping[str, Any]) -> dict[str, Any]:
    """What `reading_to_plain` was given."""

    def value(item: Any) -> Any:
        if isinstance(item, list):
            return tuple(value(v) for v in item)
        if isinstance(item, Mapping) and "dtype" in item:
            return np.asarray(item["items"], item["dtype"])
        if isinstance(item, Mapping):
            return {k: value(v) for k, v in item["items"].items()}
        return item

    return {name: value(item) for name, item in plain.items()}


def target_name(name: str) -> str:
    """A target's own name as `Target.named` takes it."""
    return "aarch64" if name == "neon" else name


def race_to_plain(race: Race) -> dict[str, Any]:
    """A race as plain data."""
    trials = [
        {**{f.name: getattr(trial, f.name) for f in dataclasses.fields(trial)},
         "schedule": to_plain(trial.schedule)}
        for trial in race.trials
    ]  # fmt: skip
    return {
        "trials": trials,
        "winner": None if race.winner is None else to_plain(race.winner),
        "duel": None if race.duel is None else dataclasses.asdict(race.duel),
    }


def duel_of_plain(plain: Mapping[str, Any]) -> Duel:
    """A duel again."""
    values = {**plain, "defender": tuple(plain["defender"])}
    return Duel(**{**values, "challenger": tuple(plain["challenger"])})
