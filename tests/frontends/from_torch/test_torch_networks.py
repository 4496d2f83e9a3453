"""Whole networks: real ones from files, transformers' families, open sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch_blocks import BLOCKS, block
from torch_families import FAMILIES, family
from torch_programs import agree, agree_inside, arrays, export, saved, torch

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


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if n.startswith("fastestdet") else n for n in REAL],
)
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
FAST_BLOCKS = ("unet_bilinear", "standardised", "layer_scale", "decoding", "shuffled")


@pytest.mark.parametrize(
    "name", [n if n in FAST else pytest.param(n, marks=pytest.mark.slow) for n in FAMILIES]
)
def test_a_family_of_vision_networks(name: str) -> None:
    module, x = family(name)
    means_the_same(name, module, export(module, (x,)), x)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_a_decomposed_network_means_the_same(name: str) -> None:
    """The core ATen operators that `run_decompositions` leaves."""
    module, x = family(name)
    means_the_same(name, module, export(module, (x,)).run_decompositions(), x)


def means_the_same(name: str, module: Any, program: Any, x: Any) -> None:
    model = load_torch(saved(program))
    if name == "detr":  # its masks are choices, of which outputs alone show little
        agree_inside(model, program, (x,))
        return
    with torch.no_grad():
        want = module(x)
    agree(model, arrays(model, (x,)), list(want))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet", "convnext", "segformer", "detr"])
def test_a_family_with_open_sizes(name: str) -> None:
    """Batch, height and width are symbols; another image than the exported one."""
    module, x = family(name)
    free = torch.export.Dim.AUTO
    program = export(module, (x,), dynamic_shapes=({0: free, 2: free, 3: free},))
    model = load_torch(saved(program))
    assert len(model.graph.symbols() & model.inputs["x"].symbols()) == 3
    other = torch.randn(3, 3, x.shape[2] + 32, x.shape[3] + 32)
    agree_inside(model, program, (other,))


@pytest.mark.parametrize(
    "name",
    [n if n in FAST_BLOCKS else pytest.param(n, marks=pytest.mark.slow) for n in BLOCKS],
)
def test_a_hand_written_network(name: str) -> None:
    module, x = block(name), torch.randn(2, 3, 44, 45)
    if name == "channels_last":
        x = x.to(memory_format=torch.channels_last)
    program = export(module, (x,))
    model = load_torch(saved(program))
    agree_inside(model, program, (x,))


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in BLOCKS if n not in ("shuffled", "squeeze")])
def test_a_hand_written_network_with_open_sizes(name: str) -> None:
    free = torch.export.Dim.AUTO
    module, x = block(name), torch.randn(2, 3, 44, 45)
    program = export(module, (x,), dynamic_shapes=({0: free, 2: free, 3: free},))
    agree_inside(load_torch(saved(program)), program, (torch.randn(3, 3, 48, 57),))


class Open(torch.nn.Module):
    """Sizes of the input are computed with."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3, padding="same")

    def forward(self, x: Any) -> Any:
        y = self.conv(x)
        n, c, h, w = y.shape
        return y.reshape(n, c, h * w).transpose(1, 2), y.mean((2, 3)), y[:, :, : h // 2]


def test_a_pad_may_depend_on_a_size_that_is_open() -> None:
    """As networks do that fill images up to whole windows, or crop what is too much."""

    def filled(x: Any) -> Any:
        width = x.shape[3]
        full = torch.nn.functional.pad(x, (0, -width % 4, 1, 2), value=0.5)
        return full, torch.nn.functional.pad(x, (1, 4 - width))

    x = torch.randn(2, 3, 5, 6)
    program = export(filled, (x,), dynamic_shapes=(({3: torch.export.Dim("w", min=5, max=99)},),))
    model = load_torch(saved(program))
    other = torch.randn(2, 3, 5, 11)
    agree(model, arrays(model, (other,)), list(filled(other)))


def test_sizes_that_the_program_was_not_exported_for_are_refused() -> None:
    def joined(x: Any) -> Any:
        return torch.cat([x, x * 2], 1) if x.shape[1] < 8 else x

    sizes = (({0: torch.export.Dim.AUTO, 1: torch.export.Dim("n", min=2, max=7)},),)
    data = saved(export(joined, (torch.randn(3, 5),), dynamic_shapes=sizes))
    (name,) = load_torch(data).inputs
    assert load_torch(data, shapes={name: (4, 7)}).outputs["cat"].shape == (4, 14)
    with pytest.raises(UsageError, match=r"size 9 is given for axis 1; the file allows 2 to 7"):
        load_torch(data, shapes={name: (4, 9)})


@pytest.mark.parametrize("decomposed", [False, True])
def test_a_size_may_come_from_the_data(decomposed: bool) -> None:
    def cut(x: Any, counts: Any) -> Any:
        count = counts.max().item()
        torch._check(count >= 1)
        torch._check(count <= x.shape[2])
        return x[:, :, :count] * x.numel(), torch.arange(count) * 2

    x, free = torch.randn(2, 3, 7), torch.export.Dim.AUTO
    program = export(cut, (x, torch.tensor([2, 4])), dynamic_shapes=(({2: free}, None),))
    if decomposed:
        program = program.run_decompositions()
    model = load_torch(saved(program))
    for counts in (torch.tensor([3, 1]), torch.tensor([5, 6])):
        agree(model, arrays(model, (x, counts)), list(cut(x, counts)))


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
