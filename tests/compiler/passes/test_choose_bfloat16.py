"""Products in bfloat16, where a user allows them: what they promise, and what is said of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cli.conftest import Cli, cli  # noqa: F401

import verax
from verax.base.errors import UsageError
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.passes import choose_bfloat16 as module
from verax.compiler.passes.choose_bfloat16 import choose_bfloat16, factors, is_taken, starts
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.judge.check import check
from verax.numerics.fma import fma32
from verax.numerics.formats import BFLOAT16, round_to
from verax.ops.pointwise.factors import SMALLEST_FACTOR
from verax.records.recipe import BFLOAT16_PRODUCTS
from verax.records.verdict import Kind
from verax.reference.evaluate import promised
from verax.runners.own import VeraxRunner

EXAMPLES = Path(__file__).parents[3] / "examples" / "digits"
ALLOWED = Settings(3, 1, allow=("bf16",))


def add(b: Builder, kind: str, *inputs: str, name: str = "", **attributes: Any) -> str:
    return b.add(REGISTRY[kind](**attributes), list(inputs), [], name)


def network(seed: int = 61, rows: int | str = 11) -> Graph:
    """Convolution of stride 2, BatchNormalization, Relu, a mean, two products."""
    rng = np.random.default_rng(seed)
    b = Builder("net")

    def numbers(*shape: int, scale: float = 1.0) -> str:
        return b.constant((rng.standard_normal(shape) * scale).astype(np.float32))

    x = b.input("x", TensorType.parse(f"float32[2, 24, {rows}, 13]"))
    w, bias = numbers(40, 24, 3, 3, scale=0.07), numbers(40, scale=0.1)
    h = add(b, "Conv", x, w, bias, strides=(2, 2), pads=((1, 1), (0, 1)), name="conv")
    norm = [numbers(40), numbers(40), numbers(40, scale=0.1)]
    spread = b.constant(rng.uniform(0.5, 2, 40).astype(np.float32))
    h = add(b, "Relu", add(b, "BatchNormalization", h, *norm, spread, name="norm"), name="act")
    h = add(b, "Flatten", add(b, "GlobalAveragePool", h, name="mean"))
    h = add(b, "Gemm", h, numbers(33, 40, scale=0.2), numbers(33), trans_b=True, name="middle")
    h = add(b, "Tanh", h, name="tanh")
    return b.graph([add(b, "MatMul", h, numbers(33, 7, scale=0.2), name="head")])


def data(rows: int = 11) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(62).standard_normal((2, 24, rows, 13), np.float32)}


def bits(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array).tobytes()


def test_nothing_is_rounded_that_is_not_allowed() -> None:
    exe = compile(network(), Settings(3, 1))
    assert not exe.recipe.algorithms
    assert "Bfloat16Factor" not in str(exe.specialized.graph)


def test_every_product_is_taken_and_the_recipe_says_so() -> None:
    exe = compile(network(), ALLOWED)
    assert exe.recipe.algorithms == dict.fromkeys(("conv", "middle", "head"), BFLOAT16_PRODUCTS)
    assert exe.recipe.allow == ("bf16",)
    assert "allowed: bf16" in str(exe.recipe)
    again = compile(network(), Settings(3, 2, allow=("bf16",), target="avx2")).recipe
    assert again.sha256 == exe.recipe.sha256 != compile(network(), Settings(3, 1)).recipe.sha256


def test_what_is_kept_exact_is_not_rounded() -> None:
    settings = Settings(3, 1, allow=("bf16",), keep_exact=("conv", "head"))
    assert compile(network(), settings).recipe.algorithms.keys() == {"middle"}


def test_a_recipe_with_it_can_be_followed() -> None:
    exe = verax.compile(network(), allow="bf16", threads=1, cache=False)
    again = verax.compile(network(), recipe=exe.recipe, threads=2, cache=False)
    (y,) = exe.run(data()).values()
    (z,) = again.run(data()).values()
    assert bits(y) == bits(z)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_bits_are_the_promised_ones(threads: int) -> None:
    exe = compile(network(), Settings(3, threads, allow=("bf16",)))
    (value,) = exe.specialized.graph.outputs
    (y,) = exe.run(data()).values()
    assert bits(y) == bits(promised(exe.specialized.graph, data())[value])


def product(m: int, k: int, n: int, seed: int, low: int, high: int) -> tuple[np.ndarray, ...]:
    """Factors and a start with exponents from `low` to `high`, some of them 0."""
    rng = np.random.default_rng(seed)

    def some(*shape: int) -> np.ndarray:
        exponents = rng.integers(low, high + 1, shape)
        found = np.ldexp(rng.uniform(-2, 2, shape), exponents).astype(np.float32)
        return np.where(rng.random(shape) < 0.1, np.float32(0), found)

    return some(m, k), some(k, n), some(n)


def instruction(x: np.ndarray, w: np.ndarray, start: np.ndarray) -> np.ndarray:
    """The sums that VDPBF16PS makes by its description: of each pair the upper number first, one
    FMA each, subnormal numbers being zero on the way in and out. In the upper half lies the even
    channel, which a kernel chooses when it packs."""

    def flushed(a: np.ndarray) -> np.ndarray:
        return np.where(np.abs(a) < np.float32(2.0**-126), np.copysign(np.float32(0), a), a)

    total = np.broadcast_to(start, (x.shape[0], w.shape[1])).astype(np.float32)
    for pair in range(0, x.shape[1], 2):
        for k in (pair, pair + 1):
            there = k < x.shape[1]  # the last pair is filled up with zeros
            a = flushed(x[:, k : k + 1]) if there else np.zeros((len(x), 1), np.float32)
            b = flushed(w[k : k + 1]) if there else np.zeros((1, w.shape[1]), np.float32)
            total = flushed(fma32(a, b, flushed(total)))
    return total


@given(
    st.integers(1, 4), st.integers(1, 21), st.integers(1, 5), st.integers(0, 999),
    st.integers(-149, 60), st.integers(0, 90),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_the_instruction_gives_the_promised_bits(
    m: int, k: int, n: int, seed: int, low: int, span: int
) -> None:
    x, w, start = product(m, k, n, seed, low, min(low + span, 62))
    x, w, start = factors(x), factors(w), starts(start)
    total = np.broadcast_to(start, (m, n)).astype(np.float32)
    twice = total.copy()
    for i in range(k):
        total = fma32(x[:, i : i + 1], w[i : i + 1], total)
        with np.errstate(over="ignore", invalid="ignore"):
            twice = twice + x[:, i : i + 1] * w[i : i + 1]
    assert bits(total) == bits(instruction(x, w, start))
    assert bits(total) == bits(twice), "an FMA and two operations part"


def test_without_the_smallest_numbers_it_would_not() -> None:
    """What the definition leaves out is what parts the instruction from an FMA."""
    x, w, _ = product(4, 20, 5, 7, -70, -60)
    coarse = [round_to(a, BFLOAT16).astype(np.float32) for a in (x, w)]
    assert np.abs(coarse[0][coarse[0] != 0]).min() < SMALLEST_FACTOR
    total = np.zeros((4, 5), np.float32)
    for i in range(20):
        total = fma32(coarse[0][:, i : i + 1], coarse[1][i : i + 1], total)
    assert bits(total) != bits(instruction(*coarse, np.zeros(5, np.float32)))  # type: ignore[call-arg]


def test_kernels_keep_to_it_where_numbers_are_tiny() -> None:
    x, w, start = product(4, 37, 21, 8, -75, -40)
    b = Builder("net")
    value = b.input("x", TensorType.parse("float32[4, 37]"))
    graph = b.graph([add(b, "Gemm", value, b.constant(w), b.constant(start), name="head")])
    (y,) = compile(graph, ALLOWED).run({"x": x}).values()
    assert bits(y) == bits(instruction(factors(x), factors(w), starts(start)))
    assert (y != 0).any()


def only(kind: str, *shapes: tuple[int, ...], constant: bool = True, **attributes: Any) -> Graph:
    rng, b = np.random.default_rng(63), Builder("net")
    values = [b.input("x", TensorType.parse(f"float32[{', '.join(map(str, shapes[0]))}]"))]
    for i, shape in enumerate(shapes[1:]):
        type_ = TensorType.parse(f"float32[{', '.join(map(str, shape))}]")
        array = rng.standard_normal(shape).astype(np.float32)
        values.append(b.constant(array) if constant else b.input(f"w{i}", type_))
    return b.graph([add(b, kind, *values, **attributes)])


@pytest.mark.parametrize(
    ("graph", "taken"),
    [
        (only("MatMul", (3, 16), (16, 5)), True),
        (only("MatMul", (3, 15), (15, 5)), False),
        (only("MatMul", (3, 16), (16, 5), constant=False), False),
        (only("Gemm", (3, 16), (16, 5), (5,)), True),
        (only("Gemm", (3, 16), (16, 5), (5,), beta=0.5), False),
        (only("Gemm", (3, 16), (16, 5), alpha=0.5), True),
        (only("Conv", (2, 16, 5, 7), (4, 16, 1, 2)), True),
        (only("Conv", (2, 32, 5, 7), (32, 1, 3, 3), groups=32), False),
    ],
)
def test_what_is_taken(graph: Graph, taken: bool) -> None:
    assert is_taken(graph, graph.nodes[0]) is taken


def test_few_rows_read_weights_of_16_bits() -> None:
    graph = only("MatMul", (2, 256), (256, 320))
    plain, half = (compile(graph, s).plan for s in (Settings(3, 1), ALLOWED))
    assert "factor kept in bfloat16" in str(half)
    assert half.weight_bytes < 0.51 * plain.weight_bytes


def test_the_judge_calls_it_precision_and_names_it() -> None:
    verdict = check(network(), VeraxRunner(ALLOWED), data())
    assert verdict.kind is Kind.precision
    assert any("bf16" in f.reason for f in verdict.nodes)


def test_the_certificate_says_what_it_costs() -> None:
    exe = verax.compile(network(), allow=("bf16",), threads=1, certify=True, cache=False)
    held = exe.certificate
    assert held is not None and held.holds and not held.fallbacks
    (draw,) = held.draws
    assert {layer.node for layer in draw.layers} == {"conv", "middle", "head"}
    assert all(layer.algorithm == BFLOAT16_PRODUCTS for layer in draw.layers)
    assert all(2.0**-12 < layer.cost < 2.0**-7 for layer in draw.layers)
    assert all(0.01 < layer.share < 1 for layer in draw.layers)
    assert draw.outputs[0].kind is Kind.precision
    assert "head (bfloat16 products): costs" in str(held)


@pytest.mark.parametrize("node", ["middle", "head"])
def test_a_layer_that_breaks_its_bound_goes_back(
    node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One layer's weights lose two bits more than the definition says."""
    columns = {"middle": (33, 40), "head": (33, 7)}[node]

    def coarser(weights: np.ndarray) -> np.ndarray:
        found = factors(weights)
        if weights.shape != columns:
            return found
        return (found.view(np.uint32) & np.uint32(0xFFF80000)).view(np.float32)

    monkeypatch.setattr(module, "factors", coarser)
    exe = verax.compile(network(), allow=("bf16",), threads=1, certify=True, cache=False)
    held = exe.certificate
    assert held is not None and held.fallbacks.keys() == {node}
    assert exe.recipe.algorithms.keys() == {"conv", "middle", "head"} - {node}
    assert held.holds


