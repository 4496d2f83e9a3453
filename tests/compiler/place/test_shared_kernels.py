"""Kernels that many calls share, because they differ in sizes alone: the bits of kernels of their
own, for known sizes and for open ones, and as few kernels as there are kinds."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.compiler.graphs import networks

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.kernels.loops.spec import Access, LoopSpec
from verax.compiler.kernels.registry import Schedule, Spec
from verax.compiler.kernels.sizes import Size, entry
from verax.compiler.kernels.target import Target
from verax.compiler.place.binary import assembly, shared_kernels
from verax.compiler.place.binary.assembly import COMPILED_KERNELS
from verax.compiler.place.calls import KernelCall
from verax.ir.assumptions import Assumptions, assuming
from verax.ir.dim import symbol
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.numerics.expr import Apply, Const, Input

WIDTHS = (21, 34, 67, 90)


def blocks(rows: str, widths: tuple[int, ...] = WIDTHS) -> Graph:
    """For each width, slices of one input through operators of all families of kernels."""
    b, rng = Builder("blocks"), np.random.default_rng(83)
    x = b.input("x", TensorType.parse(f"float32[{rows}, 100]"))

    def add(kind: str, *inputs: str, **fields: object) -> str:
        return b.add(REGISTRY[kind](**fields), list(inputs))

    def whole(*numbers: int) -> str:
        return b.constant(np.array(numbers, np.int64))

    def weights(*shape: int) -> str:
        return b.constant(rng.standard_normal(shape).astype(np.float32))

    outputs = []
    for i, width in enumerate(widths):
        part = add("Mul", add("Slice", x, whole(i), whole(i + width), whole(1)), weights(width))
        normal = add("LayerNormalization", part, weights(width))
        image = add("Unsqueeze", normal, whole(1))
        turned = add("Transpose", part, perm=(1, 0))
        made = [
            add("MatMul", part, weights(width, 3 + width % 7)),
            add("ReduceMax", add("Conv", image, weights(5, 1, 3), kernel_shape=(3,)), whole(2)),
            add("MatMul", add("Softmax", part, axis=1), add("Tanh", turned)),
            add("ReduceMean", add("CumSum", normal, whole(1)), whole(1)),
            add("Concat", add("Pad", part, whole(0, 2, 0, 1), mode="reflect"), part, axis=1),
        ]
        outputs += [made[0], add("Squeeze", made[1], whole(2)), *made[2:]]
    return b.graph(outputs)


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of kernels that were made; all that can be are shared."""
    made: list[str] = []
    emit = assembly.emit

    def noted(module: assembly.ModuleBuilder, spec: Spec, schedule: Schedule) -> assembly.Kernel:
        made.append(type(spec).__name__)
        return emit(module, spec, schedule)

    monkeypatch.setattr(assembly, "emit", noted)
    monkeypatch.setattr(shared_kernels, "OWN_KERNELS", 0)
    monkeypatch.setattr(shared_kernels, "OWN_OPEN_KERNELS", 0)
    COMPILED_KERNELS.forget()
    yield made
    COMPILED_KERNELS.forget()


def x_of(rows: int) -> dict[str, np.ndarray]:
    values = np.random.default_rng(rows).standard_normal((rows, 100))
    return {"x": values.astype(np.float32)}


