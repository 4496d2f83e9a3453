"""Networks in 16 bits: which operators are computed in float32, and what the judge says of it."""

from __future__ import annotations

import contextlib
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.compiler.test_bits import bits

import verax
from verax.base.errors import GraphError
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.passes.widen_halves import WIDENED, widen_halves
from verax.compiler.pipeline.levels import run_passes
from verax.compiler.plan.expressions import without_spare_roundings
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import DType, TensorType
from verax.numerics.expr import Input, TracingArith
from verax.records.verdict import Kind
from verax.reference import promised

TYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def network(kind: str, seed: int) -> tuple[Graph, dict[str, np.ndarray]]:
    """Convolutions in groups and not, a residual sum, pools, a product, all of one type."""
    rng, b = np.random.default_rng(seed), Builder("net")

    def add(op: str, *inputs: str | None, **attributes: Any) -> str:
        return b.add(REGISTRY[op](**attributes), list(inputs))

    def normal(*shape: int, scale: float = 1.0) -> str:
        return b.constant((rng.standard_normal(shape) * scale).astype(TYPES[kind]))

    x = rng.standard_normal((2, 5, 9, 7)).astype(TYPES[kind])
    same = ((1, 1), (1, 1))
    h = add("Relu", add("Conv", b.input("x", TensorType.of(x)), normal(19, 5, 3, 3), normal(19)))
    deep = add("Conv", h, normal(19, 1, 3, 3), normal(19), pads=same, groups=19)
    h = add("Relu", add("Add", add("Sigmoid", deep), h))
    h = add("MaxPool", h, kernel_shape=(2, 2))
    h = add("Conv", h, normal(8, 19, 1, 1, scale=0.2), normal(8))
    h = add("Flatten", add("GlobalAveragePool", add("Mul", h, normal(8, 1, 1))))
    y = add("Softmax", add("Gemm", h, normal(8, 18), normal(18)))
    return b.graph([y, h]), {"x": x}


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("level", [1, 2])
def test_a_network_in_16_bits_is_native_with_the_promised_bits(kind: str, level: int) -> None:
    graph, fed = network(kind, level)
    rewritten, _ = run_passes(graph, Settings(opt_level=level))
    wanted = promised(graph if level == 1 else rewritten, fed)
    for threads in (1, 3):
        exe = compile(graph, Settings(opt_level=level, threads=threads))
        got = exe.run(fed)
        assert not exe.plan.on_reference, str(exe.plan)
        for old, new in zip(graph.outputs, rewritten.outputs, strict=True):
            assert bits(got[old]) == bits(np.asarray(wanted[old if level == 1 else new]))
    found = verax.check(graph, f"verax:O{level}", fed, explain=False)
    assert found.kind in (Kind.rounding, Kind.identical), found.reasons


def halves_of(name: str, kind: str) -> list[tuple[Graph, dict[str, np.ndarray]]]:
    """An operator's float32 cases with numbers of 16 bits, where its type rule takes them."""
    found = []
    for case in REGISTRY[name].cases(np.random.default_rng(len(name))):
        with np.errstate(over="ignore"):
            arrays = [a if a is None or a.dtype != np.float32 else a.astype(TYPES[kind])
                      for a in case.inputs]  # fmt: skip
        b, inputs = Builder("net"), []
        for i, array in enumerate(arrays):
            if array is None or i in case.constant:
                inputs.append(None if array is None else b.constant(array))
            else:
                inputs.append(b.input(f"x{i}", TensorType.of(array)))
        with contextlib.suppress(GraphError):
            graph = b.graph(b.add_all(case.op, inputs))
            fed = {v: a for v, a in zip(inputs, arrays) if v in graph.inputs and a is not None}
            found.append((graph, fed))
    return found


@pytest.mark.checkered
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", sorted(WIDENED))
def test_widening_changes_no_promised_bit(name: str, kind: str) -> None:
    rewrites = 0
    for graph, fed in halves_of(name, kind):
        after, trace = widen_halves(graph)
        rewrites += trace.rewrites
        wanted, got = promised(graph, fed), promised(after, fed)
        for old, new in zip(graph.outputs, after.outputs, strict=True):
            assert bits(got[new]) == bits(wanted[old])
    assert rewrites