def test_a_program_kept_on_disk_is_not_taken_for_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VERAX_CACHE", str(tmp_path))
    made = [verax.compile(network(), allow=allow, threads=1) for allow in ((), ("bf16",), ())]
    found = [bits(next(iter(exe.run(data()).values()))) for exe in made]
    assert found[0] == found[2] != found[1]


def test_what_cannot_be_allowed_is_said() -> None:
    with pytest.raises(UsageError, match="'fp8' can be allowed"):
        verax.compile(network(), allow=("fp8",))
    with pytest.raises(UsageError, match="O2 approximates nothing"):
        verax.compile(network(), allow=("bf16",), opt_level=2)
    with pytest.raises(UsageError, match="leave opt_level, disable, require and allow out"):
        verax.compile(network(), allow=("bf16",), recipe="net.vx")


def test_on_the_command_line(cli: Cli, tmp_path: Path) -> None:  # noqa: F811
    to = tmp_path / "net.vx"
    done = cli(
        *("compile", EXAMPLES / "digits.onnx", "-o", to, "--shape", "n=3"),
        *("--allow", "bf16", "--certify"),
    )
    assert done.code == 0 and "(bfloat16 products): costs" in done.out
    wrong = cli("compile", EXAMPLES / "digits.onnx", "-o", to, "--shape", "n=3", "--allow", "fp8")
    assert wrong.code == 2 and "choose from bf16" in wrong.err
    assert "O3 with --allow bf16" in cli("passes", "choose_bfloat16").out


def test_each_value_is_rounded_once_for_all_its_readers() -> None:
    rng, b = np.random.default_rng(64), Builder("net")
    x = b.input("x", TensorType.parse("float32[3, 18]"))
    several = [b.constant(rng.standard_normal((18, n)).astype(np.float32)) for n in (5, 7)]
    graph, trace = choose_bfloat16(b.graph([add(b, "MatMul", x, w) for w in several]))
    assert trace.rewrites == 2
    assert [n.op.kind for n in graph.nodes] == ["Bfloat16Factor", "MatMul", "MatMul"]
