"""The whole networks that are timed: made here from `transformers`' configurations, not downloaded.

Weights are random and seeded. A random network whose BatchNorm statistics do not fit its own
activations dies or explodes after a few layers, and then its output no longer depends on its
input: neither its speed (subnormals) nor its agreement with anybody means anything. So every
BatchNorm gets random scales and shifts, and the statistics of its own activations on a batch of
smooth random images; `main` prints how much the output depends on the input.

    python benchmarks/networks_zoo.py out            # writes out/resnet50.onnx, ...
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

INPUT = "image"
OUTPUT = "logits"
OPSET = 17
SEED = 1


def resnet(layer_type: str, depths: list[int], sizes: list[int]) -> Any:
    """A ResNet of `transformers`, 224x224 RGB to 1000 logits, with its own random weights."""
    from transformers import ResNetConfig, ResNetForImageClassification

    return ResNetForImageClassification(
        ResNetConfig(
            embedding_size=64,
            hidden_sizes=sizes,
            depths=depths,
            layer_type=layer_type,
            num_labels=1000,
        )
    )


def mobilenetv2() -> Any:
    """MobileNetV2 of `transformers` (width 1, TensorFlow's SAME padding), 1000 logits."""
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

    return MobileNetV2ForImageClassification(MobileNetV2Config(num_labels=1000))


NETWORKS: dict[str, Callable[[], Any]] = {
    "resnet50": lambda: resnet("bottleneck", [3, 4, 6, 3], [256, 512, 1024, 2048]),
    "resnet18": lambda: resnet("basic", [2, 2, 2, 2], [64, 128, 256, 512]),
    "mobilenetv2": mobilenetv2,
}


def smooth_images(rng: np.random.Generator, count: int, size: int = 224) -> np.ndarray:
    """Random float32 images [count, 3, size, size] of unit variance with detail at every scale."""
    images = np.zeros((count, 3, size, size))
    for cells in (2, 5, 13, 37, size):
        grid = rng.standard_normal((count, 3, cells, cells))
        at = np.arange(size) * cells // size
        images += grid[:, :, at][:, :, :, at]
    images -= images.mean(axis=(2, 3), keepdims=True)
    images /= images.std(axis=(1, 2, 3), keepdims=True)
    return images.astype(np.float32)


def calibrated(build: Callable[[], Any], seed: int) -> Any:
    """The torch module in evaluation mode, its BatchNorm statistics taken from its activations."""
    import torch

    torch.manual_seed(seed)
    model = build()
    model.config.return_dict = False
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, torch.nn.BatchNorm2d):
                layer.weight.uniform_(0.5, 1.5)
                layer.bias.normal_(0.0, 0.3)
                layer.momentum = None  # statistics of what is run next, not an average with 0 and 1
                layer.reset_running_stats()
            elif isinstance(layer, torch.nn.Linear):
                layer.weight.normal_(0.0, layer.in_features**-0.5)
                layer.bias.normal_(0.0, 0.1)
        model.train()
        for layer in model.modules():
            if isinstance(layer, torch.nn.Dropout):
                layer.eval()
        model(torch.from_numpy(smooth_images(rng, 8)))
    return model.eval()


def dependence(model: Any, seed: int) -> float:
    """Standard deviation of the logits over fresh images, relative to that over classes."""
    import torch

    with torch.no_grad():
        images = smooth_images(np.random.default_rng(seed + 1), 4)
        logits = model(torch.from_numpy(images))[0].numpy()
    return float(logits.std(axis=0).mean() / logits.std(axis=1).mean())


def export(model: Any, path: Path, *, fold_batchnorm: bool = True) -> None:
    """Write `model` as ONNX, batch 1; BatchNorm is folded as PyTorch's exporter does by default."""
    import torch

    image = torch.zeros(1, 3, 224, 224)
    mode = torch.onnx.TrainingMode.EVAL if fold_batchnorm else torch.onnx.TrainingMode.PRESERVE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model,
            (image,),
            str(path),
            dynamo=False,
            opset_version=OPSET,
            training=mode,
            do_constant_folding=fold_batchnorm,
            input_names=[INPUT],
            output_names=[OUTPUT],
        )


def write(name: str, folder: Path, *, seed: int = SEED, fold_batchnorm: bool = True) -> Path:
    """Make network `name` (a key of NETWORKS) in `folder` unless it is there; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}{'' if fold_batchnorm else '-bn'}.onnx"
    if not path.exists():
        model = calibrated(NETWORKS[name], seed)
        print(f"{name}: output's dependence on the input {dependence(model, seed):.2f}")
        part = path.with_suffix(".part")
        export(model, part, fold_batchnorm=fold_batchnorm)
        part.rename(path)
    return path


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where to write the .onnx files")
    parser.add_argument("--networks", nargs="+", choices=sorted(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--keep-batchnorm", action="store_true", help="do not fold BatchNorm")
    given = parser.parse_args(arguments)
    for name in given.networks:
        path = write(name, given.folder, fold_batchnorm=not given.keep_batchnorm)
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
