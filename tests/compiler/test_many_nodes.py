"""Large graphs: time grows with their size and no faster, and nothing is too deep or too wide."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import verax
from verax.base.errors import InputError
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.place.memory import MANY, Lifetime, align, plan_arena
from verax.compiler.place.storage import ALIGNMENT, Buffer, MemorySpace
from verax.frontends.model import Model
from verax.ir.graph import MAX_RANK, Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.judge import check
from verax.records.verdict import Kind
from verax.reference.evaluate import promised
from verax.runners.subjects.factory import runner_of

ONE = Settings(threads=1)
GROWTH = 9
"""Four times as large may take so many times as long; squares would make it 16."""


def wide(kind: str, count: int) -> Graph:
    """An operator of `count` inputs, which are inputs of the network."""
    b = Builder(kind)
    names = [b.input(f"x{i}", TensorType.parse("float32[2, 3]")) for i in range(count)]
    fields = {"axis": 1} if kind == "Concat" else {}
    return b.graph([b.add(REGISTRY[kind](**fields), names, ("y",))])


def chain(count: int) -> Graph:
    b = Builder("chain")
    x = b.input("x", TensorType.parse("float32[2, 3]"))
    for i in range(count):
        x = b.add(REGISTRY["Relu" if i % 2 else "Neg"](), [x])
    return b.graph([x])


def split(count: int) -> Graph:
    b = Builder("split")
    x = b.input("x", TensorType.parse(f"float32[2, {count}]"))
    parts = b.add_all(REGISTRY["Split"](axis=1, num_outputs=count), [x])
    return b.graph([b.add(REGISTRY["Concat"](axis=0), parts)])


def narrow(count: int) -> Graph:
    """Slices of one tensor, each by a node of its own, put together 200 at a time."""
    b = Builder("narrow")
    x = b.input("x", TensorType.parse(f"float32[2, {count}]"))
    parts, rows = [], []
    for i in range(count // 2):
        ends = [b.constant(np.array([v])) for v in (i, i + 1, 1)]
        parts.append(b.add(REGISTRY["Slice"](), [x, *ends]))
        if len(parts) == 200 or i == count // 2 - 1:
            rows.append(b.add(REGISTRY["Concat"](axis=1), parts))
            parts = []
    return b.graph(rows)


def inputs_of(graph: Graph, seed: int = 71) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {v: rng.standard_normal(graph.types[v].shape).astype(np.float32) for v in graph.inputs}


def seconds(work: Callable[[], object], times: int = 2) -> float:
    """Of this thread's own computing at best: other programs do not count, nor does the collector,
    whose passes go over everything that other tests have left in this process."""
    taken = []
    for _ in range(times):
        gc.collect()
        gc.disable()
        try:
            begin = time.thread_time()
            work()
            taken.append(time.thread_time() - begin)
        finally:
            gc.enable()
    return min(taken)


@pytest.mark.usefixtures("llvm_itself")
@pytest.mark.parametrize(
    ("make", "size"),
    [(lambda n: wide("Concat", n), 1000), (chain, 400), (split, 1000), (narrow, 400)],
    ids=["Concat", "chain", "Split", "many operators"],
)
def test_compiling_takes_time_in_proportion(make: Callable[[int], Graph], size: int) -> None:
    small = seconds(lambda: compile(make(size), ONE))  # the first makes what is made once
    limit, large = GROWTH * small, make(4 * size)
    assert (
        seconds(lambda: compile(large, ONE), 1) < limit
        or seconds(lambda: compile(large, ONE), 1) < limit
    )  # once more where something else came between


class Counted(str):
    """A name that counts how often one is compared with another, not found by its hash."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


def shown_chain(count: int) -> Graph:
    """Of which every value is an output, and read by an output of its own."""
    b = Builder("shown")
    x = b.input(Counted("x"), TensorType.parse("float32[2, 3]"))
    shown = []
    for i in range(count):
        x = b.add(REGISTRY["Relu" if i % 2 else "Neg"](), [x], [Counted(f"v{i}")])
        side = b.add(REGISTRY["Softmax"](axis=1), [x], [Counted(f"s{i}")])
        shown += [x, side]
    return b.graph(shown)


def comparisons(work: Callable[[], object]) -> int:
    before = Counted.comparisons
    work()
    return Counted.comparisons - before


@pytest.mark.parametrize("level", [0, 1, 3])
def test_names_are_compared_in_proportion(level: int) -> None:
    """Where all values are outputs, as where a check sees them all. Counted, not timed."""
    settings = Settings(opt_level=level, threads=1)
    small, large = (comparisons(lambda n=n: compile(shown_chain(n), settings)) for n in (20, 80))
    assert large < 6 * small + 200


