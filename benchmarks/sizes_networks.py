"""Writes the five networks of `benchmarks.changing_sizes` as ONNX files of open sizes.

Run: python -m benchmarks.sizes_networks FOLDER [NAME ...]

Random weights, as PyTorch's exporter writes them: the base shapes of BERT, of ResNet-50 and of the
decoder of Whisper's smallest network (its attention to 1,500 frames included), a U-Net for images,
and the detector of `benchmarks.detectors`. Sizes of images stay multiples of what the network
divides them by.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks import detectors, networks_zoo, panel_modules

SEED = 41
OPSET = 17


def _export(module: Any, inputs: dict[str, Any], axes: dict[str, dict[int, str]], to: Path) -> None:
    import torch

    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.eval(),
            tuple(inputs.values()),
            str(to),
            dynamo=False,
            opset_version=OPSET,
            input_names=list(inputs),
            output_names=["output"],
            dynamic_axes=axes,
        )


def _bert(to: Path) -> None:
    import torch
    from transformers import BertConfig, BertModel

    bert = BertModel(BertConfig(attn_implementation="eager"), add_pooling_layer=False)

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = bert

        def forward(self, ids: Any, mask: Any) -> Any:
            return self.bert(input_ids=ids, attention_mask=mask)[0]

    ids = torch.ones(2, 16, dtype=torch.long)
    axes = {0: "batch", 1: "length"}
    inputs = {"ids": ids, "mask": torch.ones_like(ids)}
    _export(Encoder(), inputs, {"ids": axes, "mask": axes}, to)


def _whisper(to: Path) -> None:
    import torch
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperDecoder

    config = WhisperConfig(decoder_layers=4, d_model=384, decoder_attention_heads=6)
    config.decoder_ffn_dim, config._attn_implementation = 1536, "eager"
    whisper = WhisperDecoder(config)

    class Decoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.whisper = whisper

        def forward(self, ids: Any, frames: Any) -> Any:
            mask = torch.ones_like(ids)
            outputs = self.whisper(ids, mask, encoder_hidden_states=frames, use_cache=False)
            return outputs[0]

    inputs = {
        "ids": torch.ones(2, 16, dtype=torch.long),
        "frames": torch.from_numpy(
            np.random.default_rng(SEED).standard_normal((2, 1500, 384)).astype(np.float32)
        ),
    }
    axes = {"ids": {0: "batch", 1: "length"}, "frames": {0: "batch"}}
    _export(Decoder(), inputs, axes, to)


def _images(make: Callable[[], Any]) -> Callable[[Path], None]:
    def write(to: Path) -> None:
        import torch

        axes = {0: "batch", 2: "height", 3: "width"}
        _export(make(), {"image": torch.zeros(2, 3, 96, 128)}, {"image": axes}, to)

    return write


def _detector(to: Path) -> None:
    import onnx

    onnx.save(detectors.detector(), str(to))


NETWORKS: dict[str, Callable[[Path], None]] = {
    "bert": _bert,
    "resnet50": _images(lambda: networks_zoo.calibrated(networks_zoo.NETWORKS["resnet50"], SEED)),
    "unet": _images(panel_modules.unet),
    "detector": _detector,
    "whisper": _whisper,
}


@dataclass(frozen=True)
class Sizes:
    """Which sizes a network is asked for: the first axis up to `batch`, others from `low` to `high`
    in steps."""

    batch: int
    low: int
    high: int
    step: int = 1


SIZES = {
    "bert": Sizes(3, 16, 128),
    "resnet50": Sizes(2, 128, 288, 32),
    "unet": Sizes(2, 64, 224, 8),
    "detector": Sizes(1, 128, 320),
    "whisper": Sizes(2, 4, 64),
}


def write(name: str, folder: Path) -> Path:
    """The file of network `name`, made unless it is there."""
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.onnx"
    if not path.exists():
        torch.manual_seed(SEED)
        part = path.with_suffix(".part")
        NETWORKS[name](part)
        part.rename(path)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=list(NETWORKS))
    given = parser.parse_args()
    for name in given.names:
        print(write(name, given.folder))


if __name__ == "__main__":
    main()
