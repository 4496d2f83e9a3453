"""Integer convolutions with one window: the same integers, whatever the sizes, and left alone where
there is a border, a dilation or more than one window."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.passes.flatten_windows import flatten_windows
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.reference import promised

SIZES = st.tuples(st.integers(1, 3), st.integers(1, 7), st.integers(1, 5), st.integers(1, 4))


def network(
    sizes: tuple[int, ...],
    filters: int,
    kind: str,
    *,
    depthwise: bool = False,
    turned: bool = True,
    zeros: int = 1,
    seed: int = 9041,
    **attributes: Any,
) -> tuple[Graph, dict[str, np.ndarray]]:
    """A convolution of bytes x, channels last where `turned`, with a window as large as x; the
    network and inputs. zeros: how many zero points it is given."""
    rng, b = np.random.default_rng([seed, *sizes, filters]), Builder("net")
    batch, channels, *image = sizes
    info = np.iinfo(kind)
    shape = (batch, *image, channels) if turned else tuple(sizes)
    x = b.input("x", TensorType.parse(f"{kind}[{', '.join(map(str, shape))}]"))
    data = x
    if turned:
        rank = len(shape)
        data = b.add(REGISTRY["Transpose"](perm=(0, rank - 1, *range(1, rank - 1))), [x])
    if depthwise:
        filters, attributes = channels, {**attributes, "groups": channels}
    w = rng.integers(-128, 128, (filters, 1 if depthwise else channels, *image)).astype(np.int8)
    points = [np.array(info.max // 3, kind), rng.integers(-64, 64, filters).astype(np.int8)]
    operands = [data, b.constant(w), *(b.constant(p) for p in points[:zeros])]
    y = b.add(REGISTRY["ConvInteger"](**attributes), operands)
    return b.graph([y]), {"x": rng.integers(info.min, info.max + 1, shape).astype(kind)}


def kinds(graph: Graph) -> list[str]:
    return [n.op.kind for n in graph.nodes]


@given(
    SIZES, st.integers(1, 6), st.sampled_from(["int8", "uint8"]), st.booleans(), st.booleans(),
    st.integers(0, 2),
)  # fmt: skip
def test_the_integers_are_the_same(
    sizes: tuple[int, ...], filters: int, kind: str, depthwise: bool, turned: bool, zeros: int
) -> None:
    graph, inputs = network(
        sizes, filters, kind, depthwise=depthwise, turned=turned, zeros=zeros, seed=9042
    )
    rewritten, trace = flatten_windows(graph)
    summed = depthwise and sizes[1] > 1
    if math.prod(sizes[2:]) == 1 or (summed and (not turned or zeros == 2)):
        assert trace.rewrites == 0
    else:
        assert trace.rewrites == 1
        assert ("ReduceSum" in kinds(rewritten)) == summed
    (y,), (z,) = graph.outputs, rewritten.outputs
    wanted = promised(graph, inputs)[y]
    np.testing.assert_array_equal(promised(rewritten, inputs)[z], wanted)
    assert promised(rewritten, inputs)[z].dtype == wanted.dtype


@pytest.mark.parametrize("level", [1, 3])
@pytest.mark.parametrize("depthwise", [False, True])
def test_compiled_code_gives_the_promised_integers(level: int, depthwise: bool) -> None:
    graph, inputs = network((2, 37, 5, 3), 21, "int8", depthwise=depthwise)
    exe = compile(graph, Settings(level, threads=1))
    assert "Transpose" not in kinds(exe.specialized.graph)[:1]
    (y,) = graph.outputs
    np.testing.assert_array_equal(exe.run(inputs)[y], promised(graph, inputs)[y])


@pytest.mark.parametrize(
    "attributes",
    [
        {"pads": ((1, 0), (0, 0)), "strides": (9, 9)},
        {"pads": "SAME_LOWER", "strides": (9, 9)},
        {"groups": 2},
    ],
)
def test_other_windows_stay(attributes: dict[str, Any]) -> None:
    groups = attributes.get("groups", 1)
    b, rng = Builder("net"), np.random.default_rng(9043)
    x = b.input("x", TensorType.parse("int8[2, 4, 5, 3]"))
    w = b.constant(rng.integers(-128, 128, (6, 4 // groups, 5, 3)).astype(np.int8))
    graph = b.graph([b.add(REGISTRY["ConvInteger"](**attributes), [x, w])])
    assert flatten_windows(graph)[1].rewrites == 0


def test_a_window_with_gaps_stays() -> None:
    """Three taps two pixels apart fill five pixels, and are no five taps."""
    b, rng = Builder("net"), np.random.default_rng(9044)
    x = b.input("x", TensorType.parse("int8[2, 4, 5, 1]"))
    w = b.constant(rng.integers(-128, 128, (6, 4, 3, 1)).astype(np.int8))
    graph = b.graph([b.add(REGISTRY["ConvInteger"](dilations=(2, 1)), [x, w])])
    assert flatten_windows(graph)[1].rewrites == 0
