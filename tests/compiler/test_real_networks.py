"""Real networks: one set of bits at every level, thread count and vector width, and near to what
ONNX Runtime answered for the same input."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.kernels.target import Target
from verax.frontends.onnx import load_onnx
from verax.numerics.error_model import U

MODELS = {
    "ultraface_slim": "version-slim-320_without_postprocessing.onnx",
    "fastestdet": "FastestDet.onnx",
}
CHOICES = [
    Settings(opt_level=1, threads=1),
    Settings(opt_level=1, threads=2),
    Settings(opt_level=0, threads=1),
    Settings(opt_level=1, threads=1, target="avx2"),
]
ALLOWED = 2**11 * U
"""Of the largest output: the real judgement is the judge's, this only tells networks apart."""


def model(name: str) -> Path:
    path = Path(__file__).resolve().parents[3] / "shared/models" / name / MODELS[name]
    if not path.exists():
        pytest.skip(f"../shared/models/{name} is not here")
    return path


@pytest.mark.parametrize("name", MODELS)
def test_a_real_network_has_one_set_of_bits(name: str) -> None:
    path = model(name)
    with np.load(next(path.parent.glob(f"{path.name}.onnxruntime-*.npz"))) as stored:
        inputs = {k[3:]: stored[k] for k in stored if k.startswith("in:")}
        wanted = {k[4:]: stored[k] for k in stored if k.startswith("out:")}
    graph = load_onnx(path).graph
    digests = set()
    for choice in CHOICES:
        if not Target.named(choice.target).runs_here():
            continue
        exe = compile(graph, choice)
        got = exe.run(inputs)
        again = exe.run(inputs)
        assert all(got[k].tobytes() == again[k].tobytes() for k in got)
        digests.add(hashlib.sha256(b"".join(got[k].tobytes() for k in wanted)).hexdigest())
    assert len(digests) == 1
    for key, array in wanted.items():
        assert np.abs(got[key] - array).max() <= ALLOWED * np.abs(array).max(), key
    assert not exe.plan.on_reference
