"""ONNX's Det, as products of matrices without pivots, against NumPy in float64."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import helper

import verax
from verax.base.errors import UnsupportedError
from verax.frontends.common.determinant import LARGEST
from verax.frontends.onnx import load_onnx

ERROR = 1e-4
"""Largest error, by the product of the rows' lengths (Hadamard's bound on a determinant)."""


def det(dims: Sequence[int | str]) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, dims)
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Det", ["x"], ["y"])], "det", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)])


def within(found: np.ndarray, x: np.ndarray) -> bool:
    wide = x.astype(np.float64)
    size = np.linalg.norm(wide, axis=-1).prod(axis=-1)
    return bool((np.abs(found - np.linalg.det(wide)) <= ERROR * size).all())


@pytest.mark.parametrize("dims", [(1, 1), (2, 2), (3, 2, 3, 3), (5, 4, 4), (7, 5, 5), (3, 8, 8)])
def test_it_is_numpy_s(dims: tuple[int, ...]) -> None:
    x = np.random.default_rng([41, *dims]).standard_normal(dims).astype(np.float32)
    found = load_onnx(det(dims))
    exe = verax.compile(found, threads=1)
    for given in (exe.run({"x": x})["y"], verax.reference(found, {"x": x})["y"]):
        assert given.shape == dims[:-2] and within(given, x)


def test_pivots_do_not_matter() -> None:
    """Zeros on the diagonal, equal rows, a permutation, and a batch whose size is open."""
    cases = np.zeros((4, 3, 3), np.float32)
    cases[0, [0, 1, 2], [1, 2, 0]] = 1
    cases[1, [0, 1, 2], [1, 0, 2]] = 2
    cases[2] = [[1, 2, 3], [1, 2, 3], [4, 5, 7]]
    cases[3] = [[0, 2, 1], [3, 0, 5], [7, 11, 0]]
    found = load_onnx(det(["n", 3, 3]))
    (y,) = verax.compile(found, threads=1).run({"x": cases}).values()
    np.testing.assert_array_equal(y, [1, -8, 0, 103])


@pytest.mark.parametrize(
    ("dims", "words"),
    [((3,), "no matrix"), ((2, 4, 5), "4 x 5; square"), ((LARGEST + 1,) * 2, "9 x 9; square")],
)
def test_what_is_too_large_or_not_square_is_refused(dims: tuple[int, ...], words: str) -> None:
    with pytest.raises(UnsupportedError, match=words):
        load_onnx(det(dims))
