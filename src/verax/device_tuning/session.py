"""Tuning a model on several devices at once: one thread asks each device, until all have ended.

A device that is gone or hangs is begun again, twice at most, and goes on with what the history has:
nothing is measured again. What it was racing when it ended for the second time counts as refused. A
device in quarantine is not begun again. The others do not wait for it.
"""

from __future__ import annotations

import dataclasses
import io
import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from verax.base.errors import UsageError, VeraxError
from verax.base.option_groups.compile_options import DeviceOptions, TuneOptions
from verax.base.option_groups.settings import Settings
from verax.base.storage.npz import write_npz
from verax.compiler.kernels.registry import Schedule
from verax.compiler.tune.history import History
from verax.compiler.tune.host import LineOrigin
from verax.compiler.tune.measurements import measured_lines
from verax.compiler.tune.racing import Trial
from verax.compiler.tuner import Progress, Searching, tune_on
from verax.device_tuning.builders import Builders, CandidateBuilder
from verax.device_tuning.measuring import MeasuringDevice, reading_to_plain
from verax.device_tuning.remote import QuarantinedError, RemoteNetwork
from verax.distributed import (
    ExclusiveDevice,
    WorkerDiedError,
    WorkerLateError,
    WorkerPool,
    open_pool,
)
from verax.records.tuning import TuningRecord

BEGUN = 3
"""Times that a device is begun, at most."""
BEGIN_SECONDS = 900.0
"""Seconds that a device may take to compile the network and run it."""
PATIENCE = 300.0
"""Seconds that one answer of a device may take."""


@dataclasses.dataclass(frozen=True)
class DeviceResult:
    """What came of one device. record: of its tuning, None where it did not come to an end. error:
    why not, in words. ends: what it ended of before it was begun again, in words."""

    label: str
    record: TuningRecord | None
    error: str = ""
    ends: tuple[str, ...] = ()
    is_quarantined: bool = False

    @property
    def is_right(self) -> bool:
        """True if no bit differed."""
        record = self.record
        return not self.is_quarantined and (record is None or record.is_right)


def tune_devices(
    model: str | os.PathLike[str],
    devices: DeviceOptions,
    history: str | os.PathLike[str],
    options: TuneOptions,
    *,
    reading: Mapping[str, Any] | None = None,
    inputs: Mapping[str, np.ndarray] | None = None,
    sizes: Mapping[str, int] | None = None,
    progress: Progress = lambda message, share: None,
    pool: WorkerPool | None = None,
    patience: float = PATIENCE,
    measuring: type | str = MeasuringDevice,
    building: type | str = CandidateBuilder,
) -> list[DeviceResult]:
    """Tune the model in a file on devices, side by side; results in their order.

    history: the file that all of it is appended to, as soon as it is measured. options: its
    `time_budget` is each device's. reading: keywords of `verax.load`. inputs, sizes: as `tune`
    takes them. pool: in place of the one that `devices` opens. patience: seconds that one answer
    may take. measuring, building: classes of actors, for tests.
    Raises `UsageError` for devices that cannot be, and a history that cannot be read or written.
    """
    parsed = [ExclusiveDevice.parse(text) for text in devices.device]
    require_distinct(parsed)
    lines = History(history)
    lines.read()
    lines.append([])
    if pool is None:
        with open_pool(max(1, devices.workers), devices.ray) as opened:
            return tune_devices(
                model, devices, history, options, reading=reading, inputs=inputs, sizes=sizes,
                progress=progress, pool=opened, patience=patience, measuring=measuring,
                building=building,
            )  # fmt: skip
    keywords = dict(reading or {})
    params = keywords.pop("params", None)
    settings = {
        "model": pool.put(model),
        "params": None if params is None else pool.put(params),
        "reading": reading_to_plain(keywords),
        "inputs": None if inputs is None else pool.put(_npz(inputs), "inputs.npz"),
        "sizes": dict(sizes or {}),
        "seed": options.seed,
        "opt_level": options.settings.opt_level,
    }
    builders = Builders(pool, max(1, devices.workers), building)
    shares = dict.fromkeys((d.label for d in parsed), 0.0)

    def shown_by(label: str) -> Progress:
        def show(message: str, share: float) -> None:
            shares[label] = share
            progress(f"{label}: {message}", sum(shares.values()) / len(shares))

        return show

    sessions = [
        _DeviceSession(
            pool, builders, device, lines, options,
            {
                **settings,
                "threads": options.threads or device.cores or options.settings.threads,
                "target": device.compiled_for,
            },
            patience, measuring, str(model), shown_by(device.label),
        )
        for device in parsed
    ]  # fmt: skip
    threads = [threading.Thread(target=s.run, name=f"verax-{s.device.label}", daemon=True)
               for s in sessions]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(0.2)  # so that Ctrl-C comes through
    for session in sessions:
        if session.bug is not None:
            raise session.bug
    return [session.result for session in sessions]


