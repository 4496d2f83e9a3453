"""Reaching a Ray cluster, or beginning one: every address that is none is said, and soon.

Ray itself waits minutes for a port that is silent, and prints what it thinks meanwhile. So an
address is asked for a sign of life of the protocol that Ray speaks (HTTP/2) before Ray is told it.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from verax.base.errors import UsageError
from verax.base.machine.cores import available_cores
from verax.base.optional import late, optional

ray: Any = late("ray", "ray")
AUTO, LOCAL = "auto", "local"
"""Addresses: of the cluster that this machine belongs to; of one that is begun for this process."""
CURRENT = Path("ray") / "ray_current_cluster"
"""Where `ray start` writes the address of the cluster that a machine belongs to."""
ADDRESS = re.compile(r"(?P<client>ray://)?\[?(?P<host>[^/\]]+?)\]?:(?P<port>\d{1,5})")
REACH_SECONDS = 5.0
ATTEMPTS = "RAY_gcs_server_port_wait_time_s"
"""Environment variable of Ray: how often a driver tries to reach a cluster, each up to 40 s."""
TLS = "RAY_USE_TLS"
TOKENS = "RAY_AUTH_MODE"
"""Environment variable that Ray sets when it begins a cluster, and leaves behind: later clusters of
the process, and what it starts, would ask for tokens that others lack."""
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""What a client of HTTP/2 says first: its preface and empty settings."""
SETTINGS_FRAME = 4
HEAD = 9
"""Bytes in front of a frame of HTTP/2; the fourth is its kind."""
_variables: dict[str, str | None] = {}
"""Variables of the environment as they were before this process was connected."""
QUIET: dict[str, Any] = {
    "include_dashboard": False,
    "log_to_driver": False,
    "configure_logging": False,
}


def connect(workers: int, address: str) -> tuple[int, bool]:
    """How many workers a cluster is to have, and True if this process was not connected before; it
    is from then on.

    workers: 0 for one for each core of the cluster. address: of the cluster, AUTO or LOCAL; one
    that is begun has room for the workers and, beside them, for as many cores of devices as this
    machine has. Raises `UsageError` where no cluster can be used, and `MissingPackageError` where
    Ray's client lacks a package.
    """
    if ray.is_initialized():
        _require_connected_to(address)
        return workers or _cores(), False
    own = _own_cluster() if address == AUTO else address
    require_reachable(own)
    count = workers or (available_cores() if own == LOCAL else 0)
    options = {"num_cpus": count + available_cores()} if own == LOCAL else {}
    _variables[TOKENS] = os.environ.get(TOKENS)
    _silence()
    try:
        with _signals_as_they_are(), _few_attempts(own), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ray.init(address=own, **options, **QUIET)
        _silence()  # Ray's client sets its own level
        return count or _cores(), True
    except Exception as error:  # Ray, and gRPC under its client, may raise anything
        disconnect()
        raise _unusable(own, _reason(error)) from error
    except BaseException:  # Ctrl-C while it begins
        disconnect()
        raise


def _require_connected_to(address: str) -> None:
    """Raise `UsageError` where this process is connected to a cluster at another port; by which of
    its names a host was called cannot be told."""
    match = ADDRESS.fullmatch(address)
    if match is None or match["client"] or ray.util.client.ray.is_connected():
        return
    current = str(ray.get_runtime_context().gcs_address)
    if current.rpartition(":")[2] != match["port"]:
        raise UsageError(
            f"this process is connected to another Ray cluster, {current}",
            place=address,
            next_step="call ray.shutdown() first, or give ray='auto' for that one",
        )


def _cores() -> int:
    """Cores of the cluster, at least 1."""
    return max(1, int(ray.cluster_resources().get("CPU", 0)))


def disconnect() -> None:
    """Leave the cluster; one that was begun by `connect` ends."""
    try:
        with _signals_as_they_are():
            ray.shutdown()
    finally:
        for name, value in _variables.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        _variables.clear()


def _silence() -> None:
    logging.getLogger("ray").setLevel(logging.CRITICAL)


def _own_cluster() -> str:
    """The address of the cluster that this machine belongs to, LOCAL where it belongs to none.

    What merely runs here, such as another program's private cluster, is no such.
    """
    if own := os.environ.get("RAY_ADDRESS", ""):
        return own
    try:
        own = (Path(os.environ.get("RAY_TMPDIR", "/tmp")) / CURRENT).read_text().strip()
        require_reachable(own)
    except (OSError, UsageError):
        return LOCAL
    return own or LOCAL


def require_reachable(address: str) -> None:
    """Raise `UsageError` for what is no address, and where nobody answers as a cluster does."""
    if address in (AUTO, LOCAL, ""):
        return
    match = ADDRESS.fullmatch(address)
    if match is None:
        raise _unusable(address, "this is no address: HOST:PORT, ray://HOST:PORT or auto")
    try:
        with socket.create_connection((match["host"], int(match["port"])), REACH_SECONDS) as peer:
            is_alive = os.environ.get(TLS, "0") not in ("0", "") or _speaks_http2(peer)
    except (OSError, OverflowError, UnicodeError) as error:
        raise _unusable(address, str(error)) from error
    if not is_alive:
        raise _unusable(address, "somebody listens, but does not answer as Ray does")
    if match["client"]:
        optional("grpc", "by Ray's client, as which ray://HOST:PORT is reached,")


def _speaks_http2(peer: socket.socket) -> bool:
    """True if the other end answers a client's greeting with the settings of HTTP/2."""
    head = b""
    try:
        peer.sendall(GREETING)
        while len(head) < HEAD and (piece := peer.recv(HEAD - len(head))):
            head += piece
    except OSError:
        return False
    return len(head) == HEAD and head[3] == SETTINGS_FRAME


def lines_of(error: Exception) -> list[str]:
    """The lines of what Ray says that are not blank."""
    return [line.strip() for line in str(error).splitlines() if line.strip()]


def _reason(error: Exception) -> str:
    """What Ray says, in one line: the versions where they differ, else its first line."""
    lines = lines_of(error)
    if not lines:
        return type(error).__name__
    if lines[0].startswith("Version mismatch"):
        versions = [line for line in lines if line.startswith(("Ray:", "Python:"))]
        if len(versions) == 4:
            there, here = ", ".join(versions[:2]), ", ".join(versions[2:])
            return f"its versions are other ones: there {there}; here {here}"
    return lines[0]


def _unusable(address: str, reason: str) -> UsageError:
    if "versions" in reason:
        following = "install the same versions of Python, Ray and Verax on all hosts"
    else:
        following = "give the address that `ray start --head` prints, or --ray alone"
    return UsageError(
        f"no Ray cluster can be used there ({reason})", place=address, next_step=following
    )


@contextmanager
def _few_attempts(address: str) -> Iterator[None]:
    """Ray tries to reach a cluster elsewhere twice, not twenty times."""
    before = os.environ.get(ATTEMPTS)
    if address != LOCAL and before is None:
        os.environ[ATTEMPTS] = "2"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(ATTEMPTS, None)


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
