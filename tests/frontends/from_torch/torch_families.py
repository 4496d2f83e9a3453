"""Small networks of transformers' vision families, their weights and statistics drawn at random."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch_programs import torch

t = pytest.importorskip("transformers")

WIDE = {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]}
PLAIN = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 37,
    "image_size": [48, 32],
    "patch_size": 16,
}
"""A small transformer on images of 48 x 32."""
RESNET = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}


class Tensors(torch.nn.Module):
    """A module of transformers' that gives its tensors as a tuple."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Any) -> Any:
        return tuple(v for v in self.module(x).to_tuple() if isinstance(v, torch.Tensor))


def _detr() -> Any:
    backbone = t.ResNetConfig(**RESNET, out_features=["stage2"])
    config = t.DetrConfig(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=backbone,
        d_model=24,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=3,
        decoder_attention_heads=3,
        encoder_ffn_dim=37,
        decoder_ffn_dim=37,
        num_queries=5,
    )
    return t.DetrForObjectDetection(config)


def _mobilevit() -> Any:
    config = t.MobileViTConfig(
        image_size=64,
        hidden_sizes=[12, 16, 20],
        neck_hidden_sizes=[8, 8, 12, 12, 16, 16, 24],
        num_attention_heads=2,
    )
    return t.MobileViTForImageClassification(config)


def _dpt() -> Any:
    config = t.DPTConfig(
        **{**PLAIN, "num_hidden_layers": 4, "image_size": 48},
        backbone_out_indices=[0, 1, 2, 3],
        neck_hidden_sizes=[8, 12, 16, 20],
        fusion_hidden_size=10,
        is_hybrid=False,
    )
    return t.DPTForDepthEstimation(config)


Family = tuple[Callable[[], Any], tuple[int, int]]

FAMILIES: dict[str, Family] = {
    "resnet": (
        lambda: t.ResNetForImageClassification(
            t.ResNetConfig(embedding_size=8, hidden_sizes=[8, 12], depths=[1, 2])
        ),
        (45, 51),
    ),
    "mobilenet_v1": (
        lambda: t.MobileNetV1ForImageClassification(t.MobileNetV1Config(depth_multiplier=0.25)),
        (49, 37),
    ),
    "mobilenet_v2": (
        lambda: t.MobileNetV2ForImageClassification(t.MobileNetV2Config(depth_multiplier=0.25)),
        (47, 52),
    ),
    "mobilenet_v2_segmentation": (
        lambda: t.MobileNetV2ForSemanticSegmentation(
            t.MobileNetV2Config(depth_multiplier=0.25, output_stride=8, num_labels=5)
        ),
        (47, 52),
    ),
    "efficientnet": (
        lambda: t.EfficientNetForImageClassification(
            t.EfficientNetConfig(width_coefficient=0.25, depth_coefficient=0.2, hidden_dim=320)
        ),
        (49, 59),
    ),
    "convnext": (
        lambda: t.ConvNextForImageClassification(
            t.ConvNextConfig(hidden_sizes=[8, 12], depths=[1, 1], num_stages=2)
        ),
        (51, 42),
    ),
    "convnext_v2": (
        lambda: t.ConvNextV2ForImageClassification(
            t.ConvNextV2Config(hidden_sizes=[8, 12], depths=[1, 1], num_stages=2)
        ),
        (51, 42),
    ),
    "regnet": (
        lambda: t.RegNetForImageClassification(
            t.RegNetConfig(embedding_size=8, **WIDE, groups_width=8)
        ),
        (45, 51),
    ),
    "segformer": (
        lambda: t.SegformerForSemanticSegmentation(
            t.SegformerConfig(
                **WIDE, num_attention_heads=[1, 2, 2, 2], decoder_hidden_size=12, num_labels=5
            )
        ),
        (64, 96),
    ),
    "vit": (lambda: t.ViTForImageClassification(t.ViTConfig(**PLAIN)), (48, 32)),
    "deit": (
        lambda: t.DeiTForImageClassificationWithTeacher(t.DeiTConfig(**PLAIN)),
        (48, 32),
    ),
    "beit": (
        lambda: t.BeitForImageClassification(
            t.BeitConfig(**{**PLAIN, "image_size": 48}, use_relative_position_bias=True)
        ),
        (48, 48),
    ),
    "dinov2": (
        lambda: t.Dinov2ForImageClassification(
            t.Dinov2Config(**{**PLAIN, "image_size": 48, "use_swiglu_ffn": True})
        ),
        (64, 48),
    ),
    "detr": (_detr, (75, 61)),
    "yolos": (
        lambda: t.YolosForObjectDetection(t.YolosConfig(**PLAIN, num_detection_tokens=5)),
        (48, 32),
    ),
    "swin": (
        lambda: t.SwinForImageClassification(
            t.SwinConfig(
                embed_dim=12, depths=[1, 2], num_heads=[2, 3], image_size=48, window_size=3
            )
        ),
        (48, 48),
    ),
    "swin_v2": (
        lambda: t.Swinv2ForImageClassification(
            t.Swinv2Config(
                embed_dim=12, depths=[1, 2], num_heads=[2, 3], image_size=48, window_size=3
            )
        ),
        (48, 48),
    ),
    "mobilevit": (_mobilevit, (64, 64)),
    "dpt": (_dpt, (48, 48)),
    "poolformer": (
        lambda: t.PoolFormerForImageClassification(t.PoolFormerConfig(**WIDE)),
        (67, 53),
    ),
    "levit": (
        lambda: t.LevitForImageClassification(
            t.LevitConfig(
                image_size=64,
                hidden_sizes=[16, 24, 32],
                num_attention_heads=[2, 3, 4],
                depths=[1, 1, 1],
                key_dim=[4, 4, 4],
            )
        ),
        (64, 64),
    ),
    "bit": (
        lambda: t.BitForImageClassification(
            t.BitConfig(embedding_size=8, hidden_sizes=[32, 64], depths=[1, 1], num_groups=4)
        ),
        (51, 45),
    ),
    "upernet": (
        lambda: t.UperNetForSemanticSegmentation(
            t.UperNetConfig(
                backbone_config=t.ConvNextConfig(
                    hidden_sizes=[8, 12, 16, 20],
                    depths=[1, 1, 1, 1],
                    out_features=["stage1", "stage2", "stage3", "stage4"],
                ),
                hidden_size=12,
                num_labels=5,
                use_auxiliary_head=False,
            )
        ),
        (67, 99),
    ),
}
"""By name: how to make the network, and the size of its image."""


def family(name: str) -> tuple[Any, Any]:
    """A network in evaluation mode and a batch of two images for it."""
    make, size = FAMILIES[name]
    torch.manual_seed(7)
    module = Tensors(make()).eval()
    for parameter in module.parameters():
        if parameter.ndim == 1:
            # Scales of 1 and biases of 0 would hide what is left out.
            parameter.data += torch.rand_like(parameter) * 0.5
    for path, parameter in module.named_parameters():
        if path.endswith(("q_proj.weight", "k_proj.weight")):
            parameter.data *= 8  # attention that is all but even would hide its scores
    for part in module.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(part.running_var, 0.01, 0.2)
            torch.nn.init.uniform_(part.running_mean, -0.2, 0.2)
    return module, torch.randn(2, 3, *size)
