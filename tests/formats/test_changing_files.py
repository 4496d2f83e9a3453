"""What happens to a model's files after `load` changes nothing: its bytes are the process's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
from tests.formats.changing_files import WAYS
from tests.formats.small_files import SMALL, written
from tests.frontends.onnx_models import small_network

import verax
from verax.api import subject_of
from verax.base.errors import ModelError, UsageError
from verax.base.storage.reading import companion, open_bytes, plain_bytes, private_bytes, stamp

ROOT = Path(__file__).parents[2]


def external(folder: Path) -> Path:
    """An ONNX model whose weights lie in a file of their own."""
    folder.mkdir()
    model = small_network()
    path = folder / "net.onnx"
    onnx.save_model(
        model, path, save_as_external_data=True, location="w.bin", size_threshold=0
    )  # fmt: skip
    return path


@pytest.mark.parametrize("way", WAYS)
def test_a_file_that_changes_after_it_was_loaded(way: str, tmp_path: Path) -> None:
    paths = {k: written(tmp_path / k, make()) for k, make in SMALL.items()}
    paths["external"] = external(tmp_path / "external")
    compiled = verax.compile(verax.load(paths["tflite"]))
    paths["vx"] = tmp_path / "net.vx"
    compiled.save(paths["vx"])
    done = subprocess.run(
        [sys.executable, "-m", "tests.formats.changing_files", way, str(tmp_path / "spare")],
        input=json.dumps({k: str(p) for k, p in paths.items()}),
        capture_output=True, text=True, check=False, cwd=ROOT, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    assert json.loads(done.stdout) == dict.fromkeys(paths, "same")


def test_a_file_that_changes_while_it_is_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "w.bin"
    path.write_bytes(bytes(range(256)) * 64)
    real = os.readv

    def slow(descriptor: int, buffers: list[memoryview]) -> int:
        got = real(descriptor, [buffers[0][:4096]])
        with path.open("r+b") as stream:
            stream.write(b"other")
        os.utime(path, ns=(1, 1))
        return got

    monkeypatch.setattr(os, "readv", slow)
    with pytest.raises(ModelError, match="changed while it was read"):
        private_bytes(path)
    monkeypatch.setattr(os, "readv", lambda d, b: (os.truncate(path, 100), real(d, b))[1])
    with pytest.raises(ModelError, match="changed while it was read"):
        private_bytes(path)


@pytest.mark.parametrize("read", [private_bytes, plain_bytes, open_bytes])
def test_pipes_and_folders_are_refused_at_once(read: object, tmp_path: Path) -> None:
    assert callable(read)
    os.mkfifo(tmp_path / "pipe")
    found: list[Exception] = []

    def work() -> None:
        for path in (tmp_path / "pipe", tmp_path):
            try:
                read(path)
            except UsageError as error:
                found.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(10)
    assert len(found) == 2


def test_holes_take_no_memory_and_are_zeros(tmp_path: Path) -> None:
    path, size = tmp_path / "sparse", 7 << 28
    with path.open("wb") as stream:
        stream.seek(3 << 28)
        stream.write(b"here")
        stream.truncate(size)
    before = resident()
    data = private_bytes(path)
    assert resident() - before < 64 << 20
    assert len(data) == size
    place = 3 << 28
    assert bytes(data[place - 4 : place + 8]) == b"\0\0\0\0here\0\0\0\0"
    assert bytes(data[-4:]) == bytes(4)


def resident() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    except OSError:
        pytest.skip("the system does not tell how much memory is resident")


def test_private_bytes_cannot_be_written_and_lie_on_a_page(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(b"weights")
    array = np.frombuffer(private_bytes(tmp_path / "w.bin"), np.uint8)
    assert array.ctypes.data % 4096 == 0
    assert not array.flags.writeable


LINKS = {
    "SavedModel": ("variables/*.data*", "variables/*.index", "saved_model.pb"),
    "mlpackage": ("Data/*/weights/*.bin", "Manifest.json", "Data/*/*.mlmodel"),
    "mxnet": ("*.params",),
    "external": ("w.bin",),
}
"""The files of each format that belong to the one that is named."""


@pytest.mark.parametrize("folder_too", [False, True])
@pytest.mark.parametrize(("kind", "linked"), [(k, p) for k, all_ in LINKS.items() for p in all_])
def test_companions_are_no_links_out_of_the_folder(
    kind: str, linked: str, folder_too: bool, tmp_path: Path
) -> None:
    """One rule for all formats; inside of the folder a link is as good as a file."""
    path = written(tmp_path / "m", SMALL[kind]()) if kind in SMALL else external(tmp_path / "m")
    if path.name == "saved_model.pb":
        path = path.parent
    folder = path if path.is_dir() else path.parent
    (file,) = folder.glob(linked)
    inside = file.parent / "beside" / file.name
    inside.parent.mkdir()
    file.rename(inside)
    file.symlink_to(inside)
    assert verax.load(path).graph.nodes
    secret = tmp_path / "secret" / file.name
    secret.parent.mkdir()
    inside.rename(secret)
    inside.parent.rmdir()
    file.unlink()
    if folder_too and file.parent != folder:
        for other in file.parent.iterdir():
            other.rename(secret.parent / other.name)
        file.parent.rmdir()
        file.parent.symlink_to(secret.parent)
    else:
        file.symlink_to(secret)
    with pytest.raises(ModelError, match="outside of the model's folder"):
        verax.load(path)


def test_params_that_the_user_names_may_lie_anywhere(tmp_path: Path) -> None:
    path = written(tmp_path / "m", SMALL["mxnet"]())
    (params,) = path.parent.glob("*.params")
    other = tmp_path / "elsewhere.params"
    params.rename(other)
    assert verax.load(path, params=other).graph.nodes


@pytest.mark.parametrize(
    "name", ["", "/etc/passwd", "../w.bin", "a/../../w.bin", "a\0b", "a\\b", "C:/w.bin"]
)
def test_names_that_are_none_of_a_file_in_the_folder(name: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no name of a data file"):
        companion(tmp_path, name, "data file")


def test_a_link_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "w.bin").symlink_to(tmp_path / "w.bin")
    with pytest.raises((ModelError, UsageError)):
        private_bytes(companion(tmp_path, "w.bin", "data file"))


def test_a_runtime_is_not_given_another_network_than_the_judge(tmp_path: Path) -> None:
    """It reads the file by itself, later than `load` did."""
    path = tmp_path / "net.onnx"
    model = small_network()
    path.write_bytes(model.SerializeToString())
    loaded = verax.load(path)
    given = {n: np.zeros([2, *t.dims[1:]], np.float32) for n, t in loaded.inputs.items()}
    model.doc_string = "another"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(UsageError, match="changed since it was loaded"):
        subject_of("onnxruntime", loaded)
    subject_of("onnxruntime", verax.load(path))
    assert verax.check(loaded, "reference", given).exit_code == 0


def test_the_stamp_of_a_folder_is_that_of_all_its_files(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "w.bin").write_bytes(b"abc")
    before = stamp(tmp_path)
    assert before == stamp(tmp_path) != ()
    (tmp_path / "deep" / "w.bin").write_bytes(b"abcd")
    assert stamp(tmp_path) != before
    assert stamp(tmp_path / "none") == ()
