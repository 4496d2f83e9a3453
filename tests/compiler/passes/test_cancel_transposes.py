"""Transpositions: channels-last networks lose theirs, and no bit changes."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import verax.ops  # noqa: F401  (registers the operators)
from verax.compiler.passes.cancel_transposes import cancel_transposes
from verax.ir import checker
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.reference import promised

TO_LAST, TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


def array(*shape: int, seed: int = 11) -> np.ndarray:
    """Normal numbers; the same for the same shape and seed."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def kinds(graph: Graph) -> list[str]:
    return [n.op.kind for n in graph.nodes]


def same_bits(before: Graph, after: Graph) -> bool:
    inputs = {v: array(*before.types[v].shape) for v in before.inputs}
    old, new = promised(before, inputs), promised(after, inputs)
    return after.outputs == before.outputs and all(
        old[v].shape == new[v].shape and old[v].tobytes() == new[v].tobytes() for v in old
    )


class Last:
    """Builds a channels-last network as an importer does."""

    def __init__(self) -> None:
        self.b = Builder("last")

    def add(self, kind: str, inputs: list[str], name: str, **attributes: object) -> str:
        return self.b.add(REGISTRY[kind](**attributes), inputs, [name], name)

    def conv(self, x: str, name: str, weights: np.ndarray, **attributes: object) -> str:
        first = self.add("Transpose", [x], f"{name}/first", perm=TO_FIRST)
        w = self.b.constant(weights)
        y = self.add("Conv", [first, w], f"{name}/conv", **attributes)
        return self.add("Transpose", [y], name, perm=TO_LAST)


def test_a_channels_last_network_keeps_two_transpositions() -> None:
    n = Last()
    x = n.b.input("x", TensorType.parse("float32[2, 7, 9, 3]"))
    h = n.conv(x, "a", array(5, 3, 3, 2))
    h = n.add("Add", [h, n.b.constant(array(5))], "biased")
    h = n.add("Relu", [h], "relu")
    skip = n.conv(h, "b", array(5, 1, 3, 3), groups=5, pads=((1, 1), (1, 1)))
    h = n.add("Concat", [n.add("Add", [h, skip], "sum"), skip], "both", axis=-1)
    pads = n.b.constant(np.array([0, 0, 1, 0, 0, 2, 0, 0], np.int64))
    h = n.b.add(REGISTRY["Pad"](), [h, pads], ["padded"])
    y = n.conv(h, "y", array(4, 10, 2, 3))
    before = n.b.graph([y])
    after, trace = cancel_transposes(before)
    checker.check(after)
    assert kinds(before).count("Transpose") == 6
    assert kinds(after).count("Transpose") == 2
    assert kinds(after)[0] == kinds(after)[-1] == "Transpose"
    assert trace.rewrites > 0
    assert same_bits(before, after)


def test_a_reduction_keeps_its_layout() -> None:
    n = Last()
    x = n.b.input("x", TensorType.parse("float32[2, 7, 9, 3]"))
    h = n.conv(x, "a", array(5, 3, 3, 2))
    y = n.b.add(REGISTRY["Softmax"](axis=-1), [n.add("Relu", [h], "relu")], ["y"])
    before = n.b.graph([y])
    after, _ = cancel_transposes(before)
    assert kinds(after) == ["Transpose", "Conv", "Relu", "Transpose", "Softmax"]
    assert same_bits(before, after)


def test_a_cancelled_output_keeps_its_name() -> None:
    n = Last()
    x = n.b.input("x", TensorType.parse("float32[2, 7, 9, 3]"))
    there = n.add("Transpose", [x], "there", perm=TO_FIRST)
    back = n.add("Transpose", [there], "back", perm=TO_LAST)
    before = n.b.graph([back, there])
    after, _ = cancel_transposes(before)
    assert after.outputs == ("back", "there")
    assert same_bits(before, after)


def test_an_operand_in_another_layout_stops_it() -> None:
    n = Last()
    x = n.b.input("x", TensorType.parse("float32[2, 4, 4, 4]"))
    z = n.b.input("z", TensorType.parse("float32[4, 4, 4]"))
    turned = n.add("Transpose", [x], "turned", perm=TO_FIRST)
    y = n.add("Mul", [turned, z], "y0")
    before = n.b.graph([n.add("Relu", [y], "y")])
    after, _ = cancel_transposes(before)
    assert kinds(after) == ["Transpose", "Mul", "Relu"]
    assert same_bits(before, after)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_mixture_keeps_its_bits(data: st.DataObject) -> None:
    """Random chains and branches of transpositions, elementwise nodes, Concat and Pad."""
    n = Last()
    values = [n.b.input("x", TensorType.parse("float32[2, 3, 4, 5]"))]
    for i in range(data.draw(st.integers(2, 10))):
        x = data.draw(st.sampled_from(values))
        kind = data.draw(st.sampled_from(["Transpose", "Relu", "Add", "Mul", "Concat", "Pad"]))
        shape = n.b.types[x].shape
        if kind == "Transpose":
            perm = tuple(data.draw(st.permutations(range(4))))
            values.append(n.add("Transpose", [x], f"v{i}", perm=perm))
        elif kind == "Relu":
            values.append(n.add("Relu", [x], f"v{i}"))
        elif kind == "Pad":
            widths = data.draw(st.lists(st.integers(0, 2), min_size=8, max_size=8))
            pads = n.b.constant(np.array(widths, np.int64))
            values.append(n.b.add(REGISTRY["Pad"](), [x, pads], [f"v{i}"]))
        elif kind == "Concat":
            axis = data.draw(st.integers(-4, 3))
            other = data.draw(st.sampled_from([v for v in values if n.b.types[v].shape == shape]))
            values.append(n.b.add(REGISTRY["Concat"](axis=axis), [x, other], [f"v{i}"]))
        else:
            rank = data.draw(st.integers(0, 4))
            constant = n.b.constant(array(*shape[4 - rank :], seed=i))
            same = [v for v in values if n.b.types[v].shape == shape]
            other = data.draw(st.sampled_from([*same, constant]))
            values.append(n.add(kind, [x, other], f"v{i}"))
    outputs = data.draw(st.lists(st.sampled_from(values[1:]), min_size=1, max_size=3, unique=True))
    before = n.b.graph(outputs)
    after, _ = cancel_transposes(before)
    checker.check(after)
    assert same_bits(before, after)
