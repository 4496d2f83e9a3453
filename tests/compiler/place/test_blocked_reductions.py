"""Reductions over all pixels of blocked tensors, of every type that a convolution may make."""

from __future__ import annotations

import numpy as np
import pytest
from tests.compiler.test_bits import bits

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.ir.graph import Builder
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.reference import promised


@pytest.mark.parametrize("kind", ["ReduceMean", "ReduceMax", "ReduceSum"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_floats(kind: str, dtype: str) -> None:
    rng = np.random.default_rng(len(kind) + len(dtype))
    b = Builder("net")
    x = rng.standard_normal((2, 5, 9, 7)).astype(np.float32)
    value = b.add(REGISTRY["Cast"](to=dtype), [b.input("x", TensorType.of(x))])
    weights = b.constant(rng.standard_normal((19, 5, 3, 2)).astype(np.float32))
    weights = b.add(REGISTRY["Cast"](to=dtype), [weights])
    value = b.add(REGISTRY["Conv"](), [value, weights])
    value = b.add(REGISTRY[kind](), [value, b.constant(np.array([2, 3]))])
    graph = b.graph([b.add(REGISTRY["Cast"](to="float32"), [value])])
    _agree(graph, {"x": x})


@pytest.mark.parametrize("kind", ["ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_integers(kind: str, dtype: str) -> None:
    rng = np.random.default_rng(len(kind) + len(dtype))
    x = rng.integers(0, 255, (2, 5, 9, 7), dtype=np.uint8)
    w = rng.integers(-128, 127, (19, 5, 3, 2), dtype=np.int8)
    b = Builder("net")
    sums = b.add(REGISTRY["ConvInteger"](), [b.input("x", TensorType.of(x)), b.constant(w)])
    factors = (b.constant(np.array(n, np.int32)) for n in (2**30, -6))
    small = b.add(REGISTRY["Requantize"](output_dtype=dtype), [sums, *factors])
    axes = b.constant(np.array([2, 3]))
    _agree(b.graph([b.add(REGISTRY[kind](), [small, axes])]), {"x": x})


def _agree(graph, fed) -> None:
    for level in (0, 1):
        got = compile(graph, Settings(opt_level=level, threads=2)).run(fed)
        for name, want in promised(graph, fed).items():
            assert bits(got[name]) == bits(np.asarray(want)), level
