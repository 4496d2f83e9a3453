"""Mistakes planted in the ONNX file, run by ONNX Runtime: found and pinned to the right node."""

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from planted import small_network

from verax.export.onnx.writer import to_onnx
from verax.judge import check
from verax.records.verdict import Kind
from verax.runners.onnx_runtime import OnnxRuntimeRunner

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
GRAPH = small_network()
Edit = Callable[[onnx.ModelProto, onnx.NodeProto], None]


def attribute(**values: object) -> Edit:
    """Set attributes of the node."""

    def edit(model: onnx.ModelProto, node: onnx.NodeProto) -> None:
        for name, value in values.items():
            kept = [a for a in node.attribute if a.name != name]
            del node.attribute[:]
            node.attribute.extend([*kept, helper.make_attribute(name, value)])

    return edit


def weight(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Edit:
    """Change an initialiser."""

    def edit(model: onnx.ModelProto, node: onnx.NodeProto) -> None:
        for tensor in model.graph.initializer:
            if tensor.name == name:
                array = change(numpy_helper.to_array(tensor).copy())
                tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), name))

    return edit


def other_operator(kind: str, *, keep: tuple[str, ...] = ()) -> Edit:
    """Another operator, with the attributes named in `keep`."""

    def edit(model: onnx.ModelProto, node: onnx.NodeProto) -> None:
        node.op_type = kind
        kept = [a for a in node.attribute if a.name in keep]
        del node.attribute[:]
        node.attribute.extend(kept)

    return edit


def drop_input(position: int) -> Edit:
    def edit(model: onnx.ModelProto, node: onnx.NodeProto) -> None:
        del node.input[position]

    return edit


def swap_inputs(first: int, second: int) -> Edit:
    def edit(model: onnx.ModelProto, node: onnx.NodeProto) -> None:
        node.input[first], node.input[second] = node.input[second], node.input[first]

    return edit


def repeat_input(source: int, target: int) -> Edit:
    def edit(model: onnx.ModelProto, node: onnx.NodeProto) -> None:
        node.input[target] = node.input[source]

    return edit


def one_weight(channel: int) -> Edit:
    """One weight of the stem, too large by a thousandth."""

    def change(w: np.ndarray) -> np.ndarray:
        w[channel, 1, 2, 0] *= np.float32(1.001)
        return w

    return weight("w1", change)


DEAD_CHANNEL = 3
"""The Relu after the stem gives 0 everywhere in this channel."""


WINDOW = ("kernel_shape", "strides", "pads")
PLANTED: dict[str, tuple[str, Edit]] = {
    "SAME upper taken as lower": ("stem", attribute(pads=[1, 1, 0, 0])),
    "SAME taken as symmetric": ("stem", attribute(pads=[1, 1, 0, 1])),
    "bias forgotten": ("stem", drop_input(2)),
    "RGB taken as BGR": ("stem", weight("w1", lambda w: w[:, ::-1])),
    "kernel transposed": ("stem", weight("w1", lambda w: w.swapaxes(2, 3))),
    "one weight off by 1e-3": ("stem", one_weight(2)),
    "epsilon": ("bn", attribute(epsilon=1e-5)),
    "mean and beta swapped": ("bn", swap_inputs(2, 3)),
    "gamma and variance swapped": ("bn", swap_inputs(1, 4)),
    "LeakyRelu slope": ("leaky", attribute(alpha=0.01)),
    "Relu for LeakyRelu": ("leaky", other_operator("Relu")),
    "Sigmoid for Relu": ("relu", other_operator("Sigmoid")),
    "depthwise pads": ("depth", attribute(pads=[2, 1, 0, 1])),
    "dilation and pads": ("grouped", attribute(dilations=[1, 1], pads=[1, 1, 1, 1])),
    "groups reversed": ("grouped", weight("w3", lambda w: np.roll(w, 4, axis=0))),
    "addend doubled": ("sum", repeat_input(1, 0)),
    "pads of the transposed convolution": ("up", attribute(pads=[0, 0, 2, 2])),
    "transposed kernel flipped": ("up", weight("w4", lambda w: w[:, :, ::-1, ::-1])),
    "transposed weights swapped": ("up", weight("w4", lambda w: w[::-1])),
    "average for maximum": ("maxpool", other_operator("AveragePool", keep=WINDOW)),
    "count_include_pad": ("avgpool", attribute(count_include_pad=1)),
    "pool pads": ("maxpool", attribute(pads=[0, 1, 2, 0])),
    "concatenated in the other order": ("concat", swap_inputs(0, 1)),
    "alpha of Gemm": ("gemm", attribute(alpha=0.999)),
    "bias of Gemm": ("gemm", weight("b5", lambda b: b * np.float32(1.01))),
    "softmax over the batch": ("softmax", attribute(axis=0)),
}


def planted_model(guilty: str, edit: Edit) -> bytes:
    model = to_onnx(GRAPH)
    (node,) = [n for n in model.graph.node if n.name == guilty]
    edit(model, node)
    return model.SerializeToString()


def runner(model: bytes) -> OnnxRuntimeRunner:
    return OnnxRuntimeRunner(model, threads=1, isolated=False)


@pytest.mark.parametrize("what", PLANTED)
def test_a_planted_mistake_is_pinned_to_its_node(what: str) -> None:
    verdict = check(GRAPH, runner(planted_model(*PLANTED[what])))
    assert verdict.kind is Kind.mistake
    assert {b.node for b in verdict.blame if not b.region} == {PLANTED[what][0]}


@pytest.mark.parametrize("what", PLANTED)
def test_a_planted_mistake_shows_at_the_outputs_alone(what: str) -> None:
    # Blame does not hang on the search for causes, which takes most of the time: a few have it.
    explain = list(PLANTED).index(what) % 16 == 0
    subject = runner(planted_model(*PLANTED[what]))
    verdict = check(GRAPH, subject, watch=False, explain=explain)
    assert verdict.kind is Kind.mistake
    assert any(PLANTED[what][0] in (*b.region, b.node) for b in verdict.blame)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("level", ["disabled", "all"])
def test_the_honest_file_is_rounding(seed: int, level: str) -> None:
    graph = small_network(seed)
    subject = OnnxRuntimeRunner(
        to_onnx(graph).SerializeToString(), threads=1, isolated=False, level=level
    )
    for watch in (True, False):
        verdict = check(graph, subject, seed=seed, watch=watch)
        assert verdict.kind is Kind.rounding, verdict.reasons


def test_what_a_dead_channel_hides_needs_inner_values() -> None:
    subject = runner(planted_model("stem", one_weight(DEAD_CHANNEL)))
    assert check(GRAPH, subject, watch=False).kind is Kind.rounding
    assert [b.node for b in check(GRAPH, subject).blame] == ["stem"]
