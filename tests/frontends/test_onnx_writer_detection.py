"""Detectors' last layers written as ONNX operators: ONNX Runtime finds the same boxes in the same
rows, equal scores, empty boxes and rows to spare included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import verax
from verax.base.errors import UnsupportedError
from verax.export.onnx import to_onnx
from verax.frontends.tensorflow import load_tensorflow
from verax.frontends.tflite import load_tflite
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.onnx_backend import run_reference
from verax.records.verdict import Kind

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

onnxruntime.set_default_logger_severity(4)


FOLDER = Path(__file__).parent


def whole_detector(name: str) -> tuple[Any, dict[str, np.ndarray]]:
    """A stored detector and its stored inputs."""
    with np.load(FOLDER / f"from_{name.split()[0]}" / "ssd.npz") as stored:
        if name == "tensorflow":
            return load_tensorflow(stored["frozen"].tobytes()), {"image": stored["image"]}
        kind = "float32/" + name.removeprefix("tflite ")
        model = load_tflite(stored[f"{kind}.tflite"].tobytes())
        return model, {next(iter(model.inputs)): stored[f"{kind}.in"]}


def network(kind: str, arrays: dict[str, np.ndarray], batch: str = "", **fields: Any) -> Graph:
    """One operator; `batch` is the name of the first axis of the first inputs."""
    b = Builder("one")
    names = []
    for name, array in arrays.items():
        type_ = TensorType.of(array)
        if batch and array.shape[0] > 1:
            type_ = TensorType.parse(
                f"{type_.dtype}[{', '.join([batch, *map(str, array.shape[1:])])}]"
            )
        names.append(b.input(name, type_))
    return b.graph([b.add(REGISTRY[kind](**fields), names, ["y"], "detect")])


def both(graph: Graph, arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    proto = to_onnx(graph)
    onnx.checker.check_model(proto, full_check=True)
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return run_reference(graph, arrays)["y"], session.run(None, arrays)[0]


def quarters(rng: np.random.Generator, shape: tuple[int, ...], high: int) -> np.ndarray:
    """Multiples of 1/4: exact in any arithmetic, often equal to one another."""
    return (rng.integers(0, high, shape) / 4).astype(np.float32)


def boxes(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Corners on a grid; some boxes are empty and some have their corners exchanged."""
    low = quarters(rng, (*shape, 2), 9)
    return np.concatenate([low, low + quarters(rng, (*shape, 2), 12) - np.float32(0.25)], -1)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([-1, 0, 3, 20]),
    st.sampled_from([-1, 0]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0.0, 0.3, 0.5, 1.5]),
)
def test_rows_that_survive(seed, topk, id_index, force, centre, overlap) -> None:
    rng = np.random.default_rng(seed)
    label = rng.integers(-1, 3, (2, 3, 11, 1)).astype(np.float32)
    rows = [label, quarters(rng, (2, 3, 11, 1), 5) - 0.25, boxes(rng, (2, 3, 11)), label + 7]
    data = np.concatenate(rows, -1)
    fields = {"topk": topk, "id_index": id_index, "force_suppress": force, "center": centre,
              "overlap_thresh": overlap, "background_id": 1}  # fmt: skip
    want, found = both(network("BoxNMS", {"x": data}, "n", **fields), {"x": data})
    assert np.array_equal(found, want)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([-1, 3, 20]),
    st.booleans(),
    st.sampled_from([0.0, 0.25, 0.5, 1.0]),
    st.booleans(),
)
def test_best_classes_of_anchors(seed, topk, force, overlap, clip) -> None:
    rng = np.random.default_rng(seed)
    scores = quarters(rng, (2, 4, 9), 5)
    scores[0, 1, 3] = np.nan
    offsets = np.zeros((2, 36), np.float32)
    offsets.reshape(2, 9, 4)[..., :2] = rng.integers(-2, 3, (2, 9, 2))
    arrays = {"scores": scores, "offsets": offsets, "anchors": boxes(rng, (1, 9))}
    fields = {"nms_topk": topk, "force_suppress": force, "nms_threshold": overlap, "clip": clip,
              "threshold": 0.25, "variances": (0.25, 0.5, 0.25, 0.25)}  # fmt: skip
    want, found = both(network("MultiBoxDetection", arrays, "n", **fields), arrays)
    assert np.array_equal(found, want)


@pytest.mark.parametrize("name", ["tflite by box", "tflite by class", "tensorflow"])
def test_whole_detectors_find_the_same(name: str) -> None:
    """Their last layers are house operators around NonMaxSuppression."""
    model, inputs = whole_detector(name)
    session = onnxruntime.InferenceSession(
        to_onnx(model.graph).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    found = dict(zip(model.outputs, session.run(None, inputs), strict=True))
    want = run_reference(model.graph, inputs)
    for output, array in want.items():
        assert found[output].shape == array.shape
        if np.array_equal(array, np.rint(array)):  # classes and counts
            np.testing.assert_array_equal(found[output], array)
    verdict = verax.check(model, found, inputs, twice=False)
    assert verdict.kind in (Kind.identical, Kind.rounding), verdict.reasons


def test_what_has_no_form_is_refused_by_name() -> None:
    rows = np.zeros((2, 5, 6))
    with pytest.raises(UnsupportedError, match="BoxNMS has no ONNX form for other types"):
        to_onnx(network("BoxNMS", {"x": rows}))
    rows = rows.astype(np.float32)
    with pytest.raises(UnsupportedError, match=r"overlap_thresh = -0\.5"):
        to_onnx(network("BoxNMS", {"x": rows}, overlap_thresh=-0.5))
