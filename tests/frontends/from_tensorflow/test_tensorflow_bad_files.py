"""Frozen graphs that are damaged or dishonest: a model or a clear error, in bounded time.

The graphs are written with the reader's own message classes, so these need no TensorFlow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from verax.base.errors import ModelError, UnsupportedError, VeraxError
from verax.frontends.tensorflow import load_tensorflow
from verax.frontends.tensorflow.messages import CLASSES


def node(graph: Any, name: str, op: str, *inputs: str, **attributes: Any) -> Any:
    made = graph.node.add(name=name, op=op, input=inputs)
    for key, value in attributes.items():
        attribute = made.attr[key]
        if isinstance(value, str):
            attribute.s = value.encode()
        elif isinstance(value, bool):
            attribute.b = value
        elif isinstance(value, int):
            attribute.type = value
        elif isinstance(value, np.ndarray):
            attribute.tensor.dtype = {"float32": 1, "int32": 3}[str(value.dtype)]
            for size in value.shape:
                attribute.tensor.tensor_shape.dim.add(size=size)
            attribute.tensor.tensor_content = value.tobytes()
        else:
            attribute.list.i.extend(value)
    return made


def small() -> Any:
    graph = CLASSES["Graph"]()
    holder = node(graph, "x", "Placeholder", dtype=1)
    for size in (2, 7, 8, 3):
        holder.attr["shape"].shape.dim.add(size=size)
    weights = np.arange(3 * 2 * 3 * 4, dtype=np.float32).reshape(3, 2, 3, 4)
    node(graph, "w", "Const", dtype=1, value=weights)
    node(graph, "c", "Conv2D", "x", "w", T=1, strides=[1, 2, 2, 1], padding="SAME")
    node(graph, "y", "Relu", "c", T=1)
    return graph


def test_the_graph_itself_is_fine() -> None:
    assert list(load_tensorflow(small().SerializeToString()).outputs) == ["y"]


def test_cycles_are_refused() -> None:
    graph = small()
    graph.node[2].input[0] = "z"
    node(graph, "z", "Relu", "c", T=1)
    with pytest.raises(ModelError, match="depends on itself"):
        load_tensorflow(graph.SerializeToString())


def test_unknown_operators_are_listed_at_once_with_counts() -> None:
    graph = small()
    node(graph, "a", "Strange", "c")
    node(graph, "b", "Strange", "a")
    node(graph, "d", "While", "b")
    with pytest.raises(UnsupportedError) as caught:
        load_tensorflow(graph.SerializeToString())
    assert "Strange (2)" in caught.value.cause and "While (1)" in caught.value.cause


def test_dishonest_constants_are_refused() -> None:
    graph = small()
    graph.node[1].attr["value"].tensor.tensor_shape.dim[0].size = 10**9
    with pytest.raises(ModelError, match="cannot be"):
        load_tensorflow(graph.SerializeToString())
    huge = small()
    tensor = huge.node[1].attr["value"].tensor
    tensor.tensor_content = b""
    tensor.float_val.append(1.0)
    tensor.tensor_shape.dim[0].size = 10**12
    with pytest.raises(ModelError, match="cannot be"):
        load_tensorflow(huge.SerializeToString())


def test_training_is_refused() -> None:
    graph = small()
    for name in ("s", "o", "m", "v"):
        node(graph, name, "Const", dtype=1, value=np.ones(4, np.float32))
    node(graph, "n", "FusedBatchNorm", "c", "s", "o", "m", "v", T=1)
    with pytest.raises(UnsupportedError, match="is_training"):
        load_tensorflow(graph.SerializeToString())


@pytest.mark.parametrize("data", [b"", b"\x00" * 64, b"not a graph at all", b"\xff" * 200])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(VeraxError):
        load_tensorflow(data)


def mutated(data: bytes, seed: int) -> bytes:
    random = np.random.default_rng(seed)
    changed = bytearray(data)
    for _ in range(int(random.integers(1, 6))):
        at = int(random.integers(len(changed)))
        if random.integers(2):
            changed[at] = int(random.integers(256))
        else:
            del changed[at : at + int(random.integers(1, 20))]
    return bytes(changed)


def outcomes(first: int, count: int) -> None:
    data = small().SerializeToString()
    for seed in range(first, first + count):
        try:
            load_tensorflow(mutated(data, seed))
        except VeraxError as error:
            assert error.cause


@pytest.mark.parametrize("part", range(3))
def test_mutations_give_a_model_or_a_clear_error(part: int) -> None:
    outcomes(200 * part, 200)


@pytest.mark.slow
def test_thousands_of_mutations() -> None:
    outcomes(10_000, 20_000)
