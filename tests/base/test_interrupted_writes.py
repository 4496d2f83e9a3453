"""Writers that are killed leave nothing, or what the next one removes."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from verax.base.errors import UsageError
from verax.base.storage import files
from verax.base.storage.files import PART, atomic_write, scratch_folder, staging_folder

ROOT = Path(__file__).parents[2]

WRITE = """
import os, sys, time
from pathlib import Path
if sys.argv[2] == "named":
    os.O_TMPFILE = 0
from verax.base.storage.files import atomic_write
with atomic_write(Path(sys.argv[1])) as stream:
    stream.write(b"half")
    stream.flush()
    print("writing", flush=True)
    time.sleep(600)
"""
STAGE = """
import sys, time
from verax.base.storage.files import staging_folder
with staging_folder(sys.argv[1]) as folder:
    (folder / "draft").write_bytes(b"half")
    print("writing", flush=True)
    time.sleep(600)
"""


def started(code: str, *arguments: object) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "writing\n"
    return child


def ended(child: subprocess.Popen[str]) -> None:
    child.send_signal(signal.SIGKILL)
    child.communicate(timeout=30)


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def has_unnamed_files(folder: Path) -> bool:
    try:
        os.close(os.open(folder, os.O_RDWR | os.O_TMPFILE))
    except (AttributeError, OSError):
        return False
    return True


def test_a_killed_writer_leaves_nothing(tmp_path: Path) -> None:
    if not has_unnamed_files(tmp_path):
        pytest.skip("this file system has no files without a name")
    (tmp_path / "net.vx").write_bytes(b"old")
    ended(started(WRITE, tmp_path / "net.vx", "unnamed"))
    assert names(tmp_path) == ["net.vx"]
    assert (tmp_path / "net.vx").read_bytes() == b"old"


@pytest.mark.parametrize("how", ["file", "folder"])
def test_the_next_writer_removes_what_a_killed_one_left(how: str, tmp_path: Path) -> None:
    """And not what one that is alive still writes."""
    dead, alive = tmp_path / "dead", tmp_path / "alive"
    started_ones = [
        started(WRITE, p, "named") if how == "file" else started(STAGE, p) for p in (dead, alive)
    ]
    try:
        ended(started_ones[0])
        assert len([n for n in names(tmp_path) if n.endswith(PART)]) == 2
        with atomic_write(tmp_path / "other") as stream:
            stream.write(b"whole")
        left = [n for n in names(tmp_path) if n.endswith(PART)]
        assert [n.startswith(".alive.") for n in left] == [True]
    finally:
        ended(started_ones[1])
    with atomic_write(tmp_path / "other") as stream:
        stream.write(b"again")
    assert names(tmp_path) == ["other"]


def test_files_of_others_are_never_swept(tmp_path: Path) -> None:
    """Nor is anything behind a link, or under a name of another kind."""
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_bytes(b"x")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / f".link.0{PART}").symlink_to(kept)
    (folder / ".o.vx.abcd1234").write_bytes(b"x")
    with atomic_write(folder / "a") as stream:
        stream.write(b"x")
    assert (kept / "file").exists()
    assert (folder / ".o.vx.abcd1234").exists()


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("before", [None, b"old"])
def test_writing_with_and_without_unnamed_files(
    named: bool, before: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if named:
        monkeypatch.setattr(os, "O_TMPFILE", 0, raising=False)
    path = tmp_path / "a.bin"
    if before is not None:
        path.write_bytes(before)
    with atomic_write(path) as stream:
        stream.seek(3)
        stream.write(b"new")
        assert (path.read_bytes() if path.exists() else None) == before
    assert path.read_bytes() == b"\0\0\0new"
    with pytest.raises(KeyboardInterrupt), atomic_write(path) as stream:
        stream.write(b"half")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"\0\0\0new"
    assert names(tmp_path) == ["a.bin"]
    (tmp_path / "sub").mkdir()
    with pytest.raises(UsageError, match="cannot write the file"), atomic_write(tmp_path / "sub"):
        pass
    assert names(tmp_path) == ["a.bin", "sub"]


def test_a_name_that_is_taken_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    with atomic_write(path) as stream:
        stream.write(b"mine")
        path.write_bytes(b"another's")
    assert path.read_bytes() == b"mine"
    assert names(tmp_path) == ["a.bin"]


def test_devices_and_pipes_are_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with atomic_write(pipe) as stream:
        stream.write(b"through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    assert pipe.is_fifo()
    with pytest.raises(UsageError, match="No space left"), atomic_write("/dev/full") as stream:
        stream.write(b"x" * 100_000)
    with atomic_write("/dev/null") as stream:
        stream.write(b"x")
    assert Path("/dev/null").is_char_device()


def test_a_staging_folder_lies_beside_and_goes_with_the_block(tmp_path: Path) -> None:
    target = tmp_path / "net.onnx"
    with pytest.raises(KeyboardInterrupt), staging_folder(target) as folder:
        assert folder.parent == tmp_path
        (folder / "net.onnx").write_bytes(b"x")
        raise KeyboardInterrupt
    assert names(tmp_path) == []
    missing = staging_folder(tmp_path / "none" / "net.onnx")
    with pytest.raises(UsageError, match="cannot write beside"), missing:
        pass


def test_without_a_folder_for_temporary_files_there_is_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"x")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    with pytest.raises(UsageError, match="no folder for temporary files") as caught:
        scratch_folder().__enter__()
    assert "TMPDIR" in caught.value.next_step

    def none() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(files.tempfile, "gettempdir", none)
    with pytest.raises(UsageError, match="No usable temporary directory"):
        scratch_folder().__enter__()


def test_a_full_folder_for_temporary_files_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(UsageError, match="No space left") as caught, scratch_folder():
        raise OSError(errno.ENOSPC, "No space left on device")
    assert "TMPDIR" in caught.value.next_step
    with pytest.raises(OSError, match="other"), scratch_folder():
        raise OSError(errno.EBADF, "other")
    with scratch_folder() as folder:
        (folder / "a").write_bytes(b"x")
    assert names(tmp_path) == []


def test_converting_is_judged_before_there_is_a_file(tmp_path: Path) -> None:
    """A conversion that is killed leaves no unjudged file, and the next one cleans up."""
    pytest.importorskip("onnxruntime", reason="the judged file is run by ONNX Runtime")
    code = f"""
