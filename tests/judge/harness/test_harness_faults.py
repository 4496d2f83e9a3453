"""The network is right and the harness is wrong: each fault is named, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
from tests.faults.planted import MISTAKES, Planted, small_network

from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge.harness.faults import harness_causes
from verax.judge.harness.graph_variants import in_training_mode
from verax.ops.pointwise.arithmetic import Add, Mul
from verax.ops.sums.linear import MatMul
from verax.ops.sums.softmax import LogSoftmax, Softmax
from verax.reference.evaluate import evaluate

Arrays = dict[str, np.ndarray]
GRAPH = small_network()
X = np.random.default_rng(2).random((2, 3, 18, 22)).astype(np.float32)
MEAN = np.array([0.485, 0.456, 0.406], np.float32).reshape(3, 1, 1)
STD = np.array([0.229, 0.224, 0.225], np.float32).reshape(3, 1, 1)


def run(graph: Graph, inputs: Mapping[str, np.ndarray], keep: tuple[str, ...] = ()) -> Arrays:
    """Honest float32."""
    return evaluate(graph, inputs, work=np.float32, keep=(*graph.outputs, *keep))


def nhwc_bytes(x: np.ndarray) -> np.ndarray:
    return x.transpose(0, 2, 3, 1).reshape(x.shape)


def read_as_nhwc(x: np.ndarray) -> np.ndarray:
    n, c, h, w = x.shape
    return x.reshape(n, h, w, c).transpose(0, 3, 1, 2)


FAULTS: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray]]] = {
    "NHWC handed over": ("read as NCHW", nhwc_bytes),
    "read as NHWC": ("were read as NHWC", read_as_nhwc),
    "BGR": ("colors", lambda x: x[:, ::-1]),
    "upside down": ("upside down", lambda x: x[:, :, ::-1]),
    "mirrored": ("mirrored", lambda x: x[..., ::-1]),
    "batch reversed": ("batch", lambda x: x[::-1]),
    "first of the batch": ("first element", lambda x: np.repeat(x[:1], 2, axis=0)),
    "divided by 255": ("divided by 255", lambda x: x / np.float32(255)),
    "times 255": ("multiplied by 255", lambda x: x * np.float32(255)),
    "to -1..1": ("-1..1", lambda x: x * np.float32(2) - np.float32(1)),
    "127.5": ("127.5) / 127.5", lambda x: (x - np.float32(127.5)) / np.float32(127.5)),
    "ImageNet": ("ImageNet's mean", lambda x: (x - MEAN) / STD),
    "ImageNet undone": ("was missing", lambda x: x * STD + MEAN),
    "BGR and divided": ("divided by 255", lambda x: x[:, ::-1] / np.float32(255)),
    "NHWC and BGR": ("colors", lambda x: nhwc_bytes(x[:, ::-1])),
    "zeros": ("zeros", np.zeros_like),
}


def subject_of(
    fault: Callable[[np.ndarray], np.ndarray],
) -> Callable[[Mapping[str, np.ndarray]], Arrays]:
    return lambda inputs: run(GRAPH, {"x": np.ascontiguousarray(fault(inputs["x"]))})


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_input_is_named_from_the_outputs_alone(fault: str) -> None:
    words, change = FAULTS[fault]
    subject = subject_of(change)
    found = harness_causes(GRAPH, {"x": X}, subject({"x": X}), subject)
    assert found
    assert words in found[0].words
    assert found[0].statistic <= 1


@pytest.mark.parametrize("fault", ["BGR", "NHWC handed over", "ImageNet"])
def test_inner_values_make_it_quick_and_change_nothing(fault: str) -> None:
    words, change = FAULTS[fault]
    inner = tuple(v for n in GRAPH.nodes for v in n.outputs)
    given = run(GRAPH, {"x": np.ascontiguousarray(change(X))}, inner)
    found = harness_causes(GRAPH, {"x": X}, given)
    assert words in found[0].words


def test_the_cure_is_tried_on_the_subject() -> None:
    subject = subject_of(FAULTS["BGR"][1])
    (found,) = harness_causes(GRAPH, {"x": X}, subject({"x": X}), subject)
    assert "the other way it is right" in found.words
    turns = iter([subject({"x": X})])
    assert harness_causes(GRAPH, {"x": X}, subject({"x": X}), lambda _: next(turns)) == ()


def test_training_mode_is_named() -> None:
    training = in_training_mode(GRAPH)
    assert training is not None
    (found,) = harness_causes(GRAPH, {"x": X}, run(training, {"x": X}))
    assert found.hypothesis == "training mode"


def mixed_network(last: Softmax | LogSoftmax | None = None) -> Graph:
    """Two inputs of one shape, used differently; two outputs of one shape."""
    weights = np.random.default_rng(3).standard_normal((2, 7, 7)).astype(np.float32)
    b = Builder("mixed")
    x, y = (b.input(v, TensorType.parse("float32[5, 7]")) for v in "xy")
    h = b.add(MatMul(), [x, b.constant(weights[0], "w0")], ["h"], "first")
    g = b.add(
        Add(), [b.add(MatMul(), [y, b.constant(weights[1], "w1")], ["m"], "second"), h], ["g"]
    )
    u = b.add(Mul(), [h, x], ["u"], "product")
    return b.graph([u, b.add(last, [g], ["p"], "last") if last else g])


PAIR = dict(zip("xy", np.random.default_rng(11).standard_normal((2, 5, 7)).astype(np.float32)))


def test_exchanged_inputs_and_outputs_are_named() -> None:
    graph = mixed_network()
    given = run(graph, {"x": PAIR["y"], "y": PAIR["x"]})
    assert "inputs 'x' and 'y' were exchanged" in harness_causes(graph, PAIR, given)[0].words
    u, g = graph.outputs
    right = run(graph, PAIR)
    (found,) = harness_causes(graph, PAIR, {u: right[g], g: right[u]})
    assert f"outputs {u!r} and {g!r} came in the other order" in found.words


def test_logits_and_probabilities_are_told() -> None:
    plain, soft = mixed_network(), mixed_network(Softmax(axis=-1))
    logits, probabilities = run(plain, PAIR), run(soft, PAIR)
    (found,) = harness_causes(soft, PAIR, {"p": logits["g"]})
    assert found.hypothesis == "logits"
    (found,) = harness_causes(plain, PAIR, {"g": probabilities["p"]})
    assert "one more Softmax" in found.words
    logs = run(mixed_network(LogSoftmax(axis=-1)), PAIR)
    (found,) = harness_causes(soft, PAIR, {"p": logs["p"]})
    assert "LogSoftmax, not Softmax" in found.words


def test_an_output_in_another_layout_is_named() -> None:
    right = run(GRAPH, {"x": X})
    found = harness_causes(GRAPH, {"x": X}, {**right, "map": right["map"].transpose(0, 2, 3, 1)})
    assert [e.hypothesis for e in found] == ["output layout"]
    found = harness_causes(GRAPH, {"x": X}, {**right, "map": nhwc_bytes(right["map"])})
    assert [e.hypothesis for e in found] == ["output: NCHW and NHWC"]


def test_what_is_right_has_no_cause() -> None:
    assert harness_causes(GRAPH, {"x": X}, run(GRAPH, {"x": X})) == ()


@pytest.mark.parametrize("mistake", [*MISTAKES][::3])
def test_mistakes_of_the_network_are_not_laid_on_the_harness(mistake: str) -> None:
    guilty, change = MISTAKES[mistake]
    subject = Planted([guilty], change)
    found = harness_causes(GRAPH, {"x": X}, subject.run(GRAPH, {"x": X}))
    # To read the first kernels in reverse is to read the colours in reverse: nobody can tell.
    expected = ["RGB and BGR"] if mistake == "RGB taken as BGR" else []
    assert [e.hypothesis for e in found] == expected


def test_zeros_everywhere_are_not_called_an_ignored_input() -> None:
    b = Builder("product")
    x = b.input("x", TensorType.parse("float32[3, 5]"))
    weights = np.random.default_rng(93).standard_normal((5, 4)).astype(np.float32)
    b.constant(weights, "w")
    graph = b.graph([b.add(MatMul(), [x, "w"], ["y"], "product")])
    arrays = {"x": np.random.default_rng(94).uniform(-0.9, 0.9, (3, 5)).astype(np.float32)}
    assert harness_causes(graph, arrays, {"y": np.zeros((3, 4), np.float32)}) == ()
    # With a shift behind it, an answer of the shift alone does say that the input was ignored.
    shift = b.constant(np.array([1, -2, 3, 0.5], np.float32), "shift")
    shifted = b.graph([b.add(Add(), ["y", shift], ["z"], "shifted")])
    (first, *_) = harness_causes(shifted, arrays, {"z": np.tile(b.constants[shift], (3, 1))})
    assert first.hypothesis == "input ignored"
