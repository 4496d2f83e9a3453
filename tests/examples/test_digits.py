"""The example network is what its script says, and the demo's claims hold."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import verax
from verax.images import read_image
from verax.records.verdict import Kind

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "digits"


def test_files_are_small() -> None:
    assert sum(p.stat().st_size for p in FOLDER.iterdir()) < 1_000_000


def test_what_breaks_elsewhere_is_inside() -> None:
    graph = onnx.load(FOLDER / "digits.onnx").graph
    nodes = {node.name: node for node in graph.node}
    attributes = {
        name: {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        for name, node in nodes.items()
    }
    assert attributes["down1"]["pads"] == [0, 0, 1, 1]
    assert attributes["down2"]["auto_pad"] == b"SAME_UPPER"
    assert attributes["up1"]["output_padding"] == [1, 0]
    assert attributes["depthwise"]["group"] == 16
    kinds = [node.op_type for node in graph.node]
    assert kinds.count("BatchNormalization") == 5
    assert "Add" in kinds


@pytest.mark.parametrize("digit", [3, 5, 8])
def test_the_pictures_are_recognised(digit: int) -> None:
    model = verax.load(FOLDER / "digits.onnx")
    photo = read_image(FOLDER / f"{digit}.png", model.inputs["image"])
    found = verax.compile(model).run({"image": photo.array})
    assert found["probabilities"].argmax() == digit
    drawn = np.corrcoef(found["drawing"].ravel(), photo.array.ravel())[0, 1]
    assert drawn > 0.9


def test_the_compiled_network_differs_by_rounding_only() -> None:
    model = verax.load(FOLDER / "digits.onnx")
    images = np.random.default_rng(5).random((3, 1, 24, 20), np.float32)
    assert verax.check(model, "verax:O1", {"image": images}).kind is Kind.rounding


def test_accuracy_is_as_recorded() -> None:
    recorded = json.loads((FOLDER / "accuracy.json").read_text())
    assert recorded["accuracy"] > 0.95


def test_the_demo_holds_its_claims() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "demo.py"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "80"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    claims, _, further = done.stdout.split("in short")[1].partition("what to type next")
    assert "NO" not in claims
    commands = [line.strip() for line in further.splitlines() if ".onnx" in line]
    assert len(commands) == 3
    for command in commands:
        words = shlex.split(command)
        assert Path(words[0]).name == "verax"
        typed = [sys.executable, "-m", "verax.cli.main", *words[1:]]
        ran = subprocess.run(typed, capture_output=True, text=True, cwd=ROOT, check=False)
        assert ran.returncode == 0, command + ran.stdout + ran.stderr


def test_an_interrupted_demo_says_so_in_one_line() -> None:
    process = subprocess.Popen(
        [sys.executable, "-u", ROOT / "examples" / "demo.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None and "1. import" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (130, "interrupted\n")


@pytest.mark.slow
def test_training_again_writes_the_same_network(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    code = (
        "import sys, pathlib; sys.path.insert(0, sys.argv[1]); import train;"
        "train.FOLDER = pathlib.Path(sys.argv[2]); train.main()"
    )
    arguments = [sys.executable, "-c", code, str(ROOT / "examples"), str(tmp_path)]
    subprocess.run(arguments, check=True, timeout=300)
    a, b = (
        {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(f).graph.initializer}
        for f in (FOLDER / "digits.onnx", tmp_path / "digits.onnx")
    )
    assert a.keys() == b.keys()
    found = json.loads((tmp_path / "accuracy.json").read_text())["accuracy"]
    assert found > 0.95
