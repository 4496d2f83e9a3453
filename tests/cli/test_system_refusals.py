"""What the system refuses, and what is too large for what the model takes, is said in words."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Cli
from verax.base.errors import InputError, UsageError
from verax.base.machine.memory import limited
from verax.base.option_groups.options import InputOptions, PhotoOptions
from verax.base.storage.npz import npz_headers, read_npz, write_npz
from verax.cli.inputs import image_options, read_inputs
from verax.ir.types import TensorType

PLAIN = image_options(PhotoOptions())


def bomb(path: Path, elements: int, name: str = "image") -> None:
    """A small archive with an array of zeros."""
    header = {"descr": "<f4", "fortran_order": False, "shape": (elements,)}
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open(f"{name}.npy", "w", force_zip64=True) as stream,
    ):
        np.lib.format.write_array_header_1_0(stream, header)
        block = bytes(1 << 22)
        for _ in range(4 * elements // len(block)):
            stream.write(block)


def test_an_archive_that_unpacks_to_much_more_than_the_input_is_not_unpacked(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.npz"
    bomb(path, 1 << 28)
    assert path.stat().st_size < 2 << 20
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    types = {"image": TensorType.parse("float32[2, 1, 9, 7]")}
    with pytest.raises(InputError, match="the model takes"):
        read_inputs(InputOptions((f"image={path}",)), types, PLAIN)
    with pytest.raises(InputError, match="the model takes"):
        read_inputs(InputOptions((str(path),)), types, PLAIN)
    open_type = {"image": TensorType.parse("float32[n]")}
    with limited(1 << 26), pytest.raises(InputError, match="would take"):
        read_inputs(InputOptions((str(path),)), open_type, PLAIN)
    with limited(1 << 26), pytest.raises(InputError, match="would take"):
        read_npz(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # of 1,048,576 kB


def test_arrays_come_back_as_they_were_written(tmp_path: Path) -> None:
    rng = np.random.default_rng(371)
    arrays = {
        "a": rng.standard_normal((3, 4, 5)).astype(np.float32),
        "columns": np.asfortranarray(rng.integers(0, 9, (7, 2))),
        "empty": np.zeros((0, 3), np.int16),
        "scalar": np.array(2.5),
        "flags": np.array([True, False]),
    }
    write_npz(tmp_path / "x.npz", arrays)
    found = read_npz(tmp_path / "x.npz")
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype and found[name].flags.writeable  # type: ignore[attr-defined]
        np.testing.assert_array_equal(found[name], array)
        assert npz_headers(tmp_path / "x.npz")[name] == (array.shape, array.dtype)  # type: ignore[attr-defined]
    assert read_npz(tmp_path / "x.npz", ["flags"]).keys() == {"flags"}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
def test_a_pipe_is_no_archive(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.npz")
    with pytest.raises(UsageError, match="regular file"):
        read_npz(tmp_path / "x.npz")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no full disk at hand")
@pytest.mark.parametrize("command", [("formats",), ("runners",), ("--version",)])
def test_a_full_disk_behind_standard_output_is_said(command: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "verax.cli.main", *command],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
        )
    assert done.returncode == 2
    assert "No space left on device" in done.stderr
    assert "bug" not in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("where", ["model", "subject", "--input", "--image", "--json", "--images"])
def test_a_path_that_is_too_long_is_said(cli: Cli, tiny: Path, where: str) -> None:
    long = f"{'x' * 5000}{'.png' if where == '--image' else '.npy'}"
    given = {
        "model": (long,),
        "subject": (tiny, f"{long}.onnx"),
        "--input": (tiny, "reference", "--input", f"image={long}"),
    }.get(where, (tiny, "reference", where, long))
    found = cli("check", *given, "--shape", "n=1")
    assert found.code == 2
    assert "bug" not in found.err and found.err.startswith("error:")
