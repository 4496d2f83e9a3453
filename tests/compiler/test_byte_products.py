"""Where there is VNNI, convolutions of bytes take bytes: held to the promise on every machine by
what the instruction is defined to do, and by the instruction where the machine has it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.compiler.test_bits import bits, runnable
from tests.compiler.test_integer_kernels import Network, convolutions, holds
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.kernels.llvm.object_code import code_of
from verax.compiler.kernels.products.steps import _Quads, add_quads
from verax.compiler.kernels.target import Target
from verax.compiler.place.binary.assembly import COMPILED_KERNELS
from verax.compiler.place.integer import winograd
from verax.compiler.place.program import lower
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.reference import promised

VNNI = ("avx512vnni", "avxvnni")
CHOICES = [Settings(opt_level=1, threads=n, target=t) for t in VNNI for n in (1, 3)]
ONE = Settings(opt_level=1, threads=1)


def as_if(patch: pytest.MonkeyPatch) -> None:
    """This machine's target takes bytes, multiplied by ordinary instructions."""
    host = dataclasses.replace(Target.host(), has_int8_dot=True)
    patch.setattr(Target, "named", staticmethod(lambda name: host))
    patch.setattr(_Quads, "add", lambda self, *operands: add_quads(self.f, *operands))
    patch.setattr(winograd, "QUICK", 1e9)
    COMPILED_KERNELS.forget()


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    as_if(monkeypatch)
    yield
    COMPILED_KERNELS.forget()


def convolution(kind: str, zero: int, border: int, channels: int = 21) -> tuple[Graph, np.ndarray]:
    """One of bytes with a zero point; Relu behind it."""
    rng = np.random.default_rng(abs(zero) + 7 * border + channels)
    info = np.iinfo(kind)
    x = rng.integers(info.min, info.max, (2, channels, 6, 9), dtype=kind, endpoint=True)
    w = rng.integers(-128, 127, (19, channels, 3, 2), dtype=np.int8, endpoint=True)
    b = Builder("net")
    pads = ((border, 0), (0, border))
    inputs = [b.input("x", TensorType.of(x)), b.constant(w), b.constant(np.array(zero, kind))]
    y = b.add(REGISTRY["ConvInteger"](pads=pads), inputs)
    y = b.add(REGISTRY["Cast"](to="float32"), [y])
    return b.graph([b.add(REGISTRY["Relu"](), [y])]), x


@pytest.mark.checkered
@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize(
    ("kind", "zero", "border", "in_bytes"),
    [("uint8", 0, 1, True), ("uint8", 0, 0, True), ("uint8", 114, 0, True), ("int8", -128, 1, True),
     ("int8", 3, 0, True), ("uint8", 114, 1, False), ("int8", 0, 1, False)],
)  # fmt: skip
def test_what_is_taken_in_bytes(
    plain: None, kind: str, zero: int, border: int, in_bytes: bool, level: int
) -> None:
    """All but borders of another byte than 0."""
    graph, x = convolution(kind, zero, border)
    exe = compile(graph, Settings(opt_level=level, threads=1))
    assert ("uint8 by int8 in int32" in str(exe.plan)) is in_bytes, exe.plan
    holds((graph, {"x": x}), Settings(opt_level=level, threads=2))


def requantised(b: Builder, rng: np.random.Generator, value: str, filters: int) -> str:
    factors = np.array([[2**30 + 977 * i, -9] for i in range(filters)], np.int32).T
    op = REGISTRY["Requantize"](zero_point=0, output_dtype="uint8", rounding="once")
    return b.add(op, [value, *(b.constant(f) for f in factors)])


def quantised(b: Builder, rng: np.random.Generator, value: str, filters: int) -> str:
    """As files have it: in float32, for every filter a scale."""
    scale = rng.uniform(1e-4, 1e-3, (filters, 1, 1)).astype(np.float32)
    wide = b.add(REGISTRY["Cast"](to="float32"), [value])
    y = b.add(REGISTRY["Mul"](), [wide, b.constant(scale)])
    inputs = [y, b.constant(np.array(0.0625, np.float32)), b.constant(np.array(0, np.uint8))]
    return b.add(REGISTRY["QuantizeLinear"](), inputs)


