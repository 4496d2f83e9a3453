"""Gradients that a replacement of a norm makes itself are judged: mistakes show, others pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from verax.records.verdict import Kind

torch = pytest.importorskip("torch", reason="torch is not installed")
F = torch.nn.functional
import verax.torch as vt  # noqa: E402  (needs torch)

SHAPE = 2, 12, 5, 7
LAYERS = {
    "group": lambda: torch.nn.GroupNorm(3, 12),
    "layer": lambda: torch.nn.LayerNorm([5, 7]),
}


def drawn(*shape: int, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def rows_of(kind: str, x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64).reshape(2, 3, -1) if kind == "group" else x.reshape(2, 12, -1)


def scaled(kind: str, weight: np.ndarray) -> np.ndarray:
    return weight.reshape(1, 12, 1, 1) if kind == "group" else weight


def normal_of(kind: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    rows = rows_of(kind, x)
    centered = rows - rows.mean(-1, keepdims=True)
    inverse = 1 / np.sqrt(np.square(centered).mean(-1, keepdims=True) + 1e-5)
    return centered * inverse, inverse


def pair(kind: str, means: int) -> Any:
    """A norm with the gradients of its input, without its second mean for means = 1."""

    def forward(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
        y = normal_of(kind, x)[0].reshape(x.shape)
        return (y * scaled(kind, weight) + scaled(kind, bias)).astype(np.float32)

    def backward(
        dy: np.ndarray, x: np.ndarray, weight: np.ndarray, bias: np.ndarray
    ) -> dict[str, np.ndarray]:
        normal, inverse = normal_of(kind, x)
        g = rows_of(kind, dy * scaled(kind, weight))
        dx = g - g.mean(-1, keepdims=True)
        if means == 2:
            dx = dx - normal * (g * normal).mean(-1, keepdims=True)
        axes = (0, 2, 3) if kind == "group" else (0, 1)
        return {
            "input": (inverse * dx).reshape(x.shape).astype(np.float32),
            "weight": (dy * normal.reshape(x.shape)).sum(axes).astype(np.float32),
            "bias": dy.sum(axes).astype(np.float32),
        }

    return forward, backward


def findings(kind: str, replacement: Any) -> Any:
    torch.manual_seed(2)
    net = torch.nn.Sequential(LAYERS[kind](), torch.nn.Flatten(), torch.nn.Linear(420, 3))
    with torch.no_grad():
        net[0].weight.copy_(torch.from_numpy(drawn(*net[0].weight.shape, seed=7)))
    x = torch.from_numpy(drawn(*SHAPE)).requires_grad_()
    with vt.substitute(net, {"0": replacement}, backward="own") as run:
        net(x).square().sum().backward()
    return run.gradients["0"]


@pytest.mark.parametrize("kind", LAYERS)
def test_right_gradients_of_a_norm_are_rounding(kind: str) -> None:
    found = findings(kind, pair(kind, 2))
    assert {f.kind for f in found.values()} <= {Kind.rounding, Kind.identical}
    assert set(found) == {"input", "weight", "bias"}


@pytest.mark.parametrize("kind", LAYERS)
def test_a_norm_without_its_second_mean_is_a_mistake(kind: str) -> None:
    found = findings(kind, pair(kind, 1))
    assert found["input"].kind is Kind.mistake
    assert found["weight"].kind in (Kind.rounding, Kind.identical)
