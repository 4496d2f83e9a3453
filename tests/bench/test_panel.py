"""The panel's page, drawing, plan and files, on figures that are made up and a network that is
small; peers need not be installed."""

from __future__ import annotations

import dataclasses
import importlib
import math
import sys
import xml.etree.ElementTree
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import verax.ops  # noqa: F401  (registers the operators)
from verax.ir.graph import Builder
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.records.benchmark import Benchmark, Timing

ROOT = Path(__file__).parents[2]


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a module of benchmarks/ as a script there does."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module


@pytest.fixture
def pages(module: Any) -> ModuleType:
    return module("panel_page")


def row(pages: ModuleType, name: str, factor: float, batch: int = 1, **more: float) -> Any:
    """A network whose peers take so many times as long as O3's 2 ms."""
    found = {"verax:O1": 3.0, "verax:O3": 2.0, "onnxruntime": 2.0 * factor, "mnn": 5.0 * factor}
    timings = [
        Timing(e, t, "1.0", (ms / t, 1.1 * ms / t), ms / t, 0.5, 0.1, 0.25, 90.0, 99.0, 7, 1e-6)
        for t in (1, 2)
        for e, ms in (found | more).items()
    ]
    failed = Timing("ncnn", 1, failure="it refused <this>\n  at: layer 3")
    environment = {"processor": "abacus", "cores": "2"}
    record = Benchmark(name, {}, (*timings, failed), environment, (0.5, 0.75), 7)
    return pages.Row(batch, 1e8, {1: 100.0, 2: 200.0}, record)


def apart(made: Any, *trips: float) -> Any:
    """The row as measured when a number came back from the other core in so many nanoseconds."""
    return dataclasses.replace(made, round_trips=trips)


def test_rows_that_were_measured_while_cores_were_far_apart_are_named(pages: ModuleType) -> None:
    near = apart(row(pages, "near", 1.5), 90.0, 80.0)
    far = apart(row(pages, "far", 1.5), 85.0, 410.0)
    unknown = apart(row(pages, "unknown", 1.5), math.nan)
    assert pages.disturbed([near, far, unknown]) == [far]
    text = pages.page([near, far, unknown, row(pages, "old", 1.5)])
    named = [line for line in text.splitlines() if line.startswith("Measured while")]
    assert len(named) == 1  # the table of one thread is not concerned
    assert named[0].endswith("measures them again): far.")
    assert text.index("Batch 1, 2 threads") < text.index("Measured while")
    assert "round trip between two cores: 80 to 410 ns" in text
    assert pages.disturbed([far]) == [far]  # it changed while the row was measured
    assert pages.disturbed([apart(near, 400.0, 420.0)]) == []  # a machine that is never nearer


