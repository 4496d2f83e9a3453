"""Devices for tests: what they measure is told by a formula, and their labels say how they behave.

The label's first word: "ends" once in its second race, "ends-always" in the same race; "hangs";
"claims" that other bits are equal; "errs" in candidates and "errs-always" in the rule's schedule;
"noisy" times; "slow" in each race. Others are sound.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from verax.compiler.kernels.registry import Schedule, schedules
from verax.compiler.tune.gpu_bench import GpuKernelBench
from verax.compiler.tune.kernel_bench import Bench, KernelBench, Workload
from verax.device_tuning.measuring import MeasuringDevice
from verax.distributed.contents import host_folder

SLOW_SECONDS = 1.0
"""What a slow device takes longer for a race."""


class FormulaTurns(KernelBench):
    """Real bits, and times that a formula gives at once. flipped: gives other bits for a schedule
    or not; noise: share of the time."""

    flipped: Callable[[Schedule], bool] = staticmethod(lambda schedule: False)
    noise = 0.0
    turns = 0

    def turn(self, schedule: Schedule) -> float:
        super()._program(schedule)
        type(self).turns += 1
        part = zlib.crc32(str(schedule).encode()) % 1000 / 1000
        wave = (zlib.crc32(str(self.turns).encode()) % 1000 / 500 - 1) * self.noise
        return 1e-3 * (1 + 0.5 * part) * (1 + wave)

    def result(self, schedule: Schedule) -> bytes:
        result = super().result(schedule)
        return bytes([result[0] ^ 1, *result[1:]]) if self.flipped(schedule) else result


class MisbehavingDevice(MeasuringDevice):
    """See the module."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.behavior = settings["label"].partition(" ")[0]
        self.races = 0
        super().__init__(settings)

    def race(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self.races += 1
        if self.races == 2 and self.behavior == "ends" and self._first_time():
            os._exit(7)
        if self.behavior == "ends-always" and self._holds_the_one(request["candidates"]):
            os._exit(7)
        if self.races == 2 and self.behavior == "hangs" and self._first_time():
            time.sleep(600)
        if self.behavior == "slow":
            time.sleep(SLOW_SECONDS)
        raced = super().race(request)
        if self.behavior == "claims":
            raced["trials"][0] |= {"bits": True, "refused": "", "written": "0" * 64}
        return raced

    def make_bench(
        self, workload: Workload, target: Any, host: Any, stop: Callable[[], bool]
    ) -> Bench:
        rule = schedules(workload.spec, target)[0]
        errs = self.behavior in ("errs", "errs-always")
        always = self.behavior == "errs-always"

        kind: Any = GpuKernelBench if target.gpu else KernelBench

        class Own(FormulaTurns, kind):  # type: ignore[misc]
            flipped = staticmethod(lambda schedule: errs and (always or schedule != rule))
            noise = 0.4 if self.behavior == "noisy" else 0.0

        return Own(workload, target, host, stop)

    def _holds_the_one(self, candidates: list[Any]) -> bool:
        """Whether there is the one that ended it first, in its second race."""
        path = Path(host_folder()) / "ended-of"
        if self.races == 2 and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(candidates[1]))
        return path.exists() and json.loads(path.read_text()) in candidates

    def _first_time(self) -> bool:
        path = Path(host_folder()) / f"{self.behavior}-before"
        is_first = not path.exists()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        return is_first
