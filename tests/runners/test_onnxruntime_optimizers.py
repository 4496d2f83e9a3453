"""Real faults of ONNX Runtime's optimizers, and the single optimizer that brings each.

Where a later version is right, the test holds for it that nobody is named. A fault that no version
has any more fails here: then this list and docs/tutorials/optimization.md want another example.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.cli.conftest import Cli, cli  # noqa: F401

import verax
from verax.base.errors import UsageError
from verax.records.bisection import Bisection
from verax.records.verdict import Kind
from verax.runners.engines.onnxruntime import OPTIMIZERS
from verax.runners.onnx_runtime import OnnxRuntimeRunner

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

BEFORE_1_32 = tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 32)
"""Version 1.32 mended Pad_Fusion and SimplifiedLayerNormFusion; LayerNormFusion is as it was."""

FLOAT = TensorProto.FLOAT


def saved(path: Path, nodes: list[onnx.NodeProto], shape: list[int], **constants: object) -> Path:
    arrays = [numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", FLOAT, shape)],
        [helper.make_tensor_value_info("y", FLOAT, [f"d{i}" for i in range(len(shape))])],
        arrays,
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def layer_norm(path: Path, exponent: float) -> Path:
    """LayerNormalization in its parts, with a variance of that power."""
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["m"], "mean", axes=[-1]),
        helper.make_node("Sub", ["x", "m"], ["d"], "deviation"),
        helper.make_node("Pow", ["d", "exponent"], ["p"], "power"),
        helper.make_node("ReduceMean", ["p"], ["v"], "variance", axes=[-1]),
        helper.make_node("Add", ["v", "epsilon"], ["e"], "guarded"),
        helper.make_node("Sqrt", ["e"], ["r"], "root"),
        helper.make_node("Div", ["d", "r"], ["q"], "unit"),
        helper.make_node("Mul", ["q", "scale"], ["w"], "scaled"),
        helper.make_node("Add", ["w", "bias"], ["y"], "shifted"),
    ]
    scale = np.linspace(0.5, 2, 8, dtype=np.float32)
    return saved(
        path,
        nodes,
        [3, 8],
        exponent=np.float32(exponent),
        epsilon=np.float32(1e-5),
        scale=scale,
        bias=scale[::-1].copy(),
    )


def padded_pool(path: Path) -> Path:
    """A Pad of zeros before a MaxPool: a padded zero may be the largest."""
    nodes = [
        helper.make_node("Pad", ["x", "pads"], ["p"], "pad"),
        helper.make_node("MaxPool", ["p"], ["y"], "pool", kernel_shape=[3, 3], strides=[2, 2]),
    ]
    return saved(path, nodes, [2, 3, 9, 7], pads=np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64))


def norm_with_epsilons(path: Path, epsilon: np.ndarray) -> Path:
    """A root mean square over the last axis, scaled; epsilon: one, or one for each row."""
    nodes = [
        helper.make_node("Pow", ["x", "two"], ["p"], "power"),
        helper.make_node("ReduceMean", ["p"], ["m"], "mean", axes=[-1]),
        helper.make_node("Add", ["m", "epsilon"], ["e"], "guarded"),
        helper.make_node("Sqrt", ["e"], ["r"], "root"),
        helper.make_node("Div", ["x", "r"], ["q"], "unit"),
        helper.make_node("Mul", ["q", "scale"], ["y"], "scaled"),
    ]
    scale = np.linspace(0.5, 2, 20, dtype=np.float32)
    return saved(path, nodes, [2, 6, 20], two=np.float32(2), epsilon=epsilon, scale=scale)


def rows() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(23).standard_normal((3, 8), dtype=np.float32)}


def below_zero() -> dict[str, np.ndarray]:
    drawn = np.random.default_rng(17).standard_normal((2, 3, 9, 7))
    return {"x": drawn.astype(np.float32) - 9}


@pytest.mark.parametrize("exponent", [4.0, pytest.param(6.0, marks=pytest.mark.slow)])
def test_a_layer_norm_of_another_power(tmp_path: Path, exponent: float) -> None:
    record = verax.bisect(layer_norm(tmp_path / "net.onnx", exponent), "onnxruntime")
    found = record.optimizations
    assert record.exit_code == 1
    assert found is not None
    assert found.guilty == "LayerNormFusionL1 (basic)"
    assert (found.partners, found.cured) == ((), True)
    (step,) = found.steps
    assert (step.part, step.level) == ("LayerNormFusionL1", "basic")
    assert {"power", "variance", "root"} <= {*step.region}
    assert "= Pow()(%d, %exponent)" in step.before
    assert "= LayerNormalization(" in step.after and "Pow" not in step.after
    assert Bisection.from_json(record.to_json()) == record


def test_another_file_in_the_runtime_is_searched_too(tmp_path: Path) -> None:
    """Of other names than the file that says what is right; what a step did is told of its own."""
    path, other = layer_norm(tmp_path / "net.onnx", 4.0), tmp_path / "other.onnx"
    proto = onnx.load(path)
    for node in proto.graph.node:
        node.name = f"their {node.name}"
        node.input[:] = [f"t_{v}" for v in node.input]
        node.output[:] = [f"t_{v}" for v in node.output]
    for value in (*proto.graph.input, *proto.graph.output, *proto.graph.initializer):
        value.name = f"t_{value.name}"
    onnx.save(proto, other)
    record = verax.bisect(path, f"onnxruntime:{other}", rows())
    found = record.optimizations
    assert record.exit_code == 1 and found is not None
    assert (found.guilty, found.partners, found.cured) == ("LayerNormFusionL1 (basic)", (), True)
    assert {"their power", "their variance", "their root"} <= {*found.steps[0].region}
    disable = ["LayerNormFusionL1", "LayerNormFusionL2"]
    assert verax.check(path, f"onnxruntime:{other}", rows(), disable=disable).exit_code == 0
    assert Bisection.from_json(record.to_json()) == record


def test_a_layer_norm_is_one_where_the_power_is_two(tmp_path: Path) -> None:
    record = verax.bisect(layer_norm(tmp_path / "net.onnx", 2.0), "onnxruntime")
    assert record.exit_code == 0
    assert record.optimizations is not None
    assert record.optimizations.guilty == ""


def test_a_norm_with_an_epsilon_for_each_row(tmp_path: Path) -> None:
    epsilons = np.linspace(0.1, 3, 6, dtype=np.float32).reshape(6, 1)
    one = norm_with_epsilons(tmp_path / "one.onnx", epsilons[2, 0])
    assert verax.check(one, "onnxruntime").exit_code == 0
    path = norm_with_epsilons(tmp_path / "net.onnx", epsilons)
    record = verax.bisect(path, "onnxruntime")
    found = record.optimizations
    assert found is not None
    if not BEFORE_1_32:
        assert (record.exit_code, found.guilty) == (0, "")
        return
    assert record.exit_code == 1
    assert (found.guilty, found.cured) == ("SimplifiedLayerNormFusion (extended)", True)
    assert {"power", "guarded", "scaled"} <= {*found.steps[0].region}


def test_padding_that_becomes_the_pools_own(tmp_path: Path) -> None:
    path = padded_pool(tmp_path / "net.onnx")
    record = verax.bisect(path, "onnxruntime", below_zero())
    found = record.optimizations
    assert found is not None
    if not BEFORE_1_32:
        assert (record.exit_code, found.guilty) == (0, "")
        return
    assert found.guilty == "Pad_Fusion (basic)"
    assert found.cured is True
    assert found.steps[0].region == ("pad", "pool")
    assert "= Pad()(%x, %pads)" in found.steps[0].before
    assert "pads=[1, 1, 1, 1]" in found.steps[0].after
    healed = verax.bisect(path, "onnxruntime", below_zero(), disable=["Pad_Fusion"])
    assert healed.exit_code == 0


def test_a_disabled_optimizer_heals_on_the_command_line(cli: Cli, tmp_path: Path) -> None:  # noqa: F811
    path, samples = layer_norm(tmp_path / "net.onnx", 4.0), tmp_path / "x.npz"
    np.savez(samples, **rows())
    common = ["check", path, "onnxruntime", "--input", samples]
    assert cli(*common).code == 1
    assert cli(*common, "--disable", "LayerNormFusionL1,LayerNormFusionL2").code == 0
    wrong = cli(*common, "--disable", "PadFusion")
    assert wrong.code == 2
    assert "choose from Pad_Fusion" in wrong.err


def test_what_cannot_be_chosen_is_refused(tmp_path: Path) -> None:
    path = padded_pool(tmp_path / "net.onnx")
    with pytest.raises(UsageError, match="some can be disabled, no more"):
        verax.bisect(path, "onnxruntime", passes=["Pad_Fusion"])


def test_only_the_chosen_optimizers_are_on(tmp_path: Path) -> None:
    path = layer_norm(tmp_path / "net.onnx", 6.0)
    graph, inputs = verax.load(path).graph, rows()
    whole = OnnxRuntimeRunner(path, isolated=False, threads=1)
    right = verax.reference(graph, inputs)["y"]
    every = [f"{n} ({level})" for level, names in OPTIMIZERS.items() for n in names]
    without = [n for n in every if not n.startswith("LayerNormFusion")]
    for names, fine in ((without, True), (["LayerNormFusionL1 (basic)"], False), ([], True)):
        result = whole.with_steps(names).run(graph, inputs)["y"]
        assert np.allclose(result, right, rtol=1e-4, atol=1e-6) is fine
    kept = [text for _, text in whole.with_steps(without).optimized(graph, inputs)]
    assert any("= Pow(" in text for text in kept)
    verdict = verax.check(path, "onnxruntime", inputs)
    assert verdict.kind is Kind.mistake
