"""Sizes given for two models of one command: each takes what it knows."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import verax

from .conftest import Cli


def unranked(folder: Path, name: str, image: str, bias: float = 0.25) -> Path:
    """A convolution whose file does not say how many dimensions its input has."""
    weights = np.random.default_rng(31).standard_normal((5, 2, 3, 1)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Conv", [image, "w", "b"], ["y"], "conv", pads=[2, 0, 0, 0])],
        name,
        [helper.make_tensor_value_info(image, TensorProto.FLOAT, None)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [
            numpy_helper.from_array(weights, "w"),
            numpy_helper.from_array(np.full(5, bias, np.float32), "b"),
        ],
    )
    path = folder / f"{name}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


@pytest.mark.parametrize("name", ["picture", "photo"])
def test_both_networks_take_the_sizes_they_know(cli: Cli, tmp_path: Path, name: str) -> None:
    first, second = unranked(tmp_path, "first", "picture"), unranked(tmp_path, "second", name)
    sizes = ["--shape", "picture=3x2x7x4"]
    if name != "picture":
        lost = cli("check", first, second, *sizes)
        assert lost.code == 2
        assert "does not say how many dimensions" in lost.err and "photo" in lost.err
        sizes += ["--shape", "photo=3x2x7x4"]
    found = cli("check", first, second, *sizes)
    assert found.code == 0, found.err
    assert "SAME" in found.out
    other = cli("check", first, unranked(tmp_path, "third", name, 0.5), *sizes)
    assert other.code == 1
    assert "DIFFERENT" in other.out


def test_two_programs_of_one_check_have_names(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    program = tmp_path / "answer.py"
    program.write_text(
        "import sys, numpy as np, verax\n"
        "x = dict(np.load(sys.argv[-2]))\n"
        f"y = verax.reference({str(tiny)!r}, x)\n"
        "scale = 1 + float(sys.argv[1])\n"
        "np.savez(sys.argv[-1], **{k: (scale * v).astype('float32') for k, v in y.items()})\n"
    )
    near, far = (f"cmd:{sys.executable} {program} {s}" for s in ("0.0", "1e-5"))
    record = tmp_path / "record.json"
    found = cli("check", tiny, near, "--other", far, "--json", record)
    assert found.code == 0, found.err
    (one,) = json.loads(record.read_text())["comparisons"]
    assert (one["first"], one["second"], one["nearer"]) == (near, far, near)
    assert "".join(f"nearer to float64: {near}".split()) in "".join(found.out.split())
    (same,) = verax.check(tiny, near, other=far).comparisons
    assert (same.first, same.second, same.nearer) == (near, far, near)
    (twice,) = verax.check(tiny, near, other=near).comparisons
    assert twice.first.endswith("(first)") and twice.second.endswith("(second)")


def test_a_second_subject_has_sizes_too(cli: Cli, tmp_path: Path) -> None:
    first, second = (unranked(tmp_path, n, "picture") for n in ("first", "second"))
    found = cli("check", first, "verax:O1", "--other", second, "--shape", "picture=3x2x7x4", "-v")
    assert found.code == 0, found.err


def test_bisecting_a_network_gives_it_sizes(cli: Cli, tmp_path: Path) -> None:
    first, second = unranked(tmp_path, "a", "picture"), unranked(tmp_path, "b", "picture", 0.5)
    found = cli("bisect", first, second, "--shape", "picture=3x2x7x4")
    assert found.code == 1, found.err
    assert "conv" in found.out


@pytest.mark.parametrize("command", ["check", "bisect"])
def test_a_name_that_neither_has_is_refused(cli: Cli, tmp_path: Path, command: str) -> None:
    first, second = unranked(tmp_path, "a", "picture"), unranked(tmp_path, "b", "photo")
    sizes = [f"--shape={n}=3x2x7x4" for n in ("picture", "photo", "phot")]
    found = cli(command, first, second, *sizes)
    assert found.code == 2
    assert "no input or dimension 'phot'" in found.err
    alone = cli("check", first, "verax:O1", *sizes[:2])
    assert alone.code == 2
    assert "no input or dimension 'photo'" in alone.err
