"""Whole networks: real ones from files, transformers' families, open sizes, writing in place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch_programs import agree, arrays, export, saved, torch

import verax
from verax.base.errors import UnsupportedError, UsageError
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


def _families() -> dict[str, Any]:
    transformers = pytest.importorskip("transformers")
    t = transformers
    wide = {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]}
    return {
        "resnet": lambda: t.ResNetForImageClassification(
            t.ResNetConfig(embedding_size=8, hidden_sizes=[8, 12], depths=[1, 2])
        ),
        "mobilenet_v2": lambda: t.MobileNetV2ForImageClassification(
            t.MobileNetV2Config(depth_multiplier=0.25, image_size=48)
        ),
        "segformer": lambda: t.SegformerForSemanticSegmentation(
            t.SegformerConfig(
                **wide, num_attention_heads=[1, 2, 2, 2], decoder_hidden_size=12, num_labels=5
            )
        ),
        "vit": lambda: t.ViTForImageClassification(
            t.ViTConfig(
                hidden_size=24,
                num_hidden_layers=2,
                num_attention_heads=3,
                intermediate_size=37,
                image_size=48,
                patch_size=16,
            )
        ),
        "convnext": lambda: t.ConvNextForImageClassification(
            t.ConvNextConfig(hidden_sizes=[8, 12], depths=[1, 1], num_stages=2)
        ),
        "regnet": lambda: t.RegNetForImageClassification(
            t.RegNetConfig(embedding_size=8, **wide, groups_width=8)
        ),
        "mobilenet_v1": lambda: t.MobileNetV1ForImageClassification(
            t.MobileNetV1Config(depth_multiplier=0.25, image_size=48)
        ),
        "efficientnet": lambda: t.EfficientNetForImageClassification(
            t.EfficientNetConfig(width_coefficient=0.25, depth_coefficient=0.2, hidden_dim=320)
        ),
        "detr": lambda: t.DetrForObjectDetection(
            t.DetrConfig(
                use_timm_backbone=False,
                use_pretrained_backbone=False,
                backbone=None,
                backbone_config=t.ResNetConfig(
                    embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], out_features=["stage2"]
                ),
                d_model=24,
                encoder_layers=1,
                decoder_layers=1,
                encoder_attention_heads=3,
                decoder_attention_heads=3,
                encoder_ffn_dim=37,
                decoder_ffn_dim=37,
                num_queries=5,
            )
        ),
        "swin": lambda: t.SwinForImageClassification(
            t.SwinConfig(
                embed_dim=12, depths=[1, 2], num_heads=[2, 3], image_size=48, window_size=3
            )
        ),
    }


FAST = ("resnet", "mobilenet_v2", "vit")
SLOW = ("segformer", "convnext", "regnet", "mobilenet_v1", "efficientnet", "detr", "swin")


class Tensors(torch.nn.Module):
    """A module of transformers' that gives its tensors as a tuple."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Any) -> Any:
        return tuple(v for v in self.module(x).to_tuple() if isinstance(v, torch.Tensor))


@pytest.mark.parametrize(
    "family", [*FAST, *(pytest.param(n, marks=pytest.mark.slow) for n in SLOW)]
)
def test_a_family_of_vision_networks(family: str) -> None:
    torch.manual_seed(7)
    module = Tensors(_families()[family]()).eval()
    for buffer in module.modules():
        if isinstance(buffer, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(buffer.weight, 0.5, 2.0)
            torch.nn.init.uniform_(buffer.running_var, 0.01, 0.2)
    x = torch.randn(2, 3, 48, 48)
    model = load_torch(saved(export(module, (x,))))
    with torch.no_grad():
        want = module(x)
    inputs = arrays(model, (x,))
    meaning = verax.reference(model, inputs)
    for value, expected in zip(meaning.values(), want, strict=True):
        # Float32 of a whole network against float64; the judge says it exactly, node by node.
        assert np.abs(value - expected.numpy()).max() <= 1e-3 * np.abs(value).max()
    assert verax.check(model, "verax:O1", inputs).kind in (Kind.rounding, Kind.identical)


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


class Writer(torch.nn.Module):
    """Writes in place: `later` reads the changed tensor under its old name."""

    def forward(self, x: Any) -> Any:
        y = x * 2
        y.add_(1)
        y.relu_()
        return y + x, y


class Sharer(torch.nn.Module):
    """Writes into a tensor that a view shows."""

    def forward(self, x: Any) -> Any:
        y = x * 2
        view = y[0]
        y.add_(1)
        return view


def test_writing_in_place_is_followed_or_refused() -> None:
    x = torch.randn(2, 3)
    model = load_torch(saved(export(Writer(), (x,))))
    agree(model, arrays(model, (x,)), list(Writer()(x)))
    with pytest.raises(UnsupportedError, match="shows as well"):
        load_torch(saved(export(Sharer(), (x,))))


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
