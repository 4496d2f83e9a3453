"""What is no cluster of ours is said, soon and in words; what is begun here is ended here."""

from __future__ import annotations

import importlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from tests.cli.conftest import Cli, cli  # noqa: F401
from tests.distributed import tasks
from tests.distributed.simulated_hosts import Hosts, cluster, free_port

from verax.base.errors import MissingPackageError, UsageError, VeraxError
from verax.base.optional import installed_version
from verax.distributed import ExclusiveDevice, WorkerDiedError, open_pool

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
SETTINGS_FRAME = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
REASON = "Ray is not installed: pip install 'verax[ray]'"


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """A cluster without hosts but its head, which Ray's client reaches where it is installed."""
    try:
        importlib.import_module("grpc")
    except ImportError:
        head = {}
    else:
        head = {"ray_client_server_port": free_port()}
    with cluster(tmp_path_factory.mktemp("cluster"), {}, **head) as opened:
        yield opened


@contextmanager
def listening(answer: bytes) -> Iterator[str]:
    """The address of somebody who says `answer` to whoever comes, and nothing else."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        held: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    peer, _ = server.accept()
                except OSError:
                    return
                held.append(peer)
                peer.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        for peer in held:
            peer.close()


def refused(cli: Cli, address: str) -> str:  # noqa: F811
    """What `verax evaluate` says to an address, exit code 2."""
    done = cli("evaluate", DIGITS, "--data", DIGITS.parent, f"--ray={address}")
    assert done.code == 2
    assert "no Ray cluster can be used there" in done.err and address in done.err
    assert "next: give the address that `ray start --head` prints" in done.err
    return done.err


def test_addresses_where_no_cluster_is_are_refused_at_once(cli: Cli) -> None:  # noqa: F811
    pytest.importorskip("ray", reason=REASON)
    for address in ("127.0.0.1:1", "ray://127.0.0.1:1"):
        assert "refused" in refused(cli, address)
    for address in ("nonsense", "ray://nonsense", "127.0.0.1", "http://127.0.0.1:1"):
        assert "this is no address" in refused(cli, address)
    for answer in (b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"):
        with listening(answer) as address:
            assert "does not answer as Ray does" in refused(cli, address)
            assert "does not answer as Ray does" in refused(cli, f"ray://{address}")


def test_a_word_behind_ray_that_is_no_address_is_explained(cli: Cli) -> None:  # noqa: F811
    done = cli("evaluate", DIGITS, "--data", DIGITS.parent, "--ray", "nonsense")
    assert done.code == 2
    assert "behind --ray an address is HOST:PORT" in done.err


def test_what_rays_client_needs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason=REASON)
    monkeypatch.setitem(sys.modules, "grpc", None)
    with (
        listening(SETTINGS_FRAME) as address,
        pytest.raises(MissingPackageError, match="Ray's client") as raised,
    ):
        open_pool(1, f"ray://{address}")
    assert raised.value.next_step == "pip install grpcio"


def test_a_cluster_of_other_versions_is_refused(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    monkeypatch.setattr("ray._private.utils.compute_version_info", lambda: ("2.9.1", "3.12.7"))
    with pytest.raises(UsageError) as raised:
        open_pool(1, hosts.address)
    assert f"there Ray: {ray.__version__}, Python: 3." in raised.value.cause
    assert "here Ray: 2.9.1, Python: 3.12.7" in raised.value.cause
    assert "the same versions" in raised.value.next_step
    assert not ray.is_initialized()


def test_a_host_with_another_verax_or_none_is_named(hosts: Hosts, tmp_path: Path) -> None:
    other = tmp_path / "other" / "verax-99.1.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: verax\nVersion: 99.1\n")
    (tmp_path / "none" / "verax").mkdir(parents=True)
    (tmp_path / "none" / "verax" / "__init__.py").touch()
    for name in ("other", "none"):
        path = os.pathsep.join([str(tmp_path / name), *filter(None, sys.path)])
        hosts.add(name, 1, PYTHONPATH=path)
        with open_pool(1, hosts.address) as pool, pytest.raises(VeraxError) as raised:
            list(pool.run(tasks.double, [3]))
        hosts.kill(name)
        version = installed_version("verax")
        if name == "other":
            assert f"has Verax 99.1, this is {version}" in str(raised.value)
        else:
            assert isinstance(raised.value, WorkerDiedError)
            assert "cannot begin a worker: ModuleNotFoundError" in str(raised.value)
            assert f"install Verax {version}" in raised.value.next_step


def servers() -> list[psutil.Process]:
    """Workers of the cluster of this process, ready or not."""
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            if "ray::Server" in " ".join(child.cmdline()):
                found.append(child)
        except psutil.Error:
            continue
    return found


def soon(happened: Callable[[], bool]) -> bool:
    """True as soon as it has happened; False after a minute."""
    end = time.monotonic() + 60
    while not happened():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def test_no_actor_outlives_its_pool(hosts: Hosts) -> None:
    """Not those at work, not those that refuse to begin, and not those that wait for room."""
    import ray

    hosts.add("a", 2)
    ray.init(hosts.address, log_to_driver=False)  # a connection that outlives the pool
    try:
        with pytest.raises(UsageError, match="connected to another Ray cluster"):
            open_pool(1, "127.0.0.1:1")
        with open_pool(3, hosts.address) as pool:  # for the third there is no room
            refusing = pool.actor(
                tasks.Adder, {"total": 3}, device=ExclusiveDevice("d", "", 1, (9999,))
            )
            waiting = pool.actor(tasks.Adder, {"total": 4}, timeout=300)
            with pytest.raises(ZeroDivisionError):
                for _ in pool.run(tasks.nap, [0.01, 60, 61]):
                    raise ZeroDivisionError
        for actor in (refusing, waiting):
            with pytest.raises(VeraxError):
                actor.call("add", 1).result(60)
        assert soon(lambda: not servers())
        time.sleep(1)  # what waited for room would be begun now
        assert not servers()
        assert soon(lambda: ray.available_resources().get("CPU") == 2)
        assert ray.is_initialized()
    finally:
        ray.shutdown()
        hosts.kill("a")


def test_a_device_names_more_cores_than_its_host_has(hosts: Hosts) -> None:
    hosts.add("a", 1)
    with open_pool(1, hosts.address) as pool:
        actor = pool.actor(
            tasks.Adder, {"total": 3}, device=ExclusiveDevice.parse("cores=3,host=a")
        )
        with pytest.raises(UsageError, match="has 3 cores, the host's part of the cluster 1"):
            actor.began.result(120)
    hosts.kill("a")


def test_what_is_begun_here_is_ended_here() -> None:
    """In a process of its own: in one that has begun a cluster and ended it, Ray ends the workers
    of simulated hosts that it is connected to later."""
    pytest.importorskip("ray", reason=REASON)
    code = "from tests.distributed.test_ray_clusters import begin_and_end; begin_and_end()"
    paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def begin_and_end() -> None:
    """What has to hold of clusters that are begun for a pool."""
    ray = importlib.import_module("ray")
    before, asked = raylets(), {"RAY_AUTH_MODE": os.environ.get("RAY_AUTH_MODE")}
    with pytest.raises(UsageError, match="-1 workers"):
        open_pool(-1, "local")
    assert not ray.is_initialized()
    with open_pool(1, "local") as pool:
        device = ExclusiveDevice("one", "", 1)
        actor = pool.actor(tasks.Adder, {"total": 3}, device=device, timeout=120)
        builder = pool.actor(tasks.Adder, {"total": 4}, timeout=120)
        assert pool.workers == 1
        assert [actor.call("add", 1).result(240), builder.call("add", 1).result(240)] == [4, 5]
    assert not ray.is_initialized()

    begin = ray.init

    def interrupted(**options: Any) -> None:
        begin(**options)
        raise KeyboardInterrupt

    late: Any = importlib.import_module("verax.distributed.ray_cluster").ray
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(late, "init", interrupted)
        open_pool(1, "local")
    assert not ray.is_initialized()
    assert soon(lambda: raylets() <= before)
    variables = {name: os.environ.get(name) for name in asked}
    assert variables == asked, "later clusters are as they would have been"


def raylets() -> set[int]:
    """Processes of Ray's hosts that this process has begun, by their numbers."""
    children = psutil.Process().children(recursive=True)
    alive = [child for child in children if child.status() != psutil.STATUS_ZOMBIE]
    return {child.pid for child in alive if "raylet" in child.name()}


