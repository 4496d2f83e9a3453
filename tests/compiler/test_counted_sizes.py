"""Sizes that data decide: one program counts, and has the bits of programs made without counts.

Beside every network stands the same one compiled without sizes that are read at run time, where
what follows a count runs on the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.compiler.test_bits import bits
from verax.base.errors import InputError
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.executable import Executable
from verax.compiler.open_programs import MAX_OPEN
from verax.ir.assumptions import Assumptions, NotOpenError, assuming, while_there_are
from verax.ir.dim import symbol
from verax.ir.graph import Builder, Graph
from verax.ir.types import DType, TensorType
from verax.ops.images.detection import NonMaxSuppression
from verax.ops.movement.gather import Compress, Gather, GatherND, NonZero, Unique
from verax.ops.movement.reshaping import Reshape, Squeeze, Transpose, Unsqueeze
from verax.ops.movement.shape import Shape
from verax.ops.movement.slicing import Concat, Slice
from verax.ops.pointwise.arithmetic import Add, Min, Mul, Sub
from verax.ops.pointwise.comparison import Greater
from verax.ops.pointwise.transcendental import Exp
from verax.ops.sums.arg import TopK
from verax.ops.sums.linear import MatMul
from verax.ops.sums.reduction import ReduceMax, ReduceSum
from verax.ops.sums.softmax import Softmax

Arrays = Mapping[str, np.ndarray]
WIDTH = 5


def ints(b: Builder, *numbers: int) -> str:
    return b.constant(np.array(numbers, np.int64))


def floats(b: Builder, *shape: int) -> str:
    rng = np.random.default_rng(shape)
    return b.constant(rng.standard_normal(shape).astype(np.float32))


# --- what may follow a count: from float32 [n, 5] to float32 [m, 5]


def scaled(b: Builder, x: str) -> str:
    return b.add(Exp(), [b.add(Mul(), [x, floats(b, WIDTH)])])


def twice(b: Builder, x: str) -> str:
    return b.add(Concat(axis=0), [x, b.add(Add(), [x, floats(b, 1, WIDTH)])])


def behind_others(b: Builder, x: str) -> str:
    return b.add(Concat(axis=0), [floats(b, 3, WIDTH), x])


def first_few(b: Builder, x: str) -> str:
    return b.add(Slice(), [x, ints(b, 0), ints(b, 4), ints(b, 0)])


def all_but_two(b: Builder, x: str) -> str:
    return b.add(Slice(), [x, ints(b, 2), ints(b, 1 << 40), ints(b, 0)])


def every_second(b: Builder, x: str) -> str:
    return b.add(Slice(), [x, ints(b, 1), ints(b, 1 << 40), ints(b, 0), ints(b, 2)])


def turned(b: Builder, x: str) -> str:
    y = b.add(Mul(), [b.add(Transpose(perm=(1, 0)), [x]), floats(b, WIDTH, 1)])
    return b.add(Transpose(perm=(1, 0)), [y])


def multiplied(b: Builder, x: str) -> str:
    return b.add(MatMul(), [x, floats(b, WIDTH, WIDTH)])


def softened(b: Builder, x: str) -> str:
    return b.add(Softmax(axis=1), [x])


def minus_its_sum(b: Builder, x: str) -> str:
    return b.add(Add(), [x, b.add(ReduceSum(), [x, ints(b, 1)])])


def summed_over_rows(b: Builder, x: str) -> str:
    return b.add(ReduceSum(), [x, ints(b, 0)])


def multiplied_by_itself(b: Builder, x: str) -> str:
    return b.add(MatMul(), [b.add(Transpose(perm=(1, 0)), [x]), x])


def flat_and_back(b: Builder, x: str) -> str:
    flat = b.add(Mul(), [b.add(Reshape(), [x, ints(b, -1)]), floats(b, 1)])
    return b.add(Reshape(), [flat, ints(b, -1, WIDTH)])


def sorted_rows(b: Builder, x: str) -> str:
    """The three rows whose first number is largest, or fewer."""
    column = b.add(Gather(axis=1), [x, b.constant(np.array(0, np.int64))])
    k = b.add(Min(), [b.add(Shape(), [column]), ints(b, 3)])
    places = b.add_all(TopK(axis=0), [column, k])[1]
    return b.add(Gather(axis=0), [x, places])


def chosen_again(b: Builder, x: str) -> str:
    column = b.add(Gather(axis=1), [x, b.constant(np.array(2, np.int64))])
    keep = b.add(Greater(), [column, b.constant(np.array(0.1, np.float32))])
    return b.add(Compress(axis=0), [x, keep])


FOLLOWING: Sequence[Callable[[Builder, str], str]] = (
    scaled, twice, behind_others, first_few, all_but_two, every_second, turned, multiplied,
    softened, minus_its_sum, summed_over_rows, flat_and_back, sorted_rows, chosen_again,
    multiplied_by_itself,
)  # fmt: skip


OVER_ROWS = (summed_over_rows, multiplied_by_itself)
"""They make something of no rows."""


def picked(rows: int | None, following: Sequence[int], by_places: bool) -> Graph:
    """Rows of x where a mask holds, and what follows; `rows` is None for a symbol."""
    b = Builder("picked")
    dim = symbol("rows") if rows is None else rows
    x = b.input("x", TensorType(DType.float32, (dim, WIDTH)))
    mask = b.input("mask", TensorType(DType.bool_, (dim,)))
    outputs = []
    if by_places:
        places = b.add(NonZero(), [mask])
        rows_found = b.add(Squeeze(), [places, ints(b, 0)])
        value = b.add(Gather(axis=0), [x, rows_found])
        outputs.append(rows_found)
    else:
        value = b.add(Compress(axis=0), [x, mask])
    outputs.append(value)
    for number in following:
        value = FOLLOWING[number](b, value)
        outputs.append(value)
    return b.graph(tuple(dict.fromkeys(outputs)))


def result_of(exe: Executable, inputs: Arrays) -> dict[str, object] | str:
    """Outputs, or why there are none."""
    try:
        outputs = exe.run(inputs)
    except (InputError, ValueError):  # the latter of NumPy, where counts do not fit
        return "refused"
    return {name: bits(array) for name, array in outputs.items()}


def pair(graph: Graph, level: int, threads: int = 1) -> tuple[Executable, Executable]:
    """The network with counted sizes and without."""
    return (
        compile(graph, Settings(level, threads=threads)),
        compile(graph, Settings(level, threads=threads, open_sizes=False)),
    )


def drawn(rows: int, share: float, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, WIDTH)).astype(np.float32)
    return {"x": x, "mask": rng.random(rows) < share}


SHARES = st.sampled_from([0.0, 0.03, 0.3, 0.8, 1.0])
"""Of what is looked at, how much is found."""


def runs(most: int) -> st.SearchStrategy[list[tuple[int, float]]]:
    """What is looked at, and the share that is found."""
    return st.lists(st.tuples(st.integers(1, most), SHARES), min_size=2, max_size=4)


@settings(max_examples=25)
@given(st.lists(st.integers(0, len(FOLLOWING) - 1), max_size=4), st.booleans(),
       st.sampled_from([None, 71]), runs(90),
       st.sampled_from([0, 1, 2, 3]), st.integers(1, 2))  # fmt: skip
def test_random_networks_have_the_bits_of_programs_without_counts(
    following: list[int],
    by_places: bool,
    rows: int | None,
    calls: list[tuple[int, float]],
    level: int,
    threads: int,
) -> None:
    graph = picked(rows, following, by_places)
    counting, plain = pair(graph, level, threads)
    for seed, (size, share) in enumerate(calls):
        inputs = drawn(rows or size, share, seed)
        assert result_of(counting, inputs) == result_of(plain, inputs), (graph, share)


@pytest.mark.parametrize("number", range(len(FOLLOWING)), ids=lambda i: FOLLOWING[i].__name__)
def test_each_step_behind_a_count_is_native(number: int) -> None:
    """One program serves all counts, zero among them, but for sums over the rows that were found:
    of none they are computed by the reference."""
    graph = picked(71, [number], True)
    counting, plain = pair(graph, 3)
    for seed, share in enumerate((0.4, 0.0, 1.0, 0.2, 0.03)):
        inputs = drawn(71, share, seed)
        assert result_of(counting, inputs) == result_of(plain, inputs), share
    assert not counting.plan.on_reference and plain.plan.on_reference
    assert len(counting._open.programs) == 1
    assert len(counting._programs) == (FOLLOWING[number] in OVER_ROWS)


def rows_of(b: Builder, x: str) -> str:
    return b.add(Slice(), [b.add(Shape(), [x]), ints(b, 0), ints(b, 1)])


def in_rows_of_its_count(b: Builder, x: str) -> str:
    """[min(n, 5), -1]: of no rows it is 0 / 0 numbers."""
    rows = b.add(Min(), [rows_of(b, x), ints(b, 5)])
    return b.add(Reshape(), [x, b.add(Concat(axis=0), [rows, ints(b, -1)])])


def all_but_the_two_smallest(b: Builder, x: str) -> str:
    """Of one row: minus one row."""
    column = b.add(Gather(axis=1), [x, b.constant(np.array(0, np.int64))])
    k = b.add(Sub(), [rows_of(b, x), ints(b, 2)])
    return b.add(Gather(axis=0), [x, b.add_all(TopK(axis=0), [column, k])[1]])


@pytest.mark.parametrize("rows", [71, None])
@pytest.mark.parametrize("follow", [in_rows_of_its_count, all_but_the_two_smallest])
@pytest.mark.filterwarnings("error")
def test_counts_for_which_there_is_no_size_are_the_references(
    follow: Callable[[Builder, str], str], rows: int | None
) -> None:
    b = Builder("quotient")
    x = b.input("x", TensorType(DType.float32, (symbol("rows") if rows is None else rows, WIDTH)))
    mask = b.input("mask", TensorType(DType.bool_, (symbol("rows") if rows is None else rows,)))
    graph = b.graph([follow(b, b.add(Compress(axis=0), [x, mask]))])
    counting, plain = pair(graph, 2)
    for count in (5, 0, 1, 2, 10, 0, 71, 1):
        inputs = {**drawn(71, 0.5, count), "mask": np.arange(71) < count}
        assert result_of(counting, inputs) == result_of(plain, inputs), count
    assert counting._open.programs


# --- detectors


def detector(centered: bool, most: int, by_count: bool) -> Graph:
    """Boxes that survive, of two images and three classes, with their scores."""
    b = Builder("detector")
    boxes = b.input("boxes", TensorType(DType.float32, (2, symbol("anchors"), 4)))
    scores = b.input("scores", TensorType(DType.float32, (2, 3, symbol("anchors"))))
    limits = [np.array([most]), np.array([0.4], np.float32), np.array([0.6], np.float32)]
    found = b.add(
        NonMaxSuppression(center_point_box=centered), [boxes, scores, *map(b.constant, limits)]
    )
    score = b.add(GatherND(), [scores, found])
    image, box = (b.add(Slice(), [found, ints(b, k), ints(b, k + 1), ints(b, 1)]) for k in (0, 2))
    where = b.add(Concat(axis=1), [image, box])
    corners = b.add(GatherND(), [boxes, where])
    rows = b.add(Concat(axis=1), [corners, b.add(Unsqueeze(), [score, ints(b, 1)])])
    outputs = [found, rows]
    if by_count:
        k = b.add(Min(), [b.add(Shape(), [score]), ints(b, 6)])
        best, places = b.add_all(TopK(axis=0), [score, k])
        outputs += [best, b.add(Gather(axis=0), [rows, places])]
    return b.graph(outputs)


@settings(max_examples=15)
@given(st.booleans(), st.sampled_from([1, 4, (1 << 31) - 1]), st.booleans(),
       st.sampled_from([0, 2]), runs(40))  # fmt: skip
def test_detectors_have_the_bits_of_programs_without_counts(
    centered: bool, most: int, by_count: bool, level: int, calls: list[tuple[int, float]]
) -> None:
    counting, plain = pair(detector(centered, most, by_count), level)
    for seed, (anchors, share) in enumerate(calls):
        rng = np.random.default_rng(seed)
        low = rng.random((2, anchors, 2)) * 9
        boxes = np.concatenate([low, low + rng.random((2, anchors, 2)) * 4], 2)
        scores = rng.random((2, 3, anchors)) * (0.6 + 0.4 * share)
        inputs = {"boxes": boxes.astype(np.float32), "scores": scores.astype(np.float32)}
        assert result_of(counting, inputs) == result_of(plain, inputs)
    if level:  # else the limit is computed while it runs
        assert counting._open.programs and not counting.plan.on_reference


def test_two_counts_that_are_compared_are_one_condition() -> None:
    """Rows of two masks are added: for other counts than equal ones there is an error, as there is
    without counts."""
    b = Builder("added")
    x = b.input("x", TensorType(DType.float32, (71, WIDTH)))
    masks = [b.input(f"mask{i}", TensorType(DType.bool_, (71,))) for i in range(2)]
    one, two = (b.add(Compress(axis=0), [x, m]) for m in masks)
    counting, plain = pair(b.graph([b.add(Add(), [one, two])]), 2)
    rng = np.random.default_rng(3)
    first, second = np.arange(71) % 3 == 0, np.arange(71) % 3 == 1
    x_value = rng.standard_normal((71, WIDTH)).astype(np.float32)
    for other in (second, first, np.arange(71) < 30, np.arange(71) < 1):
        inputs = {"x": x_value, "mask0": first, "mask1": other}
        assert result_of(counting, inputs) == result_of(plain, inputs)
    assert len(counting._open.programs) <= MAX_OPEN


def test_what_nothing_counts_is_left_to_the_reference() -> None:
    """Unique rows have no kernel; what follows them runs on the reference, with the right bits."""
    b = Builder("unique")
    x = b.input("x", TensorType(DType.float32, (71, WIDTH)))
    values = b.add_all(Unique(axis=0), [x])[0]
    counting, plain = pair(b.graph([scaled(b, values)]), 2)
    rng = np.random.default_rng(5)
    inputs = {"x": rng.integers(0, 2, (71, WIDTH)).astype(np.float32)}
    assert result_of(counting, inputs) == result_of(plain, inputs)
    assert counting.plan.on_reference and not counting._open.programs


def test_different_elements_are_counted_once_for_all_that_is_said_of_them() -> None:
    b = Builder("unique")
    x = b.input("x", TensorType(DType.float32, (71, WIDTH)))
    values, first, inverse, often = b.add_all(Unique(sorted=False), [x])
    doubled = b.add(Mul(), [often, b.constant(np.array(2, np.int64))])
    y = b.add(Mul(), [values, floats(b, 1)])
    counting, plain = pair(b.graph([y, first, inverse, doubled]), 2)
    rng = np.random.default_rng(11)
    for limit in (2, 40, 1, 9):
        inputs = {"x": rng.integers(0, limit, (71, WIDTH)).astype(np.float32)}
        assert result_of(counting, inputs) == result_of(plain, inputs)
    assert not counting.plan.on_reference and len(counting._open.programs) == 1


def test_a_maximum_of_no_rows_is_the_references() -> None:
    b = Builder("largest")
    x = b.input("x", TensorType(DType.float32, (71, WIDTH)))
    mask = b.input("mask", TensorType(DType.bool_, (71,)))
    rows = b.add(Compress(axis=0), [x, mask])
    counting, plain = pair(b.graph([b.add(ReduceMax(), [rows, ints(b, 0)])]), 2)
    for share in (0.5, 0.0, 0.5, 0.0):
        inputs = drawn(71, share, 7)
        assert result_of(counting, inputs) == result_of(plain, inputs)
    assert len(counting._open.programs) == 1


def test_callers_of_several_threads_have_counts_of_their_own() -> None:
    counting, plain = pair(picked(71, [0, 1, 7], True), 2)
    cases = [drawn(71, share, seed) for seed, share in enumerate((0.0, 0.2, 0.5, 1.0) * 3)]
    want = [result_of(plain, inputs) for inputs in cases]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            assert list(pool.map(lambda i: result_of(counting, i), cases)) == want


def test_an_arena_that_counts_is_found_again_when_its_user_was_interrupted() -> None:
    counting, plain = pair(picked(71, [0], True), 2)
    inputs = drawn(71, 0.4, 5)
    want = result_of(plain, inputs)
    assert result_of(counting, inputs) == want
    (program,) = (one.program for one in counting._open.programs)
    program._free.pop()  # as if Ctrl-C had come before `acquire` returned
    assert not program._free
    assert result_of(counting, inputs) == want
    assert len(program._contexts) == len(program._free) == 1


def test_arenas_grow_with_counts_and_nothing_is_read_before_it_is_written() -> None:
    counting, plain = pair(picked(None, [1, 1, 7, 3], True), 1)
    for seed, (rows, share) in enumerate([(5, 0.5), (900, 1.0), (7, 0.0), (901, 0.01), (902, 1.0)]):
        inputs = drawn(rows, share, seed)
        want = result_of(plain, inputs)
        assert result_of(counting, inputs) == want
        counting.program.poison(0xA5)
        assert result_of(counting, inputs) == want


# --- conditions


def test_conditions_inside_need_not_hold_where_nothing_is_made() -> None:
    assumed = Assumptions({"d0": 4})
    with assuming(assumed):
        n = symbol(assumed.counted_symbol("found"))
        with while_there_are(n * 3):
            assert n > 20
        assert n != 5
    inside, always = assumed.conditions
    assert inside.holds({"d0": 4, "d1": 0}) and not inside.holds({"d0": 4, "d1": 7})
    assert always.holds({"d0": 4, "d1": 0}) and not always.holds({"d0": 4, "d1": 5})


def test_a_count_may_be_zero_and_is_no_number() -> None:
    assumed = Assumptions({"d0": 4})
    with assuming(assumed):
        n = symbol(assumed.counted_symbol("found"))
        assert n > 0 and symbol("d0") > 0
        with pytest.raises(NotOpenError, match="needed as a number"):
            int(n)
    assert [str(c) for c in assumed.conditions] == ["-d1 < 0"]
