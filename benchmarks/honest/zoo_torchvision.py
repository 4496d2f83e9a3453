"""torchvision's architectures with few channels and small pictures, where it is installed.

Wheels of torchvision that were built for another torch (CUDA beside a CPU build) import here too:
their compiled operators stay missing, and these classifiers use none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from benchmarks.honest.architectures import Architecture
from benchmarks.honest.inputs import image

CLASSES = 7
OPERATORS = ("nms", "qnms")
"""Operators whose shape rules torchvision registers even if its library did not load."""


@cache
def torchvision() -> Any:
    """The package."""
    import torch

    try:
        import torchvision as package
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        for name in OPERATORS:
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import torchvision as package

        package.library_kept = library  # what was defined lives as long as this object
    return package


def _model(name: str, **options: Any) -> Any:
    return getattr(torchvision().models, name)(num_classes=CLASSES, **options)


def _resnet(block: str, layers: list[int], **options: Any) -> Any:
    resnet = torchvision().models.resnet
    net = resnet.ResNet(getattr(resnet, block), layers, num_classes=CLASSES, **options)
    return net


def _vgg() -> Any:
    import torch

    nn = torch.nn
    features = torchvision().models.vgg.make_layers([8, "M", 16, "M", 24, 24, "M"], batch_norm=True)
    pool = nn.AdaptiveAvgPool2d((4, 5))
    head = nn.Sequential(nn.Linear(480, 20), nn.ReLU(), nn.Dropout(), nn.Linear(20, CLASSES))
    return nn.Sequential(features, pool, nn.Flatten(), head)


def _densenet() -> Any:
    return torchvision().models.densenet.DenseNet(
        growth_rate=8, block_config=(2, 2, 2), num_init_features=12, num_classes=CLASSES
    )


def _convnext() -> Any:
    convnext = torchvision().models.convnext
    stages = [convnext.CNBlockConfig(8, 16, 1), convnext.CNBlockConfig(16, None, 1)]
    return convnext.ConvNeXt(stages, num_classes=CLASSES)


def _efficientnet(v2: bool) -> Any:
    efficient = torchvision().models.efficientnet
    plain, fused = efficient.MBConvConfig, efficient.FusedMBConvConfig
    if v2:
        stages = [fused(1, 3, 1, 8, 8, 1), fused(4, 3, 2, 8, 16, 1), plain(4, 3, 2, 16, 24, 1)]
    else:
        stages = [plain(1, 3, 1, 8, 8, 1), plain(6, 3, 2, 8, 12, 1), plain(6, 5, 2, 12, 16, 2)]
    return efficient.EfficientNet(stages, 0.2, num_classes=CLASSES, last_channel=32)


def _mobilenet_v3() -> Any:
    mobile = torchvision().models.mobilenetv3
    conf = partial(mobile.InvertedResidualConfig, width_mult=1.0)
    stages = [
        conf(8, 3, 8, 8, True, "RE", 2, 1),
        conf(8, 3, 24, 12, False, "RE", 2, 1),
        conf(12, 5, 36, 12, True, "HS", 1, 1),
        conf(12, 5, 36, 16, True, "HS", 1, 2),
    ]
    return mobile.MobileNetV3(stages, 24, num_classes=CLASSES)


def _regnet(squeeze: float | None) -> Any:
    regnet = torchvision().models.regnet
    blocks = regnet.BlockParams.from_init_params(
        depth=4, w_0=8, w_a=8.0, w_m=2.0, group_width=8, se_ratio=squeeze
    )
    return regnet.RegNet(blocks, num_classes=CLASSES, stem_width=8)


def _shufflenet() -> Any:
    shuffle = torchvision().models.shufflenetv2
    return shuffle.ShuffleNetV2([1, 2, 1], [8, 16, 24, 32, 40], num_classes=CLASSES)


def _swin(v2: bool) -> Any:
    swin = torchvision().models.swin_transformer
    options: dict[str, Any] = {
        "patch_size": [4, 4],
        "embed_dim": 12,
        "depths": [2, 2],
        "num_heads": [2, 3],
        "window_size": [4, 4],
        "num_classes": CLASSES,
    }
    if v2:
        options |= {
            "block": swin.SwinTransformerBlockV2,
            "downsample_layer": swin.PatchMergingV2,
        }
    return swin.SwinTransformer(**options)


def _vit() -> Any:
    return torchvision().models.vision_transformer.VisionTransformer(
        image_size=32, patch_size=8, num_layers=2, num_heads=3, hidden_dim=24, mlp_dim=40,
        num_classes=CLASSES,
    )  # fmt: skip


def _maxvit() -> Any:
    return torchvision().models.maxvit.MaxVit(
        input_size=(32, 32), stem_channels=8, partition_size=4, block_channels=[8, 16],
        block_layers=[1, 1], head_dim=4, stochastic_depth_prob=0.0, num_classes=CLASSES,
    )  # fmt: skip


def _inception_block() -> Any:
    """The mixed blocks of Inception v3, behind one stem convolution."""
    import torch

    inception = torchvision().models.inception

    class Blocks(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = inception.BasicConv2d(3, 12, kernel_size=3, stride=2)
            self.a = inception.InceptionA(12, pool_features=8)
            self.c = inception.InceptionC(232, channels_7x7=8)
            self.head = torch.nn.Linear(768, CLASSES)

        def forward(self, x: Any) -> Any:
            return self.head(self.c(self.a(self.stem(x))).mean((2, 3)))

    return Blocks()


def _fcn() -> Any:
    """FCN's head on a small ResNet: logits at the picture's size."""
    import torch

    segmentation = torchvision().models.segmentation

    class Fcn(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = torch.nn.Conv2d(3, 16, 7, 4, 3)
            self.head = segmentation.fcn.FCNHead(16, 5)

        def forward(self, x: Any) -> Any:
            y = self.head(torch.relu(self.stem(x)))
            return torch.nn.functional.interpolate(
                y, size=x.shape[-2:], mode="bilinear", align_corners=False
            )

    return Fcn()


def _aspp() -> Any:
    """DeepLab v3's atrous pyramid."""
    import torch

    deeplab = torchvision().models.segmentation.deeplabv3
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 5, 2, 2), torch.nn.ReLU(), deeplab.ASPP(8, [2, 3], 12)
    )


