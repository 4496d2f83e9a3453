"""Bad files of every format: whatever they hold, there is a model or a clear error, soon and in
little memory. Every load runs in a process of its own, under limits (`confined`).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from tests.formats.confined import SECONDS, Outcome, outcomes
from tests.formats.greedy_files import GREEDY, Entry
from tests.formats.hostile_files import PICKLES, lying_zips, million
from tests.formats.small_files import SMALL, Files, written

import verax
from verax.base.errors import UsageError, VeraxError

CUTS = 20
FOLDERS = ("SavedModel", "mlpackage")
SUFFIXES = {k: Path(next(iter(make()))).suffix for k, make in SMALL.items() if k not in FOLDERS}
"""Of the formats that are a file."""


def loaded(folder: Path, entries: Sequence[Entry], *, run: bool = False) -> dict[str, Outcome]:
    """What came of every entry; each must be clear and soon."""
    paths = [written(folder / str(i), files) for i, (_, files) in enumerate(entries)]
    found = dict(zip((label for label, _ in entries), outcomes(paths, run=run), strict=True))
    unclear = {
        k: o for k, o in found.items() if not o.clear and not (run and o.kind == "MemoryError")
    }
    assert not unclear
    assert not {k: o for k, o in found.items() if o.seconds > SECONDS}
    return found


def models(found: dict[str, Outcome]) -> list[str]:
    return [label for label, outcome in found.items() if outcome.kind == "model"]


def test_the_small_files_are_fine(tmp_path: Path) -> None:
    """Else everything below would pass for the wrong reason."""
    entries = [(kind, make()) for kind, make in SMALL.items()]
    assert len(models(loaded(tmp_path, entries, run=True))) == len(entries)


def test_content_that_is_of_no_format(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    contents = {
        "empty": b"",
        "zeros": bytes(4096),
        "ones": b"\xff" * 4096,
        "page": b"<!DOCTYPE html><html>not found</html>",
        "brackets": b"[" * 200_000,
        **{f"random {i}": rng.bytes(3000 + i) for i in range(4)},
        **{f"pickle {i}": data for i, data in enumerate(PICKLES)},
    }
    entries = [
        (f"{what} as {kind}", {**make(), next(iter(make())): data})
        for kind, make in SMALL.items()
        for what, data in contents.items()
    ]
    assert not models(loaded(tmp_path, entries))


def test_content_of_another_format(tmp_path: Path) -> None:
    entries = []
    for kind, suffix in SUFFIXES.items():
        for other, make in SMALL.items():
            data = next(iter(make().values()))
            same = (
                other == "mlpackage"
                or {kind, other} <= {"h5", "keras"}
                or {kind, other} <= {"pb", "SavedModel"}
            )
            if kind != other and not same:
                entries.append((f"{other} as {kind}", {f"net{suffix}": data}))
    assert not models(loaded(tmp_path, entries))


def cut(files: Files, which: int, part: int) -> Files:
    """One of the files cut off after part/CUTS of it."""
    name = list(files)[which]
    return {**files, name: files[name][: len(files[name]) * part // CUTS]}


def test_files_that_end_too_early(tmp_path: Path) -> None:
    entries = [
        (f"{kind}, file {which}, {part}/{CUTS}", cut(make(), which, part))
        for kind, make in SMALL.items()
        for which in range(len(make()))
        for part in range(CUTS)
    ]
    whole = models(loaded(tmp_path, entries))
    # A protobuf message that is cut between two fields is a shorter message, and the end of a
    # table of variables or of a flatbuffer may be padding.
    assert {label.partition(",")[0] for label in whole} <= {"pb", "SavedModel", "tflite"}
    assert len(whole) < len(entries) / 20, whole


def test_folders_and_unreadable_files(tmp_path: Path) -> None:
    for kind, suffix in SUFFIXES.items():
        folder = tmp_path / f"folder{suffix}"
        folder.mkdir(exist_ok=True)
        with pytest.raises(VeraxError):
            verax.load(folder)
        with pytest.raises(VeraxError):
            verax.load(tmp_path / f"missing{suffix}")
        if os.geteuid():
            path = written(tmp_path / kind, SMALL[kind]())
            path.chmod(0)
            with pytest.raises(VeraxError):
                verax.load(path)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    for suffix in {*SUFFIXES.values(), ".vx"}:
        pipe = tmp_path / f"pipe{suffix}"
        os.mkfifo(pipe)
        with pytest.raises(UsageError, match="pipe"):
            verax.load(pipe)


def test_small_files_that_ask_for_much(tmp_path: Path) -> None:
    """Whether they are read or refused; sizes are checked before anything is allocated."""
    entries = [
        (f"{kind}: {label}", files) for kind, all_ in GREEDY.items() for label, files in all_()
    ]
    found = loaded(tmp_path, entries)
    assert not {k: o for k, o in found.items() if "MemoryError" in o.text}


@pytest.mark.slow
@pytest.mark.parametrize("kind", GREEDY)
def test_running_what_asks_for_much(kind: str, tmp_path: Path) -> None:
    """It may be too much for the machine, which is said; it is never a crash or endless."""
    loaded(tmp_path, list(GREEDY[kind]()), run=True)


def test_archives_that_lie(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile warns of the duplicate that we want
        entries = list(lying_zips())
    assert not models(loaded(tmp_path, entries))


@pytest.mark.slow
def test_a_million_nodes(tmp_path: Path) -> None:
    assert not models(loaded(tmp_path, list(million())))


@pytest.mark.parametrize(
    ("kind", "linked"), [("SavedModel", "variables/*.data*"), ("mlpackage", "Data/*/weights/*.bin")]
)
def test_links_that_lead_out_of_a_folder(kind: str, linked: str, tmp_path: Path) -> None:
    """A file of variables or weights may not be a link to somewhere else."""
    path = written(tmp_path / "model", SMALL[kind]())
    folder = path.parent if kind == "SavedModel" else path
    assert verax.load(folder).graph.constants
    (data,) = folder.glob(linked)
    secret = tmp_path / "secret"
    secret.write_bytes(data.read_bytes())
    data.unlink()
    data.symlink_to(secret)
    with pytest.raises(VeraxError, match=r"link|outside"):
        verax.load(folder)
