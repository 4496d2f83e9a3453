"""Workers that are actors of Ray Core: it places them on a cluster's hosts and moves what is big.

One actor is one worker with one core, or with what its device has. Nothing of Ray is seen outside
of this file and `ray_server`. Ray's dashboard, its usage statistics and its memory monitor are off
in a cluster that is begun here: a task that takes too much memory is the operating system's affair,
as without Ray.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import socket
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from verax.base.cores import available_cores
from verax.base.errors import UsageError
from verax.base.optional import late
from verax.base.reading import open_bytes
from verax.distributed.contents import Reference
from verax.distributed.device import ExclusiveDevice
from verax.distributed.messages import digests_in
from verax.distributed.outcome import WorkerDiedError, WorkerLateError
from verax.distributed.pool import WorkerPool
from verax.distributed.ray_server import Server
from verax.distributed.worker import Worker, value_of

ray: Any = late("ray", "ray")
exceptions: Any = late("ray.exceptions", "ray")
AUTO, LOCAL = "auto", "local"
"""Addresses: of the cluster that this machine belongs to; of one that is begun for this process."""
CURRENT = Path("ray") / "ray_current_cluster"
"""Where `ray start` writes the address of the cluster that a machine belongs to."""
REACH_SECONDS = 5.0
QUIET: dict[str, Any] = {
    "include_dashboard": False,
    "log_to_driver": False,
    "configure_logging": False,
}


class RayPool(WorkerPool):
    """A pool of actors of Ray. workers: 0 for one for each core of the cluster. address: of the
    cluster, "auto" for the one that this machine belongs to, else one is begun."""

    def __init__(self, workers: int, address: str) -> None:
        self._is_ours = _connect(workers, address)
        cores = int(ray.cluster_resources().get("CPU", 0))
        super().__init__(workers or max(1, cores))
        self._stored: dict[str, Any] = {}
        self._uses: Counter[str] = Counter()

    def _worker(self, device: ExclusiveDevice | None) -> Worker:
        return RayWorker(device, self._stored)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts of the cluster that are alive, by their names."""
        return tuple(n["NodeManagerHostname"] for n in ray.nodes() if n["Alive"])

    def _offer(self, reference: Reference, content: bytes | None) -> None:
        for file in reference.files:
            self._uses[file.digest] += 1
            if file.digest not in self._stored:
                data = open_bytes(file.path) if content is None else content
                self._stored[file.digest] = ray.put(np.frombuffer(data, np.uint8))

    def forget(self, reference: Reference) -> None:
        """Let Ray drop contents, once it was called as often as they were put."""
        for file in reference.files:
            self._uses[file.digest] -= 1
            if self._uses[file.digest] <= 0:
                self._stored.pop(file.digest, None)

    def close(self) -> None:
        """End all workers and actors, and leave the cluster; one that was begun here ends."""
        if self._is_closed:
            return
        super().close()
        self._stored.clear()
        if self._is_ours:
            with _signals_as_they_are():
                ray.shutdown()