MADE: dict[str, Callable[[], Any]] = {
    "resnet18": lambda: _resnet("BasicBlock", [1, 1, 1, 1]),
    "resnext": lambda: _resnet("Bottleneck", [1, 1, 1, 1], groups=4, width_per_group=4),
    "vgg_bn": _vgg,
    "squeezenet": lambda: _model("squeezenet1_1"),
    "densenet": _densenet,
    "mnasnet": lambda: torchvision().models.MNASNet(0.1, num_classes=CLASSES),
    "mobilenet_v2_tv": lambda: _model("mobilenet_v2", width_mult=0.1),
    "mobilenet_v3": _mobilenet_v3,
    "shufflenet_v2": _shufflenet,
    "efficientnet_tv": partial(_efficientnet, v2=False),
    "efficientnet_v2": partial(_efficientnet, v2=True),
    "regnet_x": partial(_regnet, None),
    "regnet_y": partial(_regnet, 0.25),
    "convnext_tv": _convnext,
    "inception": _inception_block,
    "fcn": _fcn,
    "aspp": _aspp,
    "vit_tv": _vit,
    "swin_tv": partial(_swin, v2=False),
    "swin_v2_tv": partial(_swin, v2=True),
    "maxvit": _maxvit,
}
SQUARE = ("vit_tv", "maxvit", "swin_tv", "swin_v2_tv")


def _family(name: str) -> str:
    if name in SQUARE:
        return "vision transformer"
    return "dense prediction" if name in ("fcn", "aspp") else "convolutional"


def architectures() -> list[Architecture]:
    """Every torchvision model of this file."""
    return [
        Architecture(
            name,
            _family(name),
            "torchvision",
            build,
            image(2, 3, 32, 32) if name in SQUARE else image(2, 3, 33, 47),
        )
        for name, build in MADE.items()
    ]
