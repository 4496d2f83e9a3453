"""Integers through kernels: the same sums and the same roundings as the reference, whatever the
instructions, the tile, the target and the number of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.compiler.test_bits import bits, runnable
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.kernels.products import steps as products
from verax.compiler.kernels.target import Target
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.numerics.fixed_point import quantized_factor
from verax.reference import promised

CHOICES = [
    Settings(opt_level=1, threads=1, target="avx2"),
    Settings(opt_level=1, threads=3),
    Settings(opt_level=0, threads=1),
    Settings(opt_level=1, threads=1, target="avx512"),
]
Network = tuple[Graph, dict[str, np.ndarray]]


def holds(case: Network, choice: Settings) -> None:
    """It runs natively, with the promised bits."""
    graph, fed = case
    exe = compile(graph, choice)
    got = exe.run(fed)
    assert not exe.plan.on_reference, str(exe.plan)
    for name, array in promised(graph, fed).items():
        assert bits(got[name]) == bits(np.asarray(array)), f"{choice}\n{graph}\n{exe.plan}"


def integers(rng: np.random.Generator, kind: str, shape: tuple[int, ...], extreme: bool) -> Any:
    """Numbers of the whole range; extreme: its two ends alone."""
    info = np.iinfo(kind)
    if extreme:
        return rng.choice(np.array([info.min, info.max], kind), shape)
    return rng.integers(info.min, info.max, shape, dtype=kind, endpoint=True)


@st.composite
def convolutions(draw: st.DrawFn) -> Network:
    """A convolution of integers with what networks have behind it."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    turned = draw(st.booleans())
    groups, per_group, filters = draw(
        st.sampled_from([(1, 3, 5), (1, 17, 33), (1, 32, 16), (2, 16, 32), (3, 5, 4), (19, 1, 1),
                         (4, 4, 4), (33, 1, 1), (2, 3, 16)])
    )  # fmt: skip
    kernel = draw(st.sampled_from([(1, 1), (3, 2), (2, 4)]))
    fields: dict[str, Any] = {
        "strides": draw(st.sampled_from([(1, 1), (2, 1), (1, 3)])),
        "pads": draw(st.sampled_from([((0, 0), (0, 0)), ((1, 0), (0, 2))])) if not turned else (),
        "dilations": draw(st.sampled_from([(1, 1), (1, 2)])),
        "groups": groups,
    }
    kind, extreme = draw(st.sampled_from(["int8", "uint8", "int16"])), draw(st.booleans())
    if kind == "int16" and draw(st.booleans()):
        fields["output_dtype"] = "int64"
    x = integers(rng, kind, (2, groups * per_group, 7, 9), extreme)
    shape = (groups * per_group, filters) if turned else (groups * filters, per_group)
    w = integers(rng, draw(st.sampled_from(["int8", "uint8"])), (*shape, *kernel), extreme)
    b = Builder("net")
    inputs: list[str | None] = [b.input("x", TensorType.of(x)), b.constant(w)]
    if draw(st.booleans()):
        inputs.append(b.constant(integers(rng, kind, (), extreme)))
        if draw(st.booleans()):
            zeros = () if turned else (groups * filters,)
            inputs.append(b.constant(integers(rng, w.dtype.name, zeros, False)))
    op = REGISTRY["ConvTransposeInteger" if turned else "ConvInteger"](**fields)
    sums = b.add(op, inputs)
    behind = draw(st.sampled_from(["nothing", "requantised", "float"]))
    outputs = [_behind(b, rng, sums, groups * filters, behind)]
    return b.graph(outputs), {"x": x}


def _behind(b: Builder, rng: np.random.Generator, sums: str, channels: int, what: str) -> str:
    """Integers of 8 bits again, by a fixed-point factor or in float32."""
    kind = str(b.types[sums].dtype)
    if what == "nothing":
        return sums
    bias = rng.integers(-(2**20), 2**20, (channels, 1, 1)).astype(kind)
    y = b.add(REGISTRY["Add"](), [sums, b.constant(bias)])
    if what == "requantised":
        factors = np.array([quantized_factor(f) for f in rng.uniform(1e-6, 1e-3, channels)])
        op = REGISTRY["Requantize"](
            zero_point=-3,
            output_dtype="int8" if kind == "int32" else "int16",
            rounding="twice" if kind == "int32" else "short",
        )
        return b.add(op, [y, *(b.constant(f.astype(np.int32)) for f in factors.T)])
    y = b.add(REGISTRY["Cast"](to="float32"), [y])
    scale = rng.uniform(1e-5, 1e-4, (channels, 1, 1)).astype(np.float32)
    y = b.add(REGISTRY["Relu"](), [b.add(REGISTRY["Mul"](), [y, b.constant(scale)])])
    zero = b.constant(np.array(7, np.uint8))
    scale = rng.uniform(0.01, 0.2, channels).astype(np.float32)
    return b.add(REGISTRY["QuantizeLinear"](), [y, b.constant(scale[:1].reshape(())), zero])


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(convolutions(), st.sampled_from([c for c in CHOICES if runnable(c)]))
def test_a_convolution_of_integers_is_exact(case: Network, choice: Settings) -> None:
    holds(case, choice)


