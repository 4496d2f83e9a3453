"""Sizes that a file leaves open and its network depends on are asked for by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import verax
from verax.base.errors import UnsupportedError
from verax.records.verdict import Kind


def value(name: str, dims: list[Any]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)


def detector(x: list[Any], state: list[Any], names: tuple[str, str]) -> onnx.ModelProto:
    """Windows of 192 samples at a step of 128, a step of which is one when few are given: its axis
    is taken away then, as Silero's detector does. The state is added."""
    then, other = (
        helper.make_graph(
            [helper.make_node(kind, inputs, [kind])], kind, [], [onnx.ValueInfoProto(name=kind)]
        )
        for kind, inputs in (("Squeeze", ["m", "two"]), ("Identity", ["m"]))
    )
    width = state[2]
    rng = np.random.default_rng(81)
    w = rng.standard_normal((width, 1, 192)).astype(np.float32) / 14
    arrays = {
        "w": w,
        "one": np.array([1]),
        "two": np.array([2]),
        "last": np.array(2),
        "whole": np.array(1),
        "zero": np.array([0]),
    }
    nodes = [
        helper.make_node("Unsqueeze", [names[0], "one"], ["u"]),
        helper.make_node("Conv", ["u", "w"], ["m"], strides=[256]),
        helper.make_node("Shape", ["m"], ["s"]),
        helper.make_node("Gather", ["s", "last"], ["n"]),
        helper.make_node("Equal", ["n", "whole"], ["e"]),
        helper.make_node("If", ["e"], ["h"], then_branch=then, else_branch=other),
        helper.make_node("Add", ["h", names[1]], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [value(names[0], x), value(names[1], state)],
        [onnx.ValueInfoProto(name="y")],
        [onnx.numpy_helper.from_array(a, k) for k, a in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


OPEN = (["batch", "sequence"], [2, "batch", 128], ("input", "state"))


def test_each_open_size_is_named_with_what_the_family_takes() -> None:
    with pytest.raises(UnsupportedError) as refused:
        verax.load(detector(*OPEN))
    step = refused.value.next_step
    assert "leaves sizes open: --shape input=BATCHxSEQUENCE --shape state=2xBATCHx128" in step
    assert "Silero's voice detector (5 and later) is used with --shape input=1x576" in step
    assert "--shape state=2x1x128: 64 samples of before and 512 new ones" in step


@pytest.mark.parametrize(
    ("x", "state", "names"),
    [
        (["b", "t"], [2, "b", 64], ("input", "state")),
        (["b", "t"], [2, "b", 128], ("x", "state")),
    ],
)
def test_other_networks_are_not_taken_for_the_family(
    x: list[Any], state: list[Any], names: tuple[str, str]
) -> None:
    with pytest.raises(UnsupportedError) as refused:
        verax.load(detector(x, state, names))
    assert f"--shape {names[0]}=BxT --shape {names[1]}=2xBx{state[2]}" in refused.value.next_step
    assert "Silero" not in refused.value.next_step


def test_the_sizes_that_are_named_run() -> None:
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    proto = detector(*OPEN)
    model = verax.load(proto, shapes={"input": (1, 400), "state": (2, 1, 128)})
    rng = np.random.default_rng(82)
    given = {
        "input": rng.standard_normal((1, 400)).astype(np.float32),
        "state": rng.standard_normal((2, 1, 128)).astype(np.float32),
    }
    (y,) = runtime.InferenceSession(proto.SerializeToString()).run(None, given)
    assert verax.check(model, {"y": y}, given).kind in (Kind.identical, Kind.rounding)
