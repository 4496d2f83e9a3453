"""Axes of size 0, against ONNX Runtime: the same shapes and numbers, or refused by both."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import verax
from verax.base.errors import VeraxError
from verax.records.verdict import Kind

onnxruntime = pytest.importorskip("onnxruntime")

Shapes = tuple[tuple[int, ...], ...]
ANSWERED: dict[str, tuple[str, Shapes, dict[str, Any]]] = {
    "transposed, no items": ("ConvTranspose", ((0, 2, 5, 4), (2, 3, 3, 2), (3,)), {}),
    "transposed, no rows": ("ConvTranspose", ((2, 2, 0, 4), (2, 3, 3, 2), (3,)), {}),
    "transposed, strides": (
        "ConvTranspose", ((2, 4, 0, 3), (4, 3, 3, 2), (6,)), {"strides": [2, 3], "group": 2},
    ),
    "transposed, no channels": ("ConvTranspose", ((2, 0, 5, 4), (0, 3, 3, 2), (3,)), {}),
    "convolution, no channels": ("Conv", ((2, 0, 5, 4), (3, 0, 3, 2), (3,)), {}),
    "convolution, no filters": ("Conv", ((2, 2, 5, 4), (0, 2, 3, 2)), {}),
    "largest of all, no items": ("GlobalMaxPool", ((0, 2, 5, 4),), {}),
    "window, no items": ("MaxPool", ((0, 2, 5, 4),), {"kernel_shape": [2, 3]}),
    "place of the largest, no rows": ("ArgMax", ((0, 5),), {"axis": 1}),
    "sampled, no items": ("GridSample", ((0, 2, 5, 4), (0, 3, 6, 2)), {}),
    "sampled, no places": ("GridSample", ((2, 2, 5, 4), (2, 0, 6, 2)), {}),
    "sampled, no channels": ("GridSample", ((2, 0, 5, 4), (2, 3, 6, 2)), {}),
}  # fmt: skip
REFUSED: dict[str, tuple[str, Shapes, dict[str, Any]]] = {
    "largest of nothing": ("GlobalMaxPool", ((2, 3, 0, 4),), {}),
    "place of nothing": ("ArgMax", ((3, 0),), {"axis": 1}),
    "sampled from nothing": ("GridSample", ((2, 2, 0, 4), (2, 3, 6, 2)), {}),
}


def _model(op: str, shapes: Shapes, attributes: dict[str, Any], are_open: bool) -> bytes:
    names = [f"x{i}" for i in range(len(shapes))]
    dims = [
        [f"d{i}_{j}" if are_open and not i else n for j, n in enumerate(shape)]
        for i, shape in enumerate(shapes)
    ]
    kind = TensorProto.INT64 if op == "ArgMax" else TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], **attributes)],
        "empty",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, d) for n, d in zip(names, dims)],
        [helper.make_tensor_value_info("y", kind, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    assert isinstance(model, onnx.ModelProto)
    data: bytes = model.SerializeToString()
    return data


def _feeds(shapes: Shapes) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(431)
    return {f"x{i}": rng.standard_normal(s).astype(np.float32) for i, s in enumerate(shapes)}


@pytest.mark.parametrize("name", ANSWERED)
def test_what_the_runtime_answers_is_answered(name: str) -> None:
    op, shapes, attributes = ANSWERED[name]
    model, feeds = _model(op, shapes, attributes, False), _feeds(shapes)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, feeds)
    for level in (0, 1, 3):
        exe = verax.compile(model, threads=1, cache=False, opt_level=level)
        (found,) = exe.run(feeds).values()
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)
    for subject in ("verax:O1", "reference", "reference:promised"):
        assert verax.check(model, subject, feeds).kind in (Kind.identical, Kind.rounding)


@pytest.mark.parametrize("are_open", [False, True], ids=["said", "open"])
@pytest.mark.parametrize("name", REFUSED)
def test_what_it_refuses_is_refused_in_words(name: str, are_open: bool) -> None:
    op, shapes, attributes = REFUSED[name]
    model, feeds = _model(op, shapes, attributes, are_open), _feeds(shapes)
    for act in (
        lambda: verax.compile(model, threads=1, cache=False).run(feeds),
        lambda: verax.check(model, "reference", feeds),
    ):
        with pytest.raises(VeraxError, match=r"no elements|empty spatial axis"):
            act()
