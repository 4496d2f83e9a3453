"""The benchmark of single operators: cases grow as type rules allow, and the page is honest."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks import operators as speed

from verax.compiler.compile import compile
from verax.ir.operator import REGISTRY


@pytest.mark.parametrize("name", ["Add", "MatMul", "Conv", "GatherND", "TopK", "LSTM", "Concat"])
def test_a_case_grows_and_runs(name: str) -> None:
    make = speed.WORKLOADS.get(name)
    case = make(2048) if make else speed.scaled(speed.first_case(name), 2048)
    first = np.size(case.inputs[0])
    assert 1024 <= first <= 8192, case.inputs[0].shape
    graph, fed = speed.graph_of(case)
    assert set(compile(graph).run(fed)) == set(graph.outputs)


def test_every_operator_has_a_network() -> None:
    for name in REGISTRY:
        if not REGISTRY[name].unsupported and name not in speed.WORKLOADS:
            speed.graph_of(speed.scaled(speed.first_case(name), 1024))


def row(
    name: str, ours: float, theirs: float | None, torchs: float | None = None, slow_road: int = 0
) -> speed.Row:
    return speed.Row(name, "2x3", ours, theirs, torchs, slow_road)


def test_the_page_lists_what_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "nothing", lambda seconds: (3e-6, 2e-6))
    monkeypatch.setattr(speed, "_version", lambda package: "1.0")
    rows = [
        [row("Fast", 1e-6, 2e-6), row("Fast", 1e-6, 3e-6, 2e-6)],
        [row("Slow", 8e-6, 2e-6, 5e-6), row("Slow", 4e-6, 8e-6, 2e-6, 1)],
        [row("Lone", 1e-6, None), row("Lone", 1e-6, None)],
    ]
    text = speed.page(rows, 0.1)
    assert "- Slow on 2x3: 4.00 times ONNX Runtime\n" in text
    assert "- Slow on 2x3: 2.00 times PyTorch (on the reference)" in text
    assert "4 run in ONNX Runtime and 3 in PyTorch" in text
    assert "or faster on 2, slower than 1.5 times on 2" in text
    assert "the geometric mean of the ratios is 1.19" in text
    assert "against PyTorch alone the mean is 1.17 and 2 are slower" in text
    assert "| Lone | 2x3 | 1.0 | — | — | — |" in text and "4.0\\* |" in text
    assert "3.0 µs in Verax and 2.0 in ONNX Runtime" in text


def test_it_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime", reason="the peer that it times is not installed")
    speed.main(["Relu", "--seconds", "0.001"])
    assert "| Relu |" in capsys.readouterr().out
