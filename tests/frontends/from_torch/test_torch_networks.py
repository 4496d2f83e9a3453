"""Whole networks: real ones from files, transformers' families, open sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch_families import FAMILIES, family
from torch_programs import agree, arrays, export, saved, torch

import verax
from verax.base.errors import UsageError
from verax.frontends.torch import load_torch
from verax.records.verdict import Kind

MODELS = Path(__file__).parents[4] / "shared" / "models"
REAL = {
    "mtcnn_rnet/rnet.pt2": "rnet.torch-2.13.0.npz",
    "blazeface_back/blazefaceback.pt2": "blazefaceback.torch-2.13.0.npz",
    # The same function as an ONNX file, whose answers were stored.
    "fastestdet/fastestdet.pt2": "FastestDet.onnx.onnxruntime-1.31.1.npz",
}


@pytest.mark.parametrize("name", REAL)
def test_a_real_network_gives_pytorchs_stored_answers(name: str) -> None:
    path = MODELS / name
    if not path.exists():
        pytest.skip("../shared/models is missing")
    model = verax.load(path)
    with np.load(path.parent / REAL[name]) as stored:
        inputs = {k[3:]: stored[k] for k in stored.files if k.startswith("in:")}
        answers = [stored[k] for k in stored.files if k.startswith("out:")]
    xs = dict(zip(model.inputs, inputs.values(), strict=True))
    given = dict(zip(model.outputs, answers, strict=True))
    for subject in (given, "verax:O1"):
        verdict = verax.check(model, subject, xs)
        assert verdict.kind in (Kind.rounding, Kind.identical), verdict.reasons


FAST = ("resnet", "vit")


@pytest.mark.parametrize(
    "name", [n if n in FAST else pytest.param(n, marks=pytest.mark.slow) for n in FAMILIES]
)
def test_a_family_of_vision_networks(name: str) -> None:
    module, x = family(name)
    model = load_torch(saved(export(module, (x,))))
    with torch.no_grad():
        want = module(x)
    agree(model, arrays(model, (x,)), list(want))


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_a_decomposed_network_means_the_same(name: str) -> None:
    """The core ATen operators that `run_decompositions` leaves."""
    module, x = family(name)
    model = load_torch(saved(export(module, (x,)).run_decompositions()))
    with torch.no_grad():
        want = module(x)
    agree(model, arrays(model, (x,)), list(want))


class Open(torch.nn.Module):
    """Sizes of the input are computed with."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3, padding="same")

    def forward(self, x: Any) -> Any:
        y = self.conv(x)
        n, c, h, w = y.shape
        return y.reshape(n, c, h * w).transpose(1, 2), y.mean((2, 3)), y[:, :, : h // 2]


def test_open_sizes_stay_open_and_can_be_given() -> None:
    module, dim = Open().eval(), torch.export.Dim
    sizes = {"x": {0: dim("batch", max=9), 2: 2 * dim("half", min=2, max=30)}}
    x = torch.randn(2, 3, 6, 8)
    data = saved(export(module, (x,), dynamic_shapes=sizes))
    model = load_torch(data)
    assert len(model.graph.symbols()) == 2
    for shape in ((3, 3, 10, 8), (1, 3, 4, 8)):
        other = torch.randn(*shape)
        with torch.no_grad():
            want = module(other)
        agree(model, arrays(model, (other,)), list(want))
    fixed = load_torch(data, shapes={"x": (5, 3, 4, 8)})
    assert not fixed.graph.symbols()
    assert fixed.outputs[next(iter(fixed.outputs))].shape == (5, 32, 4)


def test_modules_and_programs_are_loaded_as_they_are() -> None:
    x = torch.randn(2, 3, 6, 8)
    module = Open().eval()
    by_module = verax.load(module, inputs=(x,))
    by_program = verax.load(export(module, (x,)))
    assert by_module.graph == by_program.graph
    with pytest.raises(UsageError, match="says nothing about its inputs"):
        verax.load(module)
    with pytest.raises(UsageError, match=r"torch\.export cannot export"):
        verax.load(module, inputs=(torch.randn(2, 4, 6, 8),))
