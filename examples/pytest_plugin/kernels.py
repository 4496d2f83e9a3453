"""Kernels in NumPy as one writes them before they become CUDA: by tiles, in float32."""

from __future__ import annotations

import numpy as np

TILE = 64


def matmul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a [m, k] times b [k, n], summed tile by tile."""
    c = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(0, a.shape[1], TILE):
        c += a[:, k : k + TILE] @ b[k : k + TILE]
    return c


def softmax(x: np.ndarray) -> np.ndarray:
    """Softmax along the rows of x [m, n], with one pass over its blocks (the online algorithm)."""
    largest = np.full((x.shape[0], 1), -np.inf, np.float32)
    total = np.zeros((x.shape[0], 1), np.float32)
    for n in range(0, x.shape[1], TILE):
        block = x[:, n : n + TILE]
        new = np.maximum(largest, block.max(1, keepdims=True))
        total = total * np.exp(largest - new) + np.exp(block - new).sum(1, keepdims=True)
        largest = new
    return np.exp(x - largest) / total


def layer_norm(x: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Rows of x [m, n] with mean 0 and variance 1, times scale [n], plus bias [n]."""
    centered = x - x.mean(1, keepdims=True)
    variance = (centered * centered).mean(1, keepdims=True)
    return centered / np.sqrt(variance + np.float32(1e-5)) * scale + bias
