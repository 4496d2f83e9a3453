"""Where there is AVX512_BF16, allowed products in bfloat16 take two products at a time: held to the
promise on every machine by what the instruction is defined to do, and by the instruction where the
machine has it."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.compiler.test_bits import bits
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.kernels.llvm.builder import ModuleBuilder
from verax.compiler.kernels.llvm.object_code import code_of, object_code
from verax.compiler.kernels.products.steps import Halves
from verax.compiler.kernels.target import Target
from verax.compiler.place.binary.assembly import COMPILED_KERNELS
from verax.compiler.place.program import lower
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.numerics.fma import fma32
from verax.reference import promised
from verax.runtime.engine import load_object

NAME = "avx512bf16"
HERE = Target.named(NAME).runs_here()
SAID = "bfloat16 by bfloat16 in float32"
ALLOWED = Settings(3, 1, allow=("bf16",))
real = pytest.mark.skipif(not HERE, reason="this processor has no AVX512_BF16")


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This machine's target takes pairs, multiplied by ordinary instructions."""
    host = dataclasses.replace(Target.host(), has_bf16_dot=True)
    monkeypatch.setattr(Target, "named", staticmethod(lambda name: host))
    monkeypatch.setattr(Halves, "add", Halves._plainly)
    COMPILED_KERNELS.forget()
    yield
    COMPILED_KERNELS.forget()


# --- the instruction


def flushed(a: np.ndarray) -> np.ndarray:
    return np.where(np.abs(a) < np.float32(2.0**-126), np.copysign(np.float32(0), a), a)


