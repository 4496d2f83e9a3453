"""Files are written whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from verax.base.errors import UsageError
from verax.base.storage.files import atomic_write


def test_the_file_has_the_content_and_nothing_else_is_left(tmp_path: Path) -> None:
    with atomic_write(tmp_path / "a.bin") as stream:
        stream.write(b"whole")
    assert [p.name for p in tmp_path.iterdir()] == ["a.bin"]
    assert (tmp_path / "a.bin").read_bytes() == b"whole"


def test_an_old_file_is_replaced_only_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    with atomic_write(path) as stream:
        stream.write(b"new")
        stream.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, ValueError, MemoryError])
def test_an_interruption_leaves_the_old_file_and_no_other(
    tmp_path: Path, interruption: type[BaseException]
) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    with pytest.raises(interruption), atomic_write(path) as stream:
        stream.write(b"half")
        raise interruption
    assert [p.name for p in tmp_path.iterdir()] == ["a.bin"]
    assert path.read_bytes() == b"old"


def test_a_full_disk_is_a_usage_error_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No space left"), atomic_write(tmp_path / "a.bin"):
        raise OSError(28, "No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "a.bin"
    with pytest.raises(UsageError) as caught, atomic_write(path):
        raise AssertionError("the block must not run")
    assert caught.value.place == str(path)


def test_the_umask_decides_who_may_read(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with atomic_write(tmp_path / "a.bin") as stream:
            stream.write(b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.bin").stat().st_mode) == 0o640
