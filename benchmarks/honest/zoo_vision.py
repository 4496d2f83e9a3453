"""Vision models of Hugging Face's types: small pictures, few channels, seeded weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.honest.architectures import Architecture
from benchmarks.honest.hugging_face import hugging_face
from benchmarks.honest.inputs import Maker, image, tokens

TRANSFORMER = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "image_size": 32,
    "patch_size": 8,
}
SQUARE = image(2, 3, 32, 32)
WIDE = image(2, 3, 32, 48)
VIT: dict[str, tuple[str, Mapping[str, Any]]] = {
    "vit": ("ViTModel", {}),
    "deit": ("DeiTModel", {}),
    "beit": ("BeitModel", {"use_relative_position_bias": True}),
    "data2vec_vision": ("Data2VecVisionModel", {"use_relative_position_bias": True}),
    "dinov2": ("Dinov2Model", {"mlp_ratio": 2}),
    "dinov2_registers": ("Dinov2WithRegistersModel", {"mlp_ratio": 2}),
    "clip_vision": ("CLIPVisionModel", {}),
    "siglip_vision": ("SiglipVisionModel", {}),
    "vit_msn": ("ViTMSNModel", {}),
    "ijepa": ("IJepaModel", {}),
    "yolos": ("YolosModel", {"image_size": [32, 32], "num_detection_tokens": 5}),
    "pixtral_vision": ("PixtralVisionModel", {"hidden_size": 32, "num_attention_heads": 2}),
}
"""Plain vision transformers: the class and what it needs beside TRANSFORMER."""
STAGES = {"hidden_sizes": [16, 24, 32], "depths": [1, 1, 1]}
CONVOLUTIONAL: dict[str, tuple[str, Mapping[str, Any], Maker]] = {
    "resnet_bottleneck": (
        "ResNetModel",
        {"embedding_size": 16, **STAGES, "layer_type": "bottleneck"},
        WIDE,
    ),
    "regnet": (
        "RegNetModel",
        {"embedding_size": 8, "hidden_sizes": [16, 24], "depths": [1, 2], "groups_width": 8},
        WIDE,
    ),
    "convnext": ("ConvNextModel", {"num_stages": 3, **STAGES}, WIDE),
    "convnextv2": ("ConvNextV2Model", {"num_stages": 3, **STAGES}, WIDE),
    "mobilenetv1": ("MobileNetV1Model", {"depth_multiplier": 0.125, "min_depth": 4}, WIDE),
    "mobilenetv2": ("MobileNetV2Model", {"depth_multiplier": 0.25, "min_depth": 4}, WIDE),
    "poolformer": (
        "PoolFormerModel",
        {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]},
        WIDE,
    ),
    "focalnet": ("FocalNetModel", {"embed_dim": 12, "depths": [1, 1], "image_size": 32}, SQUARE),
    "bit": (
        "BitModel",
        {"embedding_size": 8, "hidden_sizes": [32, 64], "depths": [1, 1], "num_groups": 4},
        SQUARE,
    ),
}
SEGFORMER = {
    "num_encoder_blocks": 3,
    "depths": [1, 1, 1],
    "sr_ratios": [4, 2, 1],
    "hidden_sizes": [12, 18, 24],
    "patch_sizes": [7, 3, 3],
    "strides": [4, 2, 2],
    "num_attention_heads": [1, 2, 3],
    "mlp_ratios": [2, 2, 2],
    "decoder_hidden_size": 20,
    "num_labels": 5,
}
SWIN = {
    "image_size": 32,
    "patch_size": 4,
    "embed_dim": 12,
    "depths": [2, 2],
    "num_heads": [2, 3],
    "window_size": 4,
}
MOBILEVIT = {
    "hidden_sizes": [24, 30, 36],
    "neck_hidden_sizes": [8, 12, 16, 20, 24, 28, 48],
    "num_attention_heads": 3,
    "num_labels": 7,
    "image_size": 64,
}
PVT = {
    "image_size": 32,
    "depths": [1, 1, 1, 1],
    "hidden_sizes": [12, 18, 24, 30],
    "num_attention_heads": [1, 2, 3, 3],
    "sequence_reduction_ratios": [4, 2, 1, 1],
    "mlp_ratios": [2, 2, 2, 2],
    "strides": [4, 2, 2, 1],
}
GLPN = {
    "depths": [1, 1, 1, 1],
    "hidden_sizes": [8, 16, 24, 32],
    "decoder_hidden_size": 16,
    "num_attention_heads": [1, 2, 3, 4],
    "mlp_ratios": [2, 2, 2, 2],
}
LEVIT = {
    "image_size": 64,
    "hidden_sizes": [16, 24, 32],
    "num_attention_heads": [2, 3, 4],
    "depths": [1, 1, 1],
    "key_dim": [8, 8, 8],
}
EFFICIENTNET = {
    "image_size": 48,
    "width_coefficient": 0.25,
    "depth_coefficient": 0.25,
    "hidden_dim": 320,
}
OTHERS: dict[str, tuple[str, Mapping[str, Any], tuple[str, ...], Maker]] = {
    "segformer": ("SegformerForSemanticSegmentation", SEGFORMER, ("logits",), image(2, 3, 32, 48)),
    "swin": ("SwinModel", SWIN, ("last_hidden_state",), SQUARE),
    "swinv2": ("Swinv2Model", SWIN, ("last_hidden_state",), SQUARE),
    "mobilevit": ("MobileViTForImageClassification", MOBILEVIT, ("logits",), image(2, 3, 64, 64)),
    "mobilevitv2": (
        "MobileViTV2Model",
        {"image_size": 64, "width_multiplier": 0.25, "base_attn_unit_dims": [32, 48, 64]}
        | {"n_attn_blocks": [1, 1, 1]},
        ("last_hidden_state",),
        image(2, 3, 64, 64),
    ),
    "pvt": ("PvtModel", PVT, ("last_hidden_state",), SQUARE),
    "pvt_v2": (
        "PvtV2Model",
        {"image_size": 32, "depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 24, 32]}
        | {"num_attention_heads": [1, 2, 3, 4], "mlp_ratios": [2, 2, 2, 2]},
        ("last_hidden_state",),
        image(2, 3, 64, 64),
    ),
    "glpn": ("GLPNForDepthEstimation", GLPN, ("predicted_depth",), image(2, 3, 64, 64)),
    "levit": (
        "LevitForImageClassification",
        LEVIT | {"num_labels": 7},
        ("logits",),
        image(2, 3, 64, 64),
    ),
    "efficientnet": ("EfficientNetModel", EFFICIENTNET, ("pooler_output",), image(2, 3, 48, 48)),
    "cvt": (
        "CvtModel",
        {
            "embed_dim": [12, 18, 24],
            "num_heads": [1, 2, 3],
            "depth": [1, 2, 3],  # transformers counts a stage's blocks by the stage's number
        },
        ("last_hidden_state",),
        image(2, 3, 64, 64),
    ),
    "vit_classifier": (
        "ViTForImageClassification",
        TRANSFORMER | {"num_labels": 7},
        ("logits",),
        SQUARE,
    ),
    "dpt": (
        "DPTForDepthEstimation",
        TRANSFORMER
        | {"num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3], "fusion_hidden_size": 12}
        | {"neck_hidden_sizes": [8, 12, 16, 20], "is_hybrid": False},
        ("predicted_depth",),
        SQUARE,
    ),
    "yolos_detector": (
        "YolosForObjectDetection",
        TRANSFORMER | {"image_size": [32, 32], "num_detection_tokens": 5, "num_labels": 7},
        ("logits", "pred_boxes"),
        SQUARE,
    ),
}
CLIP_TEXT = {
    "vocab_size": 97,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "max_position_embeddings": 16,
    "eos_token_id": 96,
}


def _detr() -> Any:
    """DETR with a small ResNet of transformers' own as its backbone."""
    import transformers

    backbone = transformers.ResNetConfig(
        embedding_size=8,
        hidden_sizes=[16, 24, 32, 40],
        depths=[1, 1, 1, 1],
        layer_type="basic",
        out_features=["stage4"],
    )
    options = {
        "backbone_config": backbone,
        "use_timm_backbone": False,
        "use_pretrained_backbone": False,
        "d_model": 24,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_attention_heads": 3,
        "decoder_attention_heads": 3,
        "encoder_ffn_dim": 40,
        "decoder_ffn_dim": 40,
        "num_queries": 5,
        "num_labels": 7,
    }
    build = hugging_face(
        "DetrForObjectDetection", options, ("pixel_values",), ("logits", "pred_boxes")
    )
    return build()


