"""Trials a second of one device by the number of builders, measurement and building being slept.

    python -m benchmarks.tuning_scaling docs/tuning_scaling.svg

Two cores cannot show what eight builders do, so both are simulated: a builder sleeps BUILD_SECONDS
for an object, the device RACE_SECONDS for each candidate of a race; all else (the pool, the plain
data, the search, the history) is what `verax tune --device` does. A device measures one candidate
at a time, so builders help until they make candidates as fast as it races them.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import verax.compiler.kernels.convolution.emit  # noqa: F401  (registers its emitter)
from verax.compiler.kernels.convolution.spec import ConvSpec
from verax.compiler.kernels.dtypes import FLOAT32
from verax.compiler.kernels.layout import blocked_strides
from verax.compiler.kernels.registry import schedules
from verax.compiler.kernels.target import Target
from verax.compiler.tune.history import History
from verax.compiler.tune.host import Host
from verax.compiler.tune.kernel_bench import Workload
from verax.compiler.tune.search import search_on
from verax.device_tuning.builders import Builders
from verax.device_tuning.remote import RemoteNetwork
from verax.distributed import open_pool

BUILD_SECONDS, RACE_SECONDS = 0.8, 0.05
"""For an object, and for the turns of one candidate."""
TRIALS = 48
COUNTS = (1, 2, 3, 4, 6, 8)
TARGET = "avx2"


class SleepingBuilder:
    """In place of `CandidateBuilder`."""

    def __init__(self, _: Any = None) -> None:
        pass

    def build(self, request: Mapping[str, Any]) -> dict[str, Any]:
        time.sleep(BUILD_SECONDS)
        return {"kernel": {}, "code": bytes(30_000), "version": "none"}

    def written(self, request: Mapping[str, Any]) -> str:
        return "bits"


class SleepingDevice:
    """In place of `MeasuringDevice`: nothing ever wins."""

    def __init__(self, _: Any = None) -> None:
        pass

    def describe(self, _: Any = None) -> dict[str, Any]:
        host = dataclasses.asdict(Host.here(Target.named(TARGET), 1))
        return {"host": host, "target": TARGET, "machine": "simulated", "environment": {}}

    def open(self, request: Any) -> dict[str, Any]:
        return {"written": "bits"}

    def race(self, request: Mapping[str, Any]) -> dict[str, Any]:
        time.sleep(RACE_SECONDS * len(request["candidates"]))
        trials = [
            {"schedule": plain, "bits": True, "seconds": [1e-3], "refused": "", "ratio": 1.0,
             "written": "bits"}
            for plain in request["candidates"]
        ]  # fmt: skip
        return {"trials": trials, "winner": None, "duel": None}


def workload() -> Workload:
    """Some convolution with many candidates."""
    spec = ConvSpec(
        batch=1, channels=96, filters=160, output=(1, 28, 28), kernel=(1, 3, 3),
        x=blocked_strides(96, (1, 30, 30)), y=blocked_strides(160, (1, 28, 28)), types=FLOAT32,
    )  # fmt: skip
    rule = schedules(spec, Target.named(TARGET))[0]
    return Workload(spec, rule, (1 << 20,) * 4, (0,) * 4, False, 0)


def trials_per_second(count: int, folder: Path) -> float:
    """With so many builders, once all of them have begun."""
    work = workload()
    with open_pool(1) as pool:
        builders = Builders(pool, count, SleepingBuilder)
        actor = pool.actor(SleepingDevice)
        network = RemoteNetwork(actor, builders, History(folder / "h"), "simulated", 60.0, "net")
        for builder in builders.actors:
            builder.began.result()
        racer = network.racer(work, lambda: False, None)
        begin = time.perf_counter()
        found = search_on(work.spec, network.target, racer, trials=TRIALS)
        return len(found.trials) / (time.perf_counter() - begin)


def draw(rates: Mapping[int, float], path: Path) -> None:
    """The curve, beside what would be linear and what the device can race."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.hashsalt"] = "verax"
    figure, axes = pyplot.subplots(figsize=(6, 3.6))
    counts = list(rates)
    axes.plot(counts, [rates[n] for n in counts], "o-", color="#2b6cb0", label="measured")
    axes.plot(counts, [rates[1] * n for n in counts], "--", color="#999999", label="linear")
    axes.axhline(1 / RACE_SECONDS, color="#c05621", linewidth=1, label="the device's own limit")
    axes.set(xlabel="builders", ylabel="candidates a second", ylim=(0, None))
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("picture", type=Path)
    given = parser.parse_args()
    rates = {}
    with tempfile.TemporaryDirectory() as folder:
        for count in COUNTS:
            rates[count] = trials_per_second(count, Path(folder))
            print(f"{count} builders: {rates[count]:.2f} candidates a second, "
                  f"{rates[count] / rates[COUNTS[0]]:.2f} times one", flush=True)  # fmt: skip
    given.picture.with_suffix(".json").write_text(json.dumps(rates, indent=1) + "\n")
    draw(rates, given.picture)


if __name__ == "__main__":
    main()
