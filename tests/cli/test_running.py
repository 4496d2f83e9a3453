"""`run`, `compile`, `convert`, `check`, `bench`: the work."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import verax
from verax.base.machine.processor import TARGETS

from .conftest import Cli


def test_run_on_a_photo_states_every_step(cli: Cli, digits: Path, photo: Path) -> None:
    found = cli("run", digits, "--image", photo)
    assert found.code == 0
    for step in ("24 rows x 20 columns", "channels GRAY", "scaled to 0..1", "layout NCHW"):
        assert step in found.out
    assert "largest of probabilities: [3]" in found.out


def test_run_writes_outputs_and_json(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    image = np.random.default_rng(1).random((3, 1, 9, 7), np.float32)
    np.save(tmp_path / "x.npy", image)
    result = tmp_path / "out.npz"
    given = ("--input", f"image={tmp_path / 'x.npy'}", "-o", result)
    assert cli("run", tiny, *given, "--json", tmp_path / "a.json").code == 0
    expected = verax.compile(tiny).run({"image": image})
    with np.load(result) as stored:
        assert {k: v.tobytes() for k, v in stored.items()} == {
            k: v.tobytes() for k, v in expected.items()
        }
    facts = json.loads((tmp_path / "a.json").read_text())
    assert facts["outputs"]["scores"]["shape"] == [3, 4]


def test_run_draws_inputs_when_none_are_given(cli: Cli, tiny: Path) -> None:
    found = cli("run", tiny, "--seed", 4)
    assert found.code == 0
    assert "drawn with seed 4" in found.out


def test_one_array_of_an_npz_is_taken_by_key_or_by_name(
    cli: Cli, tiny: Path, tmp_path: Path
) -> None:
    image = np.random.default_rng(1).random((2, 1, 9, 7), np.float32)
    np.savez(tmp_path / "a.npz", image=image, other=image * 0.5)
    by_name = cli("run", tiny, "--input", tmp_path / "a.npz").out
    by_key = cli("run", tiny, "--input", f"image={tmp_path / 'a.npz'}:other").out
    assert "array 'image'" in by_name
    assert "array 'other'" in by_key


def test_a_program_runs_in_a_process_without_the_model(
    cli: Cli, digits: Path, photo: Path, tmp_path: Path
) -> None:
    copy, program = tmp_path / "net.onnx", tmp_path / "net.vx"
    copy.write_bytes(digits.read_bytes())
    assert cli("compile", copy, "-o", program, "-O1", "--shape", "n=1").code == 0
    cli("run", copy, "-O1", "--image", photo, "-o", tmp_path / "model.npz")
    copy.unlink()
    command = [sys.executable, "-m", "verax.cli.main", "run", program, "--image", photo]
    command += ["-o", tmp_path / "program.npz"]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    with np.load(tmp_path / "model.npz") as a, np.load(tmp_path / "program.npz") as b:
        assert a.files == b.files == ["probabilities", "drawing"]
        assert all(a[k].tobytes() == b[k].tobytes() for k in a.files)


def test_a_program_draws_the_inputs_that_are_not_given(
    cli: Cli, tiny: Path, tmp_path: Path
) -> None:
    program = tmp_path / "net.vx"
    made = cli("compile", tiny, "-o", program, "--shape", "n=2", "--json", tmp_path / "a.json")
    target = json.loads((tmp_path / "a.json").read_text())["target"]
    assert f"; target {target}\n" in made.out and target in (*TARGETS, "aarch64")
    shown = [cli("run", program, "--seed", seed) for seed in (3, 3, 4)]
    assert [r.code for r in shown] == [0, 0, 0] and "drawn with seed 3" in shown[0].out
    rows = [[line for line in r.out.splitlines() if "largest of" in line] for r in shown]
    assert rows[0] == rows[1] != rows[2]


def test_inputs_beside_those_that_are_given_are_drawn(cli: Cli, tmp_path: Path) -> None:
    a, b, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in "aby")
    graph = helper.make_graph([helper.make_node("Sub", ["a", "b"], ["y"])], "two", [a, b], [y])
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "two.onnx")
    np.save(tmp_path / "a.npy", np.ones((5, 3), np.float32))
    found = cli("run", tmp_path / "two.onnx", "--input", f"a={tmp_path / 'a.npy'}")
    assert found.code == 0 and "input b: drawn with seed 0" in found.out
    assert "float32[5, 3]" in found.out


def test_inspect_shows_what_a_program_holds(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    cli("compile", tiny, "-o", tmp_path / "net.vx", "--shape", "n=2", "--plan")
    found = cli("inspect", tmp_path / "net.vx", "--json", tmp_path / "a.json")
    assert found.code == 0
    assert "image: float32[2, 1, 9, 7]" in found.out
    assert json.loads((tmp_path / "a.json").read_text())["code_bytes"] > 0


def test_both_levels_give_the_same_bits(
    cli: Cli, digits: Path, photo: Path, tmp_path: Path
) -> None:
    for level in (0, 1):
        cli("run", digits, "--image", photo, "-O", level, "-o", tmp_path / f"{level}.npz")
    with np.load(tmp_path / "0.npz") as a, np.load(tmp_path / "1.npz") as b:
        assert all(a[k].tobytes() == b[k].tobytes() for k in a.files)


def test_convert_writes_a_valid_model_of_the_same_meaning(
    cli: Cli, digits: Path, photo: Path, tmp_path: Path
) -> None:
    assert cli("convert", digits, "-o", tmp_path / "again.onnx").code == 0
    onnx.checker.check_model(onnx.load(tmp_path / "again.onnx"), full_check=True)
    assert cli("check", digits, tmp_path / "again.onnx", "--image", photo).code == 0


def test_check_calls_honest_subjects_rounding(
    cli: Cli, digits: Path, photo: Path, tmp_path: Path
) -> None:
    found = cli("check", digits, "verax:O1", "--image", photo, "--json", tmp_path / "a.json")
    assert found.code == 0
    assert "ROUNDING" in found.out
    record = json.loads((tmp_path / "a.json").read_text())
    assert (record["schema"], record["kind"]) == ("verax.verdict/5", "rounding")
    assert "scaled to 0..1" in record["inputs"][0]["origin"]


def test_check_finds_a_moved_pad_and_names_the_node(
    cli: Cli, digits: Path, photo: Path, tmp_path: Path
) -> None:
    model = onnx.load(digits)
    node = next(n for n in model.graph.node if n.name == "down1")
    pads = next(a for a in node.attribute if a.name == "pads")
    pads.ints[:] = [1, 1, 0, 0]
    onnx.save(model, tmp_path / "wrong.onnx")
    found = cli(
        "check", digits, tmp_path / "wrong.onnx", "--image", photo, "--json", tmp_path / "a.json"
    )
    assert found.code == 1
    assert "DIFFERENT" in found.out
    assert "they part at down1 (first) and down1 (second): Conv: pads is" in found.out
    assert json.loads((tmp_path / "a.json").read_text())["relation"] == "different"


def test_check_of_recorded_values(cli: Cli, digits: Path, photo: Path, tmp_path: Path) -> None:
    cli("run", digits, "--image", photo, "-o", tmp_path / "own.npz")
    assert cli("check", digits, tmp_path / "own.npz", "--image", photo).code == 0
    with np.load(tmp_path / "own.npz") as stored:
        values = dict(stored)
    values["drawing"][0, 0, 5, 7] += np.float32(0.01)
    np.savez(tmp_path / "wrong.npz", **values)
    assert cli("check", digits, tmp_path / "wrong.npz", "--image", photo).code == 1


def test_check_is_undecided_on_nan(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.full((2, 1, 9, 7), np.nan, np.float32))
    assert cli("check", tiny, "verax:O1", "--input", tmp_path / "x.npy").code == 3


def test_bench_profiles_every_step(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    record, trace = tmp_path / "profile.json", tmp_path / "trace.json"
    arguments = ("--profile", "--rounds", 2, "--json", record, "--trace", trace)
    found = cli("bench", tiny, *arguments)
    assert found.code == 0, found.err
    assert "of peak" in found.out
    told = json.loads(record.read_text())
    assert told["schema"] == "verax.profile/1"
    assert {"microseconds", "gflops", "percent_of_peak", "bytes", "gigabytes_per_second"} <= set(
        told["steps"][0]
    )
    assert {"algorithm", "schedule", "threads"} <= set(told["steps"][0])
    events = json.loads(trace.read_text())["traceEvents"]
    assert len([e for e in events if e["ph"] == "X"]) == len(told["steps"])


def test_bench_takes_a_target_and_refuses_one_that_cannot_run_here(cli: Cli, tiny: Path) -> None:
    own = "avx2" if platform.machine() in ("x86_64", "AMD64") else "aarch64"
    other = "aarch64" if own == "avx2" else "avx2"
    assert cli("bench", tiny, "--profile", "--rounds", 1, "--target", own).code == 0
    refused = cli("bench", tiny, "--profile", "--target", other)
    assert refused.code == 2
    assert "cannot run" in refused.err
    assert "unknown target" in cli("bench", tiny, "--target", "sse2").err


def test_bench_times_engines_side_by_side(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    arguments = ("--rounds", 2, "--against", "onnxruntime", "--json", tmp_path / "a.json")
    found = cli("bench", tiny, *arguments)
    assert found.code == 0
    assert "of the speed of onnxruntime" in found.out
    record = json.loads((tmp_path / "a.json").read_text())
    assert [len(t["rounds"]) for t in record["timings"]] == [2, 2]
    assert record["inputs"] == {"image": "float32[1, 1, 9, 7]"}


def test_passes_are_disabled_by_name(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    image = tmp_path / "image.npy"
    np.save(image, np.random.default_rng(12).random((2, 1, 9, 7), np.float32))
    given = ["--input", f"image={image}", "--disable", "fuse_elementwise,fold_pads"]
    assert cli("run", tiny, *given).code == 0
    wrong = cli("run", tiny, "--input", f"image={image}", "--disable", "fold_pad")
    assert (wrong.code, "unknown pass 'fold_pad'" in wrong.err) == (2, True)
    program = tmp_path / "tiny.vx"
    shape = ["--shape", "n=2"]
    assert (
        cli("compile", tiny, "-o", program, *shape, "--disable", "fold_pads,canonicalize").code == 0
    )
    refused = cli("run", program, *given)
    assert (refused.code, "has run its passes" in refused.err) == (2, True)
