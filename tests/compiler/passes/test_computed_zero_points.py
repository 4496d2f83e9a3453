"""Integer products and convolutions whose zero point the network computes run natively, and no
integer of theirs changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.compiler.test_bits import bits

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.passes.center_integers import center_integers
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.reference import promised


def add(b: Builder, kind: str, *inputs: str | None, **attributes: Any) -> str:
    return b.add(REGISTRY[kind](**attributes), list(inputs))


def quantized(b: Builder, x: np.ndarray) -> tuple[str, str]:
    """Bytes of x and their zero point."""
    value = b.input("x", TensorType.of(x))
    q, _, zero = b.add_all(REGISTRY["DynamicQuantizeLinear"](), [value])
    return q, zero


def product(rows: tuple[int, ...], k: int, n: int, high: int = 128) -> tuple[Graph, np.ndarray]:
    r, b = np.random.default_rng([k, n]), Builder("net")
    x = (r.standard_normal((*rows, k)) * 3 + 1).astype(np.float32)
    q, zero = quantized(b, x)
    w = b.constant(r.integers(-128, high, (k, n)).astype(np.int32))
    difference = add(b, "Sub", *(add(b, "Cast", v, to="int32") for v in (q, zero)))
    return b.graph([add(b, "Cast", add(b, "MatMul", difference, w), to="float32")]), x


def convolution(
    kind: str, channels: int, filters: int, groups: int = 1
) -> tuple[Graph, np.ndarray]:
    r, b = np.random.default_rng([channels, filters]), Builder("net")
    x = (r.standard_normal((2, channels, 7, 9)) * 3 + 1).astype(np.float32)
    q, zero = quantized(b, x)
    shape = (filters, channels // groups, 3, 2)
    fields: dict[str, Any] = {"groups": groups, "pads": ((1, 1), (0, 1)), "strides": (2, 1)}
    if kind == "ConvTransposeInteger":
        shape = (channels, filters // groups, 3, 2)
    w, own = b.constant(r.integers(0, 256, shape).astype(np.uint8)), b.constant(np.uint8(119))
    return b.graph([add(b, kind, q, w, zero, own, **fields)]), x


def same_integers(graph: Graph, x: np.ndarray, level: int = 1, **how: Any) -> Any:
    exe = compile(graph, Settings(opt_level=level, threads=1, **how))
    (got,), (expected,) = exe.run({"x": x}).values(), promised(graph, {"x": x}).values()
    assert bits(got) == bits(expected)
    assert not exe.plan.on_reference, str(exe.plan)
    return exe


@settings(max_examples=15, deadline=None)
@given(
    rows=st.lists(st.integers(1, 4), min_size=1, max_size=2),
    k=st.integers(1, 70), n=st.integers(1, 40), level=st.sampled_from([1, 3]),
    target=st.sampled_from(["host", "avx2"]),
)  # fmt: skip
def test_products(rows: list[int], k: int, n: int, level: int, target: str) -> None:
    graph, x = product(tuple(rows), k, n)
    same_integers(graph, x, level, target=target)


@pytest.mark.parametrize("target", ["host", "avx2"])
@pytest.mark.parametrize("kind", ["ConvInteger", "ConvTransposeInteger"])
@pytest.mark.parametrize(("channels", "filters", "groups"), [(3, 5, 1), (32, 19, 1), (6, 9, 3)])
def test_convolutions(kind: str, channels: int, filters: int, groups: int, target: str) -> None:
    same_integers(*convolution(kind, channels, filters, groups), target=target)


def test_bytes_stay_bytes_in_products() -> None:
    graph, x = product((5,), 33, 21)
    assert center_integers(graph)[1].rewrites == 1
    if "uint8 by int8" not in str(same_integers(graph, x).plan):
        pytest.skip("no instruction for products of bytes here")


def test_weights_of_more_bits_keep_the_difference() -> None:
    graph, x = product((5,), 33, 21, high=200)
    assert not center_integers(graph)[1].rewrites
    same_integers(graph, x)


def test_a_zero_point_for_each_row_stays() -> None:
    b = Builder("net")
    q = b.input("q", TensorType.parse("uint8[3, 17]"))
    zero = b.input("z", TensorType.parse("uint8[3, 1]"))
    w = b.constant(np.arange(-34, 34, dtype=np.int32).reshape(17, 4))
    difference = add(b, "Sub", *(add(b, "Cast", v, to="int32") for v in (q, zero)))
    assert not center_integers(b.graph([add(b, "MatMul", difference, w)]))[1].rewrites