def test_a_run_goes_on_with_what_was_disturbed(
    module: Any, pages: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    panel, trips = module("panel"), {"resnet18": [400.0, 90.0], "resnet50": [80.0]}

    def measured(name: str, batch: int, *_: object) -> Any:
        return apart(row(pages, name, 1.5, batch), trips[name].pop(0))

    monkeypatch.setattr(panel, "measured", measured)
    common = ["--folder", str(tmp_path), "--page", str(tmp_path / "p.md"), "--batches", "1"]
    common += ["--engines", "verax:O3", "--networks", "resnet18", "resnet50"]
    assert panel.main(common) == 0
    assert panel.main([*common, "--resume", "--minutes", "0"]) == 0
    text = (tmp_path / "p.md").read_text()
    assert "them again): resnet18." in text
    assert panel.UNTIMED not in text  # it has a row
    assert panel.main([*common, "--resume"]) == 0
    assert trips == {"resnet18": [], "resnet50": []}
    assert "them again)" not in (tmp_path / "p.md").read_text()
    assert [r.round_trips for r in panel._read(tmp_path / "p.json")] == [[90.0], [80.0]]


def test_the_page_says_ratio_share_spread_error_and_reason(pages: ModuleType) -> None:
    text = pages.page([row(pages, "small", 1.5), row(pages, "large", 0.75), row(pages, "s", 2, 8)])
    lines = text.splitlines()
    small = next(line for line in lines if line.startswith("| small | 3"))
    assert "**3 ±" in small  # the best peer
    assert "(1e-06)" in small
    # 3 / 3 and 3 / 2; 1e8 operations in 2 ms are 50 GFLOP/s of 100, in 3 ms 33
    assert small.endswith("| 1.00 | 1.50 | 50 | 33 |")
    mean = next(line for line in lines if line.startswith("| geometric mean"))
    assert mean.endswith(f"| {(1.0 * 0.5) ** 0.5:.2f} | {(1.5 * 0.75) ** 0.5:.2f} | | |")
    heads = [line for line in lines if line.startswith("## ")]
    assert heads == [
        *("## Batch 1, 1 thread", "## Batch 1, 2 threads", "## Batch 8, 1 thread"),
        *("## Batch 8, 2 threads", "## Start-up and memory", "## Not measured"),
    ]
    assert "| small | 0.75 s, 99 | 0.75 s, 99 | 0.75 s, 99 | — | 0.75 s, 99 |" in lines
    assert "- ncnn on small, large, s at batch 8: it refused &lt;this&gt;" in lines
    assert "abacus, 2 cores; peak in GFLOP/s: 1 thread 100, 2 threads 200" in lines[-1]
    assert "a median round took 1.05 times as long as the fastest call" in lines[-1]


def test_a_reason_names_no_folder_of_this_machine(pages: ModuleType) -> None:
    made = row(pages, "small", 1.5)
    broken = Timing("tvm", 1, failure=f"it cannot read {Path.cwd()}/out/small.onnx")
    made.record.__dict__["timings"] = (*made.record.timings, broken)
    assert str(Path.cwd()) not in pages.page([made])


def test_networks_that_were_left_out_are_named_with_the_reason(pages: ModuleType) -> None:
    left = {("wide", 1): "no time", ("deep", 8): "no time", ("odd", 1): "there is no odd.onnx"}
    lines = pages.page([row(pages, "small", 1.5)], left).splitlines()
    assert "- All engines on wide, deep at batch 8: no time" in lines
    assert "- All engines on odd: there is no odd.onnx" in lines


OPENVINO = """RuntimeError: Exception from src/inference/src/cpp/core.cpp:84:
Check 'false' failed at src/frontends/unconverted_ops_report.cpp:151:
FrontEnd API failed with OpConversionFailure:
Model wasn't fully converted. Failed operations detailed log:
-- AveragePool-17 with a message:
While validating ONNX node '<Node(AveragePool): /inner/pooler>': Check 'k <= d' failed at src/u.h:1:
While validating node 'opset16::AvgPool (opset1::Multiply /inner/top[0]:f32[1,1280,7,7])':
Kernel after dilation has size 1280, larger than the data's 7 at axis 0.

Summary:
-- Conversion is failed for: AveragePool-17"""


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (OPENVINO, "Kernel after dilation has size 1280, larger than the data's 7 at axis 0."),
        ("InternalError: Traceback (most recent call last):\n  File \"a.cc\"\nIt is odd\n",
         "It is odd"),
        ("IndexError: list index out of range", "IndexError: list index out of range"),
        ("RuntimeError: it's a shape\nof another kind", "it's a shape"),
        ("its converter refused: what():  a::b  at", "its converter refused: a::b at"),
        ("it refuses these:\n  Loop, If\nand more", "it refuses these: Loop, If"),
        ("", "nothing"),
    ],
)  # fmt: skip
def test_a_failure_is_one_sentence_with_the_cause(
    pages: ModuleType, failure: str, said: str
) -> None:
    assert pages.cause(failure) == said


def test_a_long_failure_ends_with_a_word(pages: ModuleType) -> None:
    found = pages.cause("something " * 60)
    assert len(found) <= pages.LONGEST + 4
    assert found.endswith("something ...")


def test_quotation_marks_stay_as_they_are(pages: ModuleType) -> None:
    made = row(pages, "small", 1.5)
    broken = Timing("tvm", 1, failure="it can't take 'x' < \"y\"")
    made.record.__dict__["timings"] = (*made.record.timings, broken)
    assert "- TVM on small: it can't take 'x' &lt; \"y\"" in pages.page([made])


def test_the_page_says_whose_instructions_were_used(pages: ModuleType) -> None:
    made = row(pages, "small", 1.5)
    same, held = (
        pages.page([pages.Row(1, 1e8, made.peaks, made.record, "avx2", host, "2026-01-02")])
        for host in ("avx2", "avx512")
    )
    assert "kernels are for avx2, the widest instructions of this processor" in same
    assert "held to AVX2 as well" in held
    assert "measured on 2026-01-02; " in same


