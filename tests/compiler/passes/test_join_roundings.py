"""Several roundings of bytes as one: with every pair of bytes the same, or not at all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.compiler.test_bits import bits

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.kernels.target import Target
from verax.compiler.passes.join_roundings import join_roundings
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.numerics.fixed_point import quantized_factor
from verax.reference import promised

TARGETS = [t for t in ("avx512vnni", "avx512", "avx2", "aarch64") if Target.named(t).runs_here()]
any_sum = given(
    st.tuples(*[st.floats(1e-4, 2.0)] * 2),
    st.floats(0.2, 3.0),
    st.tuples(st.integers(0, 127), st.integers(-128, 127), st.integers(-128, 127)),
    st.sampled_from(["Add", "Sub"]),
    st.sampled_from(["int8", "uint8"]),
    st.booleans(),
)
"""Scales of a and b, the result's by the larger of them, zero points, what is computed."""
EVERY = {"a": (256, 1), "b": (1, 256)}


class Net:
    """Bytes a and b, each of which takes all its values, and what is computed of them."""

    def __init__(self, *kinds: str) -> None:
        self.b = Builder("net")
        self.bytes, self.fed = [], {}
        for (name, shape), kind in zip(EVERY.items(), kinds):
            info = np.iinfo(kind)
            array = np.arange(info.min, int(info.max) + 1).astype(kind).reshape(shape)
            self.fed[name] = array
            self.bytes.append(self.b.input(name, TensorType.of(array)))

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        return self.b.add(REGISTRY[op](**attributes), list(inputs))

    def whole(self, number: int) -> str:
        return self.b.constant(np.array(number, np.int32))

    def requantised(self, x: str, factor: float, **attributes: Any) -> str:
        return self.add("Requantize", x, *map(self.whole, quantized_factor(factor)), **attributes)

    def floats(self, x: str, scale: float, zero: int, kind: str) -> str:
        return self.add("DequantizeLinear", x, *self.parameters(scale, zero, kind))

    def again(self, x: str, scale: float, zero: int, kind: str) -> str:
        return self.add("QuantizeLinear", x, *self.parameters(scale, zero, kind))

    def parameters(self, scale: float, zero: int, kind: str) -> list[str]:
        numbers = np.array(scale, np.float32), np.array(zero, kind)
        return [self.b.constant(n) for n in numbers]

    def term(self, x: str, zero: int, factor: float) -> str:
        """(x - zero) factor 2^20, rounded."""
        wide = self.add("Sub", self.add("Cast", x, to="int32"), self.whole(zero))
        wide = self.add("Mul", wide, self.whole(1 << 20))
        return self.requantised(wide, factor, output_dtype="int32")

    def graph(self, *outputs: str) -> Graph:
        return self.b.graph(list(outputs))


def added_floats(
    scales: tuple[float, float, float], zeros: tuple[int, int, int], op: str, kind: str, relu: bool
) -> tuple[Net, Graph]:
    """The same between DequantizeLinear and QuantizeLinear."""
    n = Net(kind, "int8")
    kinds = (kind, "int8")
    floats = [n.floats(x, *p) for x, *p in zip(n.bytes, scales, zeros, kinds)]
    total = n.add(op, *floats)
    return n, n.graph(n.again(n.add("Relu", total) if relu else total, scales[2], zeros[2], "int8"))


def kinds(graph: Graph) -> list[str]:
    return [n.op.kind for n in graph.nodes]


def same_for_all(n: Net, graph: Graph) -> None:
    """Whatever the pass does, all outputs are what they were."""
    joined, trace = join_roundings(graph)
    before, after = promised(graph, n.fed), promised(joined, n.fed)
    for old, new in zip(graph.outputs, joined.outputs, strict=True):
        assert bits(before[old]) == bits(after[new]), trace.notes


def added(
    scales: tuple[float, float, float], zeros: tuple[int, int, int], op: str, low: int, kind: str
) -> tuple[Net, Graph]:
    """a + b or a - b as LiteRT computes it: in units of twice the larger scale, with 20 bits."""
    n, unit = Net(kind, "int8"), 2 * max(scales[:2])
    terms = [n.term(x, z, s / unit) for x, z, s in zip(n.bytes, zeros, scales)]
    total = n.add(op, *terms)
    y = n.requantised(total, unit / (scales[2] * 2**20), zero_point=zeros[2], low=low)
    return n, n.graph(y)


def test_ties_that_no_sum_rounds_as_they_were_stay() -> None:
    """Of (310 a - 173 b) / 400 many are halves, which roundings have moved before."""
    _, graph = added((0.031, 0.0173, 0.04), (5, -11, 7), "Sub", 7, "uint8")
    assert untouched(graph)


@settings(max_examples=40, deadline=None)
@any_sum
def test_every_pair_of_bytes_gives_what_it_gave(
    scales: tuple[float, float],
    share: float,
    zeros: tuple[int, int, int],
    op: str,
    kind: str,
    relu: bool,
) -> None:
    out = share * max(scales)
    n, graph = added((*scales, out), zeros, op, zeros[2] if relu else -128, kind)
    same_for_all(n, graph)


