"""Sizes are stated by the file's names, by axes, as names of one's own and as bounds; what is no
size, or contradicts the file, is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import verax
from verax.base.errors import GraphError, InputError, UnknownNameError, UsageError
from verax.ir.text import parse_graph
from verax.judge import draw_inputs
from verax.records.verdict import Kind


def value(name: str, dims: list[Any]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)


def network() -> onnx.ModelProto:
    """[s27, seq len, 20] times a matrix, plus rows [?, 6], and both again in threes."""
    w = np.random.default_rng(331).standard_normal((20, 6)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["ids", "w"], ["m"], name="project"),
        helper.make_node("Add", ["m", "bias"], ["y"], name="shift"),
        helper.make_node("Reshape", ["bias", "threes"], ["z"], name="fold"),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [value("ids", ["s27", "seq len", 20]), value("bias", [None, 6])],
        [value("y", [None, None, 6]), value("z", [None, 4, 3])],
        [
            onnx.numpy_helper.from_array(w, "w"),
            onnx.numpy_helper.from_array(np.array([-1, 4, 3]), "threes"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def dims(shapes: Any) -> tuple[str, str]:
    model = verax.load(network(), shapes=shapes)
    return str(model.inputs["ids"]), str(model.inputs["bias"])


@pytest.mark.parametrize(
    ("shapes", "ids", "bias"),
    [
        (None, "s27, seq_len, 20", "bias_0, 6"),
        ({"s27": None, "ids": None}, "s27, seq_len, 20", "bias_0, 6"),
        ({"s27": 3}, "3, seq_len, 20", "bias_0, 6"),
        ({"s27": np.int64(3)}, "3, seq_len, 20", "bias_0, 6"),
        ({"ids[1]": 128}, "s27, 128, 20", "bias_0, 6"),
        ({"ids[-2]": 128, "ids[2]": 20}, "s27, 128, 20", "bias_0, 6"),
        ({"seq len": 9}, "s27, 9, 20", "bias_0, 6"),
        ({"seq_len": 8, "bias_0": 8}, "s27, 8, 20", "8, 6"),
        ({"ids": np.array([2, 4, 20])}, "2, 4, 20", "bias_0, 6"),
        ({"ids": ("batch", None, 20)}, "batch, seq_len, 20", "bias_0, 6"),
        ({"ids": (2, "n", 20), "bias": ["n", 6]}, "2, n, 20", "n, 6"),
        ({"s27": "bias_0", "bias[0]": "s27"}, "bias_0, seq_len, 20", "s27, 6"),
        ({"ids[1]": "n", "bias[0]": "n", "seq len": 8}, "s27, 8, 20", "8, 6"),
        ({"s27": (4, 4)}, "4, seq_len, 20", "bias_0, 6"),
    ],
)
def test_a_size_is_found_by_each_of_its_names(shapes: Any, ids: str, bias: str) -> None:
    assert dims(shapes) == (f"float32[{ids}]", f"float32[{bias}]")


@pytest.mark.parametrize(
    ("shapes", "bounds"),
    [
        ({"s27": (1, 512)}, {"s27": (1, 512)}),
        ({"ids[1]": (None, 9)}, {"seq_len": (1, 9)}),
        ({"bias": ((4, None), 6)}, {"bias_0": (4, None)}),
        ({"ids[1]": "n", "bias[0]": "n", "seq len": (4, 40)}, {"n": (4, 40)}),
    ],
)
def test_bounds_leave_a_size_open(shapes: Any, bounds: Any) -> None:
    graph = verax.load(network(), shapes=shapes).graph
    assert dict(graph.bounds) == bounds and graph.bounds.keys() <= graph.symbols()
    read = parse_graph(str(graph), dict(graph.constants))
    assert read == graph and dict(read.bounds) == bounds
    assert graph != verax.load(network()).graph


@pytest.mark.parametrize("size", [True, 2.0, -1, "a b", "for", "3", "", (5, 2), (1, 2, 3), (), {}])
def test_what_is_no_size_is_refused(size: Any) -> None:
    with pytest.raises(UsageError, match="is no size") as caught:
        dims({"s27": size})
    assert "s27" in caught.value.place and "1:512" in caught.value.next_step


@pytest.mark.parametrize(
    ("shapes", "cause"),
    [
        ({"ids[0]": 3, "s27": 4}, "s27 is given as 3 and as 4"),
        ({"s27": (1, 2), "ids[0]": 3}, "s27 is given as 1:2 and as 3"),
        ({"ids[0]": 3, "s27": (4, None)}, "s27 is given as 3 and as 4:"),
        ({"s27": "n", "ids[0]": "m"}, "s27 is given as n and as m"),
        ({"s27": (1, 4), "ids[0]": (1, 5)}, "s27 is given as 1:4 and as 1:5"),
        ({"ids": (3, "n", 20), "bias": ("n", 6), "seq_len": 4, "bias_0": 5}, "n is given as 4"),
        ({"ids[2]": 21}, "21 is given, the file has 20"),
        ({"ids": ("n", 3, "m")}, "on axis 2, m is given, the file has 20"),
        ({"ids": 5}, "one size is given for an input of 3 dimensions"),
        ({"ids[3]": 1}, "an axis that the input has not"),
    ],
)
def test_contradictions_are_refused(shapes: Any, cause: str) -> None:
    with pytest.raises(UsageError) as caught:
        dims(shapes)
    assert cause in caught.value.cause


def test_an_unknown_name_is_answered_with_all_names_and_their_axes() -> None:
    with pytest.raises(UnknownNameError, match="no input or dimension 'seq'") as caught:
        dims({"seq": 128})
    assert "s27 (ids[0]), seq len (ids[1]), bias[0]" in caught.value.next_step
    with pytest.raises(UnknownNameError):
        dims({"idz[1]": 128})


def arrays(batch: int, length: int, count: int | None = None) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(332)
    return {
        "ids": rng.standard_normal((batch, length, 20)).astype(np.float32),
        "bias": rng.standard_normal((length if count is None else count, 6)).astype(np.float32),
    }


BOUNDED = {"s27": (2, 5), "ids[1]": "n", "bias[0]": "n", "seq len": (4, 40)}


def test_sizes_outside_of_bounds_are_refused_by_whoever_runs() -> None:
    model = verax.load(network(), shapes=BOUNDED)
    exe = verax.compile(model, opt_level=2, threads=1)
    for run in (exe.run, lambda x: verax.reference(model, x)):
        assert run(arrays(2, 4))["y"].shape == (2, 4, 6)
        for batch, length, text in (
            (6, 4, "axis 0 has size 6; s27 is stated to be 2 to 5"),
            (1, 4, "axis 0 has size 1; s27 is stated to be 2 to 5"),
            (5, 42, "axis 1 has size 42; n is stated to be 4 to 40"),
        ):
            with pytest.raises(InputError, match=text) as caught:
                run(arrays(batch, length))
            assert "'ids'" in caught.value.place
        assert run(arrays(5, 40))["y"].shape == (5, 40, 6)


def test_inputs_that_are_drawn_lie_within_bounds() -> None:
    model = verax.load(network(), shapes={**BOUNDED, "s27": (9, 11), "seq len": (2, 4)})
    drawn, origins = draw_inputs(model.graph, seed=3)
    assert drawn["ids"].shape == (9, 4, 20) and "s27 = 9" in origins["ids"]
    with pytest.raises(InputError, match="stated to be 9 to 11"):
        verax.check(model, "verax:O1", sizes={"s27": 2})
    assert verax.check(model, "verax:O1").kind in (Kind.identical, Kind.rounding)


def test_inputs_that_disagree_are_told_with_both_sizes() -> None:
    shared = verax.compile(network(), shapes={"seq len": "n", "bias_0": "n"}, threads=1)
    with pytest.raises(InputError, match=r"axis 0 has size 8, the model takes n = 10") as caught:
        shared.run(arrays(2, 10, 8))
    assert "axis 1 of 'ids'" in caught.value.cause and "'bias'" in caught.value.place


@pytest.mark.parametrize("before", [False, True], ids=["first run", "with a program for many"])
def test_a_node_that_inputs_do_not_fit_is_named_with_their_sizes(before: bool) -> None:
    exe = verax.compile(network(), threads=1)
    if before:
        for length in (4, 8, 12):
            exe.run(arrays(2, length))
    with pytest.raises(GraphError, match=r"\[2, 10, 6\], \[8, 6\]") as caught:
        exe.run(arrays(2, 10, 8))
    assert "'shift'" in caught.value.place
    assert "bias_0 = 8, s27 = 2, seq_len = 10" in caught.value.next_step
    with pytest.raises(GraphError, match="30 is no multiple of 12") as caught:
        exe.run(arrays(2, 5))
    assert "'fold'" in caught.value.place
    assert exe.run(arrays(2, 8))["z"].shape == (4, 4, 3)


def test_a_kept_model_has_its_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERAX_CACHE", str(tmp_path / "programs"))
    onnx.save(network(), tmp_path / "net.onnx")
    shapes = {**BOUNDED, "s27": [2, 5]}
    for _ in range(2):
        model = verax.load(tmp_path / "net.onnx", shapes=shapes)
        assert dict(model.graph.bounds) == {"s27": (2, 5), "n": (4, 40)}
        exe = verax.compile(model, threads=1)
        exe.run(arrays(2, 4))
        with pytest.raises(InputError, match="stated to be 2 to 5"):
            exe.run(arrays(6, 4))
    assert type(model).__name__ == "DeferredModel"
    assert not verax.load(tmp_path / "net.onnx").graph.bounds


def test_a_loaded_model_takes_no_more_sizes() -> None:
    model = verax.load(network())
    with pytest.raises(UsageError, match="loaded already"):
        verax.compile(model, shapes={"s27": 3})


def test_an_input_of_one_axis_takes_one_size() -> None:
    graph = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["y"])], "net", [value("x", [None])], [value("y", [None])]
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    for stated, dim in ((7, "7"), ("n", "n"), ((7,), "7"), (((2, 9),), "x_0")):
        assert str(verax.load(proto, shapes={"x": stated}).inputs["x"]) == f"float32[{dim}]"