@pytest.mark.slow
@settings(max_examples=600, deadline=None, suppress_health_check=list(HealthCheck))
@given(convolutions(), st.sampled_from([c for c in CHOICES if runnable(c)]))
def test_many_convolutions_of_integers_are_exact(case: Network, choice: Settings) -> None:
    holds(case, choice)


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(convolutions())
def test_a_machine_without_the_instruction_gives_the_same_integers(case: Network) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "X86", {})
        holds(case, Settings(opt_level=1, threads=1))


def test_a_long_sum_of_extremes_saturates_nowhere() -> None:
    """What vpmaddubsw gets wrong: 255 * 127 twice, and -128 * -128 as often as it goes."""
    x = np.full((2, 64, 5, 3), 255, np.uint8)
    w = np.full((18, 64, 3, 3), 127, np.int8)
    low = np.full((2, 64, 5, 3), -128, np.int8)
    lows = np.full((18, 64, 3, 3), -128, np.int8)
    for data, weights, most in ((x, w, 255 * 127), (low, lows, 128 * 128)):
        b = Builder("net")
        value = b.input("x", TensorType.of(data))
        y = b.add(REGISTRY["ConvInteger"](), [value, b.constant(weights)], ["y"])
        graph = b.graph([y])
        for choice in CHOICES:
            if runnable(choice):
                exe = compile(graph, choice)
                assert (exe.run({"x": data})["y"] == 576 * most).all()
                assert not exe.plan.on_reference


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32 - 1), st.sampled_from(["twice", "short", "once"]), st.booleans())
def test_requantised_numbers_are_exact_at_every_size(seed: int, rounding: str, up: bool) -> None:
    rng = np.random.default_rng(seed)
    kind = np.int32 if rounding == "twice" else np.int64
    bits_ = 32 if rounding == "twice" else 47
    size = rng.integers(1, bits_ - 1, (3, 5, 37))
    x = (rng.integers(-(2**62), 2**62, (3, 5, 37)) >> (63 - size)).astype(kind)
    factors = 2.0 ** rng.uniform(-30, 3 if up else -1, 5)
    pairs = np.array([quantized_factor(f) for f in factors], np.int32).T
    b = Builder("net")
    inputs = [b.input("x", TensorType.of(x)), *(b.constant(p) for p in pairs)]
    op = REGISTRY["Requantize"](
        zero_point=11, output_dtype="int16" if up else "int8", rounding=rounding
    )
    holds((b.graph([b.add(op, inputs)]), {"x": x}), Settings(opt_level=1, threads=1))


