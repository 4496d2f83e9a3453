"""Real networks: ONNX Runtime's stored answers and its live run are rounding; a wrong file is not.

The networks are not part of the repository; see `shared/models` beside it.
"""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from verax.frontends.onnx import load_onnx
from verax.judge import check
from verax.records.verdict import Kind
from verax.runners.arrays import load_npz
from verax.runners.onnx_runtime import OnnxRuntimeRunner

MODELS = Path(__file__).resolve().parents[2].parent / "shared" / "models"
FILES = {
    "ultraface_slim": "version-slim-320_without_postprocessing.onnx",
    "fastestdet": "FastestDet.onnx",
}
pytestmark = pytest.mark.skipif(
    not MODELS.is_dir(), reason="the folder shared/models with real networks is not there"
)


def path_of(name: str) -> Path:
    return MODELS / name / FILES[name]


@pytest.mark.parametrize("name", FILES)
def test_stored_answers_are_rounding(name: str) -> None:
    (stored,) = path_of(name).parent.glob(f"{FILES[name]}.onnxruntime-*.npz")
    verdict = check(load_onnx(path_of(name)).graph, load_npz(stored))
    assert verdict.kind is Kind.rounding, verdict.reasons
    assert verdict.method == "outputs only"
    assert verdict.power


@pytest.mark.parametrize("name", FILES)
def test_the_live_run_is_rounding_at_every_node(name: str) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    graph = load_onnx(path_of(name)).graph
    verdict = check(graph, OnnxRuntimeRunner(path_of(name), threads=1))
    assert verdict.kind is Kind.rounding, verdict.reasons
    assert {f.value for f in verdict.nodes} >= set(graph.outputs)
    assert len(verdict.nodes) >= len(graph.nodes)


@pytest.mark.parametrize("wrong", [[2, 1, 0, 1], [2, 2, 2, 2]], ids=["shifted", "too wide"])
def test_a_wrong_pad_in_the_file_is_named(wrong: list[int]) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    model = onnx.load(path_of("ultraface_slim"))
    node = [n for n in model.graph.node if n.op_type == "Conv"][7]
    pads = next(a for a in node.attribute if a.name == "pads")
    assert list(pads.ints) == [1, 1, 1, 1]
    pads.CopyFrom(helper.make_attribute("pads", wrong))
    verdict = check(
        load_onnx(path_of("ultraface_slim")).graph,
        OnnxRuntimeRunner(model.SerializeToString(), threads=1),
    )
    assert verdict.kind is Kind.mistake
    assert [b.value for b in verdict.blame] == [node.output[0]]


def test_answers_to_another_picture_are_a_mistake() -> None:
    (stored,) = path_of("ultraface_slim").parent.glob("*.onnx.onnxruntime-*.npz")
    arrays = load_npz(stored)
    inputs = {k: np.flip(v, -1).copy() for k, v in (arrays.stored_inputs or {}).items()}
    arrays.stored_inputs = inputs
    verdict = check(load_onnx(path_of("ultraface_slim")).graph, arrays, explain=False)
    assert verdict.kind is Kind.mistake
