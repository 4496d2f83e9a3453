"""Transpositions past Requantize, Split and Slice, in front of Pad, and those that move nothing."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import verax.ops  # noqa: F401  (registers the operators)
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile as compile_graph
from verax.compiler.passes.cancel_transposes import cancel_transposes
from verax.compiler.passes.remove_dead_code import remove_dead_code
from verax.compiler.pipeline.levels import run_passes
from verax.ir import checker
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.judge.inputs import draw_inputs
from verax.reference import promised

TO_LAST, TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


class Net:
    """A builder with an input x [2, 3, 4, 5]."""

    def __init__(self, type_: str = "float32[2, 3, 4, 5]") -> None:
        self.b = Builder("net")
        self.x = self.b.input("x", TensorType.parse(type_))

    def add(self, kind: str, *inputs: str | None, **attributes: object) -> str:
        return self.b.add(REGISTRY[kind](**attributes), list(inputs))

    def ints(self, *values: int) -> str:
        return self.b.constant(np.array(values, np.int64))

    def turn(self, x: str, perm: tuple[int, ...] = TO_LAST) -> str:
        return self.add("Transpose", x, perm=perm)


def kinds(graph: Graph) -> list[str]:
    return [n.op.kind for n in graph.nodes]


def moved(before: Graph) -> Graph:
    """After the pass, without what is dead; the promised bits are the same."""
    after, trace = cancel_transposes(before)
    after, _ = remove_dead_code(after)
    checker.check(after)
    assert trace.rewrites or kinds(after) == kinds(remove_dead_code(before)[0])
    inputs = draw_inputs(before, 5)[0]
    old, new = promised(before, inputs), promised(after, inputs)
    assert after.outputs == before.outputs
    for value, array in old.items():
        assert array.shape == new[value].shape and array.tobytes() == new[value].tobytes()
    return after


def test_slices_are_cut_in_the_other_layout() -> None:
    n = Net()
    cut = n.add("Slice", n.turn(n.x), n.ints(-2, 1), n.ints(9, 4), n.ints(-1, 2))
    all_axes = n.add("Slice", cut, n.ints(0, 1), n.ints(2, 3))
    stepped = n.add("Slice", all_axes, n.ints(9), n.ints(-9), n.ints(2), n.ints(-2))
    after = moved(n.b.graph([n.add("Relu", n.turn(stepped, TO_FIRST))]))
    assert kinds(after) == ["Slice"] * 3 + ["Relu"]


def test_a_slice_whose_axes_come_at_run_time_stops_it() -> None:
    n = Net()
    starts = n.b.input("starts", TensorType.parse("int64[1]"))
    cut = n.add("Slice", n.turn(n.x), starts, n.ints(9), n.ints(1))
    after, _ = cancel_transposes(n.b.graph([n.add("Relu", n.turn(cut, TO_FIRST))]))
    assert kinds(after) == ["Slice", "Relu"]
    n = Net()
    axes = n.add("Abs", n.b.input("axes", TensorType.parse("int64[1]")))
    cut = n.add("Slice", n.turn(n.x), n.ints(1), n.ints(9), axes)
    after, _ = cancel_transposes(n.b.graph([n.add("Relu", n.turn(cut, TO_FIRST))]))
    assert kinds(after).count("Transpose") == 2


def test_parts_of_a_split_are_put_off_each() -> None:
    n = Net()
    op = REGISTRY["Split"](num_outputs=2, axis=-1)
    first, second = n.b.add_all(op, [n.turn(n.x), n.ints(1, 2)])
    back = n.turn(n.add("Concat", second, n.add("Relu", first), axis=3), TO_FIRST)
    after = moved(n.b.graph([n.add("Relu", back)]))
    assert kinds(after) == ["Split", "Relu", "Concat", "Relu"]


def test_a_split_one_part_of_which_is_an_output_stays() -> None:
    n = Net()
    op = REGISTRY["Split"](num_outputs=2, axis=3)
    first, second = n.b.add_all(op, [n.turn(n.x), n.ints(1, 2)])
    after = moved(n.b.graph([first, n.add("Relu", n.turn(second, TO_FIRST))]))
    assert kinds(after) == ["Transpose", "Split", "Transpose", "Relu"]


def test_scaling_to_narrow_integers_moves_its_channel_axis() -> None:
    n = Net("int32[2, 3, 4, 5]")
    factors = [np.array([2**30, 2**30 + 7, 2**30 + 99], np.int32), np.array([-1, -9, -3], np.int32)]
    scaled = n.add("Requantize", n.turn(n.x), *map(n.b.constant, factors), axis=-1)
    after = moved(n.b.graph([n.add("Cast", n.turn(scaled, TO_FIRST), to="int32")]))
    assert kinds(after) == ["Requantize", "Cast"]
    one = n.b.constant(np.array(2**30, np.int32)), n.b.constant(np.array(-1, np.int32))
    scaled = n.add("Requantize", n.turn(n.x), *one, axis=1)
    after = moved(n.b.graph([n.add("Cast", n.turn(scaled, TO_FIRST), to="int32")]))
    assert kinds(after) == ["Requantize", "Cast"]


def test_axes_of_size_one_change_places_as_a_reshape() -> None:
    n = Net("float32[2, 3, 1, 1]")
    y = n.add("Softmax", n.turn(n.x), axis=-1)
    assert kinds(moved(n.b.graph([y]))) == ["Reshape", "Softmax"]
    n = Net("float32[2, 3, 1, 1]")
    assert kinds(moved(n.b.graph([n.turn(n.x)]))) == ["Reshape"]
    n = Net("float32[2, 3, 1, 1]")
    flat = n.add("Reshape", n.turn(n.x), n.ints(2, 3))
    after = moved(n.b.graph([n.add("Relu", flat)]))
    assert kinds(after) == ["Reshape", "Relu"] and after.nodes[0].inputs[0] == "x"


def test_axes_of_which_two_are_wide_are_transposed() -> None:
    n = Net("float32[1, 3, 4, 1]")
    assert kinds(moved(n.b.graph([n.turn(n.x)]))) == ["Transpose"]
    n = Net("float32[1, 3, 4, 1]")
    flat = n.add("Reshape", n.turn(n.x), n.ints(12))
    assert kinds(moved(n.b.graph([flat]))) == ["Transpose", "Reshape"]


def padded(n: Net, *pads: int) -> str:
    return n.add("Pad", n.x, n.ints(*pads))


def test_the_padding_of_a_channels_last_input_goes_into_the_convolution() -> None:
    n = Net("float32[2, 7, 9, 3]")
    pad = padded(n, 0, 1, 0, 0, 0, 0, 2, 0)
    w = n.b.constant(np.random.default_rng(3).standard_normal((5, 3, 3, 2)).astype(np.float32))
    before = n.b.graph([n.add("Conv", n.turn(pad, TO_FIRST), w)])
    assert kinds(moved(before)) == ["Transpose", "Pad", "Conv"]
    after, _ = run_passes(before, Settings(opt_level=1))
    assert kinds(after) == ["Transpose", "Conv"]
    assert after.nodes[1].op.pads == ((1, 0), (0, 2))  # type: ignore[attr-defined]
    inputs = draw_inputs(before, 6)[0]
    plain, optimized = (
        compile_graph(before, Settings(opt_level=level, threads=1)).run(inputs) for level in (0, 1)
    )
    assert [a.tobytes() for a in plain.values()] == [a.tobytes() for a in optimized.values()]


def test_a_pad_that_something_else_reads_or_that_crops_stays_in_front() -> None:
    n = Net()
    pad = padded(n, 0, 1, 0, 0, 0, 0, 2, 0)
    before = n.b.graph([n.add("Softmax", n.turn(pad)), n.add("Relu", pad)])
    assert kinds(moved(before))[0] == "Pad"
    n = Net()
    before = n.b.graph([n.add("Softmax", n.turn(padded(n, 0, 1, 0, 0, 0, -1, 0, 0)))])
    assert kinds(moved(before))[0] == "Pad"
    n = Net()
    pad = padded(n, 0, 1, 0, 0, 0, 0, 2, 0)
    before = n.b.graph([n.add("Softmax", n.turn(pad)), pad])
    assert kinds(moved(before))[0] == "Pad"


def test_values_of_the_same_names_as_new_ones_do_not_clash() -> None:
    n = Net()
    scale = n.b.constant(np.arange(3, dtype=np.float32), "scale")
    y = n.b.add(REGISTRY["Mul"](), [n.turn(n.x), scale], ["m"], "relu")
    back = n.b.add(REGISTRY["Transpose"](perm=TO_FIRST), [y], ["c"], "back")
    after = moved(n.b.graph([n.b.add(REGISTRY["Relu"](), [back], ["relu"]), back]))
    assert after.outputs == ("relu", "c")


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_mixture_keeps_its_bits(data: st.DataObject) -> None:
    """Random chains of transpositions, slices, splits, pads and reshapes of size 1 axes."""
    n = Net(data.draw(st.sampled_from(["float32[2, 3, 4, 5]", "float32[2, 3, 1, 1]"])))
    values = [n.x]
    draw = data.draw
    for i in range(draw(st.integers(2, 9))):
        x = draw(st.sampled_from(values[-3:]))
        shape = n.b.types[x].shape
        axis = draw(st.integers(-4, 3))
        kind = draw(st.sampled_from(["Turn", "Turn", "Slice", "Split", "Pad", "Reshape", "Mul"]))
        if kind == "Turn":
            values.append(n.turn(x, tuple(draw(st.permutations(range(4))))))
        elif kind == "Slice":
            start, end = (draw(st.integers(-6, 6)) for _ in range(2))
            step = draw(st.sampled_from([1, 1, 2, -1]))
            made = n.add("Slice", x, n.ints(start), n.ints(end), n.ints(axis), n.ints(step))
            values += [made] if min(n.b.types[made].shape) > 0 else []
        elif kind == "Split":
            first = draw(st.integers(1, max(1, shape[axis] - 1)))
            sizes = (first, shape[axis] - first) if shape[axis] > 1 else (1,)
            op = REGISTRY["Split"](num_outputs=len(sizes), axis=axis)
            values += n.b.add_all(op, [x, n.ints(*sizes)])
        elif kind == "Pad":
            widths = draw(st.lists(st.integers(0, 1), min_size=8, max_size=8))
            values.append(n.add("Pad", x, n.ints(*widths)))
        elif kind == "Reshape":
            values.append(n.add("Reshape", n.add("Flatten", x, axis=axis), n.ints(*shape)))
        else:
            rng = np.random.default_rng([i, 13])
            row = rng.standard_normal(shape[-1]).astype(np.float32)
            values.append(n.add("Mul", x, n.b.constant(row)))
    some = [v for v in values if v != "x"]
    if some:
        outputs = draw(st.lists(st.sampled_from(some), min_size=1, max_size=3, unique=True))
        moved(n.b.graph(outputs))
