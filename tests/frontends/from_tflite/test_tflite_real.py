"""Files that others made mean what LiteRT gave for them, by meaning and compiled."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from tests.frontends.from_tflite.tflite_peer import shared_folder

import verax
from verax import load
from verax.ir.checker import check
from verax.ir.graph import Graph
from verax.ops.sums.normalization import BatchNormalization
from verax.records.verdict import Kind

SUITE = [f"tflite_{i}" for i in (*range(10, 21, 2), *range(24, 43, 2))]
MODELS = {
    "resnet8/pretrainedResnet.tflite": False,
    "blazeface_back/face_detection_back.tflite": True,
    "pose_cpm/model.tflite": True,
    "ultraface_slim/version-slim-320_without_postprocessing.tflite": True,
}
"""Real networks, and whether judging one takes longer than a quick test may."""
HONEST = (Kind.identical, Kind.rounding)


@pytest.mark.parametrize("name", SUITE)
@pytest.mark.parametrize("subject", ["stored", pytest.param("verax:O1", marks=pytest.mark.slow)])
def test_the_convolution_suite(name: str, subject: str) -> None:
    folder = shared_folder() / "suites" / "tflite_conv"
    model = load(folder / f"{name}.tflite")
    with np.load(next(folder.glob(f"{name}.tensorflow*.npz"))) as stored:
        inputs, given = {next(iter(model.inputs)): stored["x"]}, stored["y"]
    judged = {next(iter(model.outputs)): given} if subject == "stored" else subject
    assert verax.check(model, judged, inputs=inputs).kind in HONEST


def stored_answers(path: Path) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    with np.load(next(path.parent.glob(f"{path.name}.*.npz"))) as stored:
        arrays = dict(stored)
    return (
        {k[3:]: v for k, v in arrays.items() if k.startswith("in:")},
        {k[4:]: v for k, v in arrays.items() if k.startswith("out:")},
    )


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if slow else n for n, slow in MODELS.items()],
)
def test_a_real_network_is_judged_against_its_stored_answers(name: str) -> None:
    path = shared_folder() / "models" / name
    model = load(path)
    inputs, outputs = stored_answers(path)
    assert model.outputs.keys() == outputs.keys()
    assert verax.check(model, outputs, inputs=inputs).kind in HONEST
    assert verax.check(model, "verax:O1", inputs=inputs).kind in HONEST


@pytest.mark.parametrize("name", MODELS)
def test_a_real_network_is_imported_whole(name: str) -> None:
    """Its inputs and outputs keep names and order; an open batch takes the size given."""
    path = shared_folder() / "models" / name
    inputs, outputs = stored_answers(path)
    model = load(path, shapes={k: v.shape for k, v in inputs.items()})
    check(model.graph)
    assert list(model.inputs) == list(inputs)
    assert {k: t.shape for k, t in model.outputs.items()} == {
        k: v.shape for k, v in outputs.items()
    }


def with_epsilon(graph: Graph, epsilon: float) -> Graph:
    """The graph with another epsilon in every BatchNormalization."""
    nodes = [
        dataclasses.replace(n, op=dataclasses.replace(n.op, epsilon=epsilon))
        if isinstance(n.op, BatchNormalization)
        else n
        for n in graph.nodes
    ]
    return dataclasses.replace(graph, nodes=tuple(nodes))


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "kind"), [(1e-5, Kind.mistake), (1.001e-5, Kind.rounding)])
def test_why_the_two_ultraface_files_differ(epsilon: float, kind: Kind) -> None:
    """The TFLite file was folded with the smallest epsilon that TensorFlow's fused normalisation
    takes, 1.001e-5; the ONNX file has 1e-5. Nothing else differs."""
    path = shared_folder() / "models" / "ultraface_slim" / "version-slim-320_without_postprocessing"
    inputs, given = stored_answers(path.with_suffix(".tflite"))
    onnx = load(path.with_suffix(".onnx"))
    verdict = verax.check(
        with_epsilon(onnx.graph, epsilon),
        {"boxes": given["Identity"], "scores": given["Identity_1"]},
        inputs={"input": np.ascontiguousarray(inputs["input_1"].transpose(0, 3, 1, 2))},
    )
    assert verdict.kind is kind, verdict.reasons
