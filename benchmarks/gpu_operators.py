"""Recorded single operators of a GPU: convolutions and attention, with the function that each was.

`gpu_records` judges them with PyTorch's function as the meaning, on the inputs that the record
names, in the type that the GPU was given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.nn import functional

ARCHIVES = ("convs.zip", "attention.zip")
TYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
Arrays = Mapping[str, np.ndarray]


def is_judged(record: Mapping[str, Any]) -> bool:
    """Whether a record is a convolution or attention, and not the inputs of some."""
    if "error" in record or record["name"].endswith(".inputs"):
        return False
    return "operator" in record or record["name"].startswith("sdpa")


def function_of(
    record: Mapping[str, Any], inputs: Arrays, dtype: torch.dtype
) -> tuple[Callable[..., Any], tuple[torch.Tensor, ...]]:
    """The function that a record is of, and its arguments in `dtype`."""

    def tensor(name: str) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(inputs[name], np.float32)).to(dtype)

    if "operator" not in record:
        attend = functional.scaled_dot_product_attention
        arguments = tuple(tensor(name) for name in "qkv")
        return partial(attend, is_causal=bool(record["causal"])), arguments
    given = {k: tuple(v) if isinstance(v, list) else v for k, v in record["arguments"].items()}
    convolve = getattr(functional, record["operator"])
    weight, bias = tensor("weight"), tensor("bias") if "bias" in inputs else None
    return (lambda x: convolve(x, weight, bias, **given)), (tensor("x"),)
