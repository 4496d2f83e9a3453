"""Blocks of weights that are packed straight into the cache's files: the program reads these, the
process holds no second copy, and nothing is left where something fails."""

from __future__ import annotations

import gc
import json
import os
from pathlib import Path

import numpy as np
import pytest

from verax.base.option_groups.settings import Settings
from verax.compiler.artifacts import cache as caches
from verax.compiler.artifacts.cache import BOOT, INTACT, ProgramCache
from verax.compiler.compile import compile
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.runtime import block_files
from verax.runtime.vx import BLOCK
from verax.runtime.weight_blocks import WEIGHTS

LINUX = pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="files without names are Linux's")


def network(seed: int) -> Graph:
    b, rng = Builder("products"), np.random.default_rng(seed)
    value = b.input("x", TensorType.parse("float32[rows, 96]"))
    for k, n in ((96, 352), (352, 160)):
        weights = rng.standard_normal((k, n)).astype(np.float32)
        value = b.add(REGISTRY["MatMul"](), [value, b.constant(weights)])
    return b.graph([value])


def x(rows: int = 5) -> dict[str, np.ndarray]:
    values = np.random.default_rng(rows).standard_normal((rows, 96))
    return {"x": values.astype(np.float32)}


def answer(folder: Path, seed: int) -> bytes:
    exe = compile(network(seed), Settings(1, threads=1), cache=ProgramCache(folder))
    return next(iter(exe.run(x()).values())).tobytes()


def in_memory(seed: int) -> bytes:
    (y,) = compile(network(seed), Settings(1, threads=1)).run(x()).values()
    return y.tobytes()


@LINUX
def test_a_program_reads_the_files_that_the_cache_keeps(tmp_path: Path) -> None:
    exe = compile(network(31), Settings(1, threads=1), cache=ProgramCache(tmp_path))
    (y,) = exe.run(x()).values()
    blocks = exe._bound().specialized.binary.blocks
    files = {p.stem: p for p in tmp_path.glob(f"*{BLOCK}")}
    assert len(blocks) == len(files) == 2
    maps = Path("/proc/self/maps").read_text()
    for block in blocks:
        assert files[block.digest].read_bytes() == block.data.tobytes()
        assert files[block.digest].stat().st_mode & 0o777 == 0o600
        assert f" {files[block.digest].stat().st_ino} " in maps and block.file is None
        (line,) = [m for m in maps.splitlines() if m.startswith(f"{block.address:x}-")]
        assert " r--s " in line, "nobody writes it any more"
    assert y.tobytes() == in_memory(31)


def test_without_files_blocks_lie_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a full disk, say, or a file system that has no such files."""
    monkeypatch.setattr(block_files, "unnamed_file", lambda folder, nbytes: None)
    assert answer(tmp_path, 32) == in_memory(32)
    assert len(list(tmp_path.glob(f"*{BLOCK}"))) == 2


@LINUX
def test_so_many_files_are_open_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_files, "MOST_OPEN", 1)
    assert answer(tmp_path, 33) == in_memory(33)
    gc.collect()
    assert not block_files._open


@LINUX
def test_a_program_that_is_not_kept_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = ProgramCache(tmp_path)
    monkeypatch.setattr(ProgramCache, "keep_program", lambda *given: None)
    before = set(os.listdir("/proc/self/fd"))
    exe = compile(network(34), Settings(1, threads=1), cache=cache)
    exe.run(x())
    assert len(set(os.listdir("/proc/self/fd")) - before) >= 2
    del exe
    gc.collect()
    assert set(os.listdir("/proc/self/fd")) <= before
    assert not list(tmp_path.glob(f"*{BLOCK}"))


def test_the_same_block_again_is_the_file_that_is_there(tmp_path: Path) -> None:
    first = answer(tmp_path, 35)
    gc.collect()
    files = {p: p.stat().st_ino for p in tmp_path.glob(f"*{BLOCK}")}
    for path in tmp_path.iterdir():
        if path.suffix != BLOCK:
            path.unlink()
    assert answer(tmp_path, 35) == first
    assert {p: p.stat().st_ino for p in tmp_path.glob(f"*{BLOCK}")} == files


def test_behind_a_start_of_the_system_new_files_are_hashed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was not on the disk when the power went is lost, and has its size and its times."""
    first = answer(tmp_path, 36)
    gc.collect()
    assert not any(WEIGHTS.find(digest=p.stem) for p in tmp_path.glob(f"*{BLOCK}"))
    (record,) = tmp_path.glob(f"*{INTACT}")
    kept = json.loads(record.read_text().split("\n", 2)[2])
    assert kept[BOOT] == caches.boot_id() and len(kept) == 3
    cache = ProgramCache(tmp_path)
    assert len(cache._intact(record.stem)) == 2
    monkeypatch.setattr(caches, "boot_id", lambda: "another")
    assert cache._intact(record.stem) == {}
    assert answer(tmp_path, 36) == first
    assert BOOT not in json.loads(record.read_text().split("\n", 2)[2])
    assert len(cache._intact(record.stem)) == 2


@LINUX
def test_a_file_that_cannot_be_written_leaves_its_block_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, content: memoryview, at: int) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(block_files.os, "pwrite", full)
    assert answer(tmp_path, 37) == in_memory(37)
    assert not list(tmp_path.glob(f"*{BLOCK}")) or answer(tmp_path, 37) == in_memory(37)
