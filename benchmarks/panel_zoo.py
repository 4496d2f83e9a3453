"""The networks of the panel: one of every kind that people run, made from `transformers`' own
configurations (and a plain U-Net), with random seeded weights; nothing is downloaded.

`networks_zoo` says how BatchNorm's statistics are made to fit the weights.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import networks_zoo as zoo

VOCABULARY = 30522
LENGTH = 128


@dataclass(frozen=True)
class Network:
    """How a network is made, and what it is fed: an image [1, 3, size, size], or LENGTH tokens."""

    build: Callable[[], Any]
    size: int = 224
    tokens: bool = False

    def inputs(self, seed: int) -> dict[str, np.ndarray]:
        """Arrays by name of the input."""
        rng = np.random.default_rng(seed)
        if not self.tokens:
            return {zoo.INPUT: zoo.smooth_images(rng, 1, self.size)}
        mask = np.ones((1, LENGTH), np.int64)
        mask[:, LENGTH - 17 :] = 0
        return {"tokens": rng.integers(1000, VOCABULARY, (1, LENGTH)), "mask": mask}

    def module(self) -> Any:
        """The torch module in evaluation mode."""
        import torch

        if not self.tokens and self.size == 224:
            return zoo.calibrated(self.build, zoo.SEED)
        torch.manual_seed(zoo.SEED)
        return self.build().eval()


def _first_output(model: Any) -> Any:
    """A module that gives the first output of another as a tuple of one."""
    import torch

    class First(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.config = model, SimpleNamespace()

        def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor]:
            return (self.inner(*inputs)[0],)

    return First()


def _image(config: str, model: str, **fields: Any) -> Callable[[], Any]:
    def build() -> Any:
        import transformers

        made = getattr(transformers, config)(num_labels=1000, **fields)
        return _first_output(getattr(transformers, model)(made))

    return build


def _bert() -> Any:
    import transformers

    config = transformers.BertConfig(num_hidden_layers=6, vocab_size=VOCABULARY)
    return _first_output(transformers.BertModel(config, add_pooling_layer=False))


def _unet() -> Any:
    """Four levels, 32 to 256 channels, two 3x3 convolutions each, transposed ones upwards."""
    import torch
    from torch import nn

    def twice(a: int, b: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(a, b, 3, padding=1), nn.ReLU(), nn.Conv2d(b, b, 3, padding=1), nn.ReLU()
        )

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            widths = [32, 64, 128, 256]
            self.down = nn.ModuleList(map(twice, [3, *widths[:-1]], widths))
            self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in widths[-2::-1])
            self.join = nn.ModuleList(twice(2 * w, w) for w in widths[-2::-1])
            self.head = nn.Conv2d(widths[0], 5, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            kept = []
            for i, block in enumerate(self.down):
                x = block(nn.functional.max_pool2d(x, 2) if i else x)
                kept.append(x)
            for up, join, other in zip(self.up, self.join, kept[-2::-1], strict=True):
                x = join(torch.cat([up(x), other], 1))
            return self.head(x)

    return UNet()


PANEL: dict[str, Network] = {
    "resnet18": Network(zoo.NETWORKS["resnet18"]),
    "resnet50": Network(zoo.NETWORKS["resnet50"]),
    "mobilenetv1": Network(_image("MobileNetV1Config", "MobileNetV1ForImageClassification")),
    "mobilenetv2": Network(zoo.NETWORKS["mobilenetv2"]),
    "efficientnet_b0": Network(
        _image(
            "EfficientNetConfig",
            "EfficientNetForImageClassification",
            image_size=224,
            width_coefficient=1.0,
            depth_coefficient=1.0,
            hidden_dim=1280,
        )
    ),
    "regnety_4g": Network(
        _image(
            "RegNetConfig",
            "RegNetForImageClassification",
            layer_type="y",
            depths=[2, 6, 12, 2],
            hidden_sizes=[128, 192, 512, 1088],
            groups_width=64,
        )
    ),
    "convnext_tiny": Network(_image("ConvNextConfig", "ConvNextForImageClassification")),
    "vit_small": Network(
        _image(
            "ViTConfig",
            "ViTForImageClassification",
            hidden_size=384,
            intermediate_size=1536,
            num_attention_heads=6,
        )
    ),
    "segformer_b0": Network(
        _image("SegformerConfig", "SegformerForImageClassification"),
    ),
    "unet": Network(_unet, 256),
    "bert_6": Network(_bert, tokens=True),
}


def write(name: str, folder: Path) -> Path:
    """Make network `name` in `folder` unless it is there; returns its path."""
    import torch

    network, path = PANEL[name], folder / f"{name}.onnx"
    folder.mkdir(parents=True, exist_ok=True)
    if path.exists():
        return path
    model, given = network.module(), network.inputs(zoo.SEED)
    part = path.with_suffix(".part")
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model,
            tuple(map(torch.from_numpy, given.values())),
            str(part),
            dynamo=False,
            opset_version=zoo.OPSET,
            input_names=list(given),
            output_names=["output"],
        )
    part.rename(path)
    return path
