"""Networks whose caches are bound answer as those that are handed them back: batches of different
lengths, what is forgotten or reordered before new rows are written, numbers beside the room."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.compiler.decoder_graphs import CACHES, Arrays, decoder
from verax.base.errors import InputError
from verax.base.option_groups.settings import Settings
from verax.compiler.caches import bind_caches
from verax.compiler.compile import compile
from verax.frontends.onnx.importer import load_onnx
from verax.ir.graph import Graph, specialize

BATCH, HEADS, SHARED, FEATURES, ROOM = 3, 4, 2, 16, 37
value = helper.make_tensor_value_info


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: str,
    **constants: object,
) -> Graph:
    graph = helper.make_graph(
        nodes, "cached", inputs, [onnx.ValueInfoProto(name=name) for name in outputs.split()],
        [numpy_helper.from_array(np.asarray(a), name) for name, a in constants.items()],
    )  # fmt: skip
    sets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return load_onnx(helper.make_model(graph, opset_imports=sets, ir_version=10)).graph


def grouped(**attributes: object) -> Graph:
    """GroupQueryAttention of a batch, each of its own length."""
    kinds, cache = (("q", HEADS), ("k", SHARED), ("v", SHARED)), [BATCH, SHARED, ROOM, FEATURES]
    inputs = [value(v, TensorProto.FLOAT, [BATCH, "tokens", n * FEATURES]) for v, n in kinds]
    inputs += [value(v, TensorProto.FLOAT, cache) for v in ("keys", "values")]
    inputs += [value("last", TensorProto.INT32, [BATCH]), value("total", TensorProto.INT32, [])]
    node = helper.make_node(
        "GroupQueryAttention", [v.name for v in inputs], ["y", "new_keys", "new_values"], "layer",
        domain="com.microsoft", num_heads=HEADS, kv_num_heads=SHARED, **attributes,
    )  # fmt: skip
    return model([node], inputs, "y new_keys new_values")


def tokens(random: np.random.Generator, count: int, ends: np.ndarray, total: int) -> Arrays:
    kinds = (("q", HEADS), ("k", SHARED), ("v", SHARED))
    arrays: Arrays = {
        v: random.standard_normal((BATCH, count, n * FEATURES), np.float32) for v, n in kinds
    }
    return arrays | {"last": (ends - 1).astype(np.int32), "total": np.array(total, np.int32)}


@pytest.mark.parametrize(
    ("attributes", "in_place"),
    [({}, True), ({"local_window_size": 5}, True), ({"softcap": 3.0}, False)],
)
@pytest.mark.parametrize(("level", "threads"), [(0, 1), (1, 2), (3, 1)])
def test_prompts_of_different_lengths_in_a_batch(
    attributes: dict[str, object], in_place: bool, level: int, threads: int
) -> None:
    caches = {"keys": "new_keys", "values": "new_values"}
    exe = compile(grouped(**attributes), Settings(threads=threads, opt_level=level))
    bound, random = exe.bind(caches), np.random.default_rng(7)
    passed = {v: np.zeros(exe.inputs[v].shape, np.float32) for v in caches}
    ends = np.zeros(BATCH, np.int64)
    for count, added in ((5, [5, 3, 4]), (1, 1), (1, 1), (3, 3), (1, 1), (5, [5, 2, 5]), (1, 1)):
        is_prompt = count == 5  # padded, and the second one begins anew
        ends = np.array(added) if is_prompt else ends + added
        given = tokens(random, count, ends, count if is_prompt else int(ends.max()))
        want = exe.run({**given, **passed})
        assert bound.run(given)["y"].tobytes() == want["y"].tobytes()
        passed = {v: want[o] for v, o in caches.items()}
        for v, state in bound.state.items():
            for one, other, end in zip(state, passed[v], ends, strict=True):
                assert one[:, :end].tobytes() == other[:, :end].tobytes()
    written = [s.in_place for s in bound.specialized.binary.state]
    assert written == [in_place and level > 0] * 2
    before = bound.state
    for end in (ROOM + 1, ROOM + 9):  # of one in the batch
        with pytest.raises(InputError, match="lies outside"):
            bound.run(tokens(random, 1, np.array([ROOM, end, 4]), end))
        assert all(a.tobytes() == before[v].tobytes() for v, a in bound.state.items())


@pytest.mark.parametrize("kind", ["forgotten", "reordered"])
@pytest.mark.parametrize("level", [0, 1])
def test_old_rows_that_are_changed_before_new_ones_are_written(kind: str, level: int) -> None:
    """Shaped like the rows that GroupQueryAttention keeps; here they are read."""
    float_, integer = TensorProto.FLOAT, TensorProto.INT64
    inputs = [
        value("past", float_, [3, 2, 11, 5]),
        value("new", float_, [3, 2, 4, 5]),
        value("keep", TensorProto.BOOL, [3, 1, 11, 1]),
        value("order", integer, [11]),
        value("index", integer, [3, 2, 4, 5]),
    ]
    rows = "past"
    nodes = []
    if kind == "reordered":
        rows = "rows"
        nodes = [
            helper.make_node("Concat", ["past", "new"], ["both"], axis=2),
            helper.make_node("Gather", ["both", "order"], ["rows"], axis=2),
        ]
    nodes += [
        helper.make_node("Where", ["keep", rows, "zero"], ["old"]),
        helper.make_node("ScatterElements", ["old", "index", "new"], ["present"], axis=2),
        helper.make_node("ReduceSum", ["present", "axis"], ["sums"], keepdims=0),
    ]
    graph = model(nodes, inputs, "present sums", zero=np.float32(0), axis=np.array([3]))
    exe = compile(graph, Settings(threads=1, opt_level=level))
    bound, random = exe.bind({"past": "present"}), np.random.default_rng(3)
    past = np.zeros((3, 2, 11, 5), np.float32)
    for first in (0, 4, 7, 2):
        index = np.broadcast_to(first + np.arange(4)[:, None], (3, 2, 4, 5)).copy()
        given = {
            "new": random.standard_normal((3, 2, 4, 5), np.float32),
            "keep": random.random((3, 1, 11, 1)) < 0.7,
            "order": random.permutation(15)[:11],
            "index": index,
        }
        used = {v: a for v, a in given.items() if v in exe.inputs}
        want = exe.run({**used, "past": past})
        assert bound.run(used)["sums"].tobytes() == want["sums"].tobytes()
        past = want["present"]
        assert bound.state["past"].tobytes() == past.tobytes()


def test_the_larger_one_of_the_room_and_another_number_stays() -> None:
    with_more = decoder("grouped", 40)
    with_more.graph.input.append(value("number", TensorProto.FLOAT, [1]))
    with_more.graph.initializer.append(numpy_helper.from_array(np.float32([40]), "forty"))
    node = helper.make_node("Max", ["forty", "number"], ["larger"], "another number")
    with_more.graph.node.append(node)
    with_more.graph.output.append(onnx.ValueInfoProto(name="larger"))
    bound = bind_caches(specialize(load_onnx(with_more).graph, {}), CACHES)
    assert str(bound.types["larger"]) == "float32[1]"
    assert [n.op.kind for n in bound.nodes].count("Max") == 1


def test_arrays_of_the_caller_are_not_kept() -> None:
    exe = compile(grouped(), Settings(threads=1, opt_level=1))
    shape, random = exe.inputs["keys"].shape, np.random.default_rng(5)
    first = {v: random.standard_normal(shape, np.float32) for v in ("keys", "values")}
    bound = exe.bind({"keys": "new_keys", "values": "new_values"}, first)
    given = tokens(random, 1, np.array([6, 2, 9]), 9)
    want = exe.run({**given, **first})
    for array in first.values():
        array[:] = np.nan
    found = bound.run(given)
    for array in given.values():
        array[...] = 0
    state = bound.state
    assert found["y"].tobytes() == want["y"].tobytes()
    assert state["keys"][2, :, :9].tobytes() == want["new_keys"][2, :, :9].tobytes()
    state["keys"][:] = np.nan
    assert np.isfinite(bound.state["keys"]).all()
    again = {v: random.standard_normal(shape, np.float32) for v in ("keys", "values")}
    bound.state = again
    kept = again["values"].copy()
    bound.run(tokens(random, 1, np.array([6, 2, 9]), 9))
    assert again["values"].tobytes() == kept.tobytes()
    bound.reset()
    assert np.isfinite(bound.state["keys"]).all()
