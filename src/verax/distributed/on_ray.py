"""Workers that are actors of Ray Core: it places them on a cluster's hosts and moves what is big.

One actor is one worker with one core, or with what its device has. Nothing of Ray is seen outside
of this file, `ray_cluster` and `ray_server`. Ray's dashboard, its usage statistics and its memory
monitor are off in a cluster that is begun here: a task that takes too much memory is the operating
system's affair, as without Ray.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import Counter
from typing import Any

import numpy as np

from verax.base.errors import UsageError
from verax.base.optional import installed_version, late
from verax.base.storage.reading import open_bytes
from verax.distributed.contents import Reference
from verax.distributed.device import ExclusiveDevice
from verax.distributed.messages import digests_in
from verax.distributed.outcome import WorkerDiedError, WorkerLateError
from verax.distributed.pool import WorkerPool, require_count
from verax.distributed.ray_cluster import connect, disconnect, lines_of
from verax.distributed.ray_server import Server
from verax.distributed.worker import Worker, value_of

ray: Any = late("ray", "ray")
exceptions: Any = late("ray.exceptions", "ray")
IN_BEGINNING = "raised in its creation task"
"""What Ray says of an actor that could not be made, such as where a package is not installed."""
HOST_SECONDS = 30.0
"""What a cluster gets to notice that a host is gone whose worker does not answer any more."""


class RayPool(WorkerPool):
    """A pool of actors of Ray. workers: 0 for one for each core of the cluster. address: of the
    cluster, "auto" for the one that this machine belongs to, else one is begun."""

    def __init__(self, workers: int, address: str) -> None:
        require_count(workers or 1)
        count, self._is_ours = connect(workers, address)
        super().__init__(count)
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
        try:
            super().close()
        finally:  # Ctrl-C while it waits for threads, too
            self._stored.clear()
            if self._is_ours:
                disconnect()


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
        references = ((digest, self._stored.get(digest)) for digest in digests_in(message))
        stored = {digest: [reference] for digest, reference in references if reference is not None}
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
            raise WorkerDiedError(_last_line(error), place=self.name) from None
        except exceptions.RayError as error:
            if self._host_is_gone(isinstance(error, exceptions.ActorUnavailableError)):
                cause = "its host is gone"
                raise WorkerDiedError(cause, host_is_gone=True, place=self.name) from None
            if not self._is_killed and IN_BEGINNING in str(error):
                raise WorkerDiedError(
                    f"a host of the cluster cannot begin a worker: {_last_line(error)}",
                    next_step=f"install Verax {installed_version('verax')} where Ray runs there",
                ) from None
            cause = "it was ended" if self._is_killed else _ending(error)
            raise WorkerDiedError(cause, place=self.name) from None

    def _host_is_gone(self, is_silent: bool) -> bool:
        """True if the cluster knows that the worker's host is gone. is_silent: only that nobody
        answers is known yet, and the cluster may take a while to notice why."""
        end = time.monotonic() + (HOST_SECONDS if is_silent else 0.0)
        while self._node != "" and not self._is_killed:
            if _is_known_dead(self._node):
                return True
            if time.monotonic() >= end:
                break
            time.sleep(0.3)
        return False

    def kill(self) -> None:
        with self._lock:
            self._is_killed = True
            actor = self._actor
        if actor is not None and ray.is_initialized():
            with contextlib.suppress(Exception):  # a cluster that is gone has ended it
                ray.kill(actor)


def _is_known_dead(node: str) -> bool:
    """True if the cluster says that it has no such node any more, by its identifier."""
    try:
        return not any(entry["Alive"] for entry in ray.nodes() if entry["NodeID"] == node)
    except Exception:  # the cluster is gone itself: nobody can say
        return False


def _ending(error: Exception) -> str:
    """How a worker ended, as far as Ray says it: the first line, and that with the kind of end."""
    lines = lines_of(error) or [type(error).__name__]
    return " ".join([lines[0], *(line for line in lines[1:] if "died" in line or "exit" in line)])


def _last_line(error: Exception) -> str:
    """What was raised: a traceback's last line."""
    lines = lines_of(error)
    return lines[-1] if lines else type(error).__name__


def _on(device: ExclusiveDevice) -> Any:
    """Where Ray is to place an actor whose device names its host. Raises `UsageError`."""
    nodes = [n for n in ray.nodes() if n["Alive"]]
    for node in nodes:
        if device.host in (node["NodeManagerHostname"], node["NodeName"], node["NodeID"]):
            if (cores := int(node["Resources"].get("CPU", 0))) < device.cores:
                raise UsageError(
                    f"the device has {device.cores} cores, the host's part of the cluster {cores}",
                    place=device.label,
                    next_step="name fewer cores, or start Ray there with --num-cpus",
                )
            strategies = ray.util.scheduling_strategies
            return strategies.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    raise UsageError(
        f"the cluster has no host {device.host!r}",
        place=device.label,
        next_step=f"it has {', '.join(sorted({n['NodeManagerHostname'] for n in nodes}))}",
    )
