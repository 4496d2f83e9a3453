"""The case that started the forum thread: a convolution in seven loops is rounding, in words."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import verax
from verax.records.verdict import Kind
from verax.runners.functions import FunctionRunner

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "examples"))

import seven_loops  # noqa: E402  (a script of examples/)

SCRIPT = ROOT / "examples" / "seven_loops.py"


def small() -> tuple[np.ndarray, np.ndarray]:
    """x [2, 3, 6, 7] and w [4, 3, 5, 5]."""
    random = np.random.default_rng(1)
    x = random.standard_normal((2, 3, 6, 7)).astype(np.float32)
    return x, random.standard_normal((4, 3, 5, 5)).astype(np.float32)


def test_the_loops_are_the_convolution() -> None:
    x, w = small()
    expected = verax.reference(seven_loops.layer(x, w), {"x": x, "w": w})["y"]
    sums = np.abs(seven_loops.conv2d(x, w) - expected)
    assert 0 < sums.max() < np.abs(expected).mean() / 1e5


def test_every_sum_is_added_one_product_after_the_other() -> None:
    """Bit for bit the plain loops, one element at a time."""
    x, w = small()
    y = seven_loops.conv2d(x, w)
    padded = np.pad(x, ((0, 0), (0, 0), (2, 2), (2, 2)))
    total = np.float32(0)
    for c in range(3):
        for r in range(5):
            for s in range(5):
                total += padded[1, c, 3 + r, 4 + s] * w[2, c, r, s]
    assert y[1, 2, 3, 4] == total


def test_pytorch_and_the_loops_differ_beyond_a_tolerance_and_it_is_rounding() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x, w = seven_loops.draw()
    loops = seven_loops.conv2d(x, w)
    theirs = torch.nn.functional.conv2d(*map(torch.from_numpy, (x, w)), padding=2).numpy()
    beyond = np.abs(loops - theirs) > seven_loops.RTOL * np.abs(theirs)
    assert loops.size == 6272
    assert 3 <= beyond.sum() <= 30
    graph, inputs = seven_loops.layer(x, w), {"x": x, "w": w}
    for answer in (loops, theirs):
        verdict = verax.check(graph, FunctionRunner(lambda x, w, y=answer: y, "it"), inputs)
        assert verdict.kind is Kind.rounding
        assert not all(verdict.outputs[0].plain.allclose.values())


def test_the_story_is_told_in_plain_words() -> None:
    told = subprocess.run(
        [sys.executable, str(SCRIPT)], capture_output=True, text=True, check=True, timeout=600
    ).stdout
    assert "verdict: rounding" in told
    assert "one channel short: mistake" in told
    assert "last 1 of 16 input channels" in told
    assert re.search(r"\d+ of 6272 elements differ", told)
    assert "sum of 400 products" in told
    assert "ulp" not in told


def test_as_a_program_it_is_judged_like_any_other(tmp_path: Path) -> None:
    seven_loops.write(tmp_path)
    command = f"cmd:{sys.executable} {SCRIPT}"
    with np.load(tmp_path / "layer_inputs.npz") as stored:
        inputs = dict(stored)
    verdict = verax.check(tmp_path / "layer.onnx", command, inputs)
    assert verdict.kind is Kind.rounding
    assert verdict.subject["name"].startswith("cmd:")


def test_one_path_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        seven_loops.main(["alone.npz"])
    assert "two .npz files" in capsys.readouterr().err
