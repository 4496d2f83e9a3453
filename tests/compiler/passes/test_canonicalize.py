"""What canonicalize rewrites, what looks alike and must stay, and that no bit changes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.compiler.salted import HOSTILE, same_promised_bits
from tests.compiler.test_bits import bits

import verax.ops  # noqa: F401  (registers the operators)
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile as compile_graph
from verax.compiler.passes.canonicalize import canonicalize
from verax.compiler.passes.remove_dead_code import remove_dead_code
from verax.ir import checker
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType


class Net:
    """A builder with an input x float32[2, 3, 4, 5]."""

    def __init__(self) -> None:
        self.b = Builder("net")
        self.x = self.b.input("x", TensorType.parse("float32[2, 3, 4, 5]"))

    def add(self, kind: str, *inputs: str | None, **attributes: object) -> str:
        return self.b.add(REGISTRY[kind](**attributes), list(inputs))

    def ints(self, *values: int) -> str:
        return self.b.constant(np.array(values, np.int64))

    def value(self, number: float) -> str:
        return self.b.constant(np.array(number, np.float32))

    def split(self, x: str, axis: int, *sizes: int) -> tuple[str, ...]:
        op = REGISTRY["Split"](num_outputs=len(sizes), axis=axis)
        return self.b.add_all(op, [x, self.ints(*sizes)])


Make = Callable[[Net], str]


def built(make: Make) -> Graph:
    net = Net()
    return net.b.graph([net.add("Neg", make(net))])


def inputs_of(graph: Graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(41)
    shape = graph.types["x"].shape
    x = rng.standard_normal(shape).astype(np.float32)
    return {"x": np.where(rng.random(shape) < 0.3, rng.choice(HOSTILE, shape), x).astype("f4")}


def rewritten(graph: Graph) -> Graph:
    after, _ = remove_dead_code(canonicalize(graph)[0])
    checker.check(after)
    assert same_promised_bits(graph, after, inputs_of(graph))
    return after


def kinds(graph: Graph) -> list[str]:
    return [n.op.kind for n in graph.nodes]


def split_and_join(n: Net) -> str:
    return n.add("Concat", *n.split(n.x, 1, 1, 2), axis=-3)


def join_and_split(n: Net) -> str:
    both = n.add("Concat", n.x, n.add("Abs", n.x), axis=2)
    return n.split(both, -2, 4, 4)[0]


def join_and_slice(n: Net) -> str:
    both = n.add("Concat", n.add("Abs", n.x), n.x, axis=1)
    return n.add("Slice", both, n.ints(3), n.ints(99), n.ints(-3))


NOTHING: dict[str, Make] = {
    "pool of one": lambda n: n.add("MaxPool", n.x, kernel_shape=(1, 1), strides=(1, 1)),
    "pad of nothing": lambda n: n.add("Pad", n.x, n.ints(*(0,) * 8), mode="reflect"),
    "reshape to its shape": lambda n: n.add("Reshape", n.x, n.ints(0, -1, 4, 5)),
    "reshape there and back": lambda n: n.add(
        "Reshape", n.add("Flatten", n.x, axis=2), n.ints(2, 3, 4, 5)
    ),
    "unsqueeze and squeeze": lambda n: n.add(
        "Squeeze", n.add("Unsqueeze", n.x, n.ints(0, 3)), n.ints(3, 0)
    ),
    "slice of all": lambda n: n.add("Slice", n.x, n.ints(0, -9), n.ints(9, 4), n.ints(3, 2)),
    "expand to its shape": lambda n: n.add("Expand", n.x, n.ints(4, 1)),
    "tile by ones": lambda n: n.add("Tile", n.x, n.ints(1, 1, 1, 1)),
    "cast to its type": lambda n: n.add("Cast", n.x, to="float32"),
    "concat of one": lambda n: n.add("Concat", n.x, axis=1),
    "split into one": lambda n: n.split(n.x, 1, 3)[0],
    "sum of one": lambda n: n.add("Sum", n.x),
    "largest of one": lambda n: n.add("Max", n.x),
    "split and join": split_and_join,
    "join and split": join_and_split,
    "join and slice": join_and_slice,
}


@pytest.mark.parametrize("name", NOTHING)
def test_what_does_nothing_goes(name: str) -> None:
    assert kinds(rewritten(built(NOTHING[name]))) == ["Neg"]


JOINED: dict[str, tuple[Make, list[str]]] = {
    "reshapes": (
        lambda n: n.add("Unsqueeze", n.add("Flatten", n.x, axis=2), n.ints(1)),
        ["Reshape", "Neg"],
    ),
    "three reshapes": (
        lambda n: n.add(
            "Squeeze", n.add("Unsqueeze", n.add("Reshape", n.x, n.ints(6, 20)), n.ints(1))
        ),
        ["Reshape", "Neg"],
    ),
    "pads": (
        lambda n: n.add(
            "Pad",
            n.add("Pad", n.x, n.ints(0, 0, 1, 2, 0, 0, 0, 1)),
            n.ints(3, 0, 1, 4),
            n.value(0.0),
            n.ints(-1, 1),
        ),
        ["Pad", "Neg"],
    ),
}


@pytest.mark.parametrize("name", JOINED)
def test_two_of_a_kind_become_one(name: str) -> None:
    make, expected = JOINED[name]
    assert kinds(rewritten(built(make))) == expected


def exchanged(n: Net) -> str:
    return n.add("Concat", *n.split(n.x, 1, 1, 2)[::-1], axis=1)


def other_axis(n: Net) -> str:
    return n.add("Concat", *n.split(n.x, 2, 2, 2), axis=3)


def not_all_parts(n: Net) -> str:
    return n.add("Concat", *n.split(n.x, 1, 1, 1, 1)[:2], axis=1)


def other_sizes(n: Net) -> str:
    both = n.add("Concat", n.x, n.add("Abs", n.x), axis=2)
    return n.split(both, 2, 3, 5)[0]


def across_parts(n: Net) -> str:
    both = n.add("Concat", n.add("Abs", n.x), n.x, axis=1)
    return n.add("Slice", both, n.ints(2), n.ints(5), n.ints(1))


def part_and_crop(n: Net) -> str:
    both = n.add("Concat", n.add("Abs", n.x), n.x, axis=1)
    return n.add("Slice", both, n.ints(3, 1), n.ints(6, 5), n.ints(1, 3))


def pads_of(first: float, second: float, widths: tuple[int, ...] = (0, 0, 1, 0)) -> Make:
    def make(n: Net) -> str:
        inner = n.add("Pad", n.x, n.ints(*(0,) * 4, *widths), n.value(first))
        return n.add("Pad", inner, n.ints(0, 0, 0, 2, 0, 0, 0, 0), n.value(second))

    return make


def with_indices(n: Net) -> str:
    op = REGISTRY["MaxPool"](kernel_shape=(1, 1), with_indices=True)
    return n.add("Cast", n.b.add_all(op, [n.x])[1], to="float32")


NEAR: dict[str, Make] = {
    "pool of one with pads": lambda n: n.add(
        "MaxPool", n.x, kernel_shape=(1, 1), pads=((0, 1), (0, 0))
    ),
    "pool of one with strides": lambda n: n.add(
        "MaxPool", n.x, kernel_shape=(1, 1), strides=(2, 1)
    ),
    "pool of more of the same size": lambda n: n.add(
        "MaxPool", n.x, kernel_shape=(3, 1), pads=((1, 1), (0, 0))
    ),
    "pool that tells places": with_indices,
    "mean of one makes -0 to +0": lambda n: n.add("AveragePool", n.x, kernel_shape=(1, 1)),
    "pad and crop of the same size": lambda n: n.add("Pad", n.x, n.ints(0, 0, 0, 1, 0, 0, 0, -1)),
    "slice backwards": lambda n: n.add(
        "Slice", n.x, n.ints(-1), n.ints(-99), n.ints(3), n.ints(-1)
    ),
    "cast to another type": lambda n: n.add("Cast", n.x, to="float16"),
    "expand": lambda n: n.add("Expand", n.x, n.ints(2, 1, 1, 1, 1)),
    "tile": lambda n: n.add("Tile", n.x, n.ints(1, 1, 1, 2)),
    "reshape after transpose": lambda n: n.add(
        "Reshape", n.add("Transpose", n.x, perm=(0, 1, 3, 2)), n.ints(2, 3, 4, 5)
    ),
    "parts exchanged": exchanged,
    "another axis": other_axis,
    "not all parts": not_all_parts,
    "other sizes": other_sizes,
    "across two parts": across_parts,
    "a part, cropped": part_and_crop,
    "pads of two constants": pads_of(0.0, 1.0),
    "pads of two zeros": pads_of(0.0, -0.0),
    "crop, then pad": pads_of(0.0, 0.0, (0, 0, 0, -1)),
}


@pytest.mark.parametrize("name", NEAR)
def test_what_looks_alike_stays(name: str) -> None:
    graph = built(NEAR[name])
    after, trace = canonicalize(graph)
    assert after.nodes == graph.nodes and trace.rewrites == 0
    assert same_promised_bits(graph, after, inputs_of(graph))


@pytest.mark.parametrize("name", [*NOTHING, *JOINED, *NEAR])
def test_compiled_it_has_the_bits_of_o0(name: str) -> None:
    make = {**NOTHING, **NEAR, **{k: v[0] for k, v in JOINED.items()}}[name]
    graph = built(make)
    inputs = inputs_of(graph)
    plain, optimized = (
        compile_graph(graph, Settings(opt_level=level, threads=1)).run(inputs) for level in (0, 1)
    )
    for value, array in plain.items():
        assert bits(array) == bits(optimized[value])


def test_an_output_keeps_its_node_and_its_name() -> None:
    net = Net()
    same = net.b.add(REGISTRY["MaxPool"](kernel_shape=(1, 1)), [net.x], ["same"])
    flat = net.b.add(REGISTRY["Flatten"](axis=2), [same], ["flat"])
    axes = net.b.constant(np.array([0]), "axes")
    cube = net.b.add(REGISTRY["Unsqueeze"](), [flat, axes], ["c"])
    graph = net.b.graph([same, cube, flat])
    after = rewritten(graph)
    assert after.outputs == ("same", "c", "flat")
    assert kinds(after) == ["MaxPool", "Flatten", "Reshape"]
    assert after.producers["c"].inputs[0] == "same"


def test_new_state_that_is_the_old_one_keeps_its_node() -> None:
    net = Net()
    held = net.b.input("held", TensorType.parse("float32[2, 3]"))
    new = net.b.add(REGISTRY["Tile"](), [held, net.ints(1, 1)], ["new"])
    y = net.add("Relu", net.add("Tile", new, net.ints(1, 1)))
    graph = net.b.graph([y, new], {held: new}, {held: np.ones((2, 3), np.float32)})
    after, trace = canonicalize(graph)
    assert dict(after.updates) == {"held": "new"} and after.producers["new"].op.kind == "Tile"
    assert trace.rewrites == 1 and after.nodes[-1].inputs == ("new",)


def test_sizes_of_nothing_are_reshaped_to_nothing() -> None:
    b = Builder("net")
    x = b.input("x", TensorType.parse("float32[0, 3]"))
    flat = b.add(REGISTRY["Reshape"](allowzero=True), [x, b.constant(np.array([0]))])
    y = b.add(REGISTRY["Reshape"](allowzero=True), [flat, b.constant(np.array([5, 0]))], ["y"])
    after, _ = canonicalize(b.graph([y]))
    assert str(after.types["y"]) == str(TensorType.parse("float32[5, 0]"))
    assert after.producers["y"].inputs[0] == "x"
