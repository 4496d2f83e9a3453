"""One emitter serves programs made for one size and programs made for all: the same bits.

Each family's spec is compiled once with sizes that are read from a table of dims, and run on many
sizes; each time a program made for these sizes gives what it must give.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from native import GUARDS, TARGETS, Native, assert_same_bits, guarded

from verax.compiler.kernels.convolution.pack import pack_channels
from verax.compiler.kernels.dtypes import FLOAT32
from verax.compiler.kernels.layout import Epilogue
from verax.compiler.kernels.llvm.builder import Kernel, ModuleBuilder
from verax.compiler.kernels.llvm.object_code import object_code
from verax.compiler.kernels.loops.loop import Access, Lookup, LoopSpec
from verax.compiler.kernels.products.gemm import GemmSpec, Matrix, PackSpec, pack_b, tensor_operand
from verax.compiler.kernels.registry import Schedule, Spec, emit, schedules
from verax.compiler.kernels.sizes import (
    Size,
    ceil_div,
    entries,
    entry,
    equal,
    maximum,
    minimum,
    static_size,
    value,
    with_dims,
)
from verax.compiler.kernels.target import Target
from verax.ir.dim import Dim, UndecidedError
from verax.numerics.expr import Apply, Input, trace
from verax.numerics.formats import numpy_dtype

D = [entry(i) for i in range(5)]
SENTINEL = 77


class Compiled:
    """One kernel; `runs` counts how often it served."""

    def __init__(self, spec: Spec, target: Target, schedule: Schedule = None) -> None:
        module = ModuleBuilder("net", target)
        self.spec, self.schedule = spec, schedule or schedules(spec, target)[0]
        kernel = emit(module, spec, self.schedule)
        self.kernel, self.native = kernel, Native(module)

    def run(self, arrays: Sequence[np.ndarray], dims: Sequence[int], pieces: int = 1) -> None:
        """All items, in `pieces` calls. dims: the table, of which known specs have no need."""
        table = np.array(dims, np.int64)
        items = value(self.kernel.items, dims)
        kernel = Kernel(self.kernel.name, items, blocks=value(self.kernel.blocks, dims))
        splits = [items * i // pieces for i in range(1, pieces)]
        self.native.run(kernel, [*arrays, table] if entries(self.spec) else arrays, splits)


def in_memory(array: np.ndarray) -> np.ndarray:
    """A copy whose end is the end of the memory that may be touched, where that can be had."""
    return guarded(array) if GUARDS else array.copy()


# --- elementwise loops


def dense(*dims: Size) -> tuple[Size, ...]:
    strides: list[Size] = [1]
    for n in dims[:0:-1]:
        strides.insert(0, strides[0] * n)
    return tuple(strides)


ADD = trace(lambda m, a, b: m.add(a, b), ["float32"] * 2)
HEAVY = trace(lambda m, a: m.erf(m.exp(a)), ["float32"])
TO_INT = trace(lambda m, a: m.convert(a, "int8"), ["float32"])
IS_SMALL = trace(lambda m, a, b: m.lt(a, b), ["float32"] * 2)
F32 = "float32"
ROWS, COLUMNS, DEPTH = D[:3]
DENSE = Access(F32, dense(ROWS, COLUMNS))
LOOPS = {
    "one dim": LoopSpec((ROWS,), (Access(F32, (1,)),) * 2, (Access(F32, (1,)),), (ADD,)),
    "merged": LoopSpec((ROWS, COLUMNS), (DENSE, DENSE), (DENSE,), (ADD,)),
    "along rows": LoopSpec((ROWS, COLUMNS), (DENSE, Access(F32, (0, 1))), (DENSE,), (ADD,)),
    "along columns": LoopSpec((ROWS, COLUMNS), (DENSE, Access(F32, (1, 0))), (DENSE,), (ADD,)),
    "scalar": LoopSpec((ROWS, COLUMNS), (DENSE, Access(F32, (0, 0))), (DENSE,), (ADD,)),
    "expensive": LoopSpec((ROWS, COLUMNS), (Access(F32, (COLUMNS + 3, 1)),), (DENSE,), (HEAVY,)),
    "to int8": LoopSpec(
        (ROWS, COLUMNS), (DENSE,), (Access("int8", dense(ROWS, COLUMNS)),), (TO_INT,)
    ),
    "to bool": LoopSpec(
        (ROWS, COLUMNS), (DENSE, Access(F32, (1, 0))),
        (Access("bool", dense(ROWS, COLUMNS)),), (IS_SMALL,),
    ),
    "transposed": LoopSpec(
        (DEPTH, ROWS, COLUMNS), (Access(F32, (ROWS * COLUMNS, 1, ROWS)),),
        (Access(F32, dense(DEPTH, ROWS, COLUMNS)),), (Input(0, F32),),
    ),
    "known rows transposed": LoopSpec(
        (37, COLUMNS), (Access(F32, (1, 37)),), (Access(F32, (COLUMNS, 1)),), (Input(0, F32),)
    ),
    "known columns transposed": LoopSpec(
        (ROWS, 37), (Access(F32, (1, ROWS)),), (Access("int8", (37, 1)),), (TO_INT,)
    ),
    "columns gathered and turned": LoopSpec(
        (DEPTH, ROWS),
        (Access(F32, (1, 0), 0, (Lookup(1, COLUMNS, DEPTH),)), Access("int32", (0, 1)),
         Access(F32, (1, DEPTH))),
        (Access(F32, dense(DEPTH, ROWS)),),
        (trace(lambda m, a, _, c: m.add(a, c), [F32, "int32", F32]),),
    ),
    "backwards": LoopSpec(
        (ROWS, COLUMNS), (Access(F32, (COLUMNS, -1), COLUMNS - 1),), (DENSE,), (Input(0, F32),)
    ),
    "every other written": LoopSpec(
        (ROWS, COLUMNS), (DENSE,), (Access(F32, (2 * COLUMNS, 2), 1),), (Input(0, F32),)
    ),
    "known columns": LoopSpec(
        (ROWS, 21), (Access(F32, (21, 1)), Access(F32, (0, 1))), (Access(F32, (21, 1)),), (ADD,)
    ),
    "known rows": LoopSpec((3, COLUMNS), (Access(F32, (COLUMNS, 1)),) * 2,
                           (Access(F32, (COLUMNS, 1)),), (ADD,)),
    "rows gathered": LoopSpec(
        (DEPTH, COLUMNS),
        (Access(F32, (0, 1), 0, (Lookup(1, ROWS, COLUMNS),)), Access("int64", (1, 0))),
        (Access(F32, dense(DEPTH, COLUMNS)),), (Input(0, F32),),
    ),
    "columns gathered": LoopSpec(
        (DEPTH, ROWS),
        (Access(F32, (COLUMNS, 0), 0, (Lookup(1, COLUMNS, 1),)), Access("int32", (0, 1))),
        (Access(F32, dense(DEPTH, ROWS)),), (Input(0, F32),),
    ),
}  # fmt: skip
"""Specs over a table of (rows, columns, depth)."""
TABLES = [(1, 1, 1), (2, 3, 1), (1, 16, 5), (3, 17, 2), (16, 15, 3), (17, 64, 2), (5, 127, 1),
          (31, 33, 7), (2, 4099, 1), (9001, 1, 1), (4096, 2, 1)]  # fmt: skip


def operands_of(spec: LoopSpec, seed: int) -> list[np.ndarray]:
    """Arrays of just the size that the known `spec` reads and writes; indices in range."""
    rng = np.random.default_rng(seed)
    arrays = []
    for access in (*spec.inputs, *spec.outputs):
        reach = [static_size(look.stride) * (static_size(look.size) - 1) for look in access.lookups]
        steps = [
            static_size(s) * (static_size(n) - 1)
            for s, n in zip(access.strides, spec.dims, strict=True)
        ]
        size = static_size(access.offset) + sum(s for s in steps if s > 0) + sum(reach) + 1
        if access.dtype.startswith("int"):
            axis = next((static_size(look.size) for a in spec.inputs for look in a.lookups), 100)
            made = rng.integers(-axis, axis, size)
        else:
            made = rng.standard_normal(size) * 20
        arrays.append(in_memory(made.astype(numpy_dtype(access.dtype))))
    return arrays


@pytest.mark.checkered
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_for_all_sizes_has_the_bits_of_loops_for_one(name: str, target: Target) -> None:
    generic = Compiled(LOOPS[name], target)
    for seed, table in enumerate(TABLES):
        spec = with_dims(LOOPS[name], table)
        assert not entries(spec)
        arrays, n = operands_of(spec, seed), len(spec.inputs)
        flag = np.zeros(1, np.int32)
        want = [a.copy() for a in arrays[n:]]
        Compiled(spec, target).run([*arrays[:n], *want, *[flag] * spec.checked], table)
        for pieces in (1, 3):
            got = [in_memory(a) for a in arrays[n:]]
            generic.run([*arrays[:n], *got, *[flag] * spec.checked], table, pieces)
            for a, b in zip(got, want, strict=True):
                assert_same_bits(a, b)
        assert flag[0] == 0


def test_an_index_beyond_a_size_of_the_table_is_noticed() -> None:
    spec = LOOPS["rows gathered"]
    generic = Compiled(spec, TARGETS[0])
    x = np.arange(12, dtype=np.float32)
    for rows, index, bad in ((4, 3, 0), (4, 4, 1), (3, 3, 1), (4, -4, 0), (3, -4, 1)):
        y, flag = np.zeros(3, np.float32), np.zeros(1, np.int32)
        generic.run([x, np.array([index]), y, flag], (rows, 3, 1))
        assert flag[0] == bad
        wanted = 0 if bad else index % rows
        np.testing.assert_array_equal(y, x[3 * wanted : 3 * wanted + 3])


# --- products


SCALED = trace(lambda m, acc, other: m.add(acc, m.max(other, m.like(0.5, other))), [F32] * 2)


def product(
    m: Size, n: Size, k: Size, outer: Size, inner: Size, form: str
) -> tuple[GemmSpec, Matrix]:
    """A product in one of the forms, and how its right factor lies."""
    y = Matrix(n, 1, inner * m * n, m * n)
    a, b = Matrix(k, 1, inner * m * k, m * k), Matrix(n, 1, inner * k * n, k * n)
    if form == "transposed":
        a, b = Matrix(1, m, inner * m * k, m * k), Matrix(1, k, inner * k * n, k * n)
    spec = GemmSpec(m, n, k, a, y, outer, inner, form == "constant", types=FLOAT32)
    if form == "constant":
        return GemmSpec(m, n, k, a, y, outer, inner, True, "column", types=FLOAT32), b
    if form == "fused":
        epilogue = Epilogue(SCALED, (tensor_operand(spec, y),))
        start = Matrix(0, 1)
        return (
            GemmSpec(m, n, k, a, y, outer, inner, False, "matrix", start, epilogue, types=FLOAT32),
            b,
        )
    return spec, b


FORMS = ("constant", "computed", "transposed", "fused")
SIZES = [(1, 1, 1, 1, 1), (1, 16, 16, 1, 1), (5, 17, 3, 1, 2), (6, 64, 32, 2, 1), (7, 63, 33, 1, 1),
         (13, 31, 47, 2, 3), (12, 65, 16, 3, 2), (11, 97, 1, 1, 1), (30, 15, 130, 1, 1),
         (101, 113, 37, 1, 1), (2, 300, 15, 1, 3)]  # fmt: skip
"""m, n, k and both batches."""
READ = {"all": "mnkoi", "m": "m", "n": "n", "k": "k", "m, n and batches": "mnoi"}
"""Which sizes are read at run time."""


class Product:
    """The kernels of one product: packing the right factor, and multiplying."""

    def __init__(self, sizes: Sequence[Size], form: str, target: Target) -> None:
        m, n, k, outer, inner = sizes
        self.spec, b = product(m, n, k, outer, inner, form)
        self.multiply = Compiled(self.spec, target)
        self.pack = Compiled(PackSpec(self.spec, b), target, self.multiply.schedule)

    def run(self, sizes: Sequence[int], form: str, seed: int, pieces: int) -> np.ndarray:
        m, n, k, outer, inner = sizes
        rng = np.random.default_rng(seed)

        def random(*shape: int) -> np.ndarray:
            return in_memory(rng.standard_normal(shape).astype(np.float32))

        spec = with_dims(self.spec, sizes)
        a, y = random(outer, inner, m, k), np.full((outer, inner, m, n), SENTINEL, np.float32)
        if form == "constant":
            right = in_memory(pack_b(random(k, n), spec, self.multiply.schedule))
            rest = [pack_channels(random(n))]
        else:
            right = in_memory(
                np.zeros(outer * inner * static_size(spec.packed_elements), np.float32)
            )
            self.pack.run([random(outer, inner, k, n), right], sizes, pieces)
            rest = [random(n), random(outer, inner, m, n)] if form == "fused" else []
        y = in_memory(y)
        self.multiply.run([a, right, *rest, y], sizes, pieces)
        return y


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@pytest.mark.parametrize("form", FORMS)
def test_a_product_for_all_sizes_has_the_bits_of_products_for_one(
    form: str, target: Target
) -> None:
    generic = Product(D, form, target)
    assert entries(generic.spec) == 5
    for seed, sizes in enumerate(SIZES):
        sizes = (*sizes[:3], 1, 1) if form == "constant" else sizes
        want = Product(sizes, form, target).run(sizes, form, seed, 1)
        assert not (want == SENTINEL).any()
        for pieces in (1, 3):
            assert_same_bits(generic.run(sizes, form, seed, pieces), want)


@pytest.mark.parametrize("read", READ)
def test_any_choice_of_sizes_may_be_read_at_run_time(read: str) -> None:
    for seed, sizes in enumerate([(13, 31, 47, 2, 3), (6, 64, 32, 2, 1)]):
        some = [D[i] if "mnkoi"[i] in READ[read] else sizes[i] for i in range(5)]
        want = Product(sizes, "fused", TARGETS[0]).run(sizes, "fused", seed, 1)
        mixed = Product(some, "fused", TARGETS[0])
        assert entries(mixed.spec)
        assert_same_bits(mixed.run(sizes, "fused", seed, 2), want)


def test_sizes_of_nothing_are_sizes() -> None:
    target = TARGETS[0]
    loop, x = Compiled(LOOPS["along rows"], target), np.ones(8, np.float32)
    for table in ((0, 3, 1), (3, 0, 1), (0, 0, 1)):
        y = np.full(8, SENTINEL, np.float32)
        loop.run([x, x, y], table)
        assert (y == SENTINEL).all()
    generic = Product(D, "computed", target)
    for sizes in ((0, 3, 5, 1, 1), (3, 0, 5, 1, 1), (2, 3, 5, 0, 1)):
        assert generic.run(sizes, "computed", 1, 1).size == 0
    assert not generic.run((2, 3, 0, 2, 1), "computed", 1, 1).any()  # the sum of nothing


@pytest.mark.parametrize("target", [Target.avx512(), Target.avx2(), Target.aarch64()],
                         ids=lambda t: t.name)  # fmt: skip
def test_programs_for_all_sizes_are_compiled_for_every_target(target: Target) -> None:
    module = ModuleBuilder("net", target)
    product_, b = product(*D, "fused")  # type: ignore[call-arg]
    for spec in (product_, PackSpec(product_, b), LOOPS["transposed"], LOOPS["columns gathered"]):
        emit(module, spec, schedules(spec, target)[0])
    assert object_code(module)


def test_a_known_program_reads_no_table() -> None:
    for spec in (with_dims(LOOPS["along rows"], (5, 33)), product(5, 33, 7, 1, 1, "constant")[0]):
        module = ModuleBuilder("net", TARGETS[0])
        emit(module, spec, schedules(spec, TARGETS[0])[0])
        assert "load i64" not in module.ir_text()


# --- sizes themselves

TREES = st.recursive(
    st.integers(0, 9) | st.sampled_from(D[:3]),
    lambda inner: st.tuples(st.sampled_from("+*/%-<>=^"), inner, inner),
    max_leaves=8,
)
Tree = int | Dim | tuple[str, "Tree", "Tree"]
OPERATIONS: dict[str, Callable[[Size, Size], Size]] = {
    "+": lambda a, b: a + b, "*": lambda a, b: a * b, "/": lambda a, b: a // (b * b + 1),
    "%": lambda a, b: a % (b * b + 1), "-": lambda a, b: a + b - b, "<": minimum, ">": maximum,
    "=": equal, "^": lambda a, b: ceil_div(a, b * b + 1),
}  # fmt: skip


def grown(tree: Tree, table: Sequence[int] | None) -> Size:
    """The size that the tree says; of numbers when there is a table."""
    if not isinstance(tree, tuple):
        return tree if table is None else value(tree, table)
    return OPERATIONS[tree[0]](grown(tree[1], table), grown(tree[2], table))


@given(tree=TREES, table=st.tuples(*[st.integers(0, 50)] * 3))
def test_a_size_is_the_number_that_arithmetic_on_numbers_gives(
    tree: Tree, table: tuple[int, int, int]
) -> None:
    assert value(grown(tree, None), table) == grown(tree, table)


def test_equal_polynomials_are_equal_and_nothing_is_guessed() -> None:
    m, n = D[:2]
    assert (m + n) * 2 == n * 2 + m + m and hash(m * n) == hash(n * m)
    assert m - m == 0 and m * 0 == 0 and 16 * m // 16 == m and (n + m) - n == m
    assert str(2 * m * n + 1) == "2*d0*d1 + 1"
    assert entries((m * (n // 2), 3)) == 2 and entries((3, "m")) == 0
    with pytest.raises(UndecidedError, match="not known yet"):
        bool(m - n)
    with pytest.raises(UndecidedError):
        m < n  # noqa: B015
    with pytest.raises(ValueError, match="read at run time"):
        static_size(m)


def test_an_expression_has_no_table() -> None:
    assert isinstance(ADD, Apply) and with_dims(LOOPS["scalar"], (2, 3)).exprs == (ADD,)
    assert all(a == b for a, b in itertools.pairwise([with_dims(ADD, ()), ADD]))
