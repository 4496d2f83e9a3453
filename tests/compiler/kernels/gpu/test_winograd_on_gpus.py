"""Winograd's algorithm on the emulated GPU has the bits of the CPU's program for all numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.compiler.kernels.native import assert_same_bits

import verax

torch = pytest.importorskip("torch", reason="torch is not installed")

SIZES = {"F(4x4": (40, 24, 23, 18, 1), "F(2x2": (40, 40, 9, 7, 1), "groups": (64, 64, 21, 10, 2)}


def program(name: str, target: str) -> tuple[Any, np.ndarray]:
    channels, filters, rows, cols, groups = SIZES[name]
    torch.manual_seed(51)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(channels, filters, 3, padding=1, groups=groups), torch.nn.GELU()
    )
    x = np.random.default_rng(52).standard_normal((2, channels, rows, cols), np.float32)
    keywords: dict[str, Any] = {"opt_level": 3, "certify": False, "cache": False}
    exe = verax.compile(net.eval(), torch.from_numpy(x), target=target, **keywords)
    assert "winograd_input" in str(exe.plan) and "winograd_output" in str(exe.plan)
    return exe, x


def answer(exe: Any, x: np.ndarray) -> np.ndarray:
    result = exe.run(x)
    return np.asarray(next(iter(result.values())) if isinstance(result, dict) else result)


def numbers_out_of_the_ordinary(x: np.ndarray) -> np.ndarray:
    """Infinities, NaN, tiny and large numbers, and zeros of both signs, each somewhere."""
    x = x.copy()
    x[0, 1, 3, 2], x[0, 5, 3, 3], x[1, 33, 6, 1] = np.inf, -np.inf, np.nan
    x[0, :, 6:, 5:] *= np.float32(1e30)
    x[1, :, :3, :3] *= np.float32(1e-38)
    x[1, :, 3:, 4:] = -0.0
    x[1, 2, 4, 5] = 0.0
    return x


@pytest.mark.parametrize("name", SIZES)
def test_winograd_has_the_bits_of_the_cpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, x = program(name, "host")
    gpu, _ = program(name, "cuda-emulated")
    for data in (x, numbers_out_of_the_ordinary(x)):
        expected = answer(cpu, data)
        for order in ("", "reversed", "late", "reversed,late"):
            monkeypatch.setenv("VERAX_GPU_ORDER", order)
            assert_same_bits(answer(gpu, data), expected)
