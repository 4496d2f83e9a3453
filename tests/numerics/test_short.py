"""The short ways of kernels to sine, arc sine and others give the bits that are promised.

They rest on a bound of their distance from the promised float64 number. A part of all float32
numbers is compared here, from all binades, and the edges.
"""

from __future__ import annotations

import numpy as np
import pytest

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.kernels.llvm import arith
from verax.compiler.place.binary.assembly import COMPILED_KERNELS
from verax.ir.graph import Builder
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.numerics import functions_short
from verax.numerics.arith_numpy import NumpyArith
from verax.numerics.functions_double import _ROUTINES
from verax.numerics.functions_short import SHORT_WAYS, SLACK, Short, certain

M = NumpyArith()
F = np.float32
STEP = 9973
"""Every so many floats."""


def floats(most: float) -> np.ndarray:
    """Of either sign, up to `most`; whole neighbourhoods of multiples of pi/2 are among them, and
    many between 1/4 and 4."""
    last = int(F(min(most, 3e38)).view(np.uint32))
    bits = np.arange(last, -1, -STEP, dtype=np.int64).astype(np.uint32)
    multiples = (np.arange(1, 4000) * (np.pi / 2)).astype(F).view(np.uint32)
    around = (multiples[:, None] + np.arange(-3, 4, dtype=np.int64)).astype(np.uint32).reshape(-1)
    random = np.random.default_rng(4403)
    middle, below = random.uniform(0.25, 4, 50_000), random.uniform(0.01, 1, 100_000)
    found = np.concatenate([bits.view(F), around.view(F), middle.astype(F), below.astype(F)])
    found = found[found <= most]
    return np.concatenate([found, -found])


@pytest.mark.parametrize("name", sorted(SHORT_WAYS))
def test_the_short_way_keeps_the_bound(name: str) -> None:
    x = floats(SHORT_WAYS[name].limit).astype(np.float64)
    with np.errstate(all="ignore"):
        promised, short = _ROUTINES[name](M, x), SHORT_WAYS[name].compute(M, x)
    assert (np.abs(short - promised) <= 0.6 * SLACK * np.abs(promised)).all()


@pytest.mark.parametrize("name", sorted(SHORT_WAYS))
def test_what_is_known_is_what_is_promised_and_that_is_nearly_everything(name: str) -> None:
    x = floats(SHORT_WAYS[name].limit)
    with np.errstate(all="ignore"):
        known, value = certain(M, SHORT_WAYS[name], x)
        promised = M.call(name, x)
    np.testing.assert_array_equal(value[known].view(np.uint32), promised[known].view(np.uint32))
    assert 0.999 < known.mean() < 1


@pytest.mark.parametrize("name", sorted(SHORT_WAYS))
def test_nothing_is_known_of_nan_and_beyond_the_limit(name: str) -> None:
    beyond = np.array([np.nan, -np.nan, 1e30, -np.inf], F)
    if SHORT_WAYS[name].limit == np.inf:
        beyond = beyond[:2]
    with np.errstate(all="ignore"):
        assert not certain(M, SHORT_WAYS[name], beyond)[0].any()


@pytest.mark.parametrize("name", sorted(SHORT_WAYS))
def test_kernels_take_it_only_where_it_is_known(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most vectors have one lane of which the short way cannot tell."""
    random, x = np.random.default_rng(4402), floats(SHORT_WAYS[name].limit)
    with np.errstate(all="ignore"):
        hard = x[~certain(M, SHORT_WAYS[name], x)[0]]
    assert len(hard)
    x = random.choice(x, (37, 16))
    x[np.arange(30), random.integers(0, 16, 30)] = np.resize(hard, 30)
    x[3, 5], x[11, 0], x[17, 15], x[23, 7], x[23, 8] = np.inf, 3e38, np.nan, -(2.0**20 + 1), -0.0

    def result() -> np.ndarray:
        COMPILED_KERNELS.forget()
        b = Builder("net")
        v = b.input("x", TensorType.of(x))
        b.add(REGISTRY[name.capitalize()](), [v], ["y"])
        return compile(b.graph(["y"]), Settings(opt_level=1, threads=1)).run({"x": x})["y"]

    with np.errstate(invalid="ignore"):
        wanted = M.call(name, x)
    np.testing.assert_array_equal(result(), wanted)
    wrong = Short(lambda m, v: m.mul(m.const(1 + 4e-12, "float64"), way(m, v)))
    way = SHORT_WAYS[name].compute
    monkeypatch.setattr(arith, "SHORT_WAYS", {name: wrong})
    monkeypatch.setattr(functions_short, "_MARGIN", 0)
    assert (result() != wanted).any()  # else this test could not fail
    COMPILED_KERNELS.forget()
