"""The kernels are right: no tolerance, several seeds, sizes that no tile divides."""

import pytest

from kernels import layer_norm, matmul, softmax


@pytest.mark.verax(
    seeds=[0, 1],
    shapes={
        "one-tile": {"a": (3, 64), "b": (64, 7)},
        "tail": {"a": (5, 1000), "b": (1000, 40)},
    },
)
def test_matmul(judge):
    judge(matmul, "MatMul", judge.inputs())


@pytest.mark.verax(seeds=[2, 3], shapes=[{"x": (3, 64)}, {"x": (5, 1000)}])
def test_softmax(judge):
    judge(softmax, "Softmax(axis=-1)", judge.inputs())


def test_layer_norm(judge):
    inputs = judge.inputs(x=(6, 70), scale=(70,), bias=(70,))
    verdict = judge(layer_norm, "LayerNormalization(axis=-1, epsilon=1e-5)", inputs)
    assert verdict.kind == "rounding"
