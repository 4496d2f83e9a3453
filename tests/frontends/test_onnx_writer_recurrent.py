"""Recurrent layers that ONNX's operators cannot say are written step by step, and mean the same."""

from __future__ import annotations

import pytest
from tests.compiler.place.test_recurrent_lowering import network

import verax
from verax.base.errors import UnsupportedError
from verax.export.onnx import to_bytes
from verax.frontends.onnx import load_onnx
from verax.ir.graph import Graph, reinfer
from verax.ir.types import TensorType
from verax.ops.recurrent.recurrent import GRU, LSTM, RNN, Recurrent
from verax.records.verdict import Kind

HONEST = (Kind.identical, Kind.rounding)
FOREIGN: list[tuple[Recurrent, str]] = [
    (LSTM(cell_clip=0.25, clip=0.5, direction="reverse"), "bcp"),
    (LSTM(layout=1, direction="bidirectional"), "bhcj"),
    (LSTM(input_from_forget=True, layout=1), "hcp"),
    (LSTM(projection_clip=0.25, direction="bidirectional", input_forget=True, cell_clip=2), "bhjk"),
    (RNN(activations=("Clamped",), activation_alpha=(-0.5,), activation_beta=(0.75,)), "bh"),
    (
        GRU(
            direction="bidirectional",
            linear_before_reset=True,
            activations=("HardSigmoid", "Clamped", "Sigmoid", "ScaledTanh"),
            activation_alpha=(0.3, -0.5, 0, 1.5),
            activation_beta=(0.4, 0.75, 0, 0.5),
        ),
        "bh",
    ),
    (GRU(activations=("Affine", "Clamped"), clip=0.75, layout=1), "b"),
    (GRU(activations=("Sigmoid", "ScaledTanh"), activation_alpha=(0, 0.7)), "b"),
    (LSTM(activations=("Sigmoid", "Affine", "Tanh")), "b"),
]


@pytest.mark.parametrize(("op", "given"), FOREIGN, ids=str)
def test_written_out_it_is_the_same_to_onnx_runtime(op: Recurrent, given: str) -> None:
    ort = pytest.importorskip("onnxruntime")
    graph, inputs = network(op, given, steps=5, batch=3, features=4, hidden=7)
    written = to_bytes(graph)
    session = ort.InferenceSession(written, providers=["CPUExecutionProvider"])
    found = dict(zip(graph.outputs, session.run(list(graph.outputs), inputs), strict=True))
    verdict = verax.check(graph, found, inputs=inputs)
    assert verdict.kind in HONEST, verdict.reasons
    again = load_onnx(written).graph
    assert [again.types[v] for v in again.outputs] == [graph.types[v] for v in graph.outputs]


def opened(graph: Graph) -> Graph:
    (x,) = graph.inputs
    return reinfer(graph, {x: TensorType.parse("float32[5, n, 4]")})


def test_what_cannot_be_written_out_is_refused_with_the_reason() -> None:
    sizes = {"steps": 5, "batch": 3, "features": 4, "hidden": 7}
    clipped = LSTM(cell_clip=0.5)
    with pytest.raises(UnsupportedError, match=r"no bound of the cell state.*it has lengths"):
        to_bytes(network(clipped, "l", **sizes)[0])
    with pytest.raises(UnsupportedError, match="batch of a known size: give shapes"):
        to_bytes(opened(network(clipped, "", **sizes)[0]))
    with pytest.raises(UnsupportedError, match="written out for 1 to 512 steps"):
        to_bytes(network(clipped, "", **{**sizes, "steps": 513})[0])
    with pytest.raises(UnsupportedError, match="has no activation Gelu"):
        to_bytes(network(RNN(activations=("Gelu",)), "", **sizes)[0])