def require_distinct(devices: Sequence[ExclusiveDevice]) -> None:
    """Raise `UsageError` for labels that occur twice."""
    labels = [device.label for device in devices]
    for label in labels:
        if labels.count(label) > 1:
            raise UsageError(
                f"two devices are called {label!r}, so their records could not be told apart",
                next_step="give each a label: --device avx2,cores=1,label=a",
            )


def _npz(arrays: Mapping[str, np.ndarray]) -> bytes:
    stream = io.BytesIO()
    write_npz(stream, arrays)
    return stream.getvalue()


class _DeviceSession:
    """One device. result: what came of it. bug: what is no error of a device."""

    def __init__(
        self,
        pool: WorkerPool,
        builders: Builders,
        device: ExclusiveDevice,
        history: History,
        options: TuneOptions,
        settings: Mapping[str, Any],
        patience: float,
        measuring: type | str,
        model: str,
        progress: Progress,
    ) -> None:
        self.pool, self.builders, self.device, self.history = pool, builders, device, history
        self.options, self.settings, self.patience = options, settings, patience
        self.measuring, self.model, self.progress = measuring, model, progress
        self.result = DeviceResult(device.label, None, "it was not begun")
        self.bug: BaseException | None = None

    def run(self) -> None:
        """Tune on the device, begun again as often as it may be."""
        ends: list[str] = []
        racing: list[Schedule] = []
        begin = time.monotonic()
        try:
            for attempt in range(BEGUN):
                left = self.options.time_budget - (time.monotonic() - begin)
                network: RemoteNetwork | None = None
                actor = self.pool.actor(
                    self.measuring,
                    {**self.settings, "label": self.device.label},
                    device=self.device,
                    timeout=max(BEGIN_SECONDS, self.patience),
                )
                try:
                    network = RemoteNetwork(
                        actor, self.builders, self.history, self.device.label, self.patience,
                        self.model,
                    )  # fmt: skip
                    record = self._tuned(network, max(left, 1.0), attempt > 0)
                    self._say(record, "", ends)
                    return
                except (WorkerDiedError, WorkerLateError) as error:
                    ends.append(str(error))
                    if network is not None:
                        if racing and racing == network.racing:
                            self._refuse(network)
                        racing = network.racing
                    self._say(None, f"it ended {len(ends)} times: {error}", ends)
                finally:
                    actor.stop()
        except QuarantinedError as error:
            self._say(None, str(error), ends, is_quarantined=True)
        except VeraxError as error:
            self._say(None, str(error), ends)
        except BaseException as error:
            self.bug = error

    def _say(
        self,
        record: TuningRecord | None,
        error: str,
        ends: Sequence[str],
        is_quarantined: bool = False,
    ) -> None:
        self.result = DeviceResult(self.device.label, record, error, tuple(ends), is_quarantined)

    def _tuned(self, network: RemoteNetwork, budget: float, is_again: bool) -> TuningRecord:
        searching = Searching(
            budget=budget,
            trials=self.options.trials,
            resume=self.options.resume or is_again,
            learns=self.options.cost_model,
            device=self.device.label,
            model=self.model,
            progress=self.progress,
        )
        settings = Settings(opt_level=self.settings["opt_level"], threads=self.settings["threads"])
        record = tune_on(network, settings, self.history, searching)
        return dataclasses.replace(record, options=self.options)

    def _refuse(self, network: RemoteNetwork) -> None:
        """Write that candidates ended the device twice, so that nobody races them again."""
        spec = network.spec
        if spec is None:
            return
        trials = [Trial(s, False, refused="the device ended twice here") for s in network.racing]
        origin = LineOrigin.now(self.device.label, network.machine, self.model, str(spec))
        self.history.append(measured_lines(spec, network.host, origin, trials))
