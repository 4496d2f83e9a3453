"""Files that nobody has written since they were hashed are not hashed again; all others are."""

from __future__ import annotations

import dataclasses
import gc
import os
import time
from pathlib import Path

import numpy as np
import pytest

import verax
from tests.compiler.test_kept_models import X, answer, network, never, saved
from tests.compiler.test_shared_weights import O2, images, rows
from verax.base.errors import ModelError
from verax.base.option_groups.settings import Settings
from verax.base.storage import reading, unchanged
from verax.base.storage.reading import file_sha256, private_bytes, recording
from verax.compiler.artifacts import cache as caching
from verax.compiler.artifacts.cache import INTACT, PROGRAM, ProgramCache
from verax.compiler.compile import compile as compile_graph
from verax.frontends.deferred_model import DeferredModel
from verax.runtime import vx
from verax.runtime.vx import BLOCK


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where programs are kept; files count as settled at once."""
    monkeypatch.setenv("VERAX_CACHE", str(tmp_path / "programs"))
    monkeypatch.setattr(unchanged, "SETTLED_SECONDS", -5.0)
    monkeypatch.setattr(unchanged, "_digests", {})
    return tmp_path


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in another process."""
    monkeypatch.setattr(unchanged, "_digests", {})


@pytest.mark.parametrize("external", [False, True])
def test_a_file_that_nobody_wrote_is_hashed_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, external: bool
) -> None:
    path = saved(folder / "net.onnx", network(), external)
    wanted = answer(path)
    verax.load(path)  # of files beside it the record tells
    forget(monkeypatch)
    monkeypatch.setattr(caching, "file_sha256", never)
    model = verax.load(path)
    assert isinstance(model, DeferredModel)
    assert verax.compile(model, threads=1).run(X)["y"].tobytes() == wanted


def test_neither_size_nor_settable_times_hide_a_change(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(folder / "net.onnx", network())
    first, before = answer(path), path.stat()
    time.sleep(0.02)  # the second time of a file is told in steps of some ms
    path.write_bytes(saved(folder / "other.onnx", network(seed=8)).read_bytes())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_ino, after.st_size, after.st_mtime_ns) == (
        before.st_ino, before.st_size, before.st_mtime_ns,
    )  # fmt: skip
    forget(monkeypatch)
    assert not isinstance(verax.load(path), DeferredModel)
    assert answer(path) == answer(path, cache=False) != first


def test_a_file_of_the_last_minute_is_hashed_each_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unchanged, "SETTLED_SECONDS", 60.0)
    path = saved(folder / "net.onnx", network())
    answer(path)
    hashed: list[object] = []
    monkeypatch.setattr(
        caching, "file_sha256", lambda file: [hashed.append(file), file_sha256(file)][1]
    )
    for _ in range(2):
        assert isinstance(verax.load(path), DeferredModel)
    assert hashed == [str(path)] * 2
    assert not unchanged._digests


@pytest.mark.parametrize("text", ["", "1,2,3,4,5 abc", "x"])
def test_a_record_of_another_file_is_not_taken(folder: Path, text: str) -> None:
    path = saved(folder / "net.onnx", network())
    cache = caching.default_cache()
    assert cache is not None
    cache.keep_text(caching.entry_name("file", str(path)), text, caching.RECORD)
    assert cache.file_sha256(path) == file_sha256(path)


def test_a_process_that_hashed_a_file_does_not_hash_what_it_reads_of_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "data"
    path.write_bytes(b"some bytes")
    digest = file_sha256(path)
    monkeypatch.setattr(reading.hashlib, "sha256", never)
    with recording() as files:
        assert private_bytes(path).tobytes() == b"some bytes"
    assert files == {str(path): digest}


def test_it_remembers_so_many_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unchanged, "MOST", 3)
    for number in range(5):
        unchanged.remember((number,), str(number))
    assert unchanged._digests == {(n,): str(n) for n in (2, 3, 4)}
    assert unchanged.known_sha256((4,)) == "4" and not unchanged.known_sha256((0,))


# --- blocks of weights


def kept(cache: ProgramCache, seed: int = 931, settings: Settings = O2) -> np.ndarray:
    """The answer of a network, whose program is kept if it was not, and is held no longer."""
    exe = compile_graph(images(seed), settings, cache=cache)
    (result,) = exe.run({"x": rows(7)}).values()
    del exe
    gc.collect()
    return result