class RayWorker(Worker):
    """An actor of Ray. stored: SHA-256 -> reference of Ray's, of the pool."""

    def __init__(self, device: ExclusiveDevice | None, stored: dict[str, Any]) -> None:
        self._device, self._stored, self._node = device, stored, ""
        self._actor: Any = None
        self._is_killed, self._lock = False, threading.Lock()

    def begin(self, seconds: float | None) -> dict[str, Any]:
        device = self._device
        options: dict[str, Any] = {"num_cpus": 1 if device is None else device.cores}
        if device is not None and device.gpu >= 0:
            options["num_gpus"] = 1
        if device is not None and device.host:
            options["scheduling_strategy"] = _on(device)
        with self._lock:
            if self._is_killed:
                raise WorkerDiedError("the worker was ended before it began")
            self._actor = ray.remote(Server).options(max_restarts=0, **options).remote()
        plain = {"device": None if device is None else device.to_plain()}
        answer = self._got(self._actor.begin.remote(plain, sys.path), seconds)
        hello = dict(value_of(answer, self.name)[0])
        self._node = str(hello["node"])
        return hello

    def exchange(self, message: bytes, seconds: float | None) -> bytes:
        stored = {d: [self._stored[d]] for d in digests_in(message) if d in self._stored}
        return self._got(self._actor.serve.remote(message, stored), seconds)

    def _got(self, answer: Any, seconds: float | None) -> bytes:
        """The bytes of an answer. Raises as `exchange`."""
        try:
            return bytes(ray.get(answer, timeout=seconds))
        except exceptions.GetTimeoutError:
            self.kill()
            has_begun = self._node != ""
            raise WorkerLateError(
                f"no answer within {seconds:g} s"
                if has_begun
                else f"the cluster had no room for a worker within {seconds:g} s",
                place=self.name or str(self._device),
            ) from None
        except exceptions.RayTaskError as error:
            self.kill()
            raise WorkerDiedError(_first_line(error), place=self.name) from None
        except exceptions.RayError as error:
            gone = self._node != "" and not any(
                n["Alive"] for n in ray.nodes() if n["NodeID"] == self._node
            )
            cause = "it was ended" if self._is_killed else _first_line(error)
            raise WorkerDiedError(
                "its host is gone" if gone else cause, host_is_gone=gone, place=self.name
            ) from None

    def kill(self) -> None:
        with self._lock:
            self._is_killed = True
            actor = self._actor
        if actor is not None and ray.is_initialized():
            with contextlib.suppress(exceptions.RayError, ValueError):
                ray.kill(actor)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _on(device: ExclusiveDevice) -> Any:
    """Where Ray is to place an actor whose device names its host. Raises `UsageError`."""
    nodes = [n for n in ray.nodes() if n["Alive"]]
    for node in nodes:
        if device.host in (node["NodeManagerHostname"], node["NodeName"], node["NodeID"]):
            strategies = ray.util.scheduling_strategies
            return strategies.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    raise UsageError(
        f"the cluster has no host {device.host!r}",
        place=device.label,
        next_step=f"it has {', '.join(sorted({n['NodeManagerHostname'] for n in nodes}))}",
    )


def _connect(workers: int, address: str) -> bool:
    """True if this process was not connected before. Raises `UsageError`."""
    if ray.is_initialized():
        return False
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    own = _own_cluster() if address == AUTO else address
    _require_reachable(own)
    options = {} if own != LOCAL else {"num_cpus": workers or available_cores()}
    with _signals_as_they_are():
        try:
            ray.init(address=own, **options, **QUIET)
        except (OSError, RuntimeError, ValueError, ImportError) as error:
            raise _unusable(own, _first_line(error)) from error
    return True


def _own_cluster() -> str:
    """The address of the cluster that this machine belongs to, LOCAL where it belongs to none.

    What merely runs here, such as another program's private cluster, is no such.
    """
    if own := os.environ.get("RAY_ADDRESS", ""):
        return own
    try:
        own = (Path(os.environ.get("RAY_TMPDIR", "/tmp")) / CURRENT).read_text().strip()
        _require_reachable(own)
    except (OSError, UsageError):
        return LOCAL
    return own or LOCAL


def _require_reachable(address: str) -> None:
    """Raise `UsageError` where nobody answers, which Ray itself says after minutes."""
    match = re.fullmatch(r"(?:ray://)?\[?([^/\]]+?)\]?:(\d{1,5})", address)
    if match is None:
        return
    try:
        socket.create_connection((match[1], int(match[2])), REACH_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise _unusable(address, str(error)) from error


def _unusable(address: str, reason: str) -> UsageError:
    return UsageError(
        f"no Ray cluster can be used there ({reason})",
        place=address,
        next_step="give the address that `ray start --head` prints, or --ray alone",
    )


@contextmanager
def _signals_as_they_are() -> Iterator[None]:
    """Ray hears SIGTERM in its own way; this process keeps its own."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)