def test_quantised_edges_and_odd_numbers() -> None:
    """NaN, infinities, subnormals and every half, for both roundings."""
    halves = np.arange(-300, 300, dtype=np.float32) / 2
    near = np.nextafter(halves, np.float32(np.inf)), np.nextafter(halves, np.float32(-np.inf))
    odd = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-45, 3e38, -3e38], np.float32)
    x = np.concatenate([halves, *near, odd])
    for rounding in ("even", "away"):
        for zero in (np.uint8(3), np.int8(-128), np.int16(-5), np.uint16(65535)):
            b = Builder("net")
            scale = b.constant(np.array(0.5 if rounding == "even" else 1.0, np.float32))
            inputs = [b.input("x", TensorType.of(x)), scale, b.constant(np.array(zero))]
            graph = b.graph([b.add(REGISTRY["QuantizeLinear"](halves=rounding), inputs)])
            holds((graph, {"x": x}), Settings(opt_level=1, threads=1))


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([(2, 5, 7, 3), (3, 1, 17, 33), (1, 4, 64, 16), (2, 3, 31, 48)]),
    st.sampled_from(["bytes", "words", "computed", "int64", "uint32"]),
    st.sampled_from([c for c in CHOICES if runnable(c)]),
)
def test_a_matrix_product_of_integers_is_exact(
    seed: int, sizes: tuple[int, int, int, int], kind: str, choice: Settings
) -> None:
    """bytes: fit into 16 bits, which the graph tells; words wrap around; computed: both factors."""
    rng = np.random.default_rng(seed)
    batch, m, k, n = sizes
    b = Builder("net")
    if kind in ("bytes", "computed"):
        x = integers(rng, "uint8", (batch, m, k), bool(seed % 2))
        point = b.constant(np.array(rng.integers(0, 256), np.int32))
        value = b.add(REGISTRY["Cast"](to="int32"), [b.input("x", TensorType.of(x))])
        value = b.add(REGISTRY["Sub"](), [value, point])
        w = integers(rng, "int8", (k, n), bool(seed % 2)).astype(np.int32)
    else:
        dtype = "int32" if kind == "words" else kind
        x = integers(rng, dtype, (batch, m, k), False)
        value = b.input("x", TensorType.of(x))
        w = integers(rng, dtype, (k, n), False)
    right, fed = b.constant(w), {"x": x}
    if kind == "computed":
        right, fed["w"] = b.input("w", TensorType.of(w)), w
    sums = b.add(REGISTRY["MatMul"](), [value, right])
    wide = b.add(REGISTRY["Cast"](to="float32"), [sums])
    scaled = b.add(REGISTRY["Mul"](), [wide, b.constant(np.full(n, 1e-3, np.float32))])
    step = b.constant(np.array(0.7, np.float32))
    q = b.add(REGISTRY["QuantizeLinear"](output_dtype="int8"), [scaled, step])
    holds((b.graph([q]), fed), choice)
    if kind == "bytes":
        exe = compile(b.graph([q]), choice)
        exe.run(fed)
        dots = Target.named(choice.target).has_int8_dot
        narrow = "uint8 by int8 in int32" if dots else "int16 by int16 in int32"
        assert narrow in str(exe.plan)


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(["int8", "uint8", "int16"]),
    st.sampled_from([(1, 1), (2, 3)]),
)
def test_pools_of_integers_are_exact(seed: int, kind: str, strides: tuple[int, int]) -> None:
    rng = np.random.default_rng(seed)
    x = integers(rng, kind, (2, 19, 9, 7), False)
    fields: dict[str, Any] = {"kernel_shape": (3, 2), "strides": strides, "pads": ((1, 2), (0, 1))}
    for op in (
        REGISTRY["MaxPool"](**fields),
        REGISTRY["AveragePoolInteger"](**fields),
        REGISTRY["AveragePoolInteger"](**fields, low=3, high=90),
    ):
        b = Builder("net")
        graph = b.graph([b.add(op, [b.input("x", TensorType.of(x))])])
        holds((graph, {"x": x}), Settings(opt_level=1, threads=3))


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32 - 1), st.sampled_from(["plain", "nan", "inf", "zeros", "positive"]))
def test_data_that_is_quantised_while_it_runs(seed: int, what: str) -> None:
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal((3, 5, 37)) * 10.0 ** rng.integers(-6, 6)).astype(np.float32)
    if what in ("nan", "inf"):
        x[1, 2, 30] = np.nan if what == "nan" else np.inf
    elif what != "plain":
        x = np.abs(x) if what == "positive" else x * np.float32(0)
    for op in (
        REGISTRY["DynamicQuantizeLinear"](),
        REGISTRY["DynamicQuantizeGroups"](axis=2),
        REGISTRY["DynamicQuantizeGroups"](axis=1, symmetric=True),
    ):
        b = Builder("net")
        graph = b.graph(b.add_all(op, [b.input("x", TensorType.of(x))]))
        holds((graph, {"x": x}), Settings(opt_level=1, threads=3))


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([(3, 1), (2, 5, 37), (1, 1001), (2, 4095)]),
    st.sampled_from([("int8", "int8"), ("uint8", "uint8"), ("int8", "int16"), ("int16", "int16")]),
    st.floats(1e-9, 4.0),
)
def test_a_softmax_of_integers_is_exact(
    seed: int, shape: tuple[int, ...], kinds: tuple[str, str], factor: float
) -> None:
    rng = np.random.default_rng(seed)
    x = integers(rng, kinds[0], shape, bool(seed % 3 == 0))
    b = Builder("net")
    op = REGISTRY["SoftmaxInteger"](factor=factor, output_dtype=kinds[1])
    graph = b.graph([b.add(op, [b.input("x", TensorType.of(x))])])
    holds((graph, {"x": x}), Settings(opt_level=1, threads=3))


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([(3, 1), (2, 5, 37), (1, 1001), (4, 16), (2, 30001)]),
    st.sampled_from(["int8", "uint8"]),
    st.integers(-128, 127),
)
def test_a_row_of_bytes_over_its_length_is_exact(
    seed: int, shape: tuple[int, ...], kind: str, zero_point: int
) -> None:
    rng = np.random.default_rng(seed)
    zero = zero_point + 128 * (kind == "uint8")
    x = integers(rng, kind, shape, bool(seed % 3 == 0))
    x[0] = zero  # a row of length 0
    if seed % 2:
        x[-1].flat[0] = zero + (1 if zero < 100 else -1)
    b = Builder("net")
    op = REGISTRY["L2NormalizeInteger"](zero_point=zero)
    graph = b.graph([b.add(op, [b.input("x", TensorType.of(x))])])
    holds((graph, {"x": x}), CHOICES[seed % len(CHOICES[:3])])
