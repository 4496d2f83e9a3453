"""Which convolutions are computed by Winograd's algorithm, and what that promises."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.passes.choose_winograd import best_tile, choose_winograd
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.judge.check import check
from verax.ops.pointwise.activation import Relu
from verax.ops.pointwise.arithmetic import Add
from verax.ops.windows.convolution import Conv
from verax.ops.windows.winograd import WinogradConv
from verax.records.verdict import Kind
from verax.reference.evaluate import evaluate, promised
from verax.runners.own import VeraxRunner

PADS = ((1, 1), (1, 1))


def network(
    x: tuple[int, ...],
    filters: int,
    *,
    seed: int,
    kernel: tuple[int, ...] = (3, 3),
    groups: int = 1,
    dtype: str = "float32",
    bias: bool = True,
    residual: bool = False,
    **attributes: Any,
) -> Graph:
    rng = np.random.default_rng(seed)
    b = Builder("net")
    value = b.input("x", TensorType.parse(f"{dtype}[{', '.join(map(str, x))}]"))
    w = rng.standard_normal((filters, x[1] // groups, *kernel)).astype(dtype)
    inputs = [value, b.constant(w, "w")]
    if bias:
        inputs.append(b.constant(rng.standard_normal(filters).astype(dtype), "b"))
    value = b.add(Conv(groups=groups, **attributes), inputs, ["c"], "conv")
    if residual:
        value = b.add(Add(), [value, "x"], ["s"], "sum")
    return b.graph([b.add(Relu(), [value], ["y"], "act")])


def tile_of(graph: Graph) -> int:
    return best_tile(graph, graph.nodes[0])


@pytest.mark.parametrize(
    ("x", "filters", "tile"),
    [((1, 64, 56, 55), 48, 4), ((1, 512, 7, 8), 384, 2), ((8, 512, 7, 8), 384, 4),
     ((1, 512, 3, 3), 384, 0), ((1, 15, 56, 55), 48, 0), ((1, 64, 56, 55), 15, 0),
     ((1, 96, 14, 14), 112, 2), ((1, 96, 10, 20), 112, 4), ((3, 96, 4, 4), 112, 2),
     ((1, 96, 6, 7), 112, 0), ((5, 96, 200, 1), 112, 0), ((1, 32, 11, 13), 32, 0),
     ((1, 16, 10, 20), 16, 4)],
)  # fmt: skip
def test_shapes_decide(x: tuple[int, ...], filters: int, tile: int) -> None:
    assert tile_of(network(x, filters, seed=1, pads=PADS)) == tile


@pytest.mark.parametrize(
    ("x", "filters", "groups", "tile"),
    [((1, 128, 28, 27), 192, 2, 4), ((1, 96, 29, 30), 192, 6, 4), ((1, 1536, 7, 8), 1536, 24, 2),
     ((1, 48, 29, 30), 144, 6, 0), ((1, 144, 29, 30), 48, 6, 0), ((1, 64, 29, 30), 64, 64, 0)],
)  # fmt: skip
def test_groups_of_whole_blocks_decide_by_their_own_channels(
    x: tuple[int, ...], filters: int, groups: int, tile: int
) -> None:
    assert tile_of(network(x, filters, seed=11, groups=groups, pads=PADS)) == tile


@pytest.mark.parametrize(
    "changed",
    [{"strides": (2, 1)}, {"strides": (2, 2)}, {"dilations": (1, 2)}, {"groups": 2},
     {"kernel": (3, 2)}, {"kernel": (5, 5)}, {"kernel": (1, 1)}, {"dtype": "float64"},
     {"dtype": "float16"}],
    ids=str,
)  # fmt: skip
def test_other_convolutions_are_left_alone(changed: dict[str, Any]) -> None:
    assert tile_of(network((2, 32, 29, 30), 48, seed=2, **changed)) == 0


@pytest.mark.parametrize("weight", [np.inf, np.nan, -(2.0**48)])
def test_weights_that_are_not_finite_or_overflow_are_left_alone(weight: float) -> None:
    graph = network((1, 32, 29, 30), 48, seed=3)
    weights = graph.constants["w"].copy()
    weights[5, 7, 1, 2] = weight
    graph = dataclasses.replace(graph, constants={**graph.constants, "w": weights})
    assert tile_of(graph) == 0


def test_nodes_can_be_kept_and_rewrites_are_counted() -> None:
    graph = network((1, 32, 29, 30), 48, seed=4)
    assert isinstance(choose_winograd(graph)[0].nodes[0].op, WinogradConv)
    for left, trace in (
        choose_winograd(graph, keep=["conv"]),
        choose_winograd(graph, keep=["c"]),
        choose_winograd(graph, 0),
    ):
        assert left.nodes == graph.nodes
        assert trace.rewrites == 0
    asked = Settings(opt_level=3, keep_exact=("conv",))
    assert not any("winograd" in note for note in compile(graph, asked).trace.notes)


@settings(max_examples=12)
@given(
    st.integers(1, 2), st.integers(16, 20), st.integers(16, 34), st.integers(5, 11),
    st.integers(5, 11), st.tuples(*[st.integers(0, 3)] * 4), st.booleans(), st.sampled_from((2, 4)),
    st.integers(1, 3),
)  # fmt: skip
def test_kernels_give_the_promised_bits(
    n: int, channels: int, filters: int, rows: int, cols: int, ends: tuple[int, ...], bias: bool,
    tile: int, threads: int,
) -> None:  # fmt: skip
    pads = ((ends[0], ends[1]), (ends[2], ends[3]))
    hold_to_the_promise((n, channels, rows, cols), filters, pads, bias, tile, 1, threads)


@settings(max_examples=6)
@given(
    st.integers(1, 2), st.integers(2, 3), st.sampled_from((16, 32)), st.sampled_from((16, 32, 48)),
    st.integers(4, 9), st.integers(4, 9), st.booleans(), st.sampled_from((2, 4)),
    st.sampled_from((1, 3)),
)  # fmt: skip
def test_kernels_of_groups_give_the_promised_bits(
    n: int, groups: int, channels: int, filters: int, rows: int, cols: int, bias: bool, tile: int,
    threads: int,
) -> None:  # fmt: skip
    x = (n, groups * channels, rows, cols)
    hold_to_the_promise(x, groups * filters, ((1, 0), (2, 1)), bias, tile, groups, threads)


def hold_to_the_promise(
    shape: tuple[int, ...], filters: int, pads: Any, bias: bool, tile: int, groups: int,
    threads: int,
) -> None:  # fmt: skip
    """Every target gives the bits of `promised`, natively."""
    plain = network(shape, filters, seed=shape[0] + tile, bias=bias, pads=pads, groups=groups)
    b = Builder("net")
    x = b.input("x", plain.types["x"])
    inputs = [x, *(b.constant(a, v) for v, a in plain.constants.items())]
    y = b.add(WinogradConv(tile=tile, pads=pads, groups=groups), inputs, ["c"], "conv")
    graph = b.graph([b.add(Relu(), [y], ["y"], "act")])
    data = {"x": np.random.default_rng(7).standard_normal(graph.types["x"].shape, np.float32)}
    expected = promised(graph, data)["y"]
    for target in ("host", "avx2"):
        exe = compile(graph, Settings(threads=threads, target=target, require_native=True))
        found = exe.run(data)["y"]
        np.testing.assert_array_equal(found.view(np.int32), expected.view(np.int32))


def test_groups_inside_of_blocks_run_on_the_reference_and_say_so() -> None:
    b = Builder("net")
    rng = np.random.default_rng(12)
    w = b.constant(rng.standard_normal((9, 2, 3, 3)).astype(np.float32), "w")
    x = b.input("x", TensorType.parse("float32[2, 6, 7, 5]"))
    graph = b.graph([b.add(WinogradConv(tile=2, groups=3), [x, w], ["y"], "conv")])
    data = {"x": rng.standard_normal((2, 6, 7, 5), np.float32)}
    exe = compile(graph, Settings())
    assert "groups of whole blocks" in str(exe.plan)
    bits = promised(graph, data)["y"]
    np.testing.assert_array_equal(exe.run(data)["y"].view(np.int32), bits.view(np.int32))


def test_a_residual_sum_is_fused_behind_it() -> None:
    graph = network((2, 32, 13, 18), 32, seed=8, residual=True, pads=PADS)
    exe = compile(graph, Settings(opt_level=3))
    assert "choose_winograd: F(4x4, 3x3): node 'conv' (Conv)" in exe.trace.notes
    data = {"x": np.random.default_rng(9).standard_normal((2, 32, 13, 18), np.float32)}
    found = exe.run(data)["y"]
    bits = promised(exe.specialized.graph, data)["y"]
    np.testing.assert_array_equal(found.view(np.int32), bits.view(np.int32))
    assert np.abs(found - evaluate(graph, data)["y"]).max() < 1e-4 * np.abs(found).max()


@pytest.mark.parametrize(("filters", "groups"), [(80, 1), (64, 2)])
def test_the_judge_names_it(filters: int, groups: int) -> None:
    """Watched, layer by layer: F(4x4) is beyond the rounding of direct sums, and explained."""
    graph = network((2, 96, 29, 30), filters, seed=10, pads=PADS, groups=groups)
    verdict = check(graph, VeraxRunner(Settings(opt_level=3)))
    assert verdict.exit_code == 0
    assert verdict.kind is Kind.precision
    assert [p.format for p in verdict.precisions] == ["Winograd F(4x4, 3x3)"]


@pytest.mark.parametrize("kind", ["uint8", "float16", "int32"])
def test_outputs_of_other_types_are_made_where_the_tiles_end(kind: str) -> None:
    """A tensor of that type is read there, too."""
    rng, b = np.random.default_rng(53), Builder("net")
    x = rng.standard_normal((2, 32, 23, 19)).astype(np.float32)
    other = rng.integers(0, 90, (2, 48, 23, 19)).astype(kind)
    w = b.constant((rng.standard_normal((48, 32, 3, 3)) / 17).astype(np.float32))
    conv = WinogradConv(tile=4, pads=PADS)  # a cast to integers would make O3 sum directly
    made = b.add(conv, [b.input("x", TensorType.of(x)), w], [], "conv")
    if kind == "uint8":
        step, zero = b.constant(np.array(0.03, np.float32)), b.constant(np.array(99, np.uint8))
        made = b.add(REGISTRY["QuantizeLinear"](), [made, step, zero])
    else:
        made = b.add(REGISTRY["Cast"](to=kind), [made])
    made = b.add(REGISTRY["Max"](), [made, b.input("other", TensorType.of(other))])
    graph = b.graph([made])
    exe = compile(graph, Settings(1, threads=1))
    meant = promised(graph, {"x": x, "other": other})
    (got,), (wanted,) = exe.run({"x": x, "other": other}).values(), meant.values()
    assert got.tobytes() == np.asarray(wanted).tobytes()
    assert sum(f"to {kind} output transform" in line for line in exe.plan.lines) == 1
    assert not any(" operations on" in line for line in exe.plan.lines)