def test_the_sums_of_usual_scales_are_joined() -> None:
    """Not only sums that are left as they are keep their numbers."""
    rng, found = np.random.default_rng(4), 0
    for _ in range(30):
        scales = tuple(float(s) for s in np.exp(rng.uniform(-4, 0, 2)))
        out = float(max(scales) * rng.uniform(0.8, 2))
        zeros = tuple(int(z) for z in rng.integers(-128, 128, 3))
        _, graph = added((*scales, out), zeros, "Add", -128, "int8")  # type: ignore[arg-type]
        found += kinds(join_roundings(graph)[0]) == ["WeightedSumInteger"]
    assert found >= 27


@settings(max_examples=40, deadline=None)
@any_sum
def test_every_pair_of_dequantised_bytes_gives_what_it_gave(
    scales: tuple[float, float],
    share: float,
    zeros: tuple[int, int, int],
    op: str,
    kind: str,
    relu: bool,
) -> None:
    n, graph = added_floats((*scales, share * max(scales)), zeros, op, kind, relu)
    same_for_all(n, graph)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("target", TARGETS)
def test_dequantised_bytes_are_summed_as_bytes(target: str, relu: bool) -> None:
    scales = 0.0312718, 0.0173141, 0.0411592
    n, graph = added_floats(scales, (5, -11, 7), "Add", "uint8", relu)
    exe = compile(graph, Settings(opt_level=1, threads=2, target=target))
    assert kinds(exe.specialized.graph) == ["WeightedSumInteger"]
    y = graph.outputs[0]
    assert bits(exe.run(n.fed)[y]) == bits(promised(graph, n.fed)[y])


def test_others_may_read_what_is_dequantised() -> None:
    n = Net("int8", "int8")
    floats = [n.floats(x, s, 3, "int8") for x, s in zip(n.bytes, (0.0312718, 0.0173141))]
    y = n.again(n.add("Add", *floats), 0.0411592, 7, "int8")
    graph = n.graph(y, n.add("Tanh", floats[0]))
    assert join_roundings(graph)[1].rewrites == 1
    same_for_all(n, graph)


@pytest.mark.parametrize("target", TARGETS)
def test_compiled_code_gives_it_for_every_pair(target: str) -> None:
    n, graph = added((0.0312718, 0.0173141, 0.0411592), (5, -11, 7), "Sub", 7, "uint8")
    exe = compile(graph, Settings(opt_level=1, threads=2, target=target))
    assert kinds(exe.specialized.graph) == ["WeightedSumInteger"]
    y = graph.outputs[0]
    assert bits(exe.run(n.fed)[y]) == bits(promised(graph, n.fed)[y])


def test_one_byte_that_changes_its_scale_is_one_sum() -> None:
    n = Net("int8")
    x = n.add("Sub", n.add("Cast", *n.bytes, to="int32"), n.whole(-17))
    y = n.requantised(x, 0.731, zero_point=90, output_dtype="uint8")
    graph = n.graph(y)
    joined, _ = join_roundings(graph)
    assert kinds(joined) == ["WeightedSumInteger"]
    assert bits(promised(graph, n.fed)[y]) == bits(promised(joined, n.fed)[joined.outputs[0]])


def untouched(graph: Graph) -> bool:
    return join_roundings(graph)[1].rewrites == 0


def test_what_is_no_sum_stays() -> None:
    n = Net("int8", "uint8")
    a, b = (n.add("Cast", x, to="int32") for x in n.bytes)
    assert untouched(n.graph(n.requantised(n.add("Mul", a, b), 0.004)))
    clipped = n.add("Clip", a, n.whole(-20), n.whole(20))
    assert untouched(n.graph(n.requantised(clipped, 0.7)))


@pytest.mark.parametrize("scale", [0.0, np.inf, np.nan, 1e-38, 3e38])
def test_scales_of_which_nothing_comes_stay(scale: float) -> None:
    for scales in ((scale, 0.3, 0.4), (0.5, 0.3, scale)):
        n, graph = added_floats(scales, (5, -11, 7), "Add", "uint8", False)
        same_for_all(n, graph)


@pytest.mark.parametrize("place", ["zero point", "scale", "zero point within", "end"])
def test_parameters_that_are_computed_stay(place: str) -> None:
    """Bytes that say how others are read are no terms of a sum."""
    n = Net("int8")
    other = n.b.input("b", TensorType.parse("int8[]"))
    scale, zero = n.parameters(0.3, 3, "int8")
    x = n.add("DequantizeLinear", *n.bytes, scale, other if place == "zero point within" else zero)
    computed = n.add("DequantizeLinear", other, scale, zero)
    if place == "end":
        x = n.add("Clip", x, computed)
    last = computed if place == "scale" else scale, other if place == "zero point" else zero
    graph = n.graph(n.add("QuantizeLinear", x, *last))
    assert untouched(graph)
    n.fed["b"] = np.array(7, np.int8)
    exe = compile(graph, Settings(opt_level=1, threads=1))
    y = graph.outputs[0]
    assert bits(exe.run(n.fed)[y]) == bits(promised(graph, n.fed)[y])


