"""`verax convert`: what it writes, over what, and what it says when it cannot."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from .conftest import Cli


def test_a_file_that_exists_is_kept_unless_forced(cli: Cli, digits: Path, tmp_path: Path) -> None:
    target = tmp_path / "a.onnx"
    target.write_bytes(b"mine")
    found = cli("convert", digits, "-o", target)
    assert found.code == 2
    assert "the file exists" in found.err
    assert "--force" in found.err
    assert target.read_bytes() == b"mine"
    assert cli("convert", digits, "-o", target, "--force", "--no-verify").code == 0
    onnx.checker.check_model(onnx.load(target), full_check=True)
    assert [f.name for f in tmp_path.iterdir()] == ["a.onnx"]


def test_the_operator_set_is_the_one_asked_for(cli: Cli, digits: Path, tmp_path: Path) -> None:
    target = tmp_path / "a.onnx"
    assert cli("convert", digits, "-o", target, "--no-verify", "--opset", 19).code == 0
    assert onnx.load(target).opset_import[0].version == 19
    for opset in (12, 99):
        found = cli("convert", digits, "-o", tmp_path / "b.onnx", "--opset", opset)
        assert found.code == 2
        assert f"opset {opset} cannot be written" in found.err
    assert not (tmp_path / "b.onnx").exists()


def test_without_a_verdict_that_was_wanted_it_is_undecided(cli: Cli, tmp_path: Path) -> None:
    """Sizes that are drawn do not fit the product: the file is written, nothing is claimed."""
    weights = helper.make_tensor("w", TensorProto.FLOAT, [12, 2], np.ones(24, np.float32))
    body = helper.make_graph(
        [
            helper.make_node("Flatten", ["x"], ["flat"], axis=1),
            helper.make_node("Gemm", ["flat", "w"], ["y"], name="fc"),
        ],
        "open",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, "c", 5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2])],
        [weights],
    )
    model = helper.make_model(body, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "open.onnx")
    found = cli("convert", tmp_path / "open.onnx", "-o", tmp_path / "a.onnx")
    assert found.code == 3
    assert "not verified" in found.out
    assert "state them: x is float32[1, c, 5]" in " ".join(found.out.split())
    kept = {p.key for p in onnx.load(tmp_path / "a.onnx").metadata_props}
    assert "verax.version" in kept
    assert "verax.verdict" not in kept


def test_a_folder_of_models_names_them(cli: Cli, digits: Path, tmp_path: Path) -> None:
    (tmp_path / "some.onnx").write_bytes(digits.read_bytes())
    (tmp_path / "notes.txt").write_text("not a model")
    found = cli("convert", tmp_path, "-o", tmp_path / "a.onnx")
    assert found.code == 2
    assert "name one of its files: some.onnx" in found.err
    assert "notes" not in found.err
