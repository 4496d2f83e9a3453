"""Small language models of PyTorch whose weights torchao keeps in 8 or 4 bits."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torchao.quantization as ao

GROUP = 16
"""Weights of 4 bits that share a scale; those of 8 bits share it along a whole row."""


def quantized(net: Any, bits: int) -> Any:
    """A copy of `net` with the weights of its linear layers, GPT-2's own kind of them included, in
    so many bits; products are of float32."""
    net = copy.deepcopy(net)
    for module in list(net.modules()):
        for name, layer in list(module.named_children()):
            if type(layer).__name__ == "Conv1D":
                setattr(module, name, linear(layer))
    if bits == 8:
        config = ao.Int8WeightOnlyConfig()
    else:
        config = ao.IntxWeightOnlyConfig(torch.int4, ao.PerGroup(GROUP))
    ao.quantize_(net, config)
    return net


def linear(layer: Any) -> torch.nn.Linear:
    """The linear layer that GPT-2 writes with its weight transposed."""
    weight, bias = layer.weight.detach(), layer.bias.detach()
    made = torch.nn.Linear(*weight.shape)
    made.weight = torch.nn.Parameter(weight.T.contiguous())
    made.bias = torch.nn.Parameter(bias)
    return made.eval()
