"""Tensors that are made from little are made by kernels, in every type, with the promised bits."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import DType, TensorType
from verax.reference import promised


def same(graph: Graph, fed: dict[str, np.ndarray]) -> np.ndarray:
    """What a program gives that has no step on the reference, found to be what is promised."""
    exe = compile(graph, Settings(opt_level=1, threads=1, require_native=True))
    (got,), (wanted,) = exe.run(fed).values(), promised(graph, fed).values()
    assert got.dtype == wanted.dtype and got.shape == wanted.shape
    assert got.tobytes() == np.ascontiguousarray(wanted).tobytes()
    return got


@pytest.mark.parametrize("given", ["constants", "inputs"])
@pytest.mark.parametrize(
    "dtype, values",
    [
        ("float32", (-1.1, 40.05, 0.3)),
        ("float64", (1, -7, -0.125)),
        ("float16", (0.1, 60, 0.7)),
        (ml_dtypes.bfloat16, (-3, 11, 0.3)),
        ("int64", (2**40, 2**40 - 91, -7)),
        ("int32", (-5, 70, 3)),
        ("int16", (32000, 32767, 5)),
    ],
    ids=lambda v: getattr(v, "__name__", None),
)
def test_a_range_is_written_by_a_kernel(given: str, dtype: Any, values: tuple[float, ...]) -> None:
    if given == "inputs" and dtype == "int16":
        pytest.skip("programs are not made for values of int16: its size is not known then")
    b = Builder("net")
    arrays = [np.array(v).astype(dtype) for v in values]
    names = [
        b.constant(a) if given == "constants" else b.input(f"x{i}", TensorType.of(a))
        for i, a in enumerate(arrays)
    ]
    b.add(REGISTRY["Range"](), names, ["y"])
    fed = {} if given == "constants" else {f"x{i}": a for i, a in enumerate(arrays)}
    assert len(same(b.graph(["y"]), fed)) > 5


@pytest.mark.parametrize("dtype", [DType.float32, DType.float16, DType.int8, DType.bool_])
def test_a_constant_of_a_shape_is_filled(dtype: DType) -> None:
    b = Builder("net")
    b.add(
        REGISTRY["ConstantOfShape"](value=1, dtype=dtype), [b.constant(np.array([3, 2, 5]))], ["y"]
    )
    assert same(b.graph(["y"]), {}).all()


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_what_a_known_condition_leaves_is_copied(axis: int | None) -> None:
    random = np.random.default_rng(7301)
    x = random.standard_normal((5, 7, 3)).astype(np.float32)
    condition = random.random(x.size if axis is None else x.shape[axis]) < 0.5
    condition[1] = True
    b = Builder("net")
    v = b.input("x", TensorType.of(x))
    b.add(REGISTRY["Compress"](axis=axis), [v, b.constant(condition)], ["y"])
    got = same(b.graph(["y"]), {"x": x})
    np.testing.assert_array_equal(got, np.compress(condition, x, axis))
