"""Every real file beside the repository imports, compiles and means what its peer answered.

The tables name every file of ../shared/models and every case of ../shared/suites, so that one that
is added later fails here until somebody says what is known of it. That two files are one function
is shown in `tests/judge/align/test_align.py`, the cases of the suites with each frontend.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.frontends.from_keras.test_keras_files import cat

import verax
from verax.frontends.model import Model
from verax.records.verdict import Kind

SHARED = Path(__file__).parents[2].parent / "shared"
MODELS, SUITES = SHARED / "models", SHARED / "suites"
HONEST = (Kind.identical, Kind.rounding)
pytestmark = pytest.mark.skipif(not MODELS.is_dir(), reason="../shared is missing")

Turn = Callable[[np.ndarray], np.ndarray]


def same(array: np.ndarray) -> np.ndarray:
    return array


def channels_first(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array.transpose(0, 3, 1, 2))


@dataclass(frozen=True)
class Real:
    """A file and the stored answers of a peer; `turn` makes the file's layout of the peer's."""

    peer: str
    turn: Turn = same


ULTRAFACE = "ultraface_slim/version-slim-320_without_postprocessing"
REAL = {
    # CoreML cannot run here: TensorFlow answered for the same network.
    "pose_cpm/model.mlmodel": Real("model.pb.tensorflow", channels_first),
    "pose_cpm/model.pb": Real("model.pb.tensorflow"),
    "pose_cpm/model.tflite": Real("model.tflite.litert"),
    "mtcnn_rnet/rnet_cut.pb": Real("rnet_cut.pb.tensorflow"),
    "mtcnn_rnet/rnet.pt2": Real("rnet.torch"),
    "blazeface_back/face_detection_back.tflite": Real("face_detection_back.tflite.litert"),
    "blazeface_back/blazefaceback.pt2": Real("blazefaceback.torch"),
    "resnet8/pretrainedResnet.h5": Real("pretrainedResnet.h5.tensorflow"),
    "resnet8/pretrainedResnet.tflite": Real("pretrainedResnet.tflite.litert"),
    "resnet8/pretrainedResnet_quant.tflite": Real("pretrainedResnet_quant.tflite.litert"),
    f"{ULTRAFACE}.onnx": Real(f"{Path(ULTRAFACE).name}.onnx.onnxruntime"),
    f"{ULTRAFACE}.tflite": Real(f"{Path(ULTRAFACE).name}.tflite.litert"),
    "fastestdet/FastestDet.onnx": Real("FastestDet.onnx.onnxruntime"),
    "fastestdet/fastestdet.pt2": Real("FastestDet.onnx.onnxruntime"),
    "mobileface_v1/MobileFace_Identification_V1-symbol.json": Real(
        "MobileFace_Identification_V1.mxnet"
    ),
}
WITHOUT_PEER = {
    f"coreml_same/{kind}_{mode}.mlmodel"
    for kind in ("conv", "deconv")
    for mode in ("TOP_LEFT_HEAVY", "BOTTOM_RIGHT_HEAVY")
}
"""Held against the specification's formulas in `from_coreml/test_coreml_networks.py`."""
BESIDE = {"mobileface_v1/MobileFace_Identification_V1-0000.params"}
"""Second files of a model."""
CASES = {"tf_conv": 30, "tflite_conv": 16, "mxnet_conv": 11}


def test_every_file_of_the_models_is_listed() -> None:
    found = {str(p.relative_to(MODELS)) for p in MODELS.rglob("*") if p.is_file()}
    peers = {name for name in found if name.endswith(".npz")}
    assert found - peers == {*REAL, *WITHOUT_PEER, *BESIDE, "README.md"}
    used = {str(stored_file(name).relative_to(MODELS)) for name in REAL}
    assert peers == used, "every stored answer is held against a file"


def test_every_case_of_the_suites_is_listed() -> None:
    names = {p.name for p in SUITES.iterdir()}
    opinfo = "opinfo_conv_torch-2.13.0"
    assert names == {*CASES, f"{opinfo}.npz", f"{opinfo}.json"}
    assert len(json.loads((SUITES / f"{opinfo}.json").read_text())) == 92
    for suite, count in CASES.items():
        listed = {c["name"] for c in json.loads((SUITES / suite / "manifest.json").read_text())}
        files = {p.name.partition(".")[0].partition("-")[0] for p in (SUITES / suite).iterdir()}
        assert len(listed) == count and files - {"manifest"} == listed


def stored_file(name: str) -> Path:
    (found,) = (MODELS / name).parent.glob(f"{REAL[name].peer}-*.npz")
    return found


def stored(name: str, model: Model | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Inputs and answers in the file's layout, by its names when the model is given."""
    turn = REAL[name].turn
    with np.load(stored_file(name)) as file:
        arrays = {k: file[k] for k in file.files}
    inputs = [turn(a) for k, a in arrays.items() if k.startswith("in:")]
    outputs = {k[4:]: turn(a) for k, a in arrays.items() if k.startswith("out:")}
    if model is None:
        return dict(enumerate(inputs)), outputs
    known = outputs.keys() <= model.outputs.keys()
    named = outputs if known else dict(zip(model.outputs, outputs.values(), strict=True))
    # CoreML's outputs may leave the batch out.
    shaped = {k: a.reshape(model.outputs[k].shape) for k, a in named.items()}
    return dict(zip(model.inputs, inputs, strict=True)), shaped


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_a_real_file_means_what_its_peer_answered_and_compiles(name: str) -> None:
    """The peer's answers and our compiled ones, both judged against the meaning. (The frontends'
    own tests judge the small ones of these on every run.)"""
    inputs, _ = stored(name)
    (input_,) = verax.load(MODELS / name).inputs
    model = verax.load(MODELS / name, shapes={input_: inputs[0].shape})
    assert all(t.is_static for t in (*model.inputs.values(), *model.outputs.values()))
    inputs, outputs = stored(name, model)
    for subject in (outputs, "verax:O1"):
        verdict = verax.check(model, subject, inputs=inputs)
        assert verdict.kind in HONEST, (subject, verdict.kind, verdict.reasons)


@pytest.mark.parametrize("name", [n for n in REAL if n.startswith("resnet8")])
def test_every_form_of_resnet8_sees_the_cat(name: str) -> None:
    """By meaning and compiled; the quantised file takes pixels as int8, 128 less."""
    model = verax.load(MODELS / name)
    (input_,) = model.inputs
    (output,) = model.outputs
    picture = cat()
    if model.inputs[input_].dtype.is_integer:
        picture = (np.rint(picture) - 128).astype(np.int8)
    for found in (
        verax.reference(model, {input_: picture}),
        verax.compile(model).run({input_: picture}),
    ):
        assert found[output].shape == (1, 10) and found[output].argmax() == 3