def _upernet() -> Any:
    """UperNet on a small ConvNeXt."""
    import transformers

    backbone = transformers.ConvNextConfig(
        hidden_sizes=[8, 12, 16, 20],
        depths=[1, 1, 1, 1],
        out_features=["stage1", "stage2", "stage3", "stage4"],
    )
    options = {
        "backbone_config": backbone,
        "hidden_size": 16,
        "pool_scales": [1, 2],
        "auxiliary_in_channels": 16,
        "num_labels": 5,
    }
    return hugging_face("UperNetForSemanticSegmentation", options, ("pixel_values",), ("logits",))()


def architectures() -> list[Architecture]:
    """Every vision model of this file."""
    pixels = ("pixel_values",)
    found = [
        Architecture(
            name, "vision transformer", "transformers", hugging_face(m, TRANSFORMER | o, pixels),
            SQUARE,
        )
        for name, (m, o) in VIT.items()
    ]  # fmt: skip
    found += [
        Architecture(n, "convolutional", "transformers", hugging_face(m, o, pixels), inputs)
        for n, (m, o, inputs) in CONVOLUTIONAL.items()
    ]
    found += [
        Architecture(n, _family(n), "transformers", hugging_face(m, o, pixels, gives), inputs)
        for n, (m, o, gives, inputs) in OTHERS.items()
    ]
    ids = tokens(97, 2, 9)
    clip = hugging_face("CLIPTextModel", CLIP_TEXT, ("input_ids", "attention_mask"))
    siglip = hugging_face("SiglipTextModel", CLIP_TEXT, ("input_ids", "attention_mask"))
    return [
        *found,
        Architecture("detr", "detection", "transformers", _detr, image(2, 3, 64, 96)),
        Architecture("upernet", "dense prediction", "transformers", _upernet, image(2, 3, 64, 64)),
        Architecture("clip_text", "language", "transformers", clip, ids),
        Architecture("siglip_text", "language", "transformers", siglip, ids),
    ]


def _family(name: str) -> str:
    if name in ("segformer", "glpn", "dpt"):
        return "dense prediction"
    if name.startswith("yolos"):
        return "detection"
    return "convolutional" if name == "efficientnet" else "vision transformer"
