"""The cache gives back only what this user's Verax put there under that name, and never fails a
compilation."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from verax.base.errors import UsageError
from verax.base.option_groups.settings import Settings
from verax.base.storage.private import why_not_private
from verax.compiler.artifacts import cache as caching
from verax.compiler.artifacts.cache import CERTIFICATE, PROGRAM, ProgramCache
from verax.compiler.artifacts.save import read_recipe, save
from verax.compiler.compile import compile as compile_graph
from verax.compiler.executable import Executable
from verax.compiler.pipeline.user_passes import passes_of
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.replay import read_record

pytestmark = pytest.mark.skipif(os.name == "nt", reason="rights of POSIX")
ONE = Settings(threads=1)
X = {"x": np.array([[1.5, -2.0, 3.25]] * 2, np.float32)}


def network(op: str = "Relu") -> Graph:
    b = Builder()
    return b.graph([b.add(REGISTRY[op](), [b.input("x", TensorType.parse("float32[2, 3]"))])])


@pytest.fixture
def cache(tmp_path: Path) -> ProgramCache:
    return ProgramCache(tmp_path / "programs")


def compiled(cache: ProgramCache, op: str = "Relu") -> Executable:
    exe = compile_graph(network(op), ONE, cache=cache)
    (found,) = exe.run(X).values()
    wanted = np.maximum(X["x"], 0) if op == "Relu" else -X["x"]
    np.testing.assert_array_equal(found, wanted)
    return exe


def is_found(cache: ProgramCache, op: str = "Relu") -> bool:
    return compiled(cache, op).specialized.cached_notes is not None


def entry(cache: ProgramCache) -> Path:
    ((path, _, _),) = cache.entries()
    return path


def test_what_was_kept_is_found_whatever_the_mask(cache: ProgramCache) -> None:
    old = os.umask(0o002)
    try:
        compiled(cache)
    finally:
        os.umask(old)
    assert entry(cache).stat().st_mode & 0o777 == 0o600
    assert is_found(cache)


def test_another_networks_program_under_this_name_is_not_run(
    cache: ProgramCache, tmp_path: Path
) -> None:
    compiled(cache)
    other = ProgramCache(tmp_path / "other")
    compiled(other, "Neg")
    entry(cache).write_bytes(entry(other).read_bytes())
    assert not is_found(cache)
    assert is_found(cache)


def test_a_program_that_a_user_saved_is_no_entry(cache: ProgramCache, tmp_path: Path) -> None:
    save(compiled(cache), tmp_path / "a.vx")
    entry(cache).write_bytes((tmp_path / "a.vx").read_bytes())
    assert not is_found(cache)


def test_a_link_to_a_program_is_not_followed(cache: ProgramCache, tmp_path: Path) -> None:
    compiled(cache)
    path = entry(cache)
    path.rename(tmp_path / "elsewhere.vx")
    path.symlink_to(tmp_path / "elsewhere.vx")
    assert not is_found(cache)
    assert not path.is_symlink() and is_found(cache)
    assert (tmp_path / "elsewhere.vx").exists()


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_an_entry_that_others_may_write_is_not_run(cache: ProgramCache, mode: int) -> None:
    compiled(cache)
    entry(cache).chmod(mode)
    assert not is_found(cache)
    assert is_found(cache)


@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="only root gives files away")
def test_an_entry_of_another_user_is_not_run(cache: ProgramCache) -> None:
    compiled(cache)
    os.chown(entry(cache), 4711, -1)
    assert not is_found(cache)
    cache.folder.chmod(0o755)
    os.chown(cache.folder, 4711, -1)
    with pytest.warns(UserWarning, match="belongs to another user"):
        assert not is_found(cache)


@pytest.mark.parametrize("suffix", [PROGRAM, CERTIFICATE])
def test_a_pipe_in_place_of_an_entry_is_not_waited_for(cache: ProgramCache, suffix: str) -> None:
    cache.keep_text("k" * 64, "text")
    path = cache.folder / f"{'k' * 64}{suffix}"
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    found: list[object] = []

    def ask() -> None:
        found.append(cache.program("k" * 64))
        found.append(cache.text("k" * 64))
        if not path.exists():
            os.mkfifo(path)
        cache.keep_text("k" * 64, "again")
        found.append(cache.text("k" * 64))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(20)
    wanted = None if suffix == CERTIFICATE else "text"
    assert found == [None, wanted, "again"]


def test_a_certificate_of_another_entry_is_none(cache: ProgramCache) -> None:
    cache.keep_text("a" * 64, "first")
    cache.keep_text("b" * 64, "second")
    one, two = (cache.folder / f"{k * 64}{CERTIFICATE}" for k in "ab")
    one.write_bytes(two.read_bytes())
    assert cache.text("a" * 64) is None and cache.text("b" * 64) == "second"
    text = b"made up"
    one.write_bytes(hashlib.sha256(text).hexdigest().encode() + b"\n" + text)
    assert cache.text("a" * 64) is None


# Folders above


def test_a_folder_above_where_others_may_write_switches_it_off(tmp_path: Path) -> None:
    open_to_all = tmp_path / "shared"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    cache = ProgramCache(open_to_all / "mine" / "programs")
    with pytest.warns(UserWarning, match="others may write in .*shared"):
        compiled(cache)
    assert not cache.entries()
    open_to_all.chmod(0o1777)  # as /tmp: nobody renames what is another's
    assert why_not_private(cache.folder) == ""


def test_links_above_are_looked_at_on_both_sides(tmp_path: Path) -> None:
    real, shared = tmp_path / "real", tmp_path / "shared"
    (real / "programs").mkdir(parents=True, mode=0o700)
    shared.mkdir()
    (shared / "link").symlink_to(real)
    assert why_not_private(shared / "link" / "programs") == ""
    shared.chmod(0o777)
    assert "shared" in why_not_private(shared / "link" / "programs")
    shared.chmod(0o755)
    real.chmod(0o777)
    assert "real" in why_not_private(shared / "link" / "programs")


def test_folders_above_the_home_folder_are_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "homes" / "me"
    (home / ".cache" / "programs").mkdir(parents=True)
    (tmp_path / "homes").chmod(0o777)
    assert why_not_private(home / ".cache" / "programs")
    monkeypatch.setenv("HOME", str(home))
    assert why_not_private(home / ".cache" / "programs") == ""


# Folders that cannot be used


def _warnings_of(cache: ProgramCache) -> list[str]:
    caching._warned.discard(cache.folder)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for op in ("Relu", "Neg"):
            assert not is_found(cache, op)
        cache.keep_text("t" * 64, "text")
        assert cache.text("t" * 64) is None
    return [str(w.message) for w in told if "the cache" in str(w.message)]


def test_a_path_that_is_too_long_is_one_warning(tmp_path: Path) -> None:
    for long in ("x" * 300, "/".join(["y" * 200] * 30)):
        (told,) = _warnings_of(ProgramCache(tmp_path / long))
        assert "too long" in told and "VERAX_CACHE" in told


CODE = """
import os, sys, warnings
import numpy as np
import verax, verax.ops
from verax.ir.graph import Builder
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
b = Builder()
net = b.graph([b.add(REGISTRY["Relu"](), [b.input("x", TensorType.parse("float32[2, 3]"))])])
for _ in range(2):  # imports all that it takes, which another user may not be allowed to read
    verax.compile(net, threads=3)
