"""Costly nodes are looked at in part first, and the truth is found all the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from verax.ir.graph import Builder
from verax.ir.operator import Operator
from verax.judge.explain.channel_sample import channel_sample
from verax.judge.explain.hypotheses.library import hypotheses
from verax.judge.explain.node import SAMPLE, fits, predict, suspect_of
from verax.ops.sums.linear import Gemm, MatMul
from verax.ops.sums.normalization import BatchNormalization
from verax.ops.windows.convolution import Conv
from verax.ops.windows.deconvolution import ConvTranspose
from verax.ops.windows.pooling import MaxPool


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


COSTLY: dict[str, tuple[Operator, list[Any], list[str]]] = {
    "conv": (
        Conv(pads=((1, 1), (0, 2))),
        [normal(2, 24, 19, 17), normal(40, 24, 3, 3), normal(40)],
        ["bias missing", "kernel transposed", "weights read as HWIO", "pads swapped"],
    ),
    "without a bias": (
        Conv(pads=((1, 1), (0, 2))),
        [normal(2, 24, 19, 17), normal(40, 24, 3, 3)],
        ["kernel transposed", "pads swapped"],
    ),
    "grouped": (
        Conv(groups=10, pads=((1, 1), (1, 1))),
        [normal(3, 40, 31, 33), normal(60, 4, 3, 3), normal(60)],
        ["kernel flipped", "groups of the input interleaved", "filters shifted"],
    ),
    "transposed": (
        ConvTranspose(strides=(2, 2)),
        [normal(2, 24, 15, 17), normal(24, 20, 3, 4), normal(20)],
        ["bias doubled", "kernel flipped", "last 8 input channels ignored"],
    ),
    "gemm": (
        Gemm(trans_b=True),
        [normal(31, 480), normal(301, 480), normal(301)],
        ["bias missing", "features as [4, 120] transposed"],
    ),
    "matmul": (
        MatMul(),
        [normal(3, 40, 120), normal(120, 330)],
        ["weights read transposed", "last 8 features ignored"],
    ),
}


LARGE: dict[str, tuple[Operator, list[Any], list[str]]] = {
    "batch norm": (
        BatchNormalization(epsilon=1e-3),
        [normal(2, 24, 40, 42), *(np.abs(normal(24, seed=i)) for i in range(4))],
        ["epsilon 1e-05", "beta missing", "reversed along the row axis"],
    ),
    "max pool": (
        MaxPool(kernel_shape=(3, 2), strides=(1, 1), pads=((1, 1), (0, 1))),
        [-np.abs(normal(2, 20, 41, 43))],
        ["padding counts as zero", "shifted by 1 along the column axis"],
    ),
}
"""Too many elements to look at each of them at first."""


@pytest.mark.parametrize("name", LARGE)
def test_the_truth_is_found_on_a_sample(name: str) -> None:
    op, arrays, truths = LARGE[name]
    assert arrays[0].size > SAMPLE
    assert_found(op, arrays, truths)


@pytest.mark.parametrize("name", COSTLY)
def test_the_truth_is_found_on_few_channels(name: str) -> None:
    op, arrays, truths = COSTLY[name]
    assert_found(op, arrays, truths, narrow=True)


def assert_found(
    op: Operator, arrays: list[Any], truths: list[str], *, narrow: bool = False
) -> None:
    """Each planted truth is among the explanations."""
    b = Builder("one")
    y = b.add(op, [b.constant(np.array(a)) for a in arrays], name="suspect")
    types = (b.types[y],)
    empty = np.zeros(types[0].shape, np.float32)
    suspect = suspect_of(b.nodes[0], arrays, empty, types)
    assert suspect is not None and (channel_sample(suspect) is not None) is narrow
    library = {h.name: h for h in hypotheses(suspect)}
    for truth in truths:
        found = predict(suspect, library[truth])
        assert found is not None
        guilty = suspect_of(b.nodes[0], arrays, found.value.astype(np.float32), types)
        assert guilty is not None
        assert truth in [f.hypothesis.name for f in fits(guilty)], truth