@pytest.mark.parametrize("between", [requantised, quantised])
def test_bytes_are_read_where_they_lie(plain: None, between) -> None:
    """Between two convolutions nothing but the convolutions touches memory."""
    rng = np.random.default_rng(73)
    x = rng.integers(0, 256, (1, 32, 9, 10), dtype=np.uint8)
    b = Builder("net")
    value = b.input("x", TensorType.of(x))
    for filters, channels in ((48, 32), (16, 48)):
        w = rng.integers(-128, 128, (filters, channels, 3, 3), dtype=np.int8)
        value = b.add(REGISTRY["ConvInteger"](pads=((1, 1), (1, 1))), [value, b.constant(w)])
        if filters == 48:
            value = between(b, rng, value, filters)
    graph = b.graph([value])
    exe = compile(graph, ONE)
    kinds = [line.split()[1].rpartition("_")[0] for line in exe.plan.lines]
    at = kinds.index("conv")
    assert kinds[at : at + 2] == ["conv", "conv"], exe.plan
    assert str(exe.plan).count("uint8 by int8") == 2, exe.plan
    holds((graph, {"x": x}), ONE)


@settings(max_examples=16, deadline=None, suppress_health_check=list(HealthCheck))
@given(convolutions())
def test_a_convolution_of_bytes_is_exact(case: Network) -> None:
    with pytest.MonkeyPatch.context() as patch:
        as_if(patch)
        holds(case, ONE)
    COMPILED_KERNELS.forget()


@pytest.mark.checkered
@pytest.mark.parametrize("sizes", [(2, 5, 7, 3), (3, 1, 17, 33), (1, 4, 64, 16), (2, 3, 31, 48)])
@pytest.mark.parametrize("point", [0, 131, 255])
def test_a_matrix_product_of_bytes_is_exact(
    plain: None, sizes: tuple[int, int, int, int], point: int
) -> None:
    """Data around a zero point, as files have it after they are centred."""
    batch, m, k, n = sizes
    rng = np.random.default_rng(point + m + k)
    x = rng.integers(0, 255, (batch, m, k), dtype=np.uint8, endpoint=True)
    w = rng.integers(-128, 127, (k, n), endpoint=True).astype(np.int32)
    b = Builder("net")
    value = b.add(REGISTRY["Cast"](to="int32"), [b.input("x", TensorType.of(x))])
    value = b.add(REGISTRY["Sub"](), [value, b.constant(np.array(point, np.int32))])
    sums = b.add(REGISTRY["MatMul"](), [value, b.constant(w)])
    graph = b.graph([b.add(REGISTRY["Cast"](to="float32"), [sums])])
    assert "uint8 by int8 in int32" in str(compile(graph, ONE).plan)
    holds((graph, {"x": x}), ONE)


@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_the_instruction_itself(choice: Settings) -> None:
    if not runnable(choice):
        pytest.skip(f"this processor has no {choice.target}")
    for kind, zero, border in (("uint8", 0, 1), ("int8", 3, 0), ("uint8", 200, 0)):
        graph, x = convolution(kind, zero, border, 67)
        exe = compile(graph, choice)
        assert "uint8 by int8 in int32" in str(exe.plan)
        (name, want), *_ = promised(graph, {"x": x}).items()
        assert bits(exe.run({"x": x})[name]) == bits(np.asarray(want))


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(convolutions(), st.sampled_from(CHOICES))
def test_every_convolution_by_the_instruction(case: Network, choice: Settings) -> None:
    if runnable(choice):
        holds(case, choice)


@pytest.mark.parametrize("name", VNNI)
def test_the_code_is_that_instruction(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For processors that are not this one: it is asked for by name, unsigned data first."""
    texts = []

    def seen(text: str, target: Target) -> bytes:
        texts.append(text)
        return code_of(text, target)

    monkeypatch.setattr("verax.compiler.place.binary.assembly.code_of", seen)
    COMPILED_KERNELS.forget()
    graph, _ = convolution("uint8", 0, 1, 64)
    target = Target.named(name)
    lowered = lower(graph, target, Settings(opt_level=1, threads=1))
    assert "uint8 by int8 in int32" in "".join(lowered.lines)
    found = [t for t in texts if f"vpdpbusd.{target.vector_bits}" in t]
    assert found and not any("vpdpbusds" in t for t in texts)
    COMPILED_KERNELS.forget()
