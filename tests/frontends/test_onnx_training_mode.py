"""Files that were exported in training mode are refused with advice, and read at inference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tests.frontends.onnx_models import helper, model, numpy_helper

import verax
from verax.base.errors import UnsupportedError, UsageError
from verax.frontends.onnx import load_onnx
from verax.reference.evaluate import evaluate

NODE = helper.make_node
SHAPE = (3, 4, 5)


def made(nodes: list[Any], **arrays: np.ndarray) -> onnx.ModelProto:
    found = model(nodes, {"x": SHAPE}, {"y": None})
    found.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in arrays.items())
    return found


def dropout() -> onnx.ModelProto:
    nodes = [NODE("Dropout", ["x", "ratio", "on"], ["d", "mask"]), NODE("Neg", ["d"], ["y"])]
    return made(nodes, ratio=np.float32(0.4), on=np.array(True))


def taken_apart(divides: bool) -> onnx.ModelProto:
    """Dropout as PyTorch takes it apart: a mask of random numbers, and what is kept made larger."""
    factor = 1 - 0.4 if divides else 1 / (1 - 0.4)
    nodes = [
        NODE("RandomUniformLike", ["x"], ["random"]),
        NODE("Greater", ["random", "p"], ["kept"]),
        NODE("Cast", ["kept"], ["mask"], to=1),
        NODE("Mul", ["mask", "x"] if divides else ["x", "mask"], ["masked"]),
        NODE("Div" if divides else "Mul", ["masked", "factor"], ["d"]),
        NODE("Neg", ["d"], ["y"]),
    ]
    return made(nodes, p=np.float32(0.4), factor=np.float32(factor))


def evaluated(proto: onnx.ModelProto) -> np.ndarray:
    x = np.random.default_rng(95).standard_normal(SHAPE).astype(np.float32)
    graph = load_onnx(proto, evaluation=True).graph
    return evaluate(graph, {"x": x})["y"] + x.astype(np.float64)


@pytest.mark.parametrize("proto", [dropout(), taken_apart(False), taken_apart(True)])
def test_training_is_refused_with_advice_and_read_at_inference(proto: onnx.ModelProto) -> None:
    with pytest.raises(UnsupportedError) as refused:
        load_onnx(proto)
    assert "training mode?" in refused.value.next_step and "--eval" in refused.value.next_step
    assert not evaluated(proto).any()
    assert "drop" in load_onnx(proto, evaluation=True).metadata["read as at inference"]


def test_batch_normalization_uses_what_it_has_stored() -> None:
    r = np.random.default_rng(96)
    scale, shift, mean = r.standard_normal((3, 4)).astype(np.float32)
    variance = r.uniform(0.5, 2, 4).astype(np.float32)
    names = ["scale", "shift", "mean", "variance"]
    node = NODE("BatchNormalization", ["x", *names], ["y", "m", "v"], training_mode=1)
    proto = made([node], **dict(zip(names, (scale, shift, mean, variance))))
    x = r.standard_normal(SHAPE).astype(np.float32)
    given = evaluate(load_onnx(proto, evaluation=True).graph, {"x": x})["y"]
    columns = [a.astype(np.float64)[:, None] for a in (scale, shift, mean, variance)]
    expected = (x - columns[2]) / np.sqrt(columns[3] + 1e-5) * columns[0] + columns[1]
    assert np.allclose(given, expected, rtol=1e-6)
    assert not np.allclose(evaluate(load_onnx(proto).graph, {"x": x})["y"], expected, rtol=1e-2)


def test_random_numbers_that_are_no_dropout_are_still_refused() -> None:
    nodes = [NODE("RandomUniformLike", ["x"], ["random"]), NODE("Add", ["x", "random"], ["y"])]
    with pytest.raises(UnsupportedError, match="RandomUniformLike"):
        load_onnx(made(nodes), evaluation=True)


def test_the_file_is_not_handed_to_runtimes_as_it_is(tmp_path: Path) -> None:
    onnx.save(dropout(), tmp_path / "net.onnx")
    found = verax.load(tmp_path / "net.onnx", evaluation=True)
    assert not found.source  # a runtime would drop
    other = tmp_path / "net.tflite"
    other.write_bytes(b"")
    with pytest.raises(UsageError):
        verax.load(other, evaluation=True)