def test_a_run_goes_on_where_the_last_one_stopped(
    module: Any, pages: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    panel, asked = module("panel"), []

    def measured(name: str, batch: int, *_: object) -> Any:
        asked.append(name)
        if name == "unet":
            raise panel.files.Skipped("there is no such file")
        return row(pages, name, 1.5, batch)

    monkeypatch.setattr(panel, "measured", measured)
    networks = ["resnet50", "unet", "resnet18"]
    common = ["--folder", str(tmp_path), "--page", str(tmp_path / "p.md"), "--batches", "1"]
    common += ["--engines", "verax:O3", "--networks", *networks]
    assert panel.main([*common, "--networks", "resnet18"]) == 0
    assert panel.main([*common, "--resume"]) == 0
    assert asked == ["resnet18", "resnet50", "unet"]
    text = (tmp_path / "p.md").read_text()
    assert text.index("| resnet18 ") < text.index("| resnet50 ")  # the panel's order
    assert "- All engines on unet: there is no such file" in text
    assert panel.main([*common, "--resume", "--minutes", "0"]) == 0
    assert f"- All engines on unet: {panel.UNTIMED}" in (tmp_path / "p.md").read_text()
    assert panel.main([*common, "--again"]) == 0
    assert len(panel._read(tmp_path / "p.json")) == 2
    assert "(p.svg)" in text


def test_the_drawing_is_svg_with_a_point_for_every_peer(pages: ModuleType) -> None:
    text = pages.drawing([row(pages, "small", 1.5), row(pages, "large", 99.0)], 1)
    tree = xml.etree.ElementTree.fromstring(text)
    points = [t.text for t in tree.iter("{http://www.w3.org/2000/svg}title")]
    assert points[:2] == ["ONNX Runtime, small: 1.50", "MNN, small: 3.75"]
    assert len(points) == 4
    width = float(tree.attrib["viewBox"].split()[2])
    places = [float(c.attrib["cx"]) for c in tree.iter("{http://www.w3.org/2000/svg}circle")]
    assert all(0 < x < width for x in places)  # 99 times as slow stays inside


def test_operations_are_those_of_the_definition(module: Any) -> None:
    pytest.importorskip("transformers")
    b, rng = Builder("net"), np.random.default_rng(5)
    x = b.input("x", TensorType.parse("float32[2, 6, 9, 7]"))
    given = [rng.random(s).astype(np.float32) for s in ((10, 3, 3, 3), (10, 4, 2, 2), (8, 5))]
    conv, up, dense = map(b.constant, given)
    y = b.add(REGISTRY["Conv"](groups=2, pads=((1, 1), (1, 1))), [x, conv])
    z = b.add(REGISTRY["ConvTranspose"](strides=(2, 2)), [y, up])
    last = b.add(REGISTRY["MatMul"](), [b.add(REGISTRY["Transpose"](), [z]), b.constant(
        rng.random((2, 5)).astype(np.float32))])  # fmt: skip
    graph = b.graph([last, dense])
    assert graph.types[z].shape == (2, 4, 18, 14)
    assert module("panel_files").operations(graph) == (
        2 * (2 * 10 * 9 * 7) * 3 * 9 + 2 * (2 * 10 * 9 * 7) * 4 * 4 + 2 * (14 * 18 * 4 * 5) * 2
    )


def test_a_plan_has_batch_1_first_and_slow_engines_on_few(module: Any) -> None:
    pytest.importorskip("transformers")
    panel = module("panel")
    given = panel._arguments().parse_args([])
    plan = panel.planned(given)
    assert len(plan) == len(set(plan))
    assert [b for _, b in plan] == sorted(b for _, b in plan)
    assert {n for n, b in plan if b == 1} == set(given.networks)
    assert {n for n, b in plan if b == 8} == set(panel.BATCHED)
    given.all = True
    assert len(panel.planned(given)) == 2 * len(given.networks)


def test_an_engine_that_is_not_installed_says_how_to_install_it(
    module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers = module("panel_peers")
    nowhere = SimpleNamespace(find_spec=lambda name: None)
    monkeypatch.setattr(peers, "importlib", SimpleNamespace(util=nowhere))
    assert peers.find("verax:O3", tmp_path, {}) == ("", "")
    python, why = peers.find("mnn", tmp_path, {})
    assert (python, why) == ("", "not installed: `python benchmarks/panel.py --install mnn`")
    monkeypatch.setitem(peers.PACKAGES, "mnn", "no_such_package")
    assert "no package" in peers.find("mnn", tmp_path, {"mnn": sys.executable})[1]
    monkeypatch.setitem(peers.PACKAGES, "mnn", "numpy")
    assert peers.find("mnn", tmp_path, {"mnn": sys.executable}) == (sys.executable, "")
    assert "cannot be run" in peers.find("mnn", tmp_path, {"mnn": str(tmp_path / "none")})[1]
