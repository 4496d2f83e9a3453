"""How many different outputs an engine has, counted."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks import hashes, hashes_page
from benchmarks.digests import digest

from verax.ir.graph import Builder
from verax.ir.types import TensorType
from verax.ops.windows.convolution import Conv

RUN = hashes_page.Run("net", "verax:O1", "avx2", "here", 1, "a")


def runs(**changes: object) -> list[hashes_page.Run]:
    return [RUN, dataclasses.replace(RUN, **changes)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "number"),
    [
        ({"threads": 2}, 1),
        ({"threads": 2, "digest": "b"}, 2),
        ({"instructions": "aarch64", "machine": "qemu", "digest": "b"}, 2),
        ({"threads": 3, "digest": "", "failure": "no answer"}, 1),
    ],
)
def test_hashes_are_counted_over_settings_that_ran(changes: dict[str, object], number: int) -> None:
    found = runs(**changes)
    assert hashes_page.counts(found) == {"net": {"verax:O1": number}}
    assert hashes_page.broken(found) == (["net at O1"] if number > 1 else [])
    ran = sum(bool(run.digest) for run in found)
    assert hashes_page.counted(found) == {"net": {"verax:O1": (number, ran)}}


def test_levels_promise_bits_of_their_own_and_peers_none() -> None:
    assert hashes_page.broken(runs(engine="verax:O3", digest="b")) == []
    peer = [dataclasses.replace(run, engine="openvino") for run in runs(threads=2, digest="b")]
    assert hashes_page.broken(peer) == []
    assert hashes_page.counts(peer) == {"net": {"openvino": 2}}


def test_the_page_counts_and_says_what_did_not_run() -> None:
    found = [
        *runs(threads=2),
        dataclasses.replace(RUN, engine="torch", digest="c", version="2.0"),
        dataclasses.replace(RUN, engine="torch", threads=2, digest="d", version="2.0"),
        hashes_page.Run("net", "torch", "avx512", "here", 1, failure="this machine has no AVX-512"),
    ]
    record = {
        "commit": "0123abcd", "date": "2026-11-27", "processor": "P",
        "runs": [dataclasses.asdict(run) for run in found],
    }  # fmt: skip
    page = hashes_page.page(record)
    assert page.splitlines()[2] == "Measured on commit `0123abcd` (2026-11-27)."
    assert "| net | 1 (2) | 2 (2) |" in page
    assert "| net | PyTorch | AVX2 | c | d | — |" in page
    assert "- PyTorch, AVX-512, net: this machine has no AVX-512" in page
    assert "- Verax O1, AVX-512, ARM64: not run here." in page


def test_ratios_are_those_of_one_image_and_one_thread() -> None:
    head = "| network | O3 | O1 / peer | O3 / peer | % |\n|---|---|---|---|---|\n"
    text = f"## Batch 1, 1 thread\n\n{head}| a | 1 | 0.9 | 1.25 | 3 |\n| b | 1 | 0.9 | — | 3 |\n"
    text += "| geometric mean | | 1 | 1.2 | |\n\n"
    text += f"## Batch 1, 2 threads\n\n{head}| a | 1 | 0.9 | 9.0 | 3 |\n"
    assert hashes_page.ratios(text) == {"a": 1.25}


@pytest.fixture
def case(tmp_path: Path) -> hashes.Case:
    from verax.export.onnx.writer import to_bytes

    rng = np.random.default_rng(61)
    b = Builder("net")
    x = b.input("x", TensorType.of(rng.standard_normal((2, 3, 7, 9)).astype(np.float32)))
    w = b.constant(rng.standard_normal((5, 3, 2, 3)).astype(np.float32), "w")
    graph = b.graph([b.add(Conv(), [x, w], ["y"], "conv")])
    (tmp_path / "net.onnx").write_bytes(to_bytes(graph))
    np.savez(tmp_path / "net.npz", x=rng.standard_normal((2, 3, 7, 9)).astype(np.float32))
    return hashes.Case("net", str(tmp_path / "net"), str(tmp_path / "net.npz"))


def test_a_machine_runs_programs_in_a_process_of_its_own(
    case: hashes.Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hashes, "THREADS", (1, 2))
    monkeypatch.setattr(hashes, "LEVELS", (1,))
    machines = {"aarch64": [sys.executable]}  # which cannot run them, unless it is an ARM64
    found = list(hashes.own_runs(case, machines, 60))
    here = [run for run in found if run.machine == "here" or run.digest]
    assert {run.threads for run in here} == {1, 2} and hashes_page.counts(here)["net"][
        "verax:O1"
    ] == 1
    import verax
    from verax.reference import promised

    with np.load(case.inputs) as stored:
        wanted = promised(verax.load(f"{case.stem}.onnx").graph, dict(stored))
    assert {run.digest for run in here} == {digest(wanted)}
    refused = [run for run in found if not run.digest]
    assert all("'neon'" in run.failure for run in refused) and len(refused) in (0, 2)


def test_a_peer_runs_in_a_process_of_its_own(
    case: hashes.Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(hashes, "THREADS", (2,))
    lacking = hashes_page.Setting("sse4", "an emulator", command=("no-such-emulator",))
    settings = (hashes_page.Setting("avx2", "as it is"), lacking)
    monkeypatch.setattr(hashes, "SETTINGS", {"onnxruntime": settings})
    ran, skipped = hashes.peer_runs("onnxruntime", [case], 60)
    assert (ran.engine, ran.threads, ran.failure) == ("onnxruntime", 2, "")
    with np.load(case.inputs) as stored:
        inputs = dict(stored)
    own = hashes.outputs_of("onnxruntime", Path(f"{case.stem}.onnx"), inputs, 2)
    assert ran.digest == digest(own) and own["y"].shape == (2, 5, 6, 7)
    assert skipped.failure == "no-such-emulator is not installed" and not skipped.digest


def test_records_are_put_together_and_later_runs_count(tmp_path: Path) -> None:
    failed = dataclasses.replace(RUN, digest="", failure="no answer")
    for name, run in {"first": failed, "second": RUN}.items():
        record = {"commit": name, "date": "2026-11-27", "processor": "P"}
        record["runs"] = [dataclasses.asdict(run)]  # type: ignore[assignment]
        (tmp_path / name).write_text(json.dumps(record))
    stored = [str(tmp_path / "first"), str(tmp_path / "second")]
    assert hashes.main(["--stored", *stored, "--json", str(tmp_path / "both")]) == 0
    both = json.loads((tmp_path / "both").read_text())
    assert both["commit"] == "first" and [r["digest"] for r in both["runs"]] == ["a"]
