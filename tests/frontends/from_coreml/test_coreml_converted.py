"""Whole networks that coremltools converted, against what PyTorch or TensorFlow answered."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import verax
from verax.export.onnx import to_bytes
from verax.frontends.coreml import load_coreml
from verax.reference.evaluate import evaluate

INNER = Path("Data/com.apple.CoreML")


@cache
def stored():
    """Arrays by case and key, as make_networks.py wrote them."""
    found: dict[str, dict[str, np.ndarray]] = {}
    with np.load(Path(__file__).with_name("networks.npz")) as file:
        for key in file.files:
            name, _, rest = key.partition("/")
            found.setdefault(name, {})[rest] = file[key]
    return found


def load(name, folder):
    """The case's network, from a file or a package."""
    case = stored()[name]
    if "weights" not in case:
        path = folder / f"{name}.mlmodel"
        path.write_bytes(case["model"].tobytes())
        return verax.load(path)
    root = folder / f"{name}.mlpackage"
    (root / INNER / "weights").mkdir(parents=True)
    (root / INNER / "model.mlmodel").write_bytes(case["model"].tobytes())
    (root / INNER / "weights/weight.bin").write_bytes(case["weights"].tobytes())
    entry = {"path": "com.apple.CoreML/model.mlmodel"}
    manifest = {"itemInfoEntries": {"m": entry}, "rootModelIdentifier": "m"}
    (root / "Manifest.json").write_text(json.dumps(manifest))
    return verax.load(root)


def inputs(model, name):
    ((value, type_),) = model.inputs.items()
    return {value: stored()[name]["in:x0"].astype(type_.dtype.numpy)}


NAMES = list(stored())
EXACT = [n for n in NAMES if "half" not in n]


SLOW = ("tagger_layers",)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in EXACT]
)
def test_a_network_gives_what_its_framework_answered(name, tmp_path):
    model, want = load(name, tmp_path), stored()[name]["out"]
    x = inputs(model, name)
    (found,) = evaluate(model.graph, x).values()
    # Constants that coremltools folded in float32 are the difference.
    steps = 4 if want.dtype == np.float64 else 16
    assert np.abs(found - want).max() < steps * np.finfo(np.float32).eps * np.abs(want).max()
    answer = {model.graph.outputs[0]: want.astype(np.float32)}
    assert verax.check(model.graph, answer, x).kind in ("identical", "rounding")


def test_a_network_of_half_precision_is_near_to_the_full_one(tmp_path):
    model, want = load("mobile_half", tmp_path), stored()["mobile_half"]["out"]
    (found,) = evaluate(model.graph, inputs(model, "mobile_half")).values()
    gap = np.abs(found - want).max() / np.abs(want).max()
    assert np.finfo(np.float32).eps < gap < 4 * np.finfo(np.float16).eps
    verdict = verax.check(model.graph, "verax:O1", inputs(model, "mobile_half"))
    assert verdict.kind in ("identical", "rounding")


@pytest.mark.slow
@pytest.mark.parametrize("name", EXACT)
def test_a_compiled_network_gives_its_meaning(name, tmp_path):
    model = load(name, tmp_path)
    verdict = verax.check(model.graph, "verax:O1", inputs(model, name))
    assert verdict.kind in ("identical", "rounding")


@pytest.mark.slow
@pytest.mark.parametrize("name", EXACT)
def test_a_network_written_as_onnx_is_the_same_to_onnx_runtime(name, tmp_path):
    ort = pytest.importorskip("onnxruntime")
    model = load(name, tmp_path)
    x = inputs(model, name)
    session = ort.InferenceSession(to_bytes(model.graph), providers=["CPUExecutionProvider"])
    answers = dict(zip(model.graph.outputs, session.run(None, x)))
    assert verax.check(model.graph, answers, x).kind in ("identical", "rounding")


def test_two_forms_of_one_module_are_read_by_two_tables(tmp_path):
    kinds = {name: load(name, tmp_path).format for name in NAMES}
    assert {f.split(",")[0] for f in kinds.values()} == {"CoreML mlProgram", "CoreML neuralNetwork"}
    with pytest.raises(verax.base.errors.ModelError, match="path"):
        load_coreml(stored()["residual_program"]["model"].tobytes())
