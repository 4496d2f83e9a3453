"""Networks of dequantised bytes: what becomes integers, what stays, and what each pass promises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.compiler.test_bits import bits

import verax
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.passes.center_integers import center_integers
from verax.compiler.passes.fold_pads import fold_pads
from verax.compiler.passes.integer_products import integer_products
from verax.compiler.passes.move_dequantize import move_dequantize
from verax.compiler.passes.scale_quantized import scale_quantized
from verax.compiler.pipeline.levels import run_passes
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.records.verdict import Kind
from verax.reference import promised


class Net:
    """A network being written: bytes, their scales, products of them."""

    def __init__(self, seed: int, *shape: int, kind: str = "float32") -> None:
        self.b, self.rng = Builder("net"), np.random.default_rng(seed)
        self.shape = shape
        self.x = self.b.input("x", TensorType.parse(f"{kind}[{', '.join(map(str, shape))}]"))

    def add(self, op: str, *inputs: str | None, **attributes: Any) -> str:
        return self.b.add(REGISTRY[op](**attributes), list(inputs))

    def array(self, value: Any, dtype: str = "float32") -> str:
        return self.b.constant(np.array(value, dtype))

    def quantise(self, x: str, scale: float = 0.03, zero: int = 113, kind: str = "uint8") -> str:
        return self.add("QuantizeLinear", x, self.array(scale), self.array(zero, kind))

    def dequantise(self, q: str, scale: float = 0.03, zero: int = 113, kind: str = "uint8") -> str:
        return self.add("DequantizeLinear", q, self.array(scale), self.array(zero, kind))

    def weights(self, *shape: int, axis: int = 0, scales: int = 0, kind: str = "int8") -> str:
        info = np.iinfo(kind)
        whole = self.rng.integers(info.min, info.max, shape, dtype=kind, endpoint=True)
        scale = self.rng.uniform(0.002, 0.02, scales or shape[axis]).astype(np.float32)
        scale = scale if scales != 1 else scale.reshape(())
        return self.add(
            "DequantizeLinear", self.b.constant(whole), self.b.constant(scale), axis=axis
        )

    def conv(self, x: str, channels: int, into: int, **attributes: Any) -> str:
        """From bytes to bytes, with a bias of int32."""
        data, w = (
            self.dequantise(x),
            self.weights(into, channels // attributes.get("groups", 1), 3, 3),
        )
        bias = self.rng.integers(-900, 900, into).astype(np.int32)
        b = self.add("DequantizeLinear", self.b.constant(bias), self.array(0.0004), axis=0)
        return self.add("Conv", data, w, b, **attributes)

    def graph(self, *outputs: str) -> Graph:
        return self.b.graph(list(outputs))


def kinds(graph: Graph) -> list[str]:
    return [n.op.kind for n in graph.nodes]


def residual(seed: int) -> tuple[Graph, dict[str, np.ndarray]]:
    """Two convolutions of which one is depthwise, a padding, a sum, a pool, a matrix product."""
    n = Net(seed, 2, 5, 9, 7)
    first = n.quantise(n.add("Relu", n.conv(n.quantise(n.x), 5, 18, strides=(1, 2))))
    padded = n.add("Pad", n.dequantise(first), n.array([0, 0, 1, 0, 0, 0, 1, 2], "int64"))
    deep = n.conv(n.quantise(padded), 18, 18, groups=18)
    deep = n.add("Slice", deep, n.array([0], "int64"), n.array([3], "int64"), n.array([3], "int64"))
    same = n.add("Slice", n.dequantise(first), n.array([0], "int64"), n.array([3], "int64"),
                 n.array([3], "int64"))  # fmt: skip
    total = n.quantise(n.add("Relu", n.add("Add", deep, same)))
    pool = n.quantise(n.add("MaxPool", n.dequantise(total), kernel_shape=(2, 2)))
    flat = n.add("Flatten", n.dequantise(pool))
    size = int(np.prod(n.b.types[flat].shape[1:]))
    y = n.add("Gemm", n.dequantise(n.quantise(flat)), n.weights(7, size), None, trans_b=True)
    x = n.rng.standard_normal(n.shape).astype(np.float32) * 2
    return n.graph(n.dequantise(n.quantise(y, 0.5), 0.5)), {"x": x}


@pytest.mark.parametrize("seed", range(3))
def test_a_network_of_bytes_keeps_its_bits_at_O1_and_its_rounding_at_O2(seed: int) -> None:
    graph, fed = residual(seed)
    wanted = promised(graph, fed)
    exact = compile(graph, Settings(opt_level=1, threads=3)).run(fed)
    rewritten, trace = run_passes(graph, Settings(opt_level=2))
    passes = {note.partition(":")[0] for note in trace.notes}
    assert {"integer_products", "move_dequantize", "center_integers"} <= passes
    assert "Conv" not in kinds(rewritten) and "Gemm" not in kinds(rewritten)
    exe = compile(graph, Settings(opt_level=2, threads=1))
    got, meant = exe.run(fed), promised(rewritten, fed)
    assert not exe.plan.on_reference
    for old, new in zip(graph.outputs, rewritten.outputs, strict=True):
        assert bits(exact[old]) == bits(np.asarray(wanted[old]))
        assert bits(got[old]) == bits(np.asarray(meant[new]))
    found = verax.check(graph, "verax:O2", fed, explain=False)
    assert found.kind in (Kind.rounding, Kind.identical), found.reasons


def product(**changes: Any) -> Graph:
    """A product of bytes, but for one thing."""
    n = Net(3, 2, 6, 5, 7, kind=changes.get("data", "uint8"))
    if "scales" in changes:
        scales = n.b.constant(np.linspace(0.1, 0.2, 6, dtype=np.float32))
        x = n.add("DequantizeLinear", n.x, scales, axis=1)
    elif changes.get("plain"):
        x = n.add("Cast", n.x, to="float32")
    else:
        x = n.add("DequantizeLinear", n.x, n.array(changes.get("scale", 0.02)))
    channels = changes.get("channels", 4)
    w = n.weights(channels, 6, 3, 2, axis=changes.get("axis", 0))
    if changes.get("weights") == "computed":
        w = n.add("Mul", w, n.add("ReduceMax", x))
    bias = n.add("ReduceMax", x, n.array([0, 2, 3], "int64"), keepdims=False)
    inputs = [x, w]
    if changes.get("bias") == "computed":
        inputs.append(n.add("Slice", bias, n.array([0], "int64"), n.array([4], "int64")))
    return n.graph(n.add("Conv", *inputs))


def test_a_product_of_bytes_is_summed_in_integers() -> None:
    assert "ConvInteger" in kinds(integer_products(product())[0])


@pytest.mark.parametrize(
    "changes",
    [{"scales": True}, {"plain": True}, {"data": "int16"}, {"axis": 1}, {"weights": "computed"},
     {"bias": "computed"}, {"scale": 1e-44}, {"scale": float("inf")}],
    ids=str,
)  # fmt: skip
def test_what_is_no_product_of_bytes_with_one_scale_stays(changes: dict[str, Any]) -> None:
    graph = product(**changes)
    rewritten, trace = integer_products(graph)
    assert trace.rewrites == 0 and kinds(rewritten) == kinds(graph)


@pytest.mark.parametrize(("rows", "rewrites"), [(66_000, 0), (33_000, 1)])
def test_a_sum_that_may_leave_32_bits_stays_in_floats(rows: int, rewrites: int) -> None:
    n = Net(5, 3, rows, kind="uint8")
    whole = np.full((rows, 2), -128, np.int8)
    w = n.add("DequantizeLinear", n.b.constant(whole), n.array(0.01))
    graph = n.graph(n.add("MatMul", n.dequantise(n.x, 0.02, 0), w))
    assert integer_products(graph)[1].rewrites == rewrites


def test_transposed_and_scaled_matrix_products() -> None:
    for attributes, rewrites in (({"trans_b": True}, 1), ({"trans_a": True}, 0), ({"alpha": 2}, 0)):
        n = Net(6, 5, 5, kind="uint8")
        w = n.weights(5, 5, axis=0 if attributes.get("trans_b") else 1)
        graph = n.graph(n.add("Gemm", n.dequantise(n.x), w, None, **attributes))
        assert integer_products(graph)[1].rewrites == rewrites


@pytest.mark.parametrize(
    ("between", "second", "rewrites"),
    [
        ({}, {}, 1),
        ({"kernel_shape": (2, 2)}, {}, 1),
        ({"kernel_shape": (2, 2), "pads": ((1, 1), (1, 1))}, {}, 1),
        ({"kernel_shape": (2, 2), "pads": ((2, 0), (0, 0)), "strides": (1, 1)}, {}, 0),
        ({"kernel_shape": (2, 2)}, {"scale": 0.031}, 0),
        ({"kernel_shape": (2, 2)}, {"zero": 112}, 0),
    ],
)
def test_only_the_inverse_is_cancelled(
    between: dict[str, Any], second: dict[str, Any], rewrites: int
) -> None:
    n = Net(7, 2, 3, 5, 7, kind="uint8")
    value = n.dequantise(n.x)
    if between:
        value = n.add("MaxPool", value, **between)
    graph = n.graph(n.quantise(value, **second))
    rewritten, trace = move_dequantize(graph)
    assert trace.rewrites == rewrites
    x = n.rng.integers(0, 256, (2, 3, 5, 7)).astype(np.uint8)
    old, new = (promised(g, {"x": x})[g.outputs[0]] for g in (graph, rewritten))
    assert (old == new).all()


@pytest.mark.parametrize(("fill", "rewrites"), [(0.0, 1), (0.5, 0)])
def test_padding_by_zero_becomes_padding_by_the_zero_point(fill: float, rewrites: int) -> None:
    n = Net(8, 2, 3, 5, 7, kind="uint8")
    pads = n.array([0, 0, 1, 0, 0, 0, 2, 3], "int64")
    padded = n.add("Pad", n.dequantise(n.x), pads, n.array(fill))
    q = n.quantise(padded)
    zero = n.array(113, "uint8")
    w = n.b.constant(n.rng.integers(-128, 128, (5, 3, 2, 3)).astype(np.int8))
    graph = n.graph(n.add("ConvInteger", q, w, zero))
    moved, trace = move_dequantize(graph)
    assert trace.rewrites == rewrites
    folded, trace = fold_pads(moved)
    assert trace.rewrites == rewrites
    x = n.rng.integers(0, 256, (2, 3, 5, 7)).astype(np.uint8)
    old, new = (promised(g, {"x": x})[g.outputs[0]] for g in (graph, folded))
    assert (old == new).all()


def test_padding_by_another_number_than_the_zero_point_is_not_the_convolutions() -> None:
    for fill, rewrites in ((113, 1), (0, 0)):
        n = Net(9, 2, 3, 5, 7, kind="uint8")
        pads = n.array([0, 0, 1, 0, 0, 0, 2, 3], "int64")
        padded = n.add("Pad", n.x, pads, n.array(fill, "uint8"))
        w = n.b.constant(n.rng.integers(-128, 128, (5, 3, 2, 3)).astype(np.int8))
        graph = n.graph(n.add("ConvInteger", padded, w, n.array(113, "uint8")))
        assert fold_pads(graph)[1].rewrites == rewrites


def test_bytes_that_others_read_too_are_made_as_they_were() -> None:
    n = Net(10, 2, 3, 5, 7)
    q = n.quantise(n.x)
    w = n.b.constant(n.rng.integers(-128, 128, (5, 3, 2, 3)).astype(np.int8))
    y = n.add("ConvInteger", q, w, n.array(113, "uint8"))
    other = n.dequantise(q, 0.03, 112)
    rewritten, _ = center_integers(n.graph(y, other))
    assert kinds(rewritten).count("QuantizeLinear") == 1
    assert "Clip" not in kinds(rewritten) and "Sub" in kinds(rewritten)
    assert "DequantizeLinear" in kinds(rewritten)


def test_a_requantisation_makes_the_differences_itself() -> None:
    n = Net(11, 2, 3, 5, 7, kind="int32")
    factors = [n.array(v, "int32") for v in (1 << 30, -8)]
    q = n.add("Requantize", n.x, *factors, zero_point=-9, low=-100, output_dtype="int8")
    w = n.b.constant(n.rng.integers(-128, 128, (5, 3, 2, 3)).astype(np.int8))
    graph = n.graph(n.add("ConvInteger", q, w, n.array(-9, "int8")))
    rewritten, trace = center_integers(graph)
    assert trace.rewrites == 1 and kinds(rewritten) == ["Requantize", "ConvInteger"]
    x = n.rng.integers(-(2**20), 2**20, n.shape).astype(np.int32)
    old, new = (promised(g, {"x": x})[g.outputs[0]] for g in (graph, rewritten))
    assert (old == new).all()


@pytest.mark.parametrize("case", ["shared", "computed", "away", "huge", "negative"])
def test_a_scale_stays_where_it_cannot_go_into_constants(case: str) -> None:
    n = Net(12, 2, 3, 5)
    factor = n.array([[0.5], [-1.5], [2.5]]) if case != "huge" else n.array(1e37)
    value = n.add("Mul", n.x, n.x if case == "computed" else factor)
    scale = n.array({"huge": 1e-5, "negative": -0.03}.get(case, 0.03))
    halves = "away" if case == "away" else "even"
    q = n.add("QuantizeLinear", value, scale, n.array(7, "int8"), halves=halves)
    graph = n.graph(q, *([value] if case == "shared" else []))
    assert scale_quantized(graph)[1].rewrites == 0
