"""Broken twins of the passes on networks of bytes and halves, and networks in which they err."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from unittest.mock import patch

import numpy as np

from verax.compiler.passes import block_products as blocks
from verax.compiler.passes import center_integers as centring
from verax.compiler.passes import flatten_windows as flattening
from verax.compiler.passes import integer_products as products
from verax.compiler.passes import join_roundings as joining
from verax.compiler.passes import move_dequantize as moving
from verax.compiler.passes import scale_quantized as scaling
from verax.compiler.passes import widen_halves as halves
from verax.compiler.passes.quantized import DequantizedFactor
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.rewrite import Rewriter
from verax.ir.types import TensorType
from verax.ops.pointwise.arithmetic import Add
from verax.records.trace import Trace


class Sketch:
    """A network of bytes from x, float32[2, 3, 9, 7]."""

    def __init__(self) -> None:
        self.b, self.random = Builder("net"), np.random.default_rng(77)
        self.x = self.b.input("x", TensorType.parse("float32[2, 3, 9, 7]"))

    def add(self, kind: str, *inputs: str | None, name: str = "", **attributes: object) -> str:
        return self.b.add(REGISTRY[kind](**attributes), list(inputs), [], name)

    def bytes_of(self, value: str, scale: float = 0.02, zero: int = 113) -> str:
        return self.add("QuantizeLinear", value, *self.parameters(scale, zero))

    def floats_of(self, value: str, scale: float = 0.02, zero: int = 113) -> str:
        return self.add("DequantizeLinear", value, *self.parameters(scale, zero))

    def parameters(self, scale: float, zero: int) -> list[str]:
        numbers = np.array(scale, np.float32), np.array(zero, np.uint8)
        return [self.b.constant(n) for n in numbers]

    def whole(self, number: int) -> str:
        return self.b.constant(np.array(number, np.int32))

    def weights(self) -> str:
        whole = self.random.integers(-128, 128, (5, 3, 3, 2)).astype(np.int8)
        return self.b.constant(whole)

    def graph(self, value: str) -> Graph:
        return self.b.graph([self.add("Tanh", value, name="end")])


def of_the_data_alone(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Forget the scales of the weights, but for the first."""

    def first(x: DequantizedFactor, w: DequantizedFactor, axes: int) -> np.ndarray:
        return np.asarray(x.scale.reshape(()) * w.scale.reshape(-1)[0])

    with patch.object(products, "_scale", first):
        return products.integer_products(graph, limit)


def convolved() -> Graph:
    s = Sketch()
    scales = s.b.constant(np.array([0.01, 0.02, 0.005, 0.03, 0.011], np.float32))
    w = s.add("DequantizeLinear", s.weights(), scales, axis=0)
    return s.graph(s.add("Conv", s.floats_of(s.bytes_of(s.x)), w))


