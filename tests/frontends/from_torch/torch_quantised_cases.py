"""Calls of operators of quantised programs: PT2E's own (part of PyTorch), fake quantisation, whole
products. torchao's are in `test_torch_quantised.py`, in programs that torchao made."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

from torch_programs import torch

aten = torch.ops.aten


def draw(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


X, BYTES = draw(3, 4, 5), torch.arange(-30, 30, dtype=torch.int8).view(3, 4, 5)
LINES = torch.tensor([0.02, 0.5, 0.013, 0.1], dtype=torch.float64), torch.tensor([0, 3, -5, 9])
ROWS = draw(3, 4, 1).abs().double() * 0.006 + 0.003, torch.arange(-6, 6).view(3, 4, 1)
ONE = torch.tensor([0.006]), torch.tensor([7])


def _there() -> bool:
    """Whether this PyTorch has PT2E's operators."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module("torch.ao.quantization.fx._decomposed")
    except ImportError:
        return False
    return True


def quantised_calls() -> list[Any]:
    aten = torch.ops.aten
    fake = (X, torch.tensor([0.1, 0.02, 0.3, 0.05]), torch.tensor([0, 3, -5, 9]))
    own = [
        ("fake_tensor", lambda x: torch.fake_quantize_per_tensor_affine(x, 0.04, 3, -20, 31), X),
        (
            "fake_masked",
            lambda x: aten.fake_quantize_per_tensor_affine_cachemask(x, 0.03, 5, -9, 31)[0],
            X,
        ),
        ("fake_bytes", lambda x: torch.fake_quantize_per_tensor_affine(x, 0.01, 120, 0, 255), X),
        (
            "fake_of_tensors",
            lambda x, s, z: torch.fake_quantize_per_tensor_affine(x, s, z, -128, 127),
            *(X, torch.tensor(0.008), torch.tensor(-4, dtype=torch.int32)),
        ),
        (
            "fake_channel",
            lambda x, s, z: torch.fake_quantize_per_channel_affine(x, s, z, 1, -32, 31),
            *(fake[0], fake[1], fake[2].int()),
        ),
        (
            "fake_channel_masked",
            lambda x, s, z: aten.fake_quantize_per_channel_affine_cachemask(x, s, z, 1, -9, 21)[0],
            *(fake[0], fake[1], fake[2].int()),
        ),
        (
            "fake_if_enabled",
            lambda x, s, z, on: aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams(
                x, s, z, on, -9, 31
            )[0],
            *(X, torch.tensor(0.03), torch.tensor(-4, dtype=torch.int32), torch.tensor([1])),
        ),
        ("integer_product", torch._int_mm, BYTES.view(12, 5)[:, :4], BYTES.view(4, 15)[:, :8]),
    ]
    return own + (_pt2e(torch.ops.quantized_decomposed) if _there() else [])


def _pt2e(q: Any) -> list[Any]:
    int8, uint8 = torch.int8, torch.uint8
    return [
        ("quantize_tensor", lambda x: q.quantize_per_tensor(x, 0.01, 7, -20, 90, int8), X),
        ("quantize_uint8", lambda x: q.quantize_per_tensor(x, 0.005, 130, 0, 255, uint8), X),
        (
            "quantize_of_tensors",
            lambda x, s, z: q.quantize_per_tensor.tensor(x, s, z, -128, 127, int8),
            *(X, *ONE),
        ),
        (
            "quantize_channel",
            lambda x, s, z: q.quantize_per_channel(x, s, z, 1, -128, 127, int8),
            *(X, LINES[0].float(), LINES[1]),
        ),
        (
            "quantize_token",
            lambda x, s, z: q.quantize_per_token(x, s, z, -100, 99, int8),
            *(X, ROWS[0].float(), ROWS[1]),
        ),
        ("dequantize_tensor", lambda i: q.dequantize_per_tensor(i, 0.3, 2, -128, 127, int8), BYTES),
        (
            "dequantize_half",
            lambda i: q.dequantize_per_tensor(i, 0.5, 2, -128, 127, int8, out_dtype=torch.half),
            BYTES,
        ),
        (
            "dequantize_of_tensors",
            lambda i, s, z: q.dequantize_per_tensor.tensor(i, s, z, -128, 127, int8),
            *(BYTES, *ONE),
        ),
        (
            "dequantize_channel",
            lambda i, s, z: q.dequantize_per_channel(i, s, z, 1, -128, 127, int8),
            *(BYTES, LINES[0].float(), LINES[1]),
        ),
        (
            "dequantize_channel_around_0",
            lambda i, s: q.dequantize_per_channel(i, s, None, 1, -128, 127, int8),
            *(BYTES, LINES[0].float()),
        ),
        (
            "dequantize_token",
            lambda i, s, z: q.dequantize_per_token(i, s, z, -128, 127, int8, torch.float32),
            *(BYTES, ROWS[0].float(), ROWS[1]),
        ),
        ("choose", lambda x: q.choose_qparams(x, -128, 100, 1e-5, int8), X),
        ("choose_uint8", lambda x: q.choose_qparams(x, 0, 255, 1e-5, uint8), X + 9),
        ("choose_tiny", lambda x: q.choose_qparams(x, -128, 127, 0.5, int8), X),
        ("choose_symmetric", lambda x: q.choose_qparams_symmetric(x, -127, 127, 1e-5, int8), X),
    ]
