"""Networks that others made import, and give what ONNX Runtime gave for them."""

import numpy as np
import pytest
from onnx_models import shared_folder

from verax.frontends.onnx import load_onnx
from verax.ir.checker import check
from verax.reference.evaluate import evaluate

FILES = [
    "ultraface_slim/version-slim-320_without_postprocessing.onnx",
    "fastestdet/FastestDet.onnx",
]


@pytest.mark.parametrize("name", FILES)
def test_a_real_network_gives_the_stored_answers(name):
    folder = shared_folder()
    if folder is None:
        pytest.skip("../shared with real networks is missing")
    path = folder / "models" / name
    loaded = load_onnx(path)
    check(loaded.graph)
    with np.load(next(path.parent.glob(f"{path.name}.onnxruntime*.npz"))) as stored:
        inputs = {k[3:]: stored[k] for k in stored.files if k.startswith("in:")}
        outputs = {k[4:]: stored[k] for k in stored.files if k.startswith("out:")}
    found = evaluate(loaded.graph, inputs)
    assert found.keys() == outputs.keys() == loaded.outputs.keys()
    for key, want in outputs.items():
        # Float32 against float64 through dozens of layers; the judge says it exactly.
        error = np.abs(found[key] - want).max() / np.abs(found[key]).max()
        assert error < 64 * np.finfo(np.float32).eps
