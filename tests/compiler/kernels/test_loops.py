"""The loop kernel gives what indexing and NumpyArith give, for every way it can be executed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from native import GUARDS, TARGETS, Native, assert_same_bits, guarded, written

from verax.compiler.kernels.llvm.builder import ModuleBuilder
from verax.compiler.kernels.llvm.object_code import object_code
from verax.compiler.kernels.loops.loop import Access, Lookup, LoopSpec, emit_loop, plan_loop
from verax.compiler.kernels.target import Target
from verax.numerics.arith_numpy import NumpyArith
from verax.numerics.expr import Apply, Const, Input, evaluate_all, trace
from verax.numerics.formats import numpy_dtype

COPY = Input(0, "float32")
ADD = trace(lambda m, a, b: m.add(a, b), ["float32"] * 2)


def offsets(spec: LoopSpec, access: Access, arrays: list[np.ndarray]) -> np.ndarray:
    """The element offset of `access` at every index of the dims."""
    grid = np.full(spec.dims, access.offset, np.int64)
    for dim, stride in enumerate(access.strides):
        shape = [-1 if d == dim else 1 for d in range(len(spec.dims))]
        grid += np.arange(spec.dims[dim]).reshape(shape) * stride
    for look in access.lookups:
        index = arrays[look.input].ravel()[offsets(spec, spec.inputs[look.input], arrays)]
        index = np.where(index < 0, index + look.size, index)
        grid += np.where((index >= 0) & (index < look.size), index, 0) * look.stride
    return grid


def expected(spec: LoopSpec, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """What `spec` leaves in its outputs (the arrays after the inputs)."""
    inputs = [a.ravel()[offsets(spec, s, arrays)] for a, s in zip(arrays, spec.inputs)]
    values = evaluate_all(spec.exprs, NumpyArith(), inputs)
    results = [a.copy() for a in arrays[len(spec.inputs) :]]
    for result, access, value in zip(results, spec.outputs, values):
        result.ravel()[offsets(spec, access, arrays)] = value
    return results


def check(spec: LoopSpec, arrays: list[np.ndarray], targets: list[Target] = TARGETS) -> int:
    """Run on each target, in one piece and in two; the error flag."""
    want = expected(spec, arrays)
    flag = np.zeros(1, np.int32)
    for target in targets:
        module = ModuleBuilder("loops", target)
        kernel = written(module, spec)
        native = Native(module)
        for splits in ((), (kernel.items // 3,)):
            outs = [a.copy() for a in arrays[len(spec.inputs) :]]
            native.run(kernel, [*arrays[: len(spec.inputs)], *outs, flag], splits)
            for got, value in zip(outs, want):
                assert_same_bits(got, value)
    return int(flag[0])


def data(size: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed + size)
    if dtype == "bool":
        return rng.integers(0, 2, size).astype(bool)
    return (rng.normal(size=size) * 50).astype(numpy_dtype(dtype))


def dense(*dims: int) -> tuple[int, ...]:
    strides = np.cumprod((1, *dims[:0:-1]))[::-1]
    return tuple(int(s) for s in strides)


def read(strides: tuple[int, ...], offset: int = 0, dtype: str = "float32") -> Access:
    return Access(dtype, strides, offset)


@pytest.mark.parametrize("size", [1, 15, 16, 17, 1000, 4096 * 2 + 16, 4096 * 3 + 5])
def test_elementwise_on_any_length(size: int) -> None:
    spec = LoopSpec((size,), (read((1,)), read((1,))), (read((1,)),), (ADD,))
    check(spec, [data(size), data(size, seed=1), np.zeros(size, np.float32)])


def test_a_scalar_without_dims() -> None:
    spec = LoopSpec((), (read(()), read(())), (read(()),), (ADD,))
    check(spec, [data(1), data(1, seed=3), np.zeros(1, np.float32)])


def test_no_elements_no_work() -> None:
    spec = LoopSpec((3, 0, 5), (read((0, 5, 1)),), (read((0, 5, 1)),), (COPY,))
    assert plan_loop(spec).items == 0
    assert emit_loop(ModuleBuilder("none", TARGETS[0]), spec).items == 0


def test_broadcast_on_planar_and_on_blocked_tensors() -> None:
    n, c, h, w = 2, 5, 3, 7
    planar = LoopSpec(
        (n, c, h, w), (read(dense(n, c, h, w)), read((0, 1, 0, 0))),
        (read(dense(n, c, h, w)),), (ADD,),
    )  # fmt: skip
    size = n * c * h * w
    check(planar, [data(size), data(c), np.zeros(size, np.float32)])
    blocks, row = 3, (w + 2) * 16  # a blocked tensor with a border of one pixel
    padded = blocks * (h + 2) * row
    strides = (padded, (h + 2) * row, row, 16, 1)
    blocked = LoopSpec(
        (n, blocks, h, w, 16), (read(strides, row + 16), read((0, 16, 0, 0, 1))),
        (read(strides, row + 16),), (ADD,),
    )  # fmt: skip
    check(blocked, [data(n * padded), data(48), np.zeros(n * padded, np.float32)])


@pytest.mark.parametrize(
    "dims,order",
    [((33, 50), (1, 0)), ((2, 5, 19, 35), (0, 2, 3, 1)), ((3, 4, 17, 5), (3, 1, 0, 2)),
     ((16, 16), (1, 0)), ((2, 48, 20), (0, 2, 1)), ((130, 3, 37), (2, 0, 1))],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["float32", "uint8", "int64", "bool"])
def test_transposes(dims: tuple[int, ...], order: tuple[int, ...], dtype: str) -> None:
    source = dense(*dims)
    out = tuple(dims[d] for d in order)
    spec = LoopSpec(
        out, (read(tuple(source[d] for d in order), dtype=dtype),),
        (read(dense(*out), dtype=dtype),), (Input(0, dtype),),
    )  # fmt: skip
    x, y = data(int(np.prod(dims)), dtype), np.zeros(out, numpy_dtype(dtype))
    np.testing.assert_array_equal(expected(spec, [x, y])[0], x.reshape(dims).transpose(order))
    check(spec, [x, y], TARGETS if dtype == "float32" else TARGETS[:1])


def test_layout_conversion_both_ways_with_a_channel_tail() -> None:
    n, c, h, w = 2, 21, 3, 19
    x = data(n * c * h * w)
    for first, lanes in ((0, 16), (16, 5)):  # a full block, then the tail
        planar = read((c * h * w, w, 1, h * w), first * h * w)
        block = read((2 * h * w * 16, w * 16, 16, 1), first * h * w)
        into = LoopSpec((n, h, w, lanes), (planar,), (block,), (COPY,))
        blocked = np.zeros(n * 2 * h * w * 16, np.float32)
        check(into, [x, blocked])
        back = LoopSpec((n, h, w, lanes), (block,), (planar,), (COPY,))
        check(back, [data(len(blocked)), np.zeros_like(x)])


def test_a_transposed_operand_meets_straight_and_broadcast_ones() -> None:
    rows, columns = 37, 21
    expr = trace(lambda m, a, b, c, d: m.fma(a, b, m.mul(c, d)), ["float32"] * 4)
    spec = LoopSpec(
        (rows, columns), (read((1, rows)), read((columns, 1)), read((0, 1)), read((1, 0))),
        (read((columns, 1)),), (expr,),
    )  # fmt: skip
    assert plan_loop(spec).tile is not None
    size = rows * columns
    check(spec, [data(size), data(size, seed=1), data(columns), data(rows),
                 np.zeros(size, np.float32)])  # fmt: skip


def test_casts_comparisons_and_several_outputs() -> None:
    n = 133
    less = trace(lambda m, a, b: m.lt(a, b), ["float32"] * 2)
    chosen = trace(lambda m, a, b: m.convert(m.select(m.lt(a, b), a, b), "int64"), ["float32"] * 2)
    half = trace(lambda m, a, b: m.convert(m.tanh(a), "float16"), ["float32"] * 2)
    spec = LoopSpec(
        (n,), (read((1,)), read((1,))),
        (read((1,), dtype="bool"), read((1,), dtype="int64"), read((1,), dtype="float16")),
        (less, chosen, half),
    )  # fmt: skip
    outs = [np.zeros(n, bool), np.zeros(n, np.int64), np.zeros(n, np.float16)]
    check(spec, [data(n), data(n, seed=4), *outs])


def test_where_reads_a_mask_whose_true_is_any_byte() -> None:
    n = 40
    expr = trace(lambda m, c, a: m.select(c, a, m.neg(a)), ["bool", "float32"])
    spec = LoopSpec((n,), (read((1,), dtype="bool"), read((1,))), (read((1,)),), (expr,))
    mask = (np.arange(n) % 3).astype(np.uint8)
    out = np.zeros(n, np.float32)
    module = ModuleBuilder("mask", TARGETS[0])
    kernel = written(module, spec)
    x = data(n)
    Native(module).run(kernel, [mask, x, out])
    np.testing.assert_array_equal(out, np.where(mask != 0, x, -x))


def test_fill_slice_and_reverse() -> None:
    fill = LoopSpec((3, 50), (), (read((70, 1), 7),), (Const(-0.5, "float32"),))
    check(fill, [data(300)])
    backwards = LoopSpec((4, 45), (read((50, -1), 49),), (read((45, 1)),), (COPY,))
    check(backwards, [data(200), np.zeros(180, np.float32)])
    strided = LoopSpec((4, 23), (read((50, 2), 1),), (read((69, 3), 2),), (COPY,))
    check(strided, [data(200), data(276)])


def test_in_place() -> None:
    expr = trace(lambda m, x: m.exp(x), ["float32"])
    spec = LoopSpec((5, 37), (read((40, 1)),), (read((40, 1)),), (expr,))
    x = data(200) / np.float32(20)
    want = expected(spec, [x, x])[0]
    module = ModuleBuilder("inplace", TARGETS[0])
    kernel = written(module, spec)
    Native(module).run(kernel, [x, x])
    assert_same_bits(x, want)


@pytest.mark.parametrize("index_dtype", ["int32", "int64"])
def test_gather_over_an_outer_and_over_the_inner_axis(index_dtype: str) -> None:
    rows, columns, k = 9, 21, 37
    x = data(rows * columns)
    rng = np.random.default_rng(0)
    index = rng.integers(-rows, rows, k).astype(index_dtype)
    outer = LoopSpec(
        (k, columns),
        (Access("float32", (0, 1), 0, (Lookup(1, rows, columns),)), read((1, 0), 0, index_dtype)),
        (read((columns, 1)),), (COPY,),
    )  # fmt: skip
    assert check(outer, [x, index, np.zeros(k * columns, np.float32)]) == 0
    index = rng.integers(-columns, columns, k).astype(index_dtype)
    inner = LoopSpec(
        (rows, k),
        (Access("float32", (columns, 0), 0, (Lookup(1, columns, 1),)),
         read((0, 1), 0, index_dtype)),
        (read((k, 1)),), (COPY,),
    )  # fmt: skip
    assert check(inner, [x, index, np.zeros(k * rows, np.float32)]) == 0


@pytest.mark.parametrize("bad", [9, -10, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("axis", [0, 1])
def test_an_index_out_of_range_raises_the_flag_and_reads_inside(bad: int, axis: int) -> None:
    size, k, other = 9, 21, 3
    index = np.arange(k, dtype=np.int32) % size
    index[17] = bad
    if axis == 0:
        data_access = Access("float32", (0, 1), 0, (Lookup(1, size, other),))
        spec = LoopSpec(
            (k, other), (data_access, read((1, 0), 0, "int32")), (read((other, 1)),), (COPY,)
        )
    else:
        data_access = Access("float32", (size, 0), 0, (Lookup(1, size, 1),))
        spec = LoopSpec(
            (other, k), (data_access, read((0, 1), 0, "int32")), (read((k, 1)),), (COPY,)
        )
    assert check(spec, [data(size * other), index, np.zeros(k * other, np.float32)]) == 1


def test_lookups_combine_as_in_a_linear_resize() -> None:
    h, w, oh, ow = 5, 7, 11, 13
    rng = np.random.default_rng(1)
    lerp = trace(
        lambda m, a, b, t, rows, columns: m.fma(m.sub(b, a), t, a),
        ["float32"] * 3 + ["int32"] * 2,
    )
    y, x = (Lookup(3, h, w, False), Lookup(4, w, 1, False))
    spec = LoopSpec(
        (2, oh, ow),
        (Access("float32", (h * w, 0, 0), 0, (y, x)), Access("float32", (h * w, 0, 0), 1, (y,)),
         read((0, 0, 1)), read((0, 1, 0), 0, "int32"), read((0, 0, 1), 0, "int32")),
        (read(dense(2, oh, ow)),), (lerp,),
    )  # fmt: skip
    image = data(2 * h * w)
    tables = [rng.integers(0, h, oh).astype(np.int32), rng.integers(0, w, ow).astype(np.int32)]
    assert not spec.checked
    check(spec, [image, image, data(ow), *tables, np.zeros(2 * oh * ow, np.float32)])


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_strides_give_what_indexing_gives(draw: st.DataObject) -> None:
    rank = draw.draw(st.integers(1, 4))
    dims = tuple(draw.draw(st.sampled_from([1, 2, 3, 7, 16, 18, 35])) for _ in range(rank))
    order = draw.draw(st.permutations(range(rank)))
    strides = [0] * rank
    size = 1
    for d in order:  # a permuted dense output, perhaps with gaps
        strides[d] = size
        size *= dims[d] + draw.draw(st.integers(0, 1))
    accesses = []
    sizes = []
    for _ in range(2):
        kept = [draw.draw(st.integers(0, 3)) > 0 for _ in range(rank)]
        step, total = [0] * rank, 1
        for d in draw.draw(st.permutations(range(rank))):
            if kept[d]:
                step[d] = total
                total *= dims[d]
        accesses.append(read(tuple(step), 3))
        sizes.append(total + 3)
    spec = LoopSpec(dims, tuple(accesses), (read(tuple(strides)),), (ADD,))
    check(spec, [data(sizes[0]), data(sizes[1]), np.zeros(size, np.float32)], TARGETS[:1])


def test_wrong_specs_are_refused() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        LoopSpec((3, 4), (read((1,)),), (read((4, 1)),), (COPY,))
    with pytest.raises(ValueError, match="stored as"):
        LoopSpec((3,), (read((1,)),), (read((1,), dtype="int32"),), (COPY,))
    with pytest.raises(ValueError, match="does not exist"):
        LoopSpec((3,), (read((1,)),), (read((1,)),), (ADD,))
    with pytest.raises(ValueError, match="index"):
        LoopSpec((3,), (Access("float32", (0,), 0, (Lookup(0, 3, 1),)),), (read((1,)),), (COPY,))
    assert isinstance(ADD, Apply)


@pytest.mark.skipif(not GUARDS, reason="needs mprotect")
@pytest.mark.parametrize("at_start", [False, True])
def test_nothing_is_touched_outside_the_arrays(at_start: bool) -> None:
    index = np.array([0, 8, 9, -9, -10, 2**31 - 1, -(2**31), 3, 1, 2, 4], np.int32)
    gather = Access("float32", (0, 0), 0, (Lookup(1, 9, 1),))
    bits = trace(lambda m, x: m.lt(x, m.const(0, "float32")), ["float32"])
    cases = [
        (LoopSpec((37,), (read((1,)),), (read((1,)),), (COPY,)), [data(37)], 37, "float32"),
        (LoopSpec((37,), (read((1,)),), (read((1,), dtype="bool"),), (bits,)), [data(37)], 37,
         "bool"),
        (LoopSpec((21, 35), (read((1, 21)),), (read((35, 1)),), (COPY,)), [data(735)], 735,
         "float32"),
        (LoopSpec((3, 11), (gather, read((0, 1), 0, "int32")), (read((11, 1)),), (COPY,)),
         [data(9), index], 33, "float32"),
        (LoopSpec((5, 9), (read((9, -1), 8),), (read((9, 1)),), (COPY,)), [data(45)], 45,
         "float32"),
    ]  # fmt: skip
    for target in TARGETS:
        module = ModuleBuilder("guards", target)
        kernels = [written(module, spec) for spec, *_ in cases]
        native = Native(module)
        for kernel, (spec, inputs, size, dtype) in zip(kernels, cases):
            out = guarded(np.zeros(size, dtype), at_start)
            safe = [guarded(x, at_start) for x in inputs]
            native.run(kernel, [*safe, out, guarded(np.zeros(1, np.int32), at_start)])
            assert_same_bits(out, expected(spec, [*inputs, np.zeros(size, dtype)])[0])


def test_arm_code_can_be_generated() -> None:
    module = ModuleBuilder("arm", Target.aarch64())
    written(module, LoopSpec((33, 50), (read((1, 33)),), (read((50, 1)),), (COPY,)))
    assert len(object_code(module)) > 500