def test_blocks_are_not_hashed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = ProgramCache(tmp_path / "p")
    wanted = kept(cache)
    hashed: list[int] = []
    sha256 = vx.hashlib.sha256
    monkeypatch.setattr(vx.hashlib, "sha256", lambda d=b"": [hashed.append(len(d)), sha256(d)][1])
    np.testing.assert_array_equal(kept(cache), wanted)
    largest = max(p.stat().st_size for p in (tmp_path / "p").glob(f"*{BLOCK}"))
    assert hashed and max(hashed) < largest
    (record,) = (tmp_path / "p").glob(f"*{INTACT}")
    record.unlink()  # then they are hashed once more, and known again
    hashed.clear()
    np.testing.assert_array_equal(kept(cache), wanted)
    assert max(hashed) == largest and record.exists()


def test_blocks_that_an_entry_finds_there_are_not_hashed_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of an entry that this process kept or read are known to be intact."""
    cache, other = ProgramCache(tmp_path / "p"), dataclasses.replace(O2, threads=3)
    kept(cache)
    count = len(list((tmp_path / "p").glob(f"*{BLOCK}")))
    wanted = kept(cache, settings=other)
    assert len(list((tmp_path / "p").glob(f"*{BLOCK}"))) == count, "both have the same blocks"
    hashed: list[int] = []
    sha256 = vx.hashlib.sha256
    monkeypatch.setattr(vx.hashlib, "sha256", lambda d=b"": [hashed.append(len(d)), sha256(d)][1])
    np.testing.assert_array_equal(kept(cache, settings=other), wanted)
    largest = max(p.stat().st_size for p in (tmp_path / "p").glob(f"*{BLOCK}"))
    assert hashed and max(hashed) < largest


def test_a_block_changed_in_place_is_noticed(tmp_path: Path) -> None:
    cache = ProgramCache(tmp_path / "p")
    wanted = kept(cache)
    path = max((tmp_path / "p").glob(f"*{BLOCK}"), key=lambda p: p.stat().st_size)
    sound, before = path.read_bytes(), path.stat()
    time.sleep(0.02)
    with path.open("r+b") as stream:
        stream.seek(4321)
        stream.write(bytes([sound[4321] ^ 16]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_ino == before.st_ino and path.read_bytes() != sound
    np.testing.assert_array_equal(kept(cache), wanted)
    assert path.read_bytes() == sound, "it was made and written again"


def test_a_block_that_was_there_counts_as_unknown(tmp_path: Path) -> None:
    cache = ProgramCache(tmp_path / "p")
    wanted = kept(cache)
    path = max((tmp_path / "p").glob(f"*{BLOCK}"), key=lambda p: p.stat().st_size)
    sound = path.read_bytes()
    for file in (tmp_path / "p").iterdir():
        if file != path:
            file.unlink()
    path.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
    np.testing.assert_array_equal(kept(cache), wanted)  # made anew, beside the file of a block
    np.testing.assert_array_equal(kept(cache), wanted)
    assert path.read_bytes() == sound


def test_blocks_were_used_when_an_entry_that_reads_them_was(tmp_path: Path) -> None:
    cache = ProgramCache(tmp_path / "p")
    kept(cache, 932)
    blocks = set((tmp_path / "p").glob(f"*{BLOCK}"))
    kept(cache, 933)
    for path, _, _ in cache.entries():
        os.utime(path, (1_000, 1_000))
    kept(cache, 932)
    last = cache.entries()[-2:]
    assert {path for path, _, _ in last} == blocks
    assert all(seconds > 1_000_000 for _, _, seconds in last)
    assert sum(seconds > 1_000 for _, _, seconds in cache.entries()) == 4


def test_a_damaged_block_is_told_where_no_entry_says_what_was_intact(tmp_path: Path) -> None:
    cache = ProgramCache(tmp_path / "p")
    kept(cache)
    (entry,) = (tmp_path / "p").glob(f"*{PROGRAM}")
    path = next((tmp_path / "p").glob(f"*{BLOCK}"))
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(ModelError, match="does not match its checksum"):
        vx.load_binary(entry, entry=entry.stem)