def test_a_constant_with_more_axes_gives_the_result_more() -> None:
    n = Net("int8")
    x = n.floats(*n.bytes, 0.3127, 3, "int8")  # type: ignore[call-arg]
    more = n.b.constant(np.full((1, 1, 1), 0.711, np.float32))
    graph = n.graph(n.again(n.add("Add", x, more), 0.4119, 1, "int8"))
    assert untouched(graph)


def test_what_others_read_stays() -> None:
    n = Net("int8", "int8")
    terms = [n.term(x, 3, f) for x, f in zip(n.bytes, (0.5, 0.3))]
    y = n.requantised(n.add("Add", *terms), 2.0**-19)
    assert not untouched(n.graph(y))
    assert untouched(n.graph(y, terms[1]))
    assert untouched(n.graph(y, n.add("Neg", terms[0])))


def test_factors_for_each_channel_stay() -> None:
    n = Net("int8", "int8")
    first = n.term(n.bytes[0], 3, 0.5)
    wide = n.add("Mul", n.add("Cast", n.bytes[1], to="int32"), n.whole(1 << 20))
    factors = np.array([quantized_factor(f) for f in np.linspace(0.2, 0.5, 256)], np.int32).T
    second = n.add("Requantize", wide, *map(n.b.constant, factors), axis=1, output_dtype="int32")
    assert untouched(n.graph(n.requantised(n.add("Add", first, second), 2.0**-19)))


def block(zeros: tuple[int, int, int]) -> tuple[Graph, dict[str, np.ndarray]]:
    """A residual block of bytes: the sum of two convolutions behind each other and what they read,
    of which a further convolution reads."""
    rng, b = np.random.default_rng(9), Builder("net")
    x = rng.integers(-128, 127, (2, 21, 7, 5), dtype=np.int8, endpoint=True)
    value = b.input("x", TensorType.of(x))

    def whole(number: Any) -> str:
        return b.constant(np.array(number, np.int32))

    def add(op: str, *inputs: str, **attributes: Any) -> str:
        return b.add(REGISTRY[op](**attributes), list(inputs))

    def convolved(value: str, read: int, made: int, low: int | None = None) -> str:
        w = b.constant(rng.integers(-128, 127, (21, 21, 3, 3), dtype=np.int8, endpoint=True))
        pads = ((1, 1), (1, 1))
        sums = add("ConvInteger", value, w, b.constant(np.array(read, np.int8)), pads=pads)
        sums = add("Add", sums, b.constant(rng.integers(-900, 900, (21, 1, 1), dtype=np.int32)))
        each = np.array([quantized_factor(f) for f in rng.uniform(2e-4, 4e-4, 21)], np.int32).T
        factors = [b.constant(f) for f in each]
        return add("Requantize", sums, *factors, zero_point=made, low=low)

    def term(value: str, zero: int, factor: float) -> str:
        wide = add("Sub", add("Cast", value, to="int32"), whole(zero))
        wide = add("Mul", wide, whole(1 << 20))
        numbers = map(whole, quantized_factor(factor))
        return add("Requantize", wide, *numbers, output_dtype="int32")

    first = convolved(value, 3, zeros[0], zeros[0])
    for _ in range(2):
        inner = convolved(first, zeros[0], zeros[1])
        total = add("Add", term(first, zeros[0], 0.5), term(inner, zeros[1], 0.37))
        numbers = map(whole, quantized_factor(1.9 * 2.0**-20))
        first = add("Requantize", total, *numbers, zero_point=zeros[0], low=zeros[0])
    last = convolved(first, zeros[0], zeros[2])
    return b.graph([last]), {"x": x}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("zeros", [(-128, 4, -17), (-100, 127, 0), (0, -3, 9)])
def test_residual_blocks_keep_their_bits(target: str, zeros: tuple[int, int, int]) -> None:
    graph, fed = block(zeros)
    exe = compile(graph, Settings(opt_level=1, threads=2, target=target))
    y = graph.outputs[0]
    assert bits(exe.run(fed)[y]) == bits(promised(graph, fed)[y])
    assert kinds(exe.specialized.graph).count("WeightedSumInteger") == 2


def test_a_block_whose_bytes_start_at_their_zero_point_stores_nothing_twice() -> None:
    """What a convolution and a sum read is made once, without a pass of its own."""
    graph, fed = block((-128, 4, -17))
    exe = compile(graph, Settings(opt_level=1, threads=1))
    exe.run(fed)
    made = kinds(exe.specialized.graph)
    assert "Sub" not in made and "Cast" not in made, made
