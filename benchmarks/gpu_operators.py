"""Recorded single operators of a GPU, with the function that each was, and their gradients.

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
GRADIENT = "grad_"
"""How the arrays of a record begin that are gradients."""
ROWS = 17
"""Rows that the recorded sums by index add to."""


def _sums(add: str, **settings: Any) -> Callable[..., Any]:
    """Rows of source added to rows of zeros."""

    def sums(index: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        zeros = torch.zeros(ROWS, source.shape[1], dtype=source.dtype)
        if add == "index_put":
            return zeros.index_put((index,), source, **settings)
        if add != "index_add":
            index = index[:, None].expand(source.shape)
        return getattr(zeros, add)(0, index, source, **settings)

    return sums


SINGLE: dict[str, Callable[..., Any]] = {
    "flash by Triton": partial(functional.scaled_dot_product_attention, is_causal=True),
    "softmax": lambda x: torch.softmax(x, -1),
    "softmax, large": lambda x: torch.softmax(x * 30, -1),
    "log_softmax": lambda x: torch.log_softmax(x, -1),
    "layer_norm": lambda x, w, b: functional.layer_norm(x, w.shape, w, b),
    "layer_norm, mean 100": lambda x, w, b: functional.layer_norm(x + 100, w.shape, w, b),
    "rms_norm": lambda x, w: functional.rms_norm(x, w.shape, w, 1e-6),
    "gelu": functional.gelu,
    "gelu tanh": partial(functional.gelu, approximate="tanh"),
    "silu": functional.silu,
    "exp": torch.exp,
    "erf": torch.erf,
    "rsqrt": lambda x: torch.rsqrt(x.abs() + 0.1),
    "tanh": torch.tanh,
    "sigmoid": lambda x: torch.sigmoid(x * 3),
    "group_norm": lambda x, w, b: functional.group_norm(x, 3, w, b),
    "batch_norm": lambda x, mean, var, w, b: functional.batch_norm(x, mean, var, w, b),
    "batch_norm, training": lambda x, mean, var, w, b: functional.batch_norm(
        x, None, None, w, b, True
    ),
    "instance_norm": lambda x, w, b: functional.instance_norm(x, weight=w, bias=b),
    "cumsum": lambda x: torch.cumsum(x, -1),
    "cumsum, 5000": lambda x: torch.cumsum(x.reshape(-1)[:5000], 0),
    "logsumexp": lambda x: torch.logsumexp(x, -1),
    "sum": lambda x: x.sum(0),
    "sum of all": lambda x: x.sum(),
    "mean, var": lambda x: torch.stack(torch.var_mean(x, -1)),
    "norm": lambda x: torch.linalg.vector_norm(x, dim=-1),
    "avg_pool2d": lambda x: functional.avg_pool2d(x, 3, 2),
    "adaptive_avg_pool2d": lambda x: functional.adaptive_avg_pool2d(x, (4, 5)),
    "embedding_bag sum": lambda e, ids, starts: functional.embedding_bag(
        ids, e, starts, mode="sum"
    ),
    "embedding_bag mean": lambda e, ids, starts: functional.embedding_bag(
        ids, e, starts, mode="mean"
    ),
    "interpolate bilinear": lambda x: functional.interpolate(x, (17, 14), mode="bilinear"),
    "interpolate bilinear, align_corners": lambda x: functional.interpolate(
        x, (17, 14), mode="bilinear", align_corners=True
    ),
    "interpolate bilinear, antialias": lambda x: functional.interpolate(
        x, (5, 6), mode="bilinear", antialias=True
    ),
    "interpolate bicubic": lambda x: functional.interpolate(x, (17, 14), mode="bicubic"),
    "grid_sample": lambda x, grid: functional.grid_sample(x, grid, align_corners=False),
    "bilinear einsum": lambda a, c: torch.einsum("bij,bkj->bik", a, c),
    "baddbmm": lambda c, a, b: torch.baddbmm(c, a, b, beta=0.5, alpha=2),
    "addmm": torch.addmm,
    "linear, gelu": lambda a, w, c: functional.gelu(functional.linear(a, w, c)),
    "matrix-vector": lambda a, v: a @ v,
    "dot": torch.dot,
    "index_add": _sums("index_add"),
    "scatter_add": _sums("scatter_add"),
    "index_put accumulate": _sums("index_put", accumulate=True),
    "scatter_reduce mean": _sums("scatter_reduce", reduce="mean"),
}
"""Of the operators whose calls the records tell in words; inputs in the order of the record."""


def is_judged(record: Mapping[str, Any]) -> bool:
    """Whether a record is the answer of an operator that is known here."""
    if "error" in record or record["name"].endswith(".inputs"):
        return False
    return "operator" in record or "causal" in record or record["name"] in SINGLE


def has_gradients(record: Mapping[str, Any]) -> bool:
    """Whether a record of an operator holds gradients too."""
    return is_judged(record) and any(v.startswith(GRADIENT) for v in record["arrays"])


def function_of(
    record: Mapping[str, Any], inputs: Arrays, dtype: torch.dtype
) -> tuple[Callable[..., Any], tuple[torch.Tensor, ...]]:
    """The function that a record is of, and its arguments in `dtype`."""

    def tensor(name: str) -> torch.Tensor:
        return tensor_in(inputs[name], dtype)

    if record["name"] in SINGLE:
        return SINGLE[record["name"]], tuple(map(tensor, inputs))
    if "operator" not in record:
        attend = functional.scaled_dot_product_attention
        arguments = tuple(tensor(name) for name in "qkv")
        return partial(attend, is_causal=bool(record["causal"])), arguments
    given = {k: tuple(v) if isinstance(v, list) else v for k, v in record["arguments"].items()}
    convolve = getattr(functional, record["operator"])
    weight, bias = tensor("weight"), tensor("bias") if "bias" in inputs else None
    return (lambda x: convolve(x, weight, bias, **given)), (tensor("x"),)


def tensor_in(array: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    """An array as a tensor, floats in the type that the GPU was given."""
    if array.dtype.kind not in "fV":
        return torch.from_numpy(np.ascontiguousarray(array))
    return torch.from_numpy(np.ascontiguousarray(array, np.float32)).to(dtype)


def differentiable_of(
    record: Mapping[str, Any], inputs: Arrays, dtype: torch.dtype
) -> tuple[Callable[..., Any], dict[str, torch.Tensor]]:
    """The function whose gradients a record holds, and its arguments by name."""
    names = [k for k in inputs if k != "grad_y"]
    arguments = {k: tensor_in(inputs[k], dtype) for k in names}
    if "operator" not in record:
        is_causal = bool(record["causal"])

        def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal)

        return attend, arguments
    given = {k: tuple(v) if isinstance(v, list) else v for k, v in record["arguments"].items()}
    convolve = getattr(functional, record["operator"])

    def call(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> Any:
        return convolve(x, weight, bias, **given)

    return call, arguments
