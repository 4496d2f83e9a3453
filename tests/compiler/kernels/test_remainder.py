"""The remainder of floats in native code is exact, whatever bits its operands have."""

from __future__ import annotations

import numpy as np
import pytest

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.ir.graph import Builder
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.reference import promised

SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, 3.0, 2.0**-149, -(2.0**-126), 3.4e38]
SHAPE = (219, 37)


def drawn(random: np.random.Generator, dtype: str) -> np.ndarray:
    """Any bits at all, numbers of like size, and every special value."""
    word = f"uint{8 * np.dtype(dtype).itemsize}"
    found = random.integers(0, np.iinfo(word).max, SHAPE, dtype=word, endpoint=True).view(dtype)
    found[::3] = random.standard_normal(found[::3].shape)
    with np.errstate(over="ignore"):
        found[1::7] = random.choice(np.array(SPECIAL).astype(dtype), found[1::7].shape)
    return found


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("fmod", [True, False])
def test_any_two_floats(fmod: bool, dtype: str) -> None:
    random = np.random.default_rng(8804 + fmod)
    fed = {v: drawn(random, dtype) for v in "ab"}
    fed["a"][:50, :20] = 3e38 if dtype == "float32" else 6e4  # many times the divisor
    with np.errstate(invalid="ignore"):
        fed["b"][:50] = np.abs(fed["b"][:50]) * np.array(2.0**-12, dtype)
    b = Builder("net")
    b.add(REGISTRY["Mod"](fmod=fmod), [b.input(v, TensorType.of(a)) for v, a in fed.items()], ["y"])
    graph = b.graph(["y"])
    exe = compile(graph, Settings(opt_level=1, threads=1, require_native=True))
    got, wanted = exe.run(fed)["y"], promised(graph, fed)["y"]
    both_nan = np.isnan(got) & np.isnan(wanted)
    word = f"uint{8 * np.dtype(dtype).itemsize}"
    assert (both_nan | (got.view(word) == wanted.view(word))).all()
    assert np.isfinite(wanted).sum() > wanted.size // 4
