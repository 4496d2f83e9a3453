"""Which positions of kernels are cut off, and that values stay the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.passes.trim_kernels import _enough, _reached, trim_kernels
from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.ops.windows.convolution import Conv
from verax.reference import promised


def network(
    size: tuple[int, ...], kernel: tuple[int, ...], weights: float = 0.5, **attributes: object
) -> Graph:
    """Two groups of 3 channels and 3 filters each. weights: the first one."""
    rng = np.random.default_rng(sum(size) + 7 * sum(kernel))
    b = Builder("net")
    x = b.input("x", TensorType.parse(f"float32[2, 6, {', '.join(map(str, size))}]"))
    w = rng.standard_normal((6, 3, *kernel)).astype(np.float32)
    w.flat[0] = weights
    bias = b.constant(rng.standard_normal(6).astype(np.float32), "bias")
    op = Conv(groups=2, **attributes)  # type: ignore[arg-type]
    return b.graph([b.add(op, [x, b.constant(w, "w"), bias])])


@given(
    st.integers(1, 9), st.integers(1, 5), st.integers(1, 3), st.integers(1, 12),
    st.integers(0, 26), st.integers(0, 26),
)  # fmt: skip
def test_positions_that_no_output_meets_inside(
    size: int, kernel: int, stride: int, dilation: int, begin: int, end: int
) -> None:
    """Position by position, output by output."""
    room = size + begin + end - (kernel - 1) * dilation - 1
    if room < 0:
        return
    outputs = room // stride + 1
    live = [
        k
        for k in range(kernel)
        if any(0 <= k * dilation - begin + o * stride < size for o in range(outputs))
    ]
    want = (live[0], live[-1] + 1) if live else (0, kernel)
    if begin < want[0] * dilation or end < (kernel - want[1]) * dilation:
        want = 0, kernel
    assert _reached(size, outputs, kernel, stride, dilation, (begin, end)) == want


@given(
    st.integers(1, 20), st.integers(1, 5), st.integers(1, 3), st.integers(1, 4),
    st.integers(0, 14), st.integers(0, 14),
)  # fmt: skip
def test_from_enough_elements_on_all_positions_are_met(
    size: int, kernel: int, stride: int, dilation: int, begin: int, end: int
) -> None:
    pads = begin, end
    room = size + begin + end - (kernel - 1) * dilation - 1
    if room >= 0 and size >= _enough(kernel, stride, dilation, pads):
        outputs = room // stride + 1
        assert _reached(size, outputs, kernel, stride, dilation, pads) == (0, kernel)


def test_two_elements_are_enough_for_three_positions() -> None:
    assert _enough(3, 1, 1, (1, 1)) == 2
    assert _reached(1, 1, 3, 1, 1, (1, 1)) == (1, 2)


@pytest.mark.parametrize(
    ("size", "kernel", "attributes", "left"),
    [
        ((5, 7), (3, 3), {"pads": ((9, 9), (8, 8)), "dilations": (9, 8)}, (1, 1)),
        ((5, 7), (3, 5), {"pads": ((9, 9), (8, 8)), "dilations": (9, 4)}, (1, 3)),
        ((11,), (4,), {"pads": ((30, 2),), "dilations": (10,)}, (2,)),
        ((6, 5), (3, 2), {"pads": "SAME_LOWER", "dilations": (7, 2)}, (1, 2)),
        ((4, 5, 6), (3, 1, 3), {"pads": ((5, 5), (0, 0), (7, 7)), "dilations": (5, 1, 7)},
         (1, 1, 1)),
        ((9, 8), (3, 3), {"pads": ((12, 12), (9, 9)), "dilations": (12, 9), "strides": (2, 3)},
         (1, 1)),
    ],
)  # fmt: skip
def test_values_stay_the_same(
    size: tuple[int, ...], kernel: tuple[int, ...], attributes: dict[str, object],
    left: tuple[int, ...],
) -> None:  # fmt: skip
    graph = network(size, kernel, **attributes)
    made, trace = trim_kernels(graph)
    (node,) = made.nodes
    assert trace.rewrites == 1 and made.constants[node.inputs[1] or ""].shape[2:] == left
    x = {"x": np.random.default_rng(3).standard_normal((2, 6, *size)).astype(np.float32)}
    (before,), (after,) = promised(graph, x).values(), promised(made, x).values()
    np.testing.assert_array_equal(after, before)
    (run,) = compile(graph, Settings(opt_level=2, threads=1)).run(x).values()
    assert run.tobytes() == after.tobytes()


@pytest.mark.parametrize(
    ("weights", "attributes"),
    [
        (np.inf, {"pads": ((9, 9), (8, 8)), "dilations": (9, 8)}),
        (0.5, {"pads": ((9, 9), (6, 6)), "dilations": (4, 6)}),
        (0.5, {"pads": ((6, 10), (0, 0)), "dilations": (9, 1)}),
    ],
    ids=["an infinite weight", "all are met", "pads would be negative"],
)
def test_others_are_left(weights: float, attributes: dict[str, object]) -> None:
    graph = network((5, 7), (3, 3), weights, **attributes)
    assert trim_kernels(graph)[1].rewrites == 0


def test_no_more_than_asked_for() -> None:
    far = {"pads": ((9, 9), (8, 8)), "dilations": (9, 8)}
    assert trim_kernels(network((5, 7), (3, 3), **far), 0)[1].rewrites == 0
