"""What tests of lowerings share: an operator alone in a network, its bits held to the promise for
every target, level and number of threads, with no step left to the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

import verax.ops  # noqa: F401  (registers the operators)
from tests.compiler.test_bits import bits
from tests.compiler.test_operators import graph_of
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.kernels.target import Target
from verax.ir.operator import Case, Operator
from verax.reference import promised

CHOICES = [
    Settings(opt_level=0, threads=1, quick=True),
    Settings(opt_level=1, threads=3),
    *(
        Settings(opt_level=0, threads=1, target=t, quick=True)
        for t in ("avx2", "avx512", "aarch64")
        if Target.named(t).runs_here() and t != Target.host().name
    ),
]
ODD = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, 3e38, 1.0], np.float32)


def agree(op: Operator, *arrays: np.ndarray | None, constant: tuple[int, ...] = ()) -> None:
    """The operator on these inputs runs natively and gives the promised bits."""
    graph, fed = graph_of(Case(op, arrays, constant), False)
    want = promised(graph, fed)
    for choice in CHOICES:
        exe = compile(graph, choice)
        got = exe.run(fed)
        assert not exe.plan.on_reference, exe.plan.lines
        for value, array in want.items():
            assert bits(got[value]) == bits(np.asarray(array)), (op, choice, got, want)


def values(seed: int, shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    """Numbers of few distinct values for integers, and of odd ones among floats."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if not dtype.startswith("float"):
        low = 0 if dtype.startswith("u") else -4
        return rng.integers(low, 5, shape).astype(dtype)
    x = np.asarray(rng.standard_normal(shape).astype(dtype))
    if seed % 3 == 0:  # ties
        x = np.round(x)
    if seed % 2 == 0:
        with np.errstate(over="ignore"):
            odd = rng.choice(ODD, shape).astype(dtype)
        x = np.where(rng.random(shape) < 0.2, odd, x)
    return x


def shapes(least: int = 1, most: int = 4, sides: int = 7) -> Any:
    """Small shapes, now and then with one long axis."""
    side = st.one_of(st.integers(1, sides), st.sampled_from([16, 17, 37]))
    return st.lists(side, min_size=least, max_size=most).map(tuple)


seeds = st.integers(0, 1 << 20)
