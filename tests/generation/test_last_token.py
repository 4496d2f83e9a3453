"""Logits of a prompt are computed for its last token alone."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from verax.compiling import compile
from verax.generation.decoders import DecoderSignature
from verax.generation.folders import networks
from verax.generation.last_token import with_last_logits
from verax.ir.graph import Graph
from verax.ir.text import parse_graph

from .decoder_models import Weights, save

TAIL = """
graph "tail"
    input %input_ids: int64[batch, tokens]
    input %x: float32[batch, tokens, 6]
    const %scale: float32[6] = [1, 2, 0.5, -1, 3, 1]
    const %w: float32[6, 5] = [1, 2, 3, 4, 5, -1, 0.5, 2, -3, 1, 0, 1, 2, 3, 0.25, 1, -2, 3, -4, \
5, 6, 5, 4, 3, 2, 1, 0, 1, 0, 1]
    const %cut: int64[1] = [0]
    const %until: int64[1] = [6]
    const %axis: int64[1] = [2]
    const %tokens_axis: int64[1] = [1]
  %n: float32[batch, tokens, 6] = RMSNormalization()(%x, %scale)
  {middle}
  %s: float32[batch, tokens, 6] = Add()(%m, %n)
  %logits: float32[batch, tokens, 5] = MatMul()(%s, %w)
    output %logits
"""
BY_TOKEN = {
    "a curve": "%m: float32[batch, tokens, 6] = Tanh()(%n)",
    "a sum over features": "%m: float32[batch, tokens, 1] = ReduceMean()(%n, %axis)",
    "a cut of features": "%m: float32[batch, tokens, 6] = Slice()(%n, %cut, %until, %axis)",
}
NOT_BY_TOKEN = {
    "a sum over tokens": "%m: float32[batch, 1, 6] = ReduceMean()(%n, %tokens_axis)",
    "a running sum": "%m: float32[batch, tokens, 6] = CumSum()(%n, %tokens_axis)",
    "shares over tokens": "%m: float32[batch, tokens, 6] = Softmax(axis=1)(%n)",
}


def tail(middle: str) -> Graph:
    return parse_graph(TAIL.replace("{middle}", middle))


def last_and_all(graph: Graph) -> tuple[Graph, np.ndarray, np.ndarray]:
    """The graph of the last token, its logits, and those of all tokens."""
    made = with_last_logits(graph, "input_ids", "logits")
    x = np.random.default_rng(5).standard_normal((3, 7, 6)).astype(np.float32)
    inputs = {"input_ids": np.zeros((3, 7), np.int64), "x": x}
    first, second = (compile(g, opt_level=2, threads=1, cache=False) for g in (made, graph))
    return made, first.run(inputs)["logits"], second.run(inputs)["logits"]


@pytest.mark.parametrize("middle", BY_TOKEN.values(), ids=BY_TOKEN)
def test_the_whole_tail_is_of_one_token(middle: str) -> None:
    made, last, every = last_and_all(tail(middle))
    assert made.types["n"].dims[1] == 1
    assert last.shape == (3, 1, 5)
    np.testing.assert_array_equal(last, every[:, -1:])


@pytest.mark.parametrize("middle", NOT_BY_TOKEN.values(), ids=NOT_BY_TOKEN)
def test_what_mixes_tokens_sees_them_all(middle: str) -> None:
    made, last, every = last_and_all(tail(middle))
    assert made.types["logits"].dims[1] == 1
    assert made.types["n"].dims[1] != 1
    np.testing.assert_array_equal(last, every[:, -1:])


def test_bounds_of_sizes_stay() -> None:
    graph = dataclasses.replace(tail(BY_TOKEN["a curve"]), bounds={"tokens": (1, 9)})
    assert with_last_logits(graph, "input_ids", "logits").bounds == {"tokens": (1, 9)}


def test_what_is_an_output_too_stays_whole() -> None:
    text = TAIL.replace("output %logits", "output %logits\n    output %n")
    graph = parse_graph(text.replace("{middle}", BY_TOKEN["a curve"]))
    made = with_last_logits(graph, "input_ids", "logits")
    assert made.types["n"] == graph.types["n"]
    assert made.types["logits"].dims[1] == 1


def test_logits_without_tokens_are_left() -> None:
    graph = parse_graph(
        """
        graph "pooled"
            input %input_ids: int64[batch, tokens]
            input %x: float32[batch, 6]
          %logits: float32[batch, 6] = Tanh()(%x)
            output %logits
        """
    )
    assert with_last_logits(graph, "input_ids", "logits") is graph


def test_a_decoder_computes_the_last_products_once(tmp_path: Path) -> None:
    path = save(tmp_path / "decoder.onnx", Weights.of(4))
    graph = DecoderSignature.of(networks(path).main).graph
    products = [n for n in graph.nodes if n.op.kind == "MatMul"]
    ones = [n.outputs[0] for n in products if graph.types[n.outputs[0]].dims[1] == 1]
    assert ones == ["y1_o", "logits"]  # of the second of two layers