def test_names_are_compared_in_proportion_in_a_check() -> None:
    found = []
    for graph in (shown_chain(20), shown_chain(80)):
        fed = inputs_of(graph)
        found.append(
            comparisons(lambda g=graph, fed=fed: check(g, runner_of("verax:O1"), fed))  # type: ignore[misc]
        )
    assert found[1] < 6 * found[0] + 200


def test_building_takes_time_in_proportion() -> None:
    small, large = (seconds(lambda n=n: chain(n)) for n in (4000, 16000))
    assert large < GROWTH * small


@pytest.mark.parametrize("kind", ["Sum", "Max", "Min", "Mean", "Concat"])
def test_an_operator_of_a_thousand_inputs_has_the_promised_bits(kind: str) -> None:
    graph = wide(kind, 1000)
    fed = inputs_of(graph)
    (y,), (expected,) = compile(graph, ONE).run(fed).values(), promised(graph, fed).values()
    assert y.tobytes() == expected.tobytes()


def test_a_check_of_many_inputs_and_of_many_nodes() -> None:
    for graph in (wide("Concat", 500), wide("Sum", 500), chain(500)):
        verdict = check(graph, runner_of("verax:O1"), inputs_of(graph))
        assert verdict.kind in (Kind.identical, Kind.rounding)


def test_twenty_thousand_inputs_of_one_concat_are_compiled(tmp_path: Path) -> None:
    """As it comes from a file, and run."""
    count = 20_000
    types = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [2, 3]), ("y", [2, 3 * count]))
    ]
    node = helper.make_node("Concat", ["x"] * count, ["y"], axis=1)
    graph = helper.make_graph([node], "many", types[:1], types[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "many.onnx")
    loaded = verax.load(tmp_path / "many.onnx")
    assert isinstance(loaded, Model)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    y = compile(loaded.graph, ONE).run({"x": x})["y"]
    np.testing.assert_array_equal(y, np.tile(x, (1, count)))


def test_many_buffers_never_overlap_while_both_are_alive() -> None:
    rng = np.random.default_rng(72)
    lifetimes: dict[Buffer, Lifetime] = {}
    for first in range(MANY + 300):
        size = int(rng.integers(1, 4000))
        last = first + int(rng.integers(0, 30))
        lifetimes[Buffer(MemorySpace.arena, size)] = (first, last)
    end = plan_arena(lifetimes, start=192)
    placed = [(b.offset, b.offset + b.nbytes, t) for b, t in lifetimes.items()]
    assert min(begin for begin, _, _ in placed) >= 192
    assert max(stop for _, stop, _ in placed) <= end
    for i, (begin, stop, (first, last)) in enumerate(placed):
        for other_begin, other_stop, (other_first, other_last) in placed[i + 1 : i + 40]:
            together = other_first <= last and first <= other_last
            assert not (together and begin < other_stop and other_begin < stop)
    alive = max(
        sum(align(b.nbytes) + ALIGNMENT for b, (f, t) in lifetimes.items() if f <= step <= t)
        for step in range(0, MANY, 97)
    )
    assert end < 3 * alive


def test_too_many_axes_are_refused_when_the_type_is_inferred(tmp_path: Path) -> None:
    b = Builder("deep")
    x = b.input("x", TensorType.parse("float32[2, 3]"))
    shape = b.constant(np.array([2, 3] + [1] * (MAX_RANK - 1)))
    with pytest.raises(InputError, match=f"{MAX_RANK + 1} axes: at most {MAX_RANK}"):
        b.add(REGISTRY["Reshape"](), [x, shape])
    dims = [1] * (MAX_RANK + 5)
    types = [helper.make_tensor_value_info(n, TensorProto.FLOAT, dims) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", types[:1], types[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "deep.onnx")
    with pytest.raises(verax.VeraxError, match=f"{MAX_RANK + 5} axes"):
        verax.load(tmp_path / "deep.onnx")


def test_as_many_axes_as_are_allowed_run() -> None:
    b = Builder("deep")
    dims = [2, 3] + [1] * (MAX_RANK - 3) + [4]
    x = b.input("x", TensorType.parse(f"float32[{', '.join(map(str, dims))}]"))
    y = b.add(REGISTRY["Softmax"](axis=-1), [b.add(REGISTRY["Relu"](), [x])])
    y = b.add(
        REGISTRY["Transpose"](),
        [b.add(REGISTRY["ReduceSum"](keepdims=True), [y, b.constant(np.array([1]))])],
    )
    graph = b.graph([y])
    fed = inputs_of(graph)
    (found,), (expected,) = compile(graph, ONE).run(fed).values(), promised(graph, fed).values()
    assert found.tobytes() == expected.tobytes()