def unwidened() -> list[str]:
    return [n for n, op in REGISTRY.items() if not (op.unsupported or op.no_kernel)]


@pytest.mark.parametrize("name", sorted(unwidened()))
def test_no_operator_of_16_bits_lacks_a_kernel_that_float32_has(name: str) -> None:
    """And what runs natively has the promised bits."""
    for graph, fed in halves_of(name, "float16")[:2]:
        if not all(graph.types[v].is_static for v in graph.outputs):
            continue
        wide = Builder("net")
        values: dict[str | None, str | None] = {None: None}
        for v in graph.inputs:
            values[v] = wide.input(v, graph.types[v].widened())
        for v, array in graph.constants.items():
            half = graph.types[v].dtype is DType.float16
            values[v] = wide.constant(array.astype(np.float32) if half else array)
        (node,) = graph.nodes
        try:
            in_float32 = wide.graph(wide.add_all(node.op, [values[v] for v in node.inputs]))
        except GraphError:  # it says of how many bits a number is
            continue
        settings = Settings(opt_level=1, threads=1, quick=True)
        if compile(in_float32, settings).plan.on_reference:
            continue
        exe = compile(graph, settings)
        assert not exe.plan.on_reference, str(exe.plan)
        got, wanted = exe.run(fed), promised(graph, fed)
        for value in graph.outputs:
            assert bits(got[value]) == bits(np.asarray(wanted[value]))


@pytest.mark.parametrize(("kind", "rewrites"), [("float16", 1), ("bfloat16", 1), ("float32", 0)])
def test_halves_alone_are_widened(kind: str, rewrites: int) -> None:
    b = Builder("net")
    x = b.input("x", TensorType.parse(f"{kind}[3, 5]"))
    w = b.input("w", TensorType.parse(f"{kind}[5, 2]"))
    product = b.add(REGISTRY["MatMul"](), [x, w])
    graph = b.graph([b.add(REGISTRY["Exp"](), [product])])
    after, trace = widen_halves(graph)
    assert trace.rewrites == rewrites
    assert [n.op.kind for n in after.nodes].count("Cast") == 3 * rewrites


def test_positions_of_the_largest_are_those_of_the_halves() -> None:
    b = Builder("net")
    x = b.input("x", TensorType.parse("float16[2, 3, 5, 7]"))
    op = REGISTRY["MaxPool"](kernel_shape=(2, 2), with_indices=True)
    graph = b.graph(b.add_all(op, [x]))
    fed = {"x": np.random.default_rng(5).integers(-3, 4, (2, 3, 5, 7)).astype(np.float16)}
    exe = compile(graph, Settings(opt_level=1, threads=1))
    got, wanted = exe.run(fed), promised(graph, fed)
    assert not exe.plan.on_reference
    for value in graph.outputs:
        assert bits(got[value]) == bits(wanted[value])


def test_a_sum_is_rounded_to_float32_step_by_step_and_once_to_16_bits() -> None:
    """2048 + 2^-13 + ...: float64 sees the small ones, float32 drops each of them."""
    x = np.array([[2048, 2.0**-14, 1]], np.float16)
    w = np.array([[1], [2.0**-10], [1]], np.float16)
    b = Builder("net")
    graph = b.graph([b.add(REGISTRY["MatMul"](), [b.input("x", TensorType.of(x)), b.constant(w)])])
    (found,) = promised(graph, {"x": x}).values()
    assert found == 2048  # 2049 lies halfway and goes to even; in float64 a little above, to 2050