def described(total: np.ndarray, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """VDPBF16PS by its description. total: float32 [16]; x, w: uint32 [16], two numbers in each."""
    for half in (lambda v: v & np.uint32(0xFFFF0000), lambda v: v << np.uint32(16)):
        a, b = (flushed(half(v).view(np.float32)) for v in (x, w))
        total = flushed(fma32(a, b, flushed(total)))
    return total


def drawn(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Any bits at all, and numbers whose sums cancel, overflow and leave the normal range."""
    middle = rng.integers(60, 195, (count, 4)).astype(np.uint32) << 7
    halves = middle | rng.integers(0, 1 << 16, (count, 4)).astype(np.uint32) & 0x807F
    any_bits = rng.integers(0, 1 << 16, (count, 4)).astype(np.uint32)
    special = np.array([0, 0x8000, 0x7F80, 0xFF80, 0x7FC1, 1, 0x7F7F], np.uint32)
    some = special[rng.integers(0, len(special), (count, 4))]
    which = rng.random((count, 4))
    halves = np.where(which < 0.2, any_bits, np.where(which < 0.3, some, halves))
    x, w = (halves[:, i] | halves[:, i + 1] << 16 for i in (0, 2))
    total = rng.integers(0, 1 << 32, count, np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        upper = [(v & np.uint32(0xFFFF0000)).view(np.float32) for v in (x, w)]
        against = -upper[0] * upper[1]
    part = rng.random(count)
    total = np.where(part < 0.3, against, np.where(part < 0.4, np.float32(-0.0), total))
    largest = np.copysign(np.finfo(np.float32).max, total)
    return np.where(part > 0.95, largest, total).astype(np.float32), x, w


def step_of(target: Target) -> object:
    """total, x, w -> total, by the step that kernels take: 16 sums, an x for each."""
    module = ModuleBuilder("step", target)
    f = module.kernel(("step",), 3)
    step, kind = Halves(f), f.vector_type("int32")
    x, w = (f.b.load(f.args[i], align=4, typ=kind) for i in (1, 2))
    f.store(step.add(x, w, f.load(f.args[0])), f.args[0])
    kernel = f.finish(1)
    code = load_object(object_code(module))
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)

    def run(total: np.ndarray, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        found = np.array(total)
        table = np.array([a.ctypes.data for a in (found, x, w)], np.uint64)
        call(code.address(kernel.name))(table.ctypes.data, 0, 1)
        return found

    return run


@real
def test_the_instruction_does_what_its_description_says() -> None:
    """Order, roundings, subnormal numbers, infinities, overflow: 64,000 sums."""
    run, rng = step_of(Target.named(NAME)), np.random.default_rng(1601)
    for _ in range(4000):
        total, x, w = drawn(rng, 16)
        got = run(total, x, w)
        assert bits(got) == bits(described(total, x, w)), (total, x, w)


@real
def test_it_adds_the_upper_product_first() -> None:
    """And rounds in between: 2^24 + 1 + 1 is 2^24 in either order, 1 + 2^24 - 2^24 is not."""
    run = step_of(Target.named(NAME))
    one, large, minus = (np.float32(v).view(np.uint32) for v in (1, 2.0**24, -(2.0**24)))
    ones = np.full(16, one | one >> 16, np.uint32)
    start = np.full(16, 2.0**24, np.float32)
    assert (run(start, ones, ones) == 2.0**24).all()
    unit = np.ones(16, np.float32)
    # upper: 2^24 swallows the 1; lower: -2^24
    assert (run(unit, np.full(16, large | minus >> 16, np.uint32), ones) == 0).all()
    # upper: 1 + 1; lower: 2^24
    assert (run(unit, np.full(16, one | large >> 16, np.uint32), ones) == 2.0**24 + 2).all()


@real
def test_kernels_have_the_instruction(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what stands for it."""
    texts: list[str] = []

    def seen(text: str, target: Target) -> bytes:
        texts.append(text)
        return code_of(text, target)

    monkeypatch.setattr("verax.compiler.place.binary.assembly.code_of", seen)
    COMPILED_KERNELS.forget()
    compile(chain(24, 40), dataclasses.replace(ALLOWED, target=NAME))
    COMPILED_KERNELS.forget()
    assert any("dpbf16ps.512" in text for text in texts)


# --- networks


def product(m: int, k: int, n: int, low: int = 0) -> tuple[Graph, dict[str, np.ndarray]]:
    """A Gemm with a start. low: exponents of factors go down to it."""
    rng, b = np.random.default_rng(1602 + m + k + n), Builder("net")

    def some(*shape: int) -> np.ndarray:
        exponents = rng.integers(low, 2, shape)
        return np.ldexp(rng.uniform(-2, 2, shape), exponents).astype(np.float32)

    x = b.input("x", TensorType.parse(f"float32[{m}, {k}]"))
    y = b.add(REGISTRY["Gemm"](), [x, b.constant(some(k, n)), b.constant(some(n))])
    return b.graph([y]), {"x": some(m, k)}


def chain(channels: int, filters: int, between: str = "Relu", **attributes: object) -> Graph:
    """Two convolutions, the first's result going through an activation."""
    rng, b = np.random.default_rng(1603 + channels), Builder("net")

    def numbers(*shape: int) -> str:
        return b.constant(rng.standard_normal(shape).astype(np.float32) / 8)

    x = b.input("x", TensorType.parse("float32[2, 5, 9, 11]"))
    h = b.add(REGISTRY["Conv"](), [x, numbers(channels, 5, 2, 3), numbers(channels)])
    h = b.add(REGISTRY[between](), [h])
    groups = int(attributes.get("groups", 1))
    w = numbers(filters, channels // groups, 3, 2)
    op = REGISTRY["Conv"](**{"pads": ((1, 0), (0, 1)), **attributes})
    return b.graph([b.add(op, [h, w, numbers(filters)])])


def binary() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(1604).standard_normal((2, 5, 9, 11), np.float32)}


def holds(graph: Graph, fed: dict[str, np.ndarray], choice: Settings, taken: bool = True) -> None:
    """The program gives the promised bits, and multiplies pairs or does not."""
    exe = compile(graph, choice)
    assert (SAID in str(exe.plan)) is taken, exe.plan
    (value,) = exe.specialized.graph.outputs
    (got,) = exe.run(fed).values()
    assert bits(got) == bits(promised(exe.specialized.graph, fed)[value])


@pytest.mark.checkered
@pytest.mark.parametrize(
    ("graph", "taken"),
    [(chain(24, 40), True), (chain(23, 40), False), (chain(32, 64, groups=2), True),
     (chain(36, 30, groups=2), False), (chain(24, 40, strides=(2, 1), dilations=(1, 2)), True)],
)  # fmt: skip
@pytest.mark.parametrize("threads", [1, 3])
def test_convolutions_keep_the_bits(plain: None, graph: Graph, taken: bool, threads: int) -> None:
    holds(graph, binary(), dataclasses.replace(ALLOWED, threads=threads), taken)


@pytest.mark.parametrize(("m", "k", "taken"), [(13, 38, True), (13, 37, False), (8, 38, False)])
def test_products_keep_the_bits(plain: None, m: int, k: int, taken: bool) -> None:
    """An odd number of terms has half a pair; few rows are multiplied as they are."""
    graph, fed = product(m, k, 21)
    holds(graph, fed, ALLOWED, taken)


def test_registers_that_hold_half_a_vector_do_too(
    plain: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their last block of filters is computed whole: a step's weights are no vector of 16."""
    half = dataclasses.replace(Target.avx2(), has_bf16_dot=True)
    if not half.runs_here():
        pytest.skip("no AVX2")
    monkeypatch.setattr(Target, "named", staticmethod(lambda name: half))
    holds(chain(24, 40), binary(), ALLOWED)


@pytest.mark.parametrize("channels", [20, 23])
def test_channels_that_do_not_exist_are_not_multiplied(plain: None, channels: int) -> None:
    """Behind the last one lies what the activation makes of 0: here an infinity."""
    holds(chain(channels, 19, "Reciprocal"), binary(), ALLOWED, channels % 2 == 0)


@real
@pytest.mark.parametrize("low", [-75, -50, 0])
def test_the_instruction_keeps_the_bits_of_tiny_numbers(low: int) -> None:
    graph, fed = product(17, 44, 35, low)
    holds(graph, fed, dataclasses.replace(ALLOWED, target=NAME))


@pytest.mark.parametrize("step", ["fuse_elementwise", "block_layouts"])
def test_without_a_decision_the_bits_are_the_same(plain: None, step: str) -> None:
    holds(chain(24, 40), binary(), dataclasses.replace(ALLOWED, disable=(step,)))


def test_who_else_reads_a_factor_keeps_it_in_float32(plain: None) -> None:
    graph, _ = product(13, 38, 21)
    exe = compile(graph, ALLOWED)
    made = exe.specialized.graph
    factor = next(n.outputs[0] for n in made.nodes if n.op.kind == "Bfloat16Factor")
    both = dataclasses.replace(made, outputs=(*made.outputs, factor))
    lowered = lower(both, Target.host(), ALLOWED)
    assert SAID not in "".join(lowered.lines)
    assert SAID in "".join(lower(made, Target.named("host"), ALLOWED).lines)


@given(
    st.integers(1, 40), st.integers(1, 40), st.sampled_from([1, 2]), st.integers(9, 30),
    st.integers(8, 40), st.integers(1, 70), st.integers(1, 3),
)  # fmt: skip
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
def test_whatever_the_sizes_the_bits_are_the_promised_ones(
    channels: int, filters: int, stride: int, m: int, half: int, n: int, threads: int
) -> None:
    """By the instruction where the machine has it, else by FMAs."""
    choice = dataclasses.replace(ALLOWED, threads=threads)
    graph, fed = product(m, 2 * half, n, -40)
    holds(graph, fed, choice, HERE)
    graph = chain(channels, filters, "Tanh", strides=(stride, 1))
    holds(graph, binary(), choice, HERE and channels >= 16 and channels % 2 == 0)


def test_every_target_gives_the_same_bits() -> None:
    found = []
    for name in (NAME, "avx512vnni", "avx2"):
        if Target.named(name).runs_here():
            exe = compile(chain(48, 33), dataclasses.replace(ALLOWED, target=name))
            found += [bits(v) for v in exe.run(binary()).values()]
    assert len(set(map(str, found))) <= 1
