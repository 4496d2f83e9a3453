"""What the campaign runs: every architecture by name, tiny, with weights like trained ones.

An `Architecture` knows how to build its module and its inputs. The networks themselves are listed
by where they come from: `zoo_language`, `zoo_vision`, `zoo_audio` (Hugging Face types),
`zoo_torchvision`, `zoo_written` (made here), and `files` (model files). A network whose library is
missing is not there, with the reason; nothing is downloaded.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from benchmarks.honest.inputs import PLAIN, Maker

SEED = 9
CALIBRATION = 3
"""Seeds from which the inputs that BatchNorm's statistics are taken from are made."""
LAYER_SCALES = ("gamma", "layer_scale", "lambda", "scale_1", "scale_2", "ls1", "ls2")
"""Parts of names of parameters that scale a residual branch; fresh ones are about zero."""


@dataclass(frozen=True)
class Architecture:
    """A network to be built. family: of the table's rows; origin: whose types it is made of;
    build: gives the module, whose forward takes the arrays of `inputs` in their order and gives a
    tensor or a tuple of tensors; slow: too slow for runtimes that compile for long."""

    name: str
    family: str
    origin: str
    build: Callable[[], Any]
    inputs: Maker
    slow: bool = False


def module(architecture: Architecture, seed: int = SEED) -> Any:
    """The module in evaluation mode, seeded, with weights of the size that trained ones have."""
    import torch

    torch.manual_seed(seed)
    model = architecture.build()
    example = [tensors(architecture.inputs(PLAIN, seed + i)) for i in range(CALIBRATION)]
    settle(model, example)
    return model.eval()


def tensors(arrays: Sequence[np.ndarray]) -> tuple[Any, ...]:
    """Arrays as torch tensors."""
    import torch

    return tuple(torch.from_numpy(np.array(a)) for a in arrays)


def settle(model: Any, examples: Sequence[tuple[Any, ...]]) -> None:
    """Give every layer weights as training leaves them: He's scale, norms near 1, biases near 0,
    BatchNorm with the statistics of its own activations on the examples."""
    import torch

    nn = torch.nn
    norms = (nn.modules.batchnorm._BatchNorm, nn.LayerNorm, nn.GroupNorm, nn.InstanceNorm2d)
    with torch.no_grad():
        for layer in model.modules():
            weight, bias = getattr(layer, "weight", None), getattr(layer, "bias", None)
            if isinstance(layer, norms) or type(layer).__name__.endswith(("Norm", "Norm2d")):
                if isinstance(weight, nn.Parameter):  # Gemma's are offsets from 1: factors then
                    near = torch.empty_like(weight).uniform_(0.7, 1.3)
                    weight.copy_(near if isinstance(layer, norms) else weight * near)
                if isinstance(bias, nn.Parameter):
                    bias.normal_(0.0, 0.1)
            elif isinstance(layer, nn.Linear | nn.modules.conv._ConvNd):
                fan = weight[0].numel() if isinstance(layer, nn.modules.conv._ConvNd) else None
                weight.normal_(0.0, (1.3 / (fan or layer.in_features)) ** 0.5)
                if bias is not None:
                    bias.normal_(0.0, 0.05)
            elif isinstance(layer, nn.Embedding):
                weight.normal_(0.0, 0.5)
            elif type(layer).__name__ == "Conv1D":  # GPT-2's transposed linear layer
                weight.normal_(0.0, weight.shape[0] ** -0.5)
        for name, parameter in model.named_parameters():
            if any(part in name.rpartition(".")[2] for part in LAYER_SCALES):
                parameter.uniform_(0.1, 0.6)
            elif not parameter.any() and parameter.ndim > 1:
                parameter.normal_(0.0, 0.02)
    _normalise(model, examples)


def _normalise(model: Any, examples: Sequence[tuple[Any, ...]]) -> None:
    """Statistics of every BatchNorm from its own activations."""
    import torch

    layers = [m for m in model.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
    model.eval()
    if not layers:
        return
    for layer in layers:
        layer.momentum = None  # the mean over what is run next, not an average with 0 and 1
        layer.reset_running_stats()
        layer.train()
    with torch.no_grad():
        for example in examples:
            model(*example)
    model.eval()


@cache
def registry() -> dict[str, Architecture]:
    """Every architecture by name, in a fixed order; without the libraries that are missing."""
    zoos = ["zoo_language", "zoo_vision", "zoo_audio"] if _there("transformers") else []
    zoos += ["zoo_torchvision"] if _there("torchvision") else []
    if not _there("torch"):
        return {}
    if _there("torchvision"):  # before transformers, which imports it
        importlib.import_module("benchmarks.honest.zoo_torchvision").torchvision()
    listed: list[Architecture] = []
    for zoo in (*zoos, "zoo_written"):
        listed += importlib.import_module(f"benchmarks.honest.{zoo}").architectures()
    found = {a.name: a for a in listed}
    assert len(found) == len(listed), "two architectures share a name"
    return found


def _there(package: str) -> bool:
    return importlib.util.find_spec(package) is not None
