"""Clusters of simulated hosts: Ray's own utilities begin several hosts on this machine.

Each has a folder of its own, and so a name of its own, so that what reaches it can be counted.
"""

from __future__ import annotations

import importlib
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from verax.distributed.contents import FOLDER
from verax.distributed.opening import SETTINGS

QUICK = {
    "health_check_initial_delay_ms": 500,
    "health_check_period_ms": 300,
    "health_check_timeout_ms": 10_000,
    "health_check_failure_threshold": 3,
}
"""How soon a cluster notices that a host is gone, whose port refuses at once; Ray's own figures are
made for larger ones. A host of a busy machine may take seconds to answer."""
MEMORY = 80 << 20
"""Bytes of each host's object store."""
TRIES = 3


class Hosts:
    """A cluster of simulated hosts. head: what its head has beside its own, which has no cores."""

    def __init__(self, folder: Path, **head: Any) -> None:
        utilities = importlib.import_module("ray.cluster_utils")
        own = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": MEMORY}
        self.cluster = utilities.Cluster(
            initialize_head=True, head_node_args={**own, **head, "_system_config": QUICK}
        )
        self.folder, self.nodes = folder, {}
        self.address: str = self.cluster.address
        port = head.get("ray_client_server_port")
        self.client_address = "" if port is None else f"ray://127.0.0.1:{port}"

    def add(self, name: str, cores: int = 2, **variables: str) -> None:
        """Another host, which has so many cores in Ray's count."""
        variables = {FOLDER: str(self.folder / name), **variables}
        self.nodes[name] = self.cluster.add_node(
            num_cpus=cores, env_vars=variables, object_store_memory=MEMORY, node_name=name
        )

    def kill(self, name: str) -> None:
        """Have a host vanish."""
        self.cluster.remove_node(self.nodes.pop(name), allow_graceful=False)


@contextmanager
def cluster(folder: Path, cores: Mapping[str, int], **head: Any) -> Iterator[Hosts]:
    """A cluster with a host for each name, of so many cores. Skips where Ray is not installed."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SETTINGS.items():
            patch.setenv(name, value)
        pytest.importorskip("ray", reason="Ray is not installed: pip install 'verax[ray]'")
        hosts = begun(folder, cores, head)
        try:
            yield hosts
        finally:
            hosts.cluster.shutdown()


def begun(folder: Path, cores: Mapping[str, int], head: dict[str, Any]) -> Hosts:
    """A cluster whose hosts have begun; Ray gives each half a minute, in three tries."""
    for attempt in range(TRIES):
        hosts = None
        try:
            hosts = Hosts(folder, **head)
            for name, count in cores.items():
                hosts.add(name, count)
            return hosts
        except Exception as error:
            if hosts is not None:
                hosts.cluster.shutdown()
            if "timed out during startup" not in str(error) or attempt == TRIES - 1:
                raise
    raise AssertionError("there are tries")


def place(host: str) -> str:
    """The simulated host's own name, of a worker's or a machine's."""
    return host.partition("(")[2].rstrip(")")


def free_port() -> int:
    """A port where nobody listens."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
    return port
