"""Whatever goes wrong is said in words, with code 2, and leaves no file behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

import verax
from verax.base.errors import UsageError
from verax.cli.work import compile as compile_work
from verax.cli.work import ops as ops_work

from .conftest import Cli


def test_a_missing_file_is_answered_with_a_neighbour(cli: Cli, digits: Path) -> None:
    found = cli("inspect", digits.parent / "digit.onnx")
    assert found.code == 2
    assert "no such file" in found.err
    assert "did you mean digits.onnx" in found.err


def test_a_missing_photo_is_answered_with_a_neighbour(cli: Cli, digits: Path) -> None:
    found = cli("run", digits, "--image", digits.parent / "9.png")
    assert found.code == 2 and "no such file" in found.err
    assert "did you mean" in found.err and "3.png" in found.err
    found = cli("run", digits, "--image", digits.parent)
    assert found.code == 2 and "this is a folder, not a file" in found.err


def test_model_and_subject_the_wrong_way_round_are_answered(cli: Cli, digits: Path) -> None:
    found = cli("check", "onnxruntime", digits)
    assert found.code == 2 and "the model comes first" in found.err
    assert "verax check MODEL onnxruntime" in found.err


def test_a_folder_is_answered_with_the_models_in_it(cli: Cli, digits: Path) -> None:
    found = cli("inspect", digits.parent)
    assert found.code == 2 and "digits.onnx" in found.err
    assert "accuracy.json" not in found.err  # JSON, and no MXNet symbol


@pytest.mark.parametrize("suffix", [".safetensors", ".xyz", ""])
def test_formats_that_are_not_read_say_so(cli: Cli, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"net{suffix}"
    path.write_bytes(b"something")
    found = cli("inspect", path)
    assert found.code == 2
    assert ".onnx" in found.err and ".tflite" in found.err


@pytest.mark.parametrize("suffix", [".pt2", ".pb", ".tflite", ".h5", ".keras", ".json"])
def test_other_bytes_are_no_model_of_any_format(cli: Cli, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"net{suffix}"
    path.write_bytes(b"something else")
    found = cli("inspect", path)
    assert found.code == 2
    assert "error:" in found.err and "Traceback" not in found.err


@pytest.mark.parametrize("keep", [0, 1, 100, 40_000])
def test_truncated_models_are_refused(cli: Cli, digits: Path, tmp_path: Path, keep: int) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(digits.read_bytes()[:keep])
    found = cli("inspect", path)
    assert found.code == 2
    assert "error:" in found.err


def test_random_bytes_are_refused(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(np.random.default_rng(3).bytes(5000))
    assert "error:" in cli("run", path).err


@pytest.mark.parametrize("keep", [0, 7, 300, 5000])
def test_truncated_programs_are_refused(cli: Cli, tiny: Path, tmp_path: Path, keep: int) -> None:
    path = tmp_path / "net.vx"
    assert cli("compile", tiny, "-o", path, "--shape", "n=1").code == 0
    path.write_bytes(path.read_bytes()[:keep])
    found = cli("run", path)
    assert found.code == 2
    assert "error:" in found.err


def test_a_mistyped_command_or_option_is_answered(cli: Cli, digits: Path) -> None:
    found = cli("inspct", digits)
    assert found.code == 2
    assert "inspect" in found.err
    found = cli("inspect", digits, "--jsn", "a.json")
    assert found.code == 2
    assert "--json" in found.err


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((2, 1, 24, 20)), "float64"),
        (np.zeros((2, 1, 24, 21), np.float32), "axis 3"),
        (np.zeros((24, 20), np.float32), "shape"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(
    cli: Cli, digits: Path, tmp_path: Path, array: np.ndarray, words: str
) -> None:
    np.save(tmp_path / "x.npy", array)
    found = cli("run", digits, "--input", tmp_path / "x.npy", "-o", tmp_path / "out.npz")
    assert found.code == 2
    assert words in found.err
    assert not (tmp_path / "out.npz").exists()


def test_a_wrong_input_name_is_answered_with_a_near_one(
    cli: Cli, digits: Path, photo: Path
) -> None:
    found = cli("run", digits, "--input", f"imag={photo}")
    assert found.code == 2
    assert "is 'image' meant?" in found.err


def test_arrays_that_would_run_code_are_refused(cli: Cli, digits: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    found = cli("run", digits, "--input", tmp_path / "x.npy")
    assert found.code == 2


def test_damaged_arrays_are_refused(cli: Cli, digits: Path, tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY nonsense")
    (tmp_path / "x.npz").write_bytes(b"PK nonsense")
    for name in ("x.npy", "x.npz"):
        found = cli("run", digits, "--input", tmp_path / name)
        assert found.code == 2
        assert "cannot be read" in found.err


def test_an_npz_that_unpacks_to_too_much_is_refused(
    cli: Cli, digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("verax.base.storage.npz.MAX_BYTES", 1000)
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("image.npy", b"\0" * 100_000)
    found = cli("run", digits, "--input", tmp_path / "x.npz")
    assert found.code == 2
    assert "unpack" in found.err


def test_open_shapes_cannot_be_saved_and_the_option_is_named(
    cli: Cli, digits: Path, tmp_path: Path
) -> None:
    found = cli("compile", digits, "-o", tmp_path / "net.vx")
    assert found.code == 2
    assert "--shape n=1" in found.err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_refused_before_the_work(
    cli: Cli, digits: Path, tmp_path: Path
) -> None:
    found = cli("check", digits, "--json", tmp_path / "nowhere" / "a.json")
    assert found.code == 2
    assert "does not exist" in found.err


@pytest.mark.parametrize("text", ["n", "=3", "n=4:2", "n=-1"])
def test_malformed_shapes_are_refused(cli: Cli, digits: Path, text: str) -> None:
    assert cli("inspect", digits, "--shape", text).code == 2


@pytest.mark.parametrize("arguments", [("-O", "9"), ("--threads", "-2"), ("-O", "two")])
def test_settings_that_do_not_exist_are_refused(
    cli: Cli, digits: Path, arguments: tuple[str, str]
) -> None:
    assert cli("run", digits, *arguments).code == 2


def test_unknown_subjects_and_engines_are_refused(cli: Cli, digits: Path) -> None:
    assert "onnxruntime" in cli("check", digits, "onxruntime").err
    assert "onnxruntime" in cli("bench", digits, "--against", "onxruntime").err
    refused = cli("bench", digits, "--against", "litert")
    assert refused.code == 2 and "litert runs .tflite files" in refused.err


def test_an_interrupted_compile_leaves_130_and_no_file(
    cli: Cli, digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(compile_work, "compile", interrupted)
    found = cli("compile", digits, "-o", tmp_path / "net.vx", "--shape", "n=1")
    assert found.code == 130
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_from_outside_ends_a_command_quietly(tiny: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "verax.cli.main", "bench", str(tiny), "--rounds", "999"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell may ignore it
    )
    assert process.stdout is not None
    assert "drawn with seed" in process.stdout.readline()
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 130
    assert "Traceback" not in err


def test_a_bug_of_ours_is_called_so_and_reported_in_a_file(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("an [odd] state")

    monkeypatch.setattr(ops_work, "_facts", broken)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = cli("ops")
    assert found.code == 2
    assert "this is a bug of Verax: RuntimeError: an [odd] state" in found.err
    (report,) = tmp_path.glob("verax-crash-*.txt")
    assert str(report) in found.err
    assert "broken" in report.read_text()


def test_a_seed_that_no_record_holds_is_refused_at_the_option(
    cli: Cli, tiny: Path, tmp_path: Path
) -> None:
    found = cli("check", tiny, "--shape", "n=1", "--seed", 2**64, "--json", tmp_path / "a.json")
    assert found.code == 2 and "seed" in found.err and not any(tmp_path.glob("*.json"))
    for seed in (2**64, -1):
        with pytest.raises(UsageError, match="the option seed"):
            verax.check(tiny, sizes={"n": 1}, seed=seed)


def test_the_largest_seed_can_be_replayed(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    assert cli("check", tiny, "--shape", "n=1", "--seed", 2**64 - 1, "--json", file).code == 0
    assert cli("check", "--replay", file).code == 0
