"""Whole networks on the emulated GPU have the hash of the CPU's program, in every order."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

import verax

torch = pytest.importorskip("torch", reason="torch is not installed")


def residual_network() -> tuple[Any, np.ndarray]:
    """A small ResNet with a grouped and a transposed convolution."""
    nn = torch.nn

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, channels: int, filters: int, stride: int) -> None:
            super().__init__()
            self.first = nn.Conv2d(channels, filters, 3, stride, 1, bias=False)
            self.first_norm = nn.BatchNorm2d(filters)
            self.second = nn.Conv2d(filters, filters, 3, 1, 1)
            self.beside = nn.Conv2d(channels, filters, 1, stride)

        def forward(self, x: Any) -> Any:
            y = self.second(torch.relu(self.first_norm(self.first(x))))
            return torch.relu(y + self.beside(x))

    torch.manual_seed(41)
    net = nn.Sequential(
        nn.Conv2d(3, 24, 7, 2, 3), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        Block(24, 40, 1), Block(40, 64, 2), nn.Conv2d(64, 96, 3, 1, 1, groups=2), nn.GELU(),
        nn.ConvTranspose2d(96, 40, 3, 2, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(40, 10),
    )  # fmt: skip
    return net.eval(), np.random.default_rng(42).standard_normal((2, 3, 61, 53), np.float32)


def encoder_layer() -> tuple[Any, np.ndarray]:
    """A layer as BERT has it."""
    torch.manual_seed(43)
    net = torch.nn.TransformerEncoderLayer(72, 4, 136, batch_first=True, activation="gelu")
    return net.eval(), np.random.default_rng(44).standard_normal((3, 19, 72), np.float32)


def digest(exe: Any, x: np.ndarray) -> str:
    result = exe.run(x)
    arrays = result.values() if isinstance(result, dict) else [result]
    return hashlib.sha256(b"".join(np.asarray(a).tobytes() for a in arrays)).hexdigest()


@pytest.mark.parametrize("level", [1, 3])
@pytest.mark.parametrize("make", [residual_network, encoder_layer])
def test_a_network_has_the_hash_of_the_cpu(
    make: Any, level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, x = make()
    keywords: dict[str, Any] = {"opt_level": level, "certify": False, "cache": False}
    example = torch.from_numpy(x)
    expected = digest(verax.compile(net, example, **keywords), x)
    exe = verax.compile(net, example, target="cuda-emulated", **keywords)
    assert "by threads of" in str(exe.plan)
    for order in ("", "reversed", "late", "reversed,late"):
        monkeypatch.setenv("VERAX_GPU_ORDER", order)
        assert digest(exe, x) == expected, order