def whatever_the_scale(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Cancel without looking at the parameters."""
    with patch.object(moving, "_is_inverse", lambda *_: True):
        return moving.move_dequantize(graph, limit)


def requantised() -> Graph:
    s = Sketch()
    pool = s.add("MaxPool", s.floats_of(s.bytes_of(s.x)), kernel_shape=(2, 3))
    return s.graph(s.floats_of(s.bytes_of(pool, 0.03), 0.03))


def added_points(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Add the zero point where it is to be subtracted."""
    with patch.object(centring, "Sub", Add):
        return centring.center_integers(graph, limit)


def summed() -> Graph:
    s = Sketch()
    q = s.add("Flatten", s.bytes_of(s.x))
    shape = s.b.constant(np.array([2, 3, 9, 7]))
    _, zero = s.parameters(1.0, 113)
    sums = s.add("ConvInteger", s.add("Reshape", q, shape), s.weights(), zero)
    wide = s.add("Cast", sums, to="float32")
    return s.graph(s.add("Mul", wide, s.b.constant(np.array(1e-4, np.float32))))


def channels_first(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Leave the weights in their order and take the data in another."""

    def as_they_lie(weights: np.ndarray, source: object, to: object) -> np.ndarray:
        return weights.reshape(weights.shape[0], *weights.shape[2:], weights.shape[1])

    with patch.object(flattening.np, "moveaxis", as_they_lie):
        return flattening.flatten_windows(graph, limit)


def one_window() -> Graph:
    """As streaming networks convolve what they remember."""
    s = Sketch()
    last = s.add("Reshape", s.bytes_of(s.x), s.b.constant(np.array([2, 9, 7, 3])))
    first = s.add("Transpose", last, perm=(0, 3, 1, 2))
    whole = s.random.integers(-128, 128, (5, 3, 9, 7)).astype(np.int8)
    _, zero = s.parameters(1.0, 113)
    sums = s.add("ConvInteger", first, s.b.constant(whole), zero)
    wide = s.add("Cast", sums, to="float32")
    return s.graph(s.add("Mul", wide, s.b.constant(np.array(1e-4, np.float32))))


def multiplied(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Multiply constants by the scale instead of dividing them."""
    healthy = scaling._constant
    with patch.object(scaling, "_constant", lambda array, scale: healthy(array, 1 / scale)):
        return scaling.scale_quantized(graph, limit)


def affine() -> Graph:
    s = Sketch()
    scale, shift = (
        s.b.constant(s.random.uniform(0.5, 2, (3, 1, 1)).astype(np.float32)) for _ in range(2)
    )
    value = s.add("Add", s.add("Mul", s.x, scale), shift)
    return s.graph(s.floats_of(s.bytes_of(value)))


def coarse_weights(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Take weights of float16 for bfloat16, which has three bits less."""
    healthy = halves._widened

    def coarse(rewriter: Rewriter, value: str | None) -> str | None:
        constant = rewriter.old.constants.get(value or "")
        if constant is None:
            return healthy(rewriter, value)
        bits = constant.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
        return rewriter.constant(bits.view(np.float32))

    with patch.object(halves, "_widened", coarse):
        return halves.widen_halves(graph, limit)


def in_halves() -> Graph:
    s = Sketch()
    w = s.b.constant(s.random.uniform(0.5, 1, (5, 3, 3, 2)).astype(np.float16))
    return s.graph(s.add("Conv", s.add("Cast", s.x, to="float16"), w))


def without_half(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Round down where the nearest is meant."""
    healthy = joining._offsets

    def less(total: np.ndarray, wanted: np.ndarray, bits: int, ends: tuple[int, int]) -> object:
        least, most = healthy(total, wanted, bits, ends)
        return least - (1 << bits >> 1), most - (1 << bits >> 1)

    with patch.object(joining, "_offsets", less):
        return joining.join_roundings(graph, limit)


def added_bytes() -> Graph:
    """As TFLite adds them."""
    s = Sketch()
    terms = []
    for value, (multiplier, shift) in ((s.x, (1623821475, -2)), (s.add("Neg", s.x), (2**30, 0))):
        wide = s.add("Cast", s.bytes_of(value), to="int32")
        wide = s.add("Mul", wide, s.whole(1 << 20))
        factor = s.whole(multiplier), s.whole(shift)
        terms.append(s.add("Requantize", wide, *factor, output_dtype="int32"))
    total = s.add("Add", *terms)
    factor = s.whole(1098017566), s.whole(-17)
    q = s.add("Requantize", total, *factor, zero_point=-9, output_dtype="uint8")
    return s.graph(s.floats_of(q))


Rewriting = Callable[..., tuple[Graph, Trace]]
# --- block_products: the zero points of weights are forgotten


def without_points(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    graph, trace = blocks.block_products(graph, limit)
    nodes = tuple(
        dataclasses.replace(n, inputs=n.inputs[:4]) if n.op.kind == "BlockScaledMatMul" else n
        for n in graph.nodes
    )
    return dataclasses.replace(graph, nodes=nodes), trace


def in_blocks() -> Graph:
    """Data and weights of 4 bits, both with scales for three blocks of 32."""
    b, random = Builder("net"), np.random.default_rng(79)
    x = b.input("x", TensorType.parse("float32[5, 3, 32]"))

    def add(kind: str, *inputs: str, **attributes: object) -> str:
        return b.add(REGISTRY[kind](**attributes), list(inputs))

    q, scale = b.add_all(REGISTRY["DynamicQuantizeGroups"](axis=2, symmetric=True), [x])
    data = add("Mul", add("Cast", q, to="float32"), scale)
    data = add("Reshape", data, b.constant(np.array([0, -1], np.int64)))
    codes = b.constant(random.integers(0, 16, (96, 19)).astype(np.uint8))
    scales = b.constant(random.uniform(0.01, 0.1, (3, 19)).astype(np.float32))
    points = b.constant(random.integers(5, 11, (3, 19)).astype(np.uint8))
    weights = add("DequantizeLinear", codes, scales, points, axis=0, block_size=32)
    return b.graph([add("MatMul", data, weights)])


TWINS: list[tuple[str, Rewriting, Callable[[], Graph], str]] = [
    ("integer_products", of_the_data_alone, convolved, ""),
    ("move_dequantize", whatever_the_scale, requantised, ""),
    ("flatten_windows", channels_first, one_window, ""),
    ("join_roundings", without_half, added_bytes, ""),
    ("center_integers", added_points, summed, ""),
    ("scale_quantized", multiplied, affine, ""),
    ("widen_halves", coarse_weights, in_halves, ""),
    ("block_products", without_points, in_blocks, ""),
]
"""(pass, its twin, a network in which it errs, the evidence)."""
