"""The networks of the panel: one of every kind that people run, made from `transformers`' own
configurations (and those of `panel_modules`), with random seeded weights; nothing is downloaded.

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
from panel_modules import (
    SSD_SIZE,
    add_suppression,
    diffusion_inputs,
    diffusion_unet,
    ssd_mobilenet,
    unet,
)

VOCABULARY = 30522
LENGTH = 128


Feed = Callable[[np.random.Generator, int], dict[str, np.ndarray]]


def tokens(rng: np.random.Generator, batch: int) -> dict[str, np.ndarray]:
    """Numbers of LENGTH words, and which of them count."""
    mask = np.ones((batch, LENGTH), np.int64)
    mask[:, LENGTH - 17 :] = 0
    return {"tokens": rng.integers(1000, VOCABULARY, (batch, LENGTH)), "mask": mask}


@dataclass(frozen=True)
class Network:
    """How a network is made, and what it is fed: by default images [batch, 3, size, size].

    twins: element types ("int8", "float16") that the panel also has it in. suppresses: whether its
    two outputs, boxes and scores, go through NonMaxSuppression in its file.
    """

    build: Callable[[], Any]
    size: int = 224
    feed: Feed | None = None
    twins: tuple[str, ...] = ()
    suppresses: bool = False

    def inputs(self, seed: int, batch: int = 1) -> dict[str, np.ndarray]:
        """Arrays by name of the input."""
        rng = np.random.default_rng(seed)
        if self.feed is not None:
            return self.feed(rng, batch)
        return {zoo.INPUT: zoo.smooth_images(rng, batch, self.size)}

    def module(self) -> Any:
        """The torch module in evaluation mode."""
        import torch

        if self.feed is None and self.size == 224:
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


def _efficientnet() -> Any:
    """The mean over the image is written as such: transformers has a window of 1280 x 1280 that is
    cut off at the edges, which OpenVINO refuses."""
    import torch
    import transformers

    config = transformers.EfficientNetConfig(
        num_labels=1000,
        image_size=224,
        width_coefficient=1.0,
        depth_coefficient=1.0,
        hidden_dim=1280,
    )
    model = transformers.EfficientNetForImageClassification(config)
    model.efficientnet.pooler = torch.nn.AdaptiveAvgPool2d(1)
    return _first_output(model)


def _bert() -> Any:
    import transformers

    config = transformers.BertConfig(num_hidden_layers=6, vocab_size=VOCABULARY)
    return _first_output(transformers.BertModel(config, add_pooling_layer=False))


PANEL: dict[str, Network] = {
    "resnet18": Network(zoo.NETWORKS["resnet18"], twins=("int8", "float16")),
    "resnet50": Network(zoo.NETWORKS["resnet50"], twins=("int8",)),
    "mobilenetv1": Network(_image("MobileNetV1Config", "MobileNetV1ForImageClassification")),
    "mobilenetv2": Network(zoo.NETWORKS["mobilenetv2"], twins=("int8", "float16")),
    "efficientnet_b0": Network(_efficientnet),
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
    "unet": Network(unet, 256),
    "bert_6": Network(_bert, feed=tokens),
    "diffusion_unet": Network(diffusion_unet, feed=diffusion_inputs),
    "ssd_mobilenet": Network(ssd_mobilenet, SSD_SIZE, suppresses=True),
}


def write(name: str, folder: Path, batch: int = 1) -> Path:
    """Make network `name` in `folder` unless it is there; returns its path. A .pt2 file of the same
    network lies beside it, for PyTorch, but of those that suppress boxes: PyTorch alone cannot."""
    import torch

    network, path = PANEL[name], folder / f"{name}{f'-b{batch}' if batch > 1 else ''}.onnx"
    folder.mkdir(parents=True, exist_ok=True)
    if path.exists():
        return path
    given = network.inputs(zoo.SEED, batch)
    tensors = tuple(map(torch.from_numpy, given.values()))
    part, outputs = path.with_suffix(".part"), ["output"]
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        model = network.module()
        if network.suppresses:
            outputs = ["boxes", "scores"]
        else:
            torch.export.save(torch.export.export(model, tensors), path.with_suffix(".pt2"))
        torch.onnx.export(
            model,
            tensors,
            str(part),
            dynamo=False,
            opset_version=zoo.OPSET,
            input_names=list(given),
            output_names=outputs,
        )
    if network.suppresses:
        add_suppression(part, *outputs)
    part.rename(path)
    return path
