"""Temporary folders: none is left, and where there is no place for one, that is said."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path

import numpy as np
import pytest

from verax.base.errors import UsageError
from verax.base.process.leaving import vanishing
from verax.base.storage.files import scratch_folder
from verax.runners.children.child import run_in_child


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_folder_goes_with_what_is_in_it(here: Path) -> None:
    with pytest.raises(RuntimeError), scratch_folder() as folder:
        (folder / "a").write_text("b")
        assert folder.parent == here
        raise RuntimeError
    assert list(here.iterdir()) == []


def test_a_folder_in_use_is_removed_when_the_process_is_about_to_vanish(here: Path) -> None:
    with scratch_folder() as folder:
        (folder / "a").write_text("b")
        vanishing()
        assert not folder.exists()


def test_no_temporary_folder_is_an_error_in_words(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(here / "nowhere"))
    with pytest.raises(UsageError, match="no folder for temporary files can be made") as caught:
        run_in_child("onnx_runtime", {}, {"x": np.zeros((2, 3))}, name="any", timeout=60)
    assert "TMPDIR" in caught.value.next_step


def test_a_full_disk_is_an_error_in_words_and_other_errors_stay(here: Path) -> None:
    with pytest.raises(UsageError, match="No space left"), scratch_folder():
        raise OSError(errno.ENOSPC, "No space left on device", "input.npz")
    with pytest.raises(ConnectionError), scratch_folder():
        raise ConnectionError(errno.ECONNRESET, "by peer")
    assert list(here.iterdir()) == []
