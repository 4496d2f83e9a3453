"""Matrix products give the canonical bits, for every shape, transposition, batch and bias."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.compiler.kernels import harness as h

from verax.compiler.kernels.convolution.pack import pack_channels
from verax.compiler.kernels.convolution.schedule import L2_BYTES
from verax.compiler.kernels.dtypes import FLOAT32
from verax.compiler.kernels.layout import Epilogue
from verax.compiler.kernels.llvm.builder import ModuleBuilder
from verax.compiler.kernels.products.gemm import (
    GemmSpec,
    Matrix,
    PackSpec,
    emit_gemm,
    emit_pack_b,
    gemm_schedule,
    pack_b,
    tensor_operand,
)
from verax.compiler.kernels.target import LANES, Target
from verax.numerics.expr import trace
from verax.numerics.fma import fma32


def expected(a: np.ndarray, b: np.ndarray, start: np.ndarray | None) -> np.ndarray:
    """a @ b over (outer, inner, ., .), k ascending."""
    shape = (*np.broadcast_shapes(a.shape[:2], b.shape[:2]), a.shape[2], b.shape[3])
    acc = np.broadcast_to(np.float32(0) if start is None else start, shape).astype(np.float32)
    for k in range(a.shape[3]):
        acc = fma32(a[..., k, None], b[..., k, None, :], acc)
    return acc


def lying(x: np.ndarray, transposed: bool) -> tuple[np.ndarray, Matrix]:
    """x in memory (as it is, or with its last two axes exchanged) and how it lies; batch axes of
    size 1 are shared."""
    memory = np.ascontiguousarray(x.swapaxes(2, 3)) if transposed else np.ascontiguousarray(x)
    view = memory.swapaxes(2, 3) if transposed else memory
    outer, inner, row, col = (s // 4 for s in view.strides)
    return memory, Matrix(row, col, outer * (x.shape[0] > 1), inner * (x.shape[1] > 1))


@dataclasses.dataclass(frozen=True)
class Problem:
    a: np.ndarray
    b: np.ndarray
    bias: str
    transposed: tuple[bool, bool]


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    m, n, k = draw(st.integers(1, 33)), draw(st.integers(1, 75)), draw(st.integers(1, 40))
    outer, inner = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    shared = draw(st.sampled_from(["", "a", "b"]))
    return Problem(
        h.random(rng, 1 if shared == "a" else outer, inner, m, k),
        h.random(rng, outer, 1 if shared == "b" else inner, k, n),
        draw(st.sampled_from(["", "column", "row", "full"])),
        (draw(st.booleans()), draw(st.booleans())),
    )


def compute(problem: Problem, target: Target, constant: bool, parts: int) -> None:
    """Run and compare."""
    a, b = problem.a, problem.b[:1, :1] if constant else problem.b
    rng = np.random.default_rng(7)
    shape = (*np.broadcast_shapes(a.shape[:2], b.shape[:2]), a.shape[2], b.shape[3])
    starts = {"": None, "column": (1, 1, 1, shape[3]), "row": (1, 1, shape[2], 1), "full": shape}
    start = h.random(rng, *starts[problem.bias]) if problem.bias else None
    a_memory, a_lies = lying(a, problem.transposed[0])
    b_memory, b_lies = lying(b, problem.transposed[1])
    y = np.full(shape[0] * shape[1] * shape[2] * shape[3] + 32, 12345.0, np.float32)
    row = Matrix(1, 0)
    full = Matrix(shape[3], 1, shape[1] * shape[2] * shape[3], shape[2] * shape[3])
    spec = GemmSpec(
        shape[2], shape[3], a.shape[3], a_lies, full, shape[0], shape[1], constant,
        {"": "", "column": "column"}.get(problem.bias, "matrix"),
        {"row": row, "full": full}.get(problem.bias), types=FLOAT32,
    )  # fmt: skip
    schedule = gemm_schedule(spec, target)
    module = ModuleBuilder("test", target)
    kernel = emit_gemm(module, spec, schedule)
    if constant:
        packed = pack_b(b[0, 0], spec, schedule)
    else:
        packed = np.full(shape[0] * shape[1] * spec.packed_elements + 16, 777.0, np.float32)
        pack = emit_pack_b(module, PackSpec(spec, b_lies), schedule)
        h.run(module, pack, b_memory.ctypes.data, packed.ctypes.data, parts=parts)
        assert (packed[-16:] == 777.0).all() and not (packed[:-16] == 777.0).any()
    arguments = [a_memory.ctypes.data, packed.ctypes.data]
    held = pack_channels(start) if problem.bias == "column" else start
    if held is not None:
        arguments.append(held.ctypes.data)
    h.run(module, kernel, *arguments, y.ctypes.data, parts=parts)
    assert (y[-32:] == 12345.0).all()
    assert h.same_bits(y[:-32].reshape(shape), expected(a, b, start))


slow = [HealthCheck.too_slow]


@settings(max_examples=12, deadline=None, suppress_health_check=slow)
@given(problem=problems(), constant=st.booleans(), parts=st.integers(1, 3))
@pytest.mark.parametrize("target", h.TARGETS, ids=lambda t: t.name)
def test_products_give_canonical_bits(
    target: Target, problem: Problem, constant: bool, parts: int
) -> None:
    compute(problem, target, constant, parts)


@pytest.mark.parametrize("shape", [(1, 1000, 513), (65, 80, 300), (14, 257, 16)])
def test_larger_products(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    rng = np.random.default_rng(3)
    problem = Problem(h.random(rng, 1, 1, m, k), h.random(rng, 1, 1, k, n), "column", (False, True))
    compute(problem, h.TARGETS[0], True, 2)
    compute(problem, h.TARGETS[0], False, 2)


def test_long_sums_walk_their_weights_in_passes() -> None:
    """Partial sums wait in the result, a last block of columns that is not whole included."""
    m, n, k = 23, 1130, 1664
    rng = np.random.default_rng(5)
    for target in h.TARGETS:
        spec = GemmSpec(m, n, k, Matrix(k, 1), Matrix(n, 1), types=FLOAT32)
        schedule = gemm_schedule(spec, target)
        if 4 * k * schedule.blocks * LANES > 3 * L2_BYTES // 4:
            assert schedule.pass_blocks and schedule.ahead
    a, b = h.random(rng, 1, 1, m, k), h.random(rng, 1, 1, k, n)
    for bias in ("column", "full"):
        compute(Problem(a, b, bias, (False, False)), h.TARGETS[0], True, 2)


def test_the_epilogue_reads_no_column_that_is_not_there() -> None:
    rng = np.random.default_rng(1)
    a, b, other = h.random(rng, 1, 1, 5, 9), h.random(rng, 1, 1, 9, 21), h.random(rng, 1, 1, 5, 21)
    where = Matrix(21, 1)
    add = trace(lambda m, acc, o: m.add(acc, o), ["float32"] * 2)
    spec = GemmSpec(5, 21, 9, Matrix(9, 1), where, types=FLOAT32)
    spec = dataclasses.replace(spec, epilogue=Epilogue(add, (tensor_operand(spec, where),)))
    for target in h.TARGETS:
        schedule, module = gemm_schedule(spec, target), ModuleBuilder("test", target)
        packed, y = pack_b(b, spec, schedule), np.zeros((1, 1, 5, 21), np.float32)
        addresses = [v.ctypes.data for v in (a, packed, other, y)]
        h.run(module, emit_gemm(module, spec, schedule), *addresses)
        assert h.same_bits(y, expected(a, b, None) + other)