os.environ["VERAX_CACHE"] = ""
if os.geteuid() == 0:
    os.setgid(4711)
    os.setuid(4711)
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    for threads in (1, 2):
        exe = verax.compile(net, threads=threads)
        assert exe.run({"x": np.ones((2, 3), np.float32)})
print(*[w.message for w in told], sep="\\n")
"""


def test_a_home_folder_that_cannot_be_searched_is_one_warning(tmp_path: Path) -> None:
    """A container with `-u 1000` and HOME=/root."""
    home = tmp_path / "root"
    (home / ".cache").mkdir(parents=True)
    home.chmod(0)
    own = {"HOME": str(home), "XDG_CACHE_HOME": "", "VERAX_CACHE": str(tmp_path / "mine")}
    env = {**os.environ, **own}
    try:
        done = subprocess.run(
            [sys.executable, "-c", CODE], env=env, capture_output=True, text=True, timeout=120
        )
    finally:
        home.chmod(0o700)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert "Permission denied" in line and "VERAX_CACHE" in line


def test_a_user_without_a_home_folder_gets_no_folder_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VERAX_CACHE", "")
    monkeypatch.setattr(caching, "_user_folder", lambda: "~/.cache/verax")
    caching._warned.clear()
    with pytest.warns(UserWarning, match="no home folder"):
        assert caching.default_cache() is None


# Pipes elsewhere


@pytest.mark.parametrize("read", [passes_of, read_recipe, read_record], ids=lambda f: f.__name__)
def test_a_pipe_in_place_of_a_file_that_is_read_is_refused(
    tmp_path: Path, read: Callable[[Any], object]
) -> None:
    pipe = tmp_path / "pipe.py"
    os.mkfifo(pipe)
    told: list[str] = []

    def ask() -> None:
        try:
            read(pipe)
        except UsageError as error:
            told.append(str(error))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(20)
    assert len(told) == 1 and "regular file" in told[0]
