"""Frozen graphs that are damaged or dishonest: a model or a clear error, in bounded time.

The graphs are written with the reader's own message classes, so these need no TensorFlow.
"""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tf_graphs import node

from verax.base.errors import ModelError, UnsupportedError, VeraxError
from verax.frontends.tensorflow import load_tensorflow
from verax.frontends.tensorflow.large_tensors import lifted
from verax.frontends.tensorflow.messages import CLASSES


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
    node(graph, "d", "Odd", "b")
    with pytest.raises(UnsupportedError) as caught:
        load_tensorflow(graph.SerializeToString())
    assert "Strange (2)" in caught.value.cause and "Odd (1)" in caught.value.cause


def test_a_case_without_branches_is_damage() -> None:
    graph = small()
    node(graph, "d", "StatelessCase", "c")
    with pytest.raises(ModelError, match="it has no branches"):
        load_tensorflow(graph.SerializeToString())


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


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def with_a_port(graph: Any, port: str) -> None:
    node(graph, "p", "Relu", f"c:{port}", T=1)


def with_shape(graph: Any, op: str, *sizes: int, **attributes: Any) -> None:
    node(graph, "sizes", "Const", dtype=3, value=ints(*sizes))
    node(graph, "big", op, "x", "sizes", T=1, **attributes)


def with_calls(graph: Any, levels: int) -> None:
    """Functions that call the one before four times each; the first calls nothing."""
    for level in range(levels):
        function = graph.library.function.add()
        function.signature.name = f"f{level}"
        function.signature.input_arg.add(name="a", type=1)
        function.signature.output_arg.add(name="o", type=1)
        function.ret["o"] = "c0:output:0"
        for i in range(4):
            call = function.node_def.add(name=f"c{i}", op="PartitionedCall", input=["a"])
            call.attr["f"].func.name = f"f{max(level - 1, 0)}"
    node(graph, "call", "PartitionedCall", "x").attr["f"].func.name = f"f{levels - 1}"


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda g: with_a_port(g, "999999999999"), "names no output"),
        (lambda g: with_a_port(g, "abc"), "names no output"),
        (lambda g: with_a_port(g, "1:2"), "names no output"),
        (lambda g: node(g, "q", "Relu", "nowhere", T=1), "defined nowhere"),
        (lambda g: node(g, "y", "Relu", "c", T=1), "used twice"),
        (lambda g: with_shape(g, "Tile", *[2**30] * 4), "absurdly large"),
        (lambda g: with_shape(g, "ResizeBilinear", 2**31 - 1, 2**31 - 1), "absurdly large"),
        (lambda g: with_shape(g, "ResizeBicubic", 2**31 - 1, 3), "at most"),
        (lambda g: with_calls(g, 1), "without end"),
        (lambda g: with_calls(g, 25), "without end|more than"),
    ],
)
def test_dishonest_graphs_are_refused(change: Any, cause: str) -> None:
    graph = small()
    change(graph)
    with pytest.raises(VeraxError, match=cause):
        load_tensorflow(graph.SerializeToString())


def large(count: int = 3000) -> Any:
    """A graph whose weights are long enough to be lifted out of the message."""
    graph = CLASSES["Graph"]()
    holder = node(graph, "x", "Placeholder", dtype=1)
    for size in (2, count):
        holder.attr["shape"].shape.dim.add(size=size)
    node(graph, "w", "Const", dtype=1, value=np.arange(3 * count, dtype=np.float32).reshape(-1, 3))
    node(graph, "y", "MatMul", "x", "w", T=1)
    return graph


def test_large_contents_are_lifted_and_mean_the_same() -> None:
    data = large().SerializeToString()
    small_message, contents = lifted(memoryview(data), "Graph")
    assert len(small_message) < 300 and [len(c) for c in contents] == [36_000]
    model = load_tensorflow(data)
    assert np.array_equal(model.graph.constants["w"].ravel(), np.arange(9000, dtype=np.float32))


def test_what_is_lifted_is_what_protobuf_would_have_read() -> None:
    """Two contents: the last one counts. A field that only lifting writes is not trusted."""
    graph = large()
    tensor = graph.node[1].attr["value"].tensor
    other = CLASSES["Tensor"](tensor_content=bytes(36_000)).SerializeToString()
    twice = tensor.SerializeToString() + other
    message, contents = lifted(memoryview(twice), "Tensor")
    assert message == twice and not contents
    tensor.lifted = 1
    with pytest.raises(ModelError, match="two contents"):
        load_tensorflow(graph.SerializeToString())


def test_loading_does_not_copy_the_weights(tmp_path: Path) -> None:
    path = tmp_path / "large.pb"
    path.write_bytes(large(1_000_000).SerializeToString())
    load_tensorflow(path)  # imports what it needs
    tracemalloc.start()
    model = load_tensorflow(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert model.graph.constants["w"].nbytes == 12_000_000 > 4 * peak


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


def outcomes(data: bytes, first: int, count: int) -> None:
    for seed in range(first, first + count):
        try:
            load_tensorflow(mutated(data, seed))
        except VeraxError as error:
            assert error.cause


@pytest.mark.parametrize("part", range(3))
def test_mutations_give_a_model_or_a_clear_error(part: int) -> None:
    outcomes(small().SerializeToString(), 200 * part, 200)


@pytest.mark.slow
def test_thousands_of_mutations() -> None:
    outcomes(small().SerializeToString(), 10_000, 10_000)


@pytest.mark.slow
def test_thousands_of_mutations_of_a_detector(tmp_path: Path) -> None:
    """The frozen graph, then the graph and the index of the folder."""
    with np.load(Path(__file__).with_name("ssd.npz")) as stored:
        frozen = stored["frozen"].tobytes()
        files = {k[5:]: stored[k].tobytes() for k in stored.files if k.startswith("file:")}
    outcomes(frozen, 0, 500)
    for name, data in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    for name in ("saved_model.pb", "variables/variables.index"):
        for seed in range(500):
            (tmp_path / name).write_bytes(mutated(files[name], seed))
            try:
                load_tensorflow(tmp_path)
            except VeraxError as error:
                assert error.cause
        (tmp_path / name).write_bytes(files[name])
