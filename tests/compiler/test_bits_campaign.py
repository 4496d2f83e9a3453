"""The campaign that hashes networks (`benchmarks/bits.py`) runs, and tells of bits that differ."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from verax.compiler.kernels.target import Target

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples/digits/digits.onnx"


@pytest.fixture(scope="module")
def bits() -> ModuleType:
    """`benchmarks/bits.py` as a module."""
    spec = importlib.util.spec_from_file_location("bits_campaign", ROOT / "benchmarks/bits.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_digits_keep_each_promise(
    bits: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "bits.json"
    assert bits.main([str(DIGITS), "--levels", "0", "1", "2", "--json", str(record)]) == 0
    found = json.loads(record.read_text())
    here = [t for t in bits.TARGETS if Target.named(t).runs_here()]
    wanted = {(level, t, n) for level in (0, 1, 2) for t in here for n in (1, 2)}
    assert {(run["level"], run["target"], run["threads"]) for run in found} == wanted
    assert len({run["digest"] for run in found if run["level"] < 2}) == 1
    assert "| digits.onnx | O0, O1 |" in capsys.readouterr().out
    assert bits.main(["--stored", str(record)]) == 0
    assert "| digits.onnx | O2 |" in capsys.readouterr().out


def test_a_hash_that_differs_is_told(
    bits: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One level below another may differ; one machine from another may not."""

    def answered(machine: list[str], asked: object, timeout: float) -> list[object]:
        name = machine[-1]
        digest = {"other": "b" * 64}.get(name, "a" * 64)
        own = [(0, "a" * 64), (1, "a" * 64), (2, digest), (3, "c" * 64)]
        return [bits.Run("digits.onnx", "0f", name, "", "avx2", k, 1, d, 0.1) for k, d in own]

    monkeypatch.setattr(bits, "runs", answered)
    assert bits.main([str(DIGITS), "--python", "same"]) == 0
    capsys.readouterr()
    assert bits.main([str(DIGITS), "--python", "other"]) == 1
    said = capsys.readouterr()
    assert "digits.onnx on 0f: O2 has more than one hash" in said.err
    assert "**differ**" in said.out and "(emulated)" in said.out


def test_a_machine_that_cannot_run_is_told_and_counts_as_nothing(
    bits: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    assert bits.main([str(DIGITS), "--levels", "1", "--targets", "avx9"]) == 1
    assert "avx9" in capfd.readouterr().err


def test_the_hash_is_of_names_types_shapes_and_bytes(bits: ModuleType) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    rivals = [
        {"y": array}, {"z": array}, {"y": array.reshape(3, 2)}, {"y": array.view(np.int32)},
        {"y": -array}, {"y": array, "z": array},
    ]  # fmt: skip
    assert len({bits.digest(r) for r in rivals}) == len(rivals)
    turned = np.asfortranarray(array)
    assert bits.digest({"y": turned}) == bits.digest({"y": array})
