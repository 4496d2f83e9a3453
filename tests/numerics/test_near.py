"""Sine, cosine and tangent by the shorter way for |x| <= 2^20 are the numbers that are promised.

Every float32 was compared when it was written (natively): none differs. Here a part of them is,
from all binades, and the edges.
"""

from __future__ import annotations

import numpy as np
import pytest

from verax.base.settings import Settings
from verax.compiler.driver import compile
from verax.compiler.kernels.llvm import arith
from verax.compiler.lower.assembly import KEPT
from verax.ir.graph import Builder
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.numerics.arith_numpy import NumpyArith
from verax.numerics.functions_double import NEAR, SHORTER

M = NumpyArith()
F = np.float32
STEP = 997
"""Every so many floats."""


def near() -> np.ndarray:
    """Of either sign, up to NEAR; whole neighbourhoods of multiples of pi/2 are among them."""
    last = int(F(NEAR).view(np.uint32))
    bits = np.arange(last, -1, -STEP, dtype=np.int64).astype(np.uint32)
    multiples = (np.arange(1, 4000) * (np.pi / 2)).astype(F).view(np.uint32)
    around = (multiples[:, None] + np.arange(-3, 4, dtype=np.int64)).astype(np.uint32).reshape(-1)
    found = np.concatenate([bits, around]).view(F)
    return np.concatenate([found, -found])


@pytest.mark.parametrize("name", sorted(SHORTER))
def test_the_shorter_way_gives_the_same_bits(name: str) -> None:
    x = near()
    limit, shorter = SHORTER[name]
    assert np.abs(x).max() == limit
    assert shorter(M, x).tobytes() == M.call(name, x).tobytes()


@pytest.mark.parametrize("name", sorted(SHORTER))
def test_kernels_take_it_only_where_all_lanes_allow_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.random.default_rng(4402).standard_normal((37, 16)).astype(F) * F(9)
    x[3, 5], x[11, 0], x[17, 15], x[23, 7] = np.inf, 3e38, np.nan, -np.nextafter(F(NEAR), F(9e9))
    x[30] = 1e30

    def result() -> np.ndarray:
        b = Builder("net")
        v = b.input("x", TensorType.of(x))
        b.add(REGISTRY[name.capitalize()](), [v], ["y"])
        return compile(b.graph(["y"]), Settings(opt_level=1, threads=1)).run({"x": x})["y"]

    with np.errstate(invalid="ignore"):
        wanted = M.call(name, x)
    np.testing.assert_array_equal(result(), wanted)
    KEPT.forget()
    monkeypatch.setattr(arith, "SHORTER", {name: (np.inf, SHORTER[name][1])})
    assert (result()[30] != wanted[30]).any()  # else this test could not fail