def residual(kind: str) -> tuple[Graph, dict[str, np.ndarray]]:
    """A pool; convolutions with a sum of what both they and the sum read, twice."""
    rng, b = np.random.default_rng(71), Builder("net")

    def add(op: str, *inputs: str | None, **attributes: Any) -> str:
        return b.add(REGISTRY[op](**attributes), list(inputs))

    def normal(*shape: int) -> str:
        return b.constant((rng.standard_normal(shape) / 9).astype(TYPES[kind]))

    x = rng.standard_normal((2, 24, 23, 19)).astype(TYPES[kind])
    h = add("Relu", add("Conv", b.input("x", TensorType.of(x)), normal(32, 24, 1, 1)))
    h = add("MaxPool", h, kernel_shape=(3, 3), pads=((1, 1), (1, 1)))
    for _ in range(2):
        branch = add("Conv", h, normal(32, 32, 3, 3), normal(32), pads=((1, 1), (1, 1)))
        h = add("Relu", add("Add", add("Clip", branch, normal(), b.constant(TYPES[kind](6))), h))
    return b.graph([add("GlobalAveragePool", h)]), {"x": x}


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("level", [1, 3])
def test_what_two_read_is_kept_once_and_no_step_only_converts(kind: str, level: int) -> None:
    """Between the first loop, which widens the input, and the last mean; by Winograd as well."""
    graph, fed = residual(kind)
    exe = compile(graph, Settings(opt_level=level, threads=1))
    made = exe.specialized.graph
    wanted = promised(graph if level == 1 else made, fed)
    (got,) = exe.run(fed).values()
    assert bits(got) == bits(np.asarray(next(iter(wanted.values()))))
    loops = [line for line in exe.plan.lines if " loop_" in line and " operation" in line]
    assert len(loops) == 2, "\n".join(exe.plan.lines)


def test_what_chooses_among_halves_is_not_rounded_again() -> None:
    m = TracingArith()
    sums = Input(0, "float32")
    half = m.convert(m.convert(sums, "float16"), "float32")
    zero = m.const(0.0, "float32")
    relu = m.max(half, zero)
    assert without_spare_roundings(m.convert(m.convert(relu, "float16"), "float32")) is relu
    for changed in (m.add(half, half), m.max(half, m.const(0.1, "float32")), m.max(sums, zero)):
        again = m.convert(m.convert(changed, "float16"), "float32")
        assert without_spare_roundings(again) is again
    other = m.convert(m.convert(relu, "bfloat16"), "float32")
    assert without_spare_roundings(other) is other


@pytest.mark.parametrize("kind", TYPES)
def test_what_only_moves_numbers_does_not_part_a_pad_from_its_convolution(kind: str) -> None:
    rng, b = np.random.default_rng(72), Builder("net")

    def add(op: str, *inputs: str | None, **attributes: Any) -> str:
        return b.add(REGISTRY[op](**attributes), list(inputs))

    def normal(*shape: int) -> str:
        return b.constant((rng.standard_normal(shape) / 9).astype(TYPES[kind]))

    x = rng.standard_normal((2, 18, 11, 7)).astype(TYPES[kind])
    h = add("Relu", add("Conv", b.input("x", TensorType.of(x)), normal(20, 18, 1, 1)))
    widths, fill = b.constant(np.array([0, 0, 1, 0, 0, 0, 0, 2])), b.constant(TYPES[kind](0))
    padded = add("Conv", add("Pad", h, widths, fill), normal(24, 20, 3, 2), strides=(2, 1))
    joined = add("Concat", padded, add("Relu", padded), axis=1)
    graph = b.graph([add("Conv", joined, normal(5, 48, 2, 1)), add("Reshape", h, b.constant([-1]))])
    exe = compile(graph, Settings(opt_level=1, threads=1))
    got, wanted = exe.run({"x": x}), promised(graph, {"x": x})
    for value in graph.outputs:
        assert bits(got[value]) == bits(np.asarray(wanted[value]))
    _, trace = run_passes(graph, Settings(passes=("widen_halves",)))
    for count in range(trace.rewrites + 1):
        asked = Settings(passes=("widen_halves",), checked=True, stop_after=count)
        after, stopped = run_passes(graph, asked)
        assert stopped.notes == trace.notes[:count]
        found = promised(after, {"x": x})
        for old, new in zip(graph.outputs, after.outputs, strict=True):
            assert bits(np.asarray(found[new])) == bits(np.asarray(wanted[old]))
    kinds = [n.op.kind for n in exe.specialized.graph.nodes]
    assert "Pad" not in kinds
    assert kinds.index("Concat") > len(kinds) - 5 and kinds[kinds.index("Concat") + 1] == "Conv"