import sys, time
import verax
from verax import verified_conversion
honest = verified_conversion.check
def slow(*arguments, **options):
    print("writing", flush=True)
    time.sleep(600)
verified_conversion.check = slow
verified_conversion.convert(verax.load({str(ROOT / "examples/digits/digits.onnx")!r}), sys.argv[1])
"""
    target = tmp_path / "net.onnx"
    ended(started(code, target))
    assert [n for n in names(tmp_path) if not n.endswith(PART)] == []
    with atomic_write(tmp_path / "other") as stream:
        stream.write(b"x")
    assert names(tmp_path) == ["other"]


def test_an_interrupted_conversion_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime", reason="the judged file is run by ONNX Runtime")
    import verax
    from verax import verified_conversion

    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(verified_conversion, "check", interrupted)
    target = tmp_path / "net.onnx"
    target.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt):
        verified_conversion.convert(verax.load(ROOT / "examples/digits/digits.onnx"), target)
    assert target.read_bytes() == b"old"
    assert names(tmp_path) == ["net.onnx"]


def test_every_writer_is_this_one() -> None:
    """Files are opened for writing in `base.storage.files` only, or within a scratch folder."""
    in_scratch = {
        "base/storage/files.py",
        "runners/children/child.py",
        "runners/children/child_files.py",
        "runners/command.py",
        "runners/children/worker.py",
    }
    in_scratch |= {"base/storage/npz.py", "bench/rounds.py", "bench/worker.py", "cli/app.py"}
    in_scratch |= {"runners/environments/interpreter.py", "runners/environments/script.py"}
    in_scratch |= {"pytest_plugin/github.py"}  # GitHub's file, to which steps append
    in_scratch |= {"repro/write.py"}  # a zip archive in memory
    in_scratch |= {"runners/onnx_runtime.py"}  # the runtime writes its optimized model, in a child
    in_scratch |= {"distributed/contents.py"}  # locks, and a draft that is renamed when it is whole
    ways = re.compile(
        r"\.write_bytes\(|\.write_text\(|open\([^\n]*[\"'][wax]b?\+?[\"']|mkstemp\(|mkdtemp\("
        r"|TemporaryDirectory\(|TemporaryFile\("
    )
    source = ROOT / "src" / "verax"
    others = {
        str(path.relative_to(source)): ways.findall(path.read_text())
        for path in source.rglob("*.py")
        if str(path.relative_to(source)) not in in_scratch
    }
    assert {k: v for k, v in others.items() if v} == {}


def test_no_file_is_mapped() -> None:
    """Bytes of files come from `base.storage.reading`."""
    source = ROOT / "src" / "verax"
    # The linker and fences map memory, no file; blocks are packed into files without a name yet.
    allowed = {"base/storage/reading.py", "runtime/linker.py", "runtime/block_files.py"}
    allowed |= {"runtime/gpu/fences.py"}
    found = [
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if any(w in path.read_text() for w in ("mmap", "memmap"))
        and str(path.relative_to(source)) not in allowed
    ]
    assert found == []