def same_bits(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> bool:
    return (
        all(left[v].tobytes() == right[v].tobytes() for v in left) and left.keys() == right.keys()
    )


@pytest.mark.parametrize("level", [1, 3])
@pytest.mark.parametrize("threads", [1, 2])
def test_calls_that_share_a_kernel_have_the_bits_of_kernels_of_their_own(
    texts: list[str], monkeypatch: pytest.MonkeyPatch, level: int, threads: int
) -> None:
    options = Settings(level, threads=threads, quick=True)
    shared = compile(blocks("3"), options).run(x_of(3))
    few = len(texts)
    monkeypatch.setattr(shared_kernels, "OWN_KERNELS", 10**6)
    own = compile(blocks("3"), options).run(x_of(3))
    assert same_bits(shared, own)
    assert 2 * few < len(texts) - few


def test_further_sizes_need_no_further_kernels(texts: list[str]) -> None:
    options = Settings(1, threads=1, quick=True)
    compile(blocks("3"), options).run(x_of(3))
    few = len(texts)
    COMPILED_KERNELS.forget()
    compile(blocks("3", (*WIDTHS, 45, 58, 73, 76, 83)), options).run(x_of(3))
    further = len(texts) - 2 * few  # with 16 registers one width has a tile of its own
    assert 0 <= further < 5


def test_shared_kernels_of_open_sizes_have_the_bits_of_known_ones(texts: list[str]) -> None:
    exe = compile(blocks("rows"), Settings(1, threads=1, background=False))
    for rows in (3, 7, 2, 18):
        shared = exe.run(x_of(rows))
        own = compile(blocks(str(rows)), Settings(1, threads=1, quick=True)).run(x_of(rows))
        assert same_bits(shared, own), rows
    made = exe._open.programs
    assert [p.open_sizes.serves((5,)) for p in made] == [True]


@settings(max_examples=15)
@given(networks(5), st.sampled_from([0, 1, 3]))
def test_random_networks_whose_every_size_is_read_have_their_bits(
    network: tuple[Graph, dict[str, np.ndarray]], level: int
) -> None:
    """Each spec is given a second caller of other sizes, which nobody calls: then all that can be
    read at run time is."""
    graph, inputs = network
    options = Settings(level, threads=1, quick=True)
    own = compile(graph, options).run(inputs)
    common = shared_kernels._with_common_sizes

    def with_another(skeleton, members):  # type: ignore[no-untyped-def]
        other = tuple(3 * i + 2 * n + 1 for i, n in enumerate(members[0]))
        return common(skeleton, [*members, other])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_kernels, "OWN_KERNELS", 0)
        patch.setattr(shared_kernels, "OWN_OPEN_KERNELS", 0)
        patch.setattr(shared_kernels, "FEWEST_CALLERS", 1)
        patch.setattr(shared_kernels, "_with_common_sizes", with_another)
        assert same_bits(compile(graph, options).run(inputs), own)


def doubled(rows: int, columns: int, stride: int) -> LoopSpec:
    """y = 2 x of a matrix whose rows are `stride` apart, `rows` as a number that is multiplied."""
    read, written = Access("float32", (stride, 1)), Access("float32", (columns, 1))
    expr = Apply("mul", [Input(0, "float32"), Const(2.0, "float32")], "float32")
    return LoopSpec((rows, columns), (read,), (written,), (expr,))


def shared(*specs: Spec) -> list[shared_kernels.SharedKernel | None]:
    found = shared_kernels.shared_kernels(
        [KernelCall(spec, None, (), "call") for spec in specs], Target.host()
    )
    return [found.get((spec, None)) for spec in specs]


def test_sizes_that_follow_from_others_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_kernels, "OWN_KERNELS", 0)
    monkeypatch.setattr(shared_kernels, "OWN_OPEN_KERNELS", 0)
    specs = [doubled(5, 7, 10), doubled(9, 11, 10), doubled(5, 13, 10)]
    first, second, third = shared(*specs)
    assert first is not None and second is not None and third is not None
    assert [s.sizes for s in (first, second, third)] == [(5, 7), (9, 11), (5, 13)]
    assert first.spec == second.spec
    assert "2.0" in repr(first.spec) and "10" in repr(first.spec)


