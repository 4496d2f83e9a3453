"""`make gpu`: what it compares, what it writes, its exit codes; rehearsed on the emulated GPU."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks import cuda as script
from tests.runtime.fake_cuda import install

from verax.base.gpu import cuda_driver
from verax.ir.operator import REGISTRY

FEW = {name: REGISTRY[name] for name in ("Relu", "Softmax", "CumSum")}


@pytest.fixture(autouse=True)
def few_operators(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(script, "REGISTRY", FEW)
    yield
    cuda_driver.driver.cache_clear()


def run(tmp_path: Path, *words: str) -> tuple[int, dict[str, Any], str]:
    files = tmp_path / "a.json", tmp_path / "a.md"
    code = script.main(
        ["--target", "cuda-emulated", "--networks", "--batches", "--seconds", "300",
         "--json", str(files[0]), "--write", str(files[1]), *words]
    )  # fmt: skip
    return code, json.loads(files[0].read_text()), files[1].read_text()


def test_without_a_card_it_says_so_and_leaves_with_two(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(cuda_driver, "DEVICE_FILES", ())
    install(monkeypatch, None)
    assert script.main(["--json", str(tmp_path / "a.json")]) == 2
    assert "there is no driver of NVIDIA's on this machine" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_every_case_is_compared_and_the_record_is_dated(tmp_path: Path) -> None:
    code, record, page = run(tmp_path)
    cases = sum(len(list(op.cases(np.random.default_rng(0)))) for op in FEW.values())
    assert code == 0 and record["operators"] == 3 and 3 <= record["operator_cases"] <= cases
    assert record["differing"] == record["failing"] == []
    assert record["commit"] in page and record["date"] in page
    assert "all but 0; 0 could not be run" in page


def test_a_bit_that_differs_is_named_and_the_exit_code_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def compile_wrong(graph: Any, settings: Any) -> Any:
        exe = own(graph, settings)
        if settings.target == "cuda-emulated" and graph.nodes[0].op.kind == "CumSum":
            right = exe.run

            def wrong(inputs: Any) -> Any:
                outputs = {v: a.copy() for v, a in right(inputs).items()}
                next(iter(outputs.values())).view(np.uint8).reshape(-1)[0] ^= 1
                return outputs

            exe.run = wrong
        return exe

    own = script.compile
    monkeypatch.setattr(script, "compile", compile_wrong)
    code, record, page = run(tmp_path)
    assert code == 1 and record["differing"]
    assert all(label.startswith("CumSum ") for label in record["differing"])
    assert record["differing"][0] in page and record["differing"][0] in capsys.readouterr().out


def test_time_that_is_up_ends_it(tmp_path: Path) -> None:
    record = script.Record("a", "b", "c", "")
    script.compare_operators(record, "cuda-emulated", time.monotonic() - 1)
    assert record.operator_cases == 0


def test_nan_is_compared_as_such_and_nothing_else_is() -> None:
    a = np.array([1.0, np.nan, -0.0, 3.0], np.float32)
    payload = a.copy()
    payload.view(np.uint32)[1] ^= 0x80000001
    assert script.same(a, payload)
    for i, value in ((2, 0.0), (1, 5.0), (3, np.nan), (0, np.nextafter(np.float32(1), 2))):
        b = a.copy()
        b[i] = value
        assert not script.same(a, b) and not script.same(b, a)
    assert not script.same(a, a.astype(np.float64)) and not script.same(a, a[:3])
    assert script.same(np.array([1, 2]), np.array([1, 2]))
    assert not script.same(np.array([1, 2]), np.array([1, 3]))
