"""Commands with a GPU for their target: what they tell where there is no card, an old one or a good
one (whose driver is a fake), and .vx files of code for GPUs."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli, Result
from tests.runtime.fake_cuda import FakeDriver, install
from verax.base.gpu import cuda_driver

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
SIZES = ("--shape", "n=2")


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(cuda_driver, "DEVICE_FILES", ())
    install(monkeypatch, None)  # as on a machine without a driver
    yield
    gc.collect()
    cuda_driver.driver.cache_clear()


class Run:
    """The command line, whose exit code must be the one that is expected."""

    def __init__(self, cli: Cli) -> None:
        self.cli = cli

    def __call__(self, *words: object, code: int = 0) -> Result:
        done = self.cli(*words)
        assert done.code == code, done
        return done


@pytest.fixture
def run(cli: Cli) -> Run:
    return Run(cli)


@pytest.fixture
def card_file(run: Run, tmp_path: Path) -> Path:
    path = tmp_path / "net.vx"
    run("compile", DIGITS, *SIZES, "--target", "sm_80", "-o", path)
    return path


@pytest.mark.parametrize(
    "words",
    [
        ("run", DIGITS, "--target", "cuda"),
        ("bench", DIGITS, "--target", "cuda:0"),
        ("check", DIGITS, "--target", "cuda"),
        ("check", DIGITS, "verax:O1", "--device", "cuda:1"),
        ("compile", DIGITS, *SIZES, "-o", "none.vx", "--target", "cuda"),
    ],
    ids=lambda words: f"{words[0]} {words[-1]}",
)
def test_without_a_card_the_reason_is_said(run: Run, words: tuple[Any, ...]) -> None:
    done = run(*words, code=2)
    assert "error: there is no driver of NVIDIA's on this machine" in done.err
    assert "target cuda-emulated gives the same bits" in " ".join(done.err.split())


def test_the_doctor_tells_the_card_or_why_there_is_none(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "doctor.json"
    for cards, words in (
        ((), "none: NVIDIA's driver finds no card"),
        ((("Tesla P100", 6, 0),), "cuda:0 Tesla P100, compute capability 6.0, 16 GiB, driver"),
    ):
        install(monkeypatch, FakeDriver(*cards, memory=16 << 30))
        done = run("doctor", "--json", record)
        assert words in done.out and "all well" in done.out
        assert words in json.loads(record.read_text())["gpu"]
    # A kernel that fails on the card is a failed check. The fake has no kernels of its own.
    fake = FakeDriver(("NVIDIA H100", 9, 0), ("NVIDIA L4", 8, 9))
    fake.failures["cuModuleGetFunction"] = [500] * 9
    install(monkeypatch, fake)
    done = run("doctor", code=2)
    assert "cuda:1 NVIDIA L4, compute capability 8.9" in done.out
    assert "kernels on the GPU: failed" in done.out


def test_a_file_for_a_card_is_inspected_and_refused_in_words(
    run: Run, card_file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done = run("inspect", card_file, "--json", tmp_path / "a.json")
    facts = json.loads((tmp_path / "a.json").read_text())
    assert facts["target"] == "sm_80" and facts["kernels"] >= 5
    assert f"{facts['kernels']} kernels, as PTX for sm_80; not run here: there is no " in done.out
    for command in ("run", "check"):
        words = (DIGITS, card_file) if command == "check" else (card_file,)
        done = run(command, *words, code=2)
        assert "was compiled for 'sm_80', which this machine does not run: there is no" in done.err
    install(monkeypatch, FakeDriver(("TITAN V", 7, 0)))
    done = run("run", card_file, code=2)
    assert "the card TITAN V has compute capability 7.0" in " ".join(done.err.split())


def test_a_file_of_the_emulated_gpu_runs_and_knows_no_other_target(
    run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "net.vx"
    run("compile", DIGITS, *SIZES, "--target", "cuda-emulated", "-o", path)
    emulated = run("run", path, "--output", tmp_path / "a.npz")
    assert "loaded and run" in emulated.out
    done = run("run", path, "--target", "cuda", code=2)
    assert "the program was compiled for cuda-emulated" in done.err


def test_check_judges_the_emulated_gpu(run: Run) -> None:
    done = run("check", DIGITS, "verax:O1", "--target", "cuda-emulated")
    assert "identical" in done.out or "rounding" in done.out