def test_what_decides_the_code_is_not_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that lie one behind the other are one row; a row of one element is none."""
    monkeypatch.setattr(shared_kernels, "OWN_KERNELS", 0)
    monkeypatch.setattr(shared_kernels, "OWN_OPEN_KERNELS", 0)
    assert shared(doubled(5, 7, 10), doubled(5, 7, 7), doubled(5, 1, 10)) == [None] * 3


def test_the_most_work_keeps_kernels_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    specs = [doubled(rows, 7, 10) for rows in (5, 9, 300, 6)]
    assert shared(*specs) == [None] * 4
    monkeypatch.setattr(shared_kernels, "OWN_KERNELS", 1)
    assert [s is None for s in shared(*specs)] == [False, False, True, False]


def test_sizes_that_may_be_none_are_read_as_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that reads a size takes it to be 1 at least."""
    monkeypatch.setattr(shared_kernels, "OWN_KERNELS", 0)
    monkeypatch.setattr(shared_kernels, "OWN_OPEN_KERNELS", 0)
    with assuming(Assumptions({"d0": 8})):
        n = symbol("d0")
        specs = [doubled(n - 3, 7, 10), doubled(n - 3, 9, 12)]  # type: ignore[arg-type]
        first, second = shared(*specs)
        assert first is not None and second is not None
        assert first.sizes == (n, 7, 10) and second.sizes == (n, 9, 12)
        assert isinstance(first.spec, LoopSpec) and first.spec.dims[0] == entry(0) - 3
        specs = [doubled(n + 3, 7, 10), doubled(n + 3, 9, 12)]  # type: ignore[arg-type]
        first, second = shared(*specs)
    assert first is not None and second is not None
    assert first.sizes == (n + 3, 7, 10) and second.sizes == (n + 3, 9, 12)


def test_a_stride_that_is_so_many_times_a_sum_follows_from_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows that lie one behind the other are one row, whatever their length is made of."""
    monkeypatch.setattr(shared_kernels, "OWN_OPEN_KERNELS", 0)
    with assuming(Assumptions({"d0": 8})):
        width = (symbol("d0") - 1) // 4 + 1
        columns: list[tuple[Size, ...]] = [(width, 5), (16 * width, 80)]
        _, read = shared_kernels._with_common_sizes(
            (entry(0), entry(1)), list(zip(*columns, strict=True))
        )
    assert read == ((0, 0),)


def images(rows: str, channels: tuple[int, ...] = (32, 64, 96)) -> Graph:
    """Convolutions of images whose sizes are open, by all algorithms, between blocks of `channels`
    of which each has two."""
    b, rng = Builder("images"), np.random.default_rng(89)
    value = b.input("x", TensorType.parse(f"float32[n, 7, {rows}, w]"))

    def convolved(value: str, before: int, after: int, size: int, stride: int = 1) -> str:
        w = rng.standard_normal((after, before, size, size)) / np.sqrt(before * size * size)
        op = REGISTRY["Conv"](
            kernel_shape=(size, size), pads=((size // 2, size // 2),) * 2, strides=(stride, stride)
        )
        return b.add(op, [value, b.constant(w.astype(np.float32))])

    before = 7
    for count in channels:
        value = b.add(REGISTRY["Relu"](), [convolved(value, before, count, 1)])
        for _ in range(2):
            value = b.add(REGISTRY["Relu"](), [convolved(value, count, count, 3)])
        value = convolved(value, count, count, 3, 2)
        before = count
    return b.graph([value])


@pytest.mark.parametrize("level", [1, 3])
def test_convolutions_of_open_sizes_share_kernels_from_the_first(
    monkeypatch: pytest.MonkeyPatch, level: int
) -> None:
    """Numbers of channels are read where they are whole blocks."""
    made: list[str] = []
    emit = assembly.emit

    def noted(module: assembly.ModuleBuilder, spec: Spec, schedule: Schedule) -> assembly.Kernel:
        made.append(type(spec).__name__)
        return emit(module, spec, schedule)

    monkeypatch.setattr(assembly, "emit", noted)
    COMPILED_KERNELS.forget()
    options = Settings(level, threads=1, background=False)
    exe, x = compile(images("h"), options), {}
    for size in ((2, 41, 30), (1, 48, 57), (3, 33, 9)):
        values = np.random.default_rng(size[1]).standard_normal((size[0], 7, *size[1:]))
        x[size] = {"x": values.astype(np.float32)}
        exe.run(x[size])
    few, programs = len(made), len(exe._open.programs)
    COMPILED_KERNELS.forget()
    monkeypatch.setattr(shared_kernels, "_can_share", lambda spec: False)
    made.clear()
    own = compile(images("h"), options)
    for fed in x.values():
        assert same_bits(exe.run(fed), own.run(fed))
    assert programs == len(own._open.programs) > 0, "sharing asks for no conditions"
    assert few < len(made) or level < 3  # tiles of direct convolutions may differ
    COMPILED_KERNELS.forget()
