"""Mistakes that a tolerance of 1e-3 lets pass, or that a lucky size hides: the judge finds them.

These tests are expected to fail. That is how a repository keeps a proof that its checks can.
"""

import numpy as np
import pytest

from kernels import TILE

found = pytest.mark.xfail(strict=True, raises=AssertionError)


def matmul_without_tail(a, b):
    k = a.shape[1] // TILE * TILE
    return a[:, :k] @ b[:k]


def layer_norm_eps_outside(x, scale, bias):
    centered = x - x.mean(1, keepdims=True)
    variance = (centered * centered).mean(1, keepdims=True)
    return centered / (np.sqrt(variance) + np.float32(1e-5)) * scale + bias


@found
def test_a_forgotten_tail(judge):
    judge(matmul_without_tail, "MatMul", judge.inputs(a=(5, 70), b=(70, 40)))


@found
def test_eps_outside_of_the_root(judge):
    inputs = judge.inputs(x=(6, 70), scale=(70,), bias=(70,))
    inputs["x"] *= np.float32(0.1)  # rows of small variance, where eps counts
    wrong = layer_norm_eps_outside(**inputs)
    judge(wrong, "LayerNormalization(axis=-1, epsilon=1e-5)", inputs)


@found
def test_inputs_that_show_nothing(judge):
    zeros = np.zeros((5, 70), np.float32), np.zeros((70, 40), np.float32)
    judge(matmul_without_tail, "MatMul", zeros)
