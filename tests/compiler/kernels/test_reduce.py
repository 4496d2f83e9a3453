"""Reduction kernels have the bits of the NumPy definition, along and across rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from native import GUARDS, TARGETS, Native, assert_same_bits, guarded, written

from verax.compiler.kernels.llvm.builder import ModuleBuilder
from verax.compiler.kernels.llvm.object_code import object_code
from verax.compiler.kernels.loops.loop import Access
from verax.compiler.kernels.reduce.rows import ReduceSpec, Stage
from verax.compiler.kernels.target import Target
from verax.numerics.arith_numpy import NumpyArith
from verax.numerics.expr import Input, compose, evaluate, trace
from verax.numerics.formats import numpy_dtype
from verax.numerics.reductions import reduce

F32 = "float32"
X = Input(0, F32)


def dense(*dims: int) -> tuple[int, ...]:
    return tuple(int(s) for s in np.cumprod((1, *dims[:0:-1]))[::-1])


def grid(dims: Sequence[int], access: Access) -> np.ndarray:
    found = np.full(tuple(dims), access.offset, np.int64)
    for d, stride in enumerate(access.strides):
        shape = [-1 if i == d else 1 for i in range(len(dims))]
        found += np.arange(dims[d]).reshape(shape) * stride
    return found


def expected(spec: ReduceSpec, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """The outputs (arrays after the inputs) by NumpyArith and `numerics.reductions.reduce`."""
    m, n = NumpyArith(), len(spec.inputs)
    dims = (*spec.outer, *spec.reduced)
    axes = range(len(spec.outer), len(dims))
    known = [a.ravel()[grid(dims, s)] for a, s in zip(arrays, spec.inputs)]
    for stage in spec.stages:
        element = np.broadcast_to(evaluate(stage.element, m, known), dims)
        known.append(reduce(element, axes, stage.kind, keepdims=True, every=stage.group_stride))
        if stage.finish is not None:
            finished = evaluate(stage.finish, m, known)
            known[-1] = finished[(..., *[slice(0, 1)] * len(spec.reduced))]
    results = [a.copy() for a in arrays[n:]]
    n_rows = len(spec.row_outputs)
    for result, (access, expr) in zip(results, spec.row_outputs):
        value = evaluate(expr, m, known)
        value = value[(..., *[0] * len(spec.reduced))]
        result.ravel()[grid(spec.outer, access)] = value
    for result, (access, expr) in zip(results[n_rows:], spec.element_outputs):
        result.ravel()[grid(dims, access)] = evaluate(expr, m, known)
    return results


def check(spec: ReduceSpec, arrays: list[np.ndarray], targets: list[Target] = TARGETS) -> None:
    want = expected(spec, arrays)
    for target in targets:
        module = ModuleBuilder("reduce", target)
        kernel = written(module, spec)
        native = Native(module)
        for splits in ((), (kernel.items // 2,)):
            outs = [a.copy() for a in arrays[len(spec.inputs) :]]
            native.run(kernel, [*arrays[: len(spec.inputs)], *outs], splits)
            for got, value in zip(outs, want):
                assert_same_bits(got, value)


def data(size: int, dtype: str = F32, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed + size)
    return (rng.normal(size=size) * 5).astype(numpy_dtype(dtype))


def mean(n: int) -> Stage:
    finish = trace(lambda m, x, s: m.div(s, m.const(n, F32)), [F32, F32])
    return Stage("sum", X, finish)


def softmax(dims: tuple[int, ...], axis: int) -> ReduceSpec:
    strides = dense(*dims)
    outer = [d for d in range(len(dims)) if d != axis]
    access = Access(F32, (*(strides[d] for d in outer), strides[axis]))
    exp = trace(lambda m, x, top: m.exp(m.sub(x, top)), [F32] * 2)
    share = trace(lambda m, x, top, s: m.div(m.exp(m.sub(x, top)), s), [F32] * 3)
    return ReduceSpec(
        tuple(dims[d] for d in outer), (dims[axis],), (access,),
        (Stage("max", X), Stage("sum", exp)), (), ((access, share),),
    )  # fmt: skip


@pytest.mark.parametrize(
    "dims,axis",
    [((5, 37), 1), ((2, 19, 35), 1), ((3, 7, 5), 2), ((2, 130, 16), 1), ((3, 1000), 1),
     ((70, 21), 0), ((2, 3, 4, 33), 1)],
)  # fmt: skip
def test_softmax_over_any_axis(dims: tuple[int, ...], axis: int) -> None:
    spec = softmax(dims, axis)
    size = int(np.prod(dims))
    check(spec, [data(size), np.zeros(size, np.float32)])


@pytest.mark.parametrize("dims,axis", [((5, 37), 1), ((2, 19, 35), 1)])
def test_softmax_in_place(dims: tuple[int, ...], axis: int) -> None:
    shifted = softmax(dims, axis)
    exp = trace(lambda m, x, top, s: m.sub(x, m.log(s)), [F32] * 3)  # reads x again at the end
    access, _ = shifted.element_outputs[0]
    for spec in (shifted, dataclasses.replace(shifted, element_outputs=((access, exp),))):
        x = data(int(np.prod(dims)))
        (want,) = expected(spec, [x, x])
        module = ModuleBuilder("inplace", TARGETS[0])
        kernel = written(module, spec)
        Native(module).run(kernel, [x, x])
        assert_same_bits(x, want)


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("dtype", [F32, "int32", "float64", "uint8"])
@pytest.mark.parametrize("shape", ["along", "across"])
def test_every_kind_and_dtype(kind: str, dtype: str, shape: str) -> None:
    rows, n = 21, 83
    strides = (n, 1) if shape == "along" else (1, rows)
    spec = ReduceSpec(
        (rows,), (n,), (Access(dtype, strides),), (Stage(kind, Input(0, dtype)),),
        ((Access(dtype, (2,), 1), Input(1, dtype)),),
    )  # fmt: skip
    x = data(rows * n, dtype)
    if kind in ("max", "min") and dtype == F32:
        x[5], x[100], x[700] = np.nan, -0.0, np.inf
    check(spec, [x, np.zeros(2 * rows + 1, numpy_dtype(dtype))], TARGETS[:1])


@pytest.mark.parametrize("n", [1024, 1025, 2091])
@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("dtype", [F32, "float64"])
def test_long_sums_are_taken_in_blocks(n: int, across: bool, dtype: str) -> None:
    """The mean, what it lacks, squares about it, and beside them a maximum and a product, which
    know no blocks."""
    rows = 19
    strides = (1, rows) if across else (n, 1)
    x = Input(0, dtype)
    mean = trace(lambda m, x, s: m.div(s, m.const(n, dtype)), [dtype] * 2)
    apart = trace(lambda m, x, mean: m.sub(x, mean), [dtype] * 2)
    ratio = trace(lambda m, x, mean: m.div(x, mean), [dtype] * 2)
    stages = (
        Stage("sum", x, mean),
        Stage("sum", apart),
        Stage("squares", apart),
        Stage("max", apart),
        Stage("prod", ratio),
    )
    results = tuple((Access(dtype, (1,)), Input(1 + i, dtype)) for i in range(5))
    spec = ReduceSpec((rows,), (n,), (Access(dtype, strides),), stages, results)
    values = 40 + data(rows * n, dtype) / 50
    check(spec, [values.astype(dtype), *(np.zeros(rows, dtype) for _ in results)])


@pytest.mark.parametrize("together", [False, True])
def test_long_sums_over_several_dims(together: bool) -> None:
    """Blocks that end within a line of the last dim, at any place of it."""
    dims = (3, 37, 5, 17)
    order = (0, 1, 2, 3) if together else (2, 0, 1, 3)
    strides = tuple(dense(*dims)[d] for d in order)
    outer, reduced = (dims[order[0]],), tuple(dims[d] for d in order[1:])
    reads = Access(F32, strides)
    spec = ReduceSpec(
        outer, reduced, (reads,), (mean(int(np.prod(reduced))), Stage("squares", X)),
        tuple((Access(F32, (2,), 1), Input(1 + i, F32)) for i in range(2)), ((reads, X),),
    )  # fmt: skip
    size = int(np.prod(dims))
    results = (np.zeros(n, np.float32) for n in (2 * outer[0], 2 * outer[0], size))
    check(spec, [data(size), *results])


def test_squares_are_of_float32_or_float64() -> None:
    x = Input(0, "int32")
    with pytest.raises(ValueError, match="squares of int32"):
        ReduceSpec(
            (2,), (3,), (Access("int32", (3, 1)),), (Stage("squares", x),),
            ((Access("int32", (1,)), Input(1, "int32")),),
        )  # fmt: skip


@pytest.mark.parametrize("across", [False, True])
def test_long_sums_of_numbers_that_are_none(across: bool) -> None:
    n, rows = 2060, 5
    x = np.ones((rows, n), np.float32)
    x[0, 5], x[1, 1030], x[2, 2059], x[3] = np.inf, np.nan, -np.inf, 1e36
    spec = ReduceSpec(
        (rows,), (n,), (Access(F32, (1, rows) if across else (n, 1)),), (Stage("sum", X),),
        ((Access(F32, (1,)), Input(1, F32)),),
    )  # fmt: skip
    check(spec, [np.ascontiguousarray(x.T if across else x).ravel(), np.zeros(rows, np.float32)])


@pytest.mark.parametrize("n", [0, 1, 2, 15, 16, 17, 64, 65, 200])
@pytest.mark.parametrize("across", [False, True])
def test_rows_of_any_length(n: int, across: bool) -> None:
    rows = 19
    strides = (1, rows) if across else (n, 1)
    spec = ReduceSpec(
        (rows,), (n,), (Access(F32, strides),), (Stage("sum", X),),
        ((Access(F32, (1,)), Input(1, F32)),),
    )  # fmt: skip
    check(spec, [data(max(rows * n, 1)), np.zeros(rows, np.float32)], TARGETS[:1])


@pytest.mark.parametrize("h,w", [(7, 7), (9, 11), (5, 32), (14, 14)])
def test_global_average_pool_on_a_padded_blocked_tensor(h: int, w: int) -> None:
    n, blocks = 2, 3
    row = (w + 2) * 16
    block = (h + 2) * row
    strides = (blocks * block, block, 1, row, 16)
    spec = ReduceSpec(
        (n, blocks, 16), (h, w), (Access(F32, strides, row + 16),), (mean(h * w),),
        ((Access(F32, (blocks * 16, 16, 1)), Input(1, F32)),),
    )  # fmt: skip
    x = data(n * blocks * block)
    check(spec, [x, np.zeros(n * blocks * 16, np.float32)])
    planar = x.reshape(n, blocks, h + 2, w + 2, 16)[:, :, 1:-1, 1:-1]
    want = reduce(planar, [2, 3]).ravel() / np.float32(h * w)
    np.testing.assert_array_equal(
        expected(spec, [x, np.zeros(n * blocks * 16, np.float32)])[0], want
    )


def test_planar_rows_that_are_not_contiguous() -> None:
    h, w = 9, 13  # a border: rows of the image do not follow each other
    for width in (w, 16):
        pitch = width + 3
        spec = ReduceSpec(
            (2, 3), (h, width), (Access(F32, (3 * h * pitch, h * pitch, pitch, 1)),),
            (mean(h * width),), ((Access(F32, (3, 1)), Input(1, F32)),),
        )  # fmt: skip
        check(spec, [data(6 * h * pitch), np.zeros(6, np.float32)])


def test_layer_norm_with_scale_and_bias() -> None:
    rows, n = 6, 77
    variance = trace(lambda m, x, s, b, mu: m.mul(m.sub(x, mu), m.sub(x, mu)), [F32] * 4)
    average = trace(lambda m, x, s, b, t: m.div(t, m.const(n, F32)), [F32] * 4)
    inverse = trace(
        lambda m, x, s, b, mu, v: m.call(
            "rsqrt", m.add(m.div(v, m.const(n, F32)), m.const(1e-5, F32))
        ),
        [F32] * 5,
    )
    result = trace(lambda m, x, s, b, mu, r: m.fma(m.mul(m.sub(x, mu), r), s, b), [F32] * 5)
    x, per_element = Access(F32, (n, 1)), Access(F32, (0, 1))
    spec = ReduceSpec(
        (rows,), (n,), (x, per_element, per_element),
        (Stage("sum", X, average), Stage("sum", variance, inverse)),
        ((Access(F32, (1,)), Input(3, F32)),), ((x, result),),
    )  # fmt: skip
    check(spec, [data(rows * n), data(n), data(n, seed=2), np.zeros(rows, np.float32),
                 np.zeros(rows * n, np.float32)])  # fmt: skip


def test_instance_norm_reads_values_per_row() -> None:
    c, hw = 21, 30
    result = trace(lambda m, x, s, mu: m.mul(m.sub(x, mu), s), [F32] * 3)
    average = trace(lambda m, x, s, t: m.div(t, m.const(hw, F32)), [F32] * 3)
    for strides in ((c * hw, hw, 1), (c * hw, 1, c)):
        x = Access(F32, strides)
        spec = ReduceSpec(
            (2, c), (hw,), (x, Access(F32, (0, 1, 0))), (Stage("sum", X, average),),
            (), ((x, result),),
        )  # fmt: skip
        check(spec, [data(2 * c * hw), data(c), np.zeros(2 * c * hw, np.float32)])


def test_half_precision_is_reduced_in_float32() -> None:
    rows, n = 5, 70
    wide = trace(lambda m, x: m.convert(x, F32), ["float16"])
    narrow = trace(lambda m, x, s: m.convert(s, "float16"), ["float16", F32])
    spec = ReduceSpec(
        (rows,), (n,), (Access("float16", (n, 1)),), (Stage("sum", wide),),
        ((Access("float16", (1,)), narrow),),
    )  # fmt: skip
    x = data(rows * n, "float16")
    out = np.zeros(rows, np.float16)
    check(spec, [x, out])
    np.testing.assert_array_equal(expected(spec, [x, out])[0], reduce(x.reshape(rows, n), [1]))


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_any_permutation_of_dims(draw: st.DataObject) -> None:
    rank = draw.draw(st.integers(1, 4))
    dims = tuple(draw.draw(st.sampled_from([1, 2, 3, 5, 16, 18])) for _ in range(rank))
    split = draw.draw(st.integers(0, rank))
    strides, size = [0] * rank, 1
    for d in draw.draw(st.permutations(range(rank))):
        strides[d] = size
        size *= dims[d] + draw.draw(st.integers(0, 1))
    access = Access(F32, tuple(strides))
    outer = dims[:split]
    result = trace(lambda m, x, s: m.sub(x, s), [F32] * 2)
    spec = ReduceSpec(
        outer, dims[split:], (access,), (Stage("sum", X),),
        ((Access(F32, dense(*outer) if outer else ()), Input(1, F32)),), ((access, result),),
    )  # fmt: skip
    n_rows = int(np.prod(outer, dtype=int))
    check(spec, [data(size), np.zeros(n_rows, np.float32), np.zeros(size, np.float32)], TARGETS[:1])


def test_wrong_specs_are_refused() -> None:
    row, element = Access(F32, (1,)), Access(F32, (5, 1))
    with pytest.raises(ValueError, match="unknown reduction"):
        ReduceSpec((3,), (5,), (element,), (Stage("median", X),), ((row, Input(1, F32)),))
    with pytest.raises(ValueError, match="differs within a row"):
        ReduceSpec((3,), (5,), (element,), (Stage("sum", X),), ((row, X),))
    with pytest.raises(ValueError, match="not known"):
        ReduceSpec((3,), (5,), (element,), (Stage("sum", Input(1, F32)),), ((row, Input(1, F32)),))
    with pytest.raises(ValueError, match="strides"):
        ReduceSpec((3,), (5,), (row,), (Stage("sum", X),), ((row, Input(1, F32)),))


@pytest.mark.skipif(not GUARDS, reason="needs mprotect")
@pytest.mark.parametrize("at_start", [False, True])
def test_nothing_is_touched_outside_the_arrays(at_start: bool) -> None:
    for target in TARGETS:
        module = ModuleBuilder("guards", target)
        specs = [softmax((5, 37), 1), softmax((2, 19, 35), 1), softmax((70, 21), 0)]
        kernels = [written(module, spec) for spec in specs]
        native = Native(module)
        for spec, kernel in zip(specs, kernels):
            x = data(spec.rows * spec.length)
            out = guarded(np.zeros_like(x), at_start)
            native.run(kernel, [guarded(x, at_start), out])
            assert_same_bits(out, expected(spec, [x, np.zeros_like(x)])[0])


def test_arm_code_can_be_generated() -> None:
    module = ModuleBuilder("arm", Target.aarch64())
    written(module, softmax((5, 37), 1))
    written(module, softmax((5, 37, 20), 1))
    assert len(object_code(module)) > 500


@pytest.mark.parametrize("n", [7, 16, 31, 80, 96, 100, 210, 1300, 7003])
@pytest.mark.parametrize("across", [False, True])
def test_a_stage_takes_some_of_the_elements(n: int, across: bool) -> None:
    """Every third and every fifth sixteen, beside a stage that takes all; rows of all lengths that
    have a way of their own."""
    rows = 21
    strides = (1, rows) if across else (n, 1)
    stages = (Stage("sum", X, group_stride=3), Stage("squares", X), Stage("max", X, group_stride=5))
    results = tuple((Access(F32, (1,)), Input(1 + i, F32)) for i in range(3))
    spec = ReduceSpec((rows,), (n,), (Access(F32, strides),), stages, results)
    check(spec, [data(rows * n), *(np.zeros(rows, np.float32) for _ in results)])


@pytest.mark.parametrize("rows", [3, 4, 8, 37, 150])
@pytest.mark.parametrize("n", [5, 33, 300])
def test_rows_in_step_are_finished_together(rows: int, n: int) -> None:
    """What each row has one of: a value that it reads, a float64 that a stage ends with, a row
    output, and something that its elements share."""
    total, wide = Input(2, F32), Input(2, "float64")
    half = trace(lambda m, t: m.mul(m.convert(t, "float64"), m.const(1 / 3, "float64")), [F32])
    centre = trace(lambda m, x, k, t: m.fma(x, k, m.convert(t, F32)), [F32, F32, "float64"])
    spec = ReduceSpec(
        (rows,), (n,), (Access(F32, (n, 1)), Access(F32, (1, 0))),
        (
            Stage("sum", X, compose(half, {0: total})),
            Stage("max", X),
            Stage("sum", trace(lambda m, x, k, t, top: m.sub(x, top), [F32, F32, "float64", F32])),
        ),
        ((Access(F32, (2,), 1), Input(4, F32)), (Access("float64", (1,)), wide)),
        ((Access(F32, (n, 1)), centre),),
    )  # fmt: skip
    out = [np.zeros(2 * rows, np.float32), np.zeros(rows), np.zeros(rows * n, np.float32)]
    check(spec, [data(rows * n), data(rows, seed=3), *out])


def test_a_sum_of_negative_zeros_is_zero() -> None:
    for n in (5, 32, 96, 1200):
        for strides in ((n, 1), (1, 6)):
            spec = ReduceSpec(
                (6,), (n,), (Access(F32, strides),), (Stage("sum", X),),
                ((Access(F32, (1,)), Input(1, F32)),),
            )  # fmt: skip
            check(spec, [np.full(6 * n, -0.0, np.float32), np.ones(6, np.float32)])