@pytest.mark.slow
def test_rays_client_carries_what_the_pool_does(
    hosts: Hosts,
    cli: Cli,  # noqa: F811
    tmp_path: Path,
) -> None:
    pytest.importorskip("grpc", reason="Ray's client needs grpcio: pip install 'verax[ray]'")
    with pytest.raises(UsageError, match="no Ray cluster can be used there"):
        open_pool(1, hosts.client_address.removeprefix("ray://"))  # another port of the cluster
    hosts.add("a", 2)
    with open_pool(2, hosts.client_address) as pool:
        doubled = {o.task: o.result() for o in pool.run(tasks.double, range(9))}
        assert doubled == {n: 2 * n for n in range(9)}
        reference = pool.put(b"third", name="c.onnx")
        (read,) = pool.run(tasks.read, [reference])
        assert read.result()[1:] == ["c.onnx", "third"]
        assert pool.transfers == {(read.host, reference.digest): 1}
        given = [{"file": str(tmp_path / str(n)), "deaths": n} for n in (0, 1)]
        assert all(o.is_done for o in pool.run(tasks.kill_worker, given))
        device = ExclusiveDevice("first", "avx2", 0, host="a")
        actor = pool.actor(tasks.Adder, {"total": 3}, device=device, timeout=300)
        assert actor.call("add", 4).result(300) == 7
        late = actor.call("sleep", 60, timeout=0.5)
        with pytest.raises(VeraxError, match=r"no answer within 0.5 s"):
            late.result(300)
    random = np.random.default_rng(406)
    images, labels = random.integers(0, 255, (71, 24, 20), np.uint8), random.integers(0, 10, 71)
    np.savez(tmp_path / "set.npz", images=images, labels=labels)
    records = []
    for number, ray in enumerate([None, hosts.client_address]):
        written = tmp_path / f"{number}.json"
        done = cli(
            *("evaluate", DIGITS, "--data", tmp_path / "set.npz", "--threads", 1, "-O", 1),
            *("--json", written, *([] if ray is None else ["--ray", ray])),
        )
        assert done.code == 0, done.err
        record = json.loads(written.read_text())
        record.pop("environment")
        records.append(record)
    assert records[0] == records[1]
    hosts.kill("a")
