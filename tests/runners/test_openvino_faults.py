"""Real faults of OpenVINO, each confirmed against float64 by hand, and the nodes that it joins.

Its transformations cannot be switched off one by one; the search runs the network in pieces. Where
a later version is right, the test skips and says so: then the list wants another example.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import verax
from verax.base.optional import installed_version
from verax.export.onnx.writer import to_bytes
from verax.judge.bisect import bisect
from verax.judge.regions.coverage import ACCEPTED
from verax.records.bisection import Bisection
from verax.records.verdict import Kind
from verax.runners.onnx.onnx_pieces import JOINED
from verax.runners.openvino import OpenVinoRunner

KNOWN = (2026, 4)
"""The version that these faults were met in."""
Network = tuple[onnx.ModelProto, Callable[[np.ndarray], np.ndarray]]
"""A network, and what it means, in float64 by NumPy alone."""


def network(nodes: list[onnx.NodeProto], **constants: object) -> onnx.ModelProto:
    arrays = [numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()]
    value = helper.make_tensor_value_info
    x, y = value("x", TensorProto.FLOAT, [2, 6, 20]), value("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "net", [x], [y], arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def node(kind: str, inputs: str, output: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(kind, inputs.split(), [output], output, **attributes)


def gelu_by_tanh(coefficient: float) -> Network:
    """Gelu by a Tanh; its coefficient of the cube is 0.044715."""
    nodes = [
        node("Mul", "x x", "square"),
        node("Mul", "square x", "cube"),
        node("Mul", "cube coefficient", "bend"),
        node("Add", "x bend", "bent"),
        node("Mul", "bent slope", "steep"),
        node("Tanh", "steep", "tanh"),
        node("Add", "tanh one", "gate"),
        node("Mul", "x half", "halved"),
        node("Mul", "halved gate", "y"),
    ]
    slope = np.float32(math.sqrt(2 / math.pi))
    constants = {"coefficient": np.float32(coefficient), "slope": slope}
    constants |= {"one": np.float32(1), "half": np.float32(0.5)}

    def meaning(x: np.ndarray) -> np.ndarray:
        bent = x + float(np.float32(coefficient)) * x**3
        return 0.5 * x * (1 + np.tanh(float(slope) * bent))

    return network(nodes, **constants), meaning


def gelu_by_erf(root: float) -> Network:
    """Gelu by an Erf; its divisor is the root of 2."""
    nodes = [
        node("Div", "x root", "unit"),
        node("Erf", "unit", "erf"),
        node("Add", "erf one", "gate"),
        node("Mul", "x gate", "gated"),
        node("Mul", "gated half", "y"),
    ]
    made = network(nodes, root=np.float32(root), one=np.float32(1), half=np.float32(0.5))
    erf = np.vectorize(math.erf)
    return made, lambda x: 0.5 * x * (1 + erf(x / float(np.float32(root))))


def norm_with_epsilons(epsilon: np.ndarray) -> Network:
    """A root mean square over the last axis, guarded by an epsilon for each row."""
    nodes = [
        node("Mul", "x x", "square"),
        node("ReduceMean", "square", "mean", axes=[-1]),
        node("Add", "mean epsilon", "guarded"),
        node("Sqrt", "guarded", "root"),
        node("Div", "x root", "y"),
    ]

    def meaning(x: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon.astype(np.float64))

    return network(nodes, epsilon=epsilon), meaning


ROWS = np.linspace(0.1, 3, 6, dtype=np.float32).reshape(6, 1)


def bisected(made: onnx.ModelProto, x: np.ndarray) -> Bisection:
    pytest.importorskip("openvino", reason="openvino is not installed")
    content = made.SerializeToString()
    subject = OpenVinoRunner(content, writer=to_bytes, threads=1, isolated=False)
    return bisect(verax.load(made).graph, subject, {"x": x}).record


def drawn() -> np.ndarray:
    return np.random.default_rng(29).standard_normal((2, 6, 20)).astype(np.float32)


def error(made: onnx.ModelProto, meaning: Callable[[np.ndarray], np.ndarray]) -> float:
    """The largest difference of what OpenVINO gives from the meaning."""
    subject = OpenVinoRunner(made.SerializeToString(), writer=to_bytes, threads=1, isolated=False)
    given = subject.run(verax.load(made).graph, {"x": drawn()})["y"]
    return float(np.abs(given - meaning(drawn().astype(np.float64))).max())


def require_fault(record: Bisection) -> None:
    """Skip where a version after the known one is right."""
    version = installed_version("openvino") or "0"
    later = tuple(int(n) for n in version.split(".")[:2]) > KNOWN
    if later and record.verdict.kind is not Kind.mistake:
        pytest.skip(f"OpenVINO {version} is right here")
    assert record.verdict.kind is Kind.mistake


@pytest.mark.parametrize(
    ("made", "guilty", "partners"),
    [
        pytest.param(gelu_by_tanh(0.0452), "8 y (Mul)", 7, marks=pytest.mark.slow),
        (gelu_by_erf(1.414), "4 y (Mul)", 3),
        (norm_with_epsilons(ROWS), "2 guarded (Add)", 0),
    ],
    ids=["a coefficient of Gelu", "the root of 2", "an epsilon for each row"],
)
def test_the_nodes_that_openvino_joins_are_named(made: Network, guilty: str, partners: int) -> None:
    network, meaning = made
    record = bisected(network, drawn())
    require_fault(record)
    assert error(network, meaning) > 1e-5
    found = record.optimizations
    assert found is not None
    assert found.guilty == JOINED + guilty
    assert (len(found.partners), found.cured) == (partners, True)
    assert all(p.startswith(JOINED) for p in found.partners)
    assert found.steps[0].region[1] in guilty.split()
    assert " in the place of " in found.steps[0].after
    assert Bisection.from_json(record.to_json()) == record


@pytest.mark.parametrize(
    "made",
    [
        gelu_by_tanh(0.044715),
        gelu_by_erf(math.sqrt(2)),
        norm_with_epsilons(ROWS[:1, 0]),
    ],
    ids=["a coefficient of Gelu", "the root of 2", "an epsilon for all"],
)
def test_what_a_fusion_means_is_rounding(made: Network) -> None:
    network, meaning = made
    record = bisected(network, drawn())
    assert record.verdict.kind in ACCEPTED
    assert error(network, meaning) < 2e-6


@pytest.mark.slow  # the other faults of OpenVINO are searched in the same way
def test_a_concatenation_of_int8_is_wrong_by_low_precision_alone() -> None:
    """Steps: a fifth piece with the convolution behind it, and the switch."""
    grid = ["scale", "zero"]
    nodes = []
    for name in ("x", "z"):
        nodes.append(helper.make_node("QuantizeLinear", [name, *grid], [f"{name}q"], f"{name}q"))
        nodes.append(
            helper.make_node("DequantizeLinear", [f"{name}q", *grid], [f"{name}d"], f"{name}d")
        )
    nodes += [
        helper.make_node("Concat", ["xd", "zd"], ["both"], "both", axis=1),
        helper.make_node("QuantizeLinear", ["both", *grid], ["q"], "q"),
        helper.make_node("DequantizeLinear", ["q", *grid], ["d"], "d"),
        helper.make_node("DequantizeLinear", ["w", "fine", "zero"], ["weights"], "weights"),
        helper.make_node("Conv", ["d", "weights"], ["y"], "conv"),
    ]
    random = np.random.default_rng(31)
    arrays = {
        "scale": np.float32(0.03),
        "fine": np.float32(0.005),
        "zero": np.int8(0),
        "w": random.integers(-60, 61, (4, 8, 1, 1)).astype(np.int8),
    }
    given = {
        "x": random.standard_normal((2, 3, 5, 7)).astype(np.float32),
        "z": random.standard_normal((2, 5, 5, 7)).astype(np.float32),
    }
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "net",
        [value(n, TensorProto.FLOAT, a.shape) for n, a in given.items()],
        [value("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in arrays.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    pytest.importorskip("openvino", reason="openvino is not installed")
    content = made.SerializeToString()
    subject = OpenVinoRunner(content, writer=to_bytes, threads=1, isolated=False)
    record = bisect(verax.load(made).graph, subject, given).record
    require_fault(record)
    found = record.optimizations
    assert found is not None
    assert found.guilty == "LP_TRANSFORMS_MODE=True"
    assert found.cured is True
    assert any("conv (Conv)" in p for p in found.partners)


@pytest.mark.parametrize(
    ("kind", "operand", "meaning"),
    [("Mul", 70_001, np.multiply), ("Add", 2**40, np.add)],
    ids=["a product", "a constant"],
)
def test_integers_of_64_bits_are_computed_in_32(
    kind: str, operand: int, meaning: Callable[..., np.ndarray]
) -> None:
    """What a quantised network's multipliers of 31 bits need: TFLite's int8 ResNet-8, written as
    ONNX, ends in one number for all classes there. No switch brings it; ONNX Runtime is right."""
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node(kind, "x operand", "y")],
        "net",
        [value("x", TensorProto.INT64, [2, 3])],
        [value("y", TensorProto.INT64, [2, 3])],
        [numpy_helper.from_array(np.array(operand, np.int64), "operand")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    x = np.array([[1, 2, 3], [40_000, -70_000, 2**31 - 2]])
    record = bisected(made, x)
    require_fault(record)
    assert record.optimizations is not None
    assert "no optimization behind that is guilty" in record.optimizations.words
    subject = OpenVinoRunner(made.SerializeToString(), writer=to_bytes, threads=1, isolated=False)
    given = subject.run(verax.load(made).graph, {"x": x})["y"]
    clamped = np.int32(min(operand, 2**31 - 1))
    with np.errstate(over="ignore"):
        assert np.array_equal(given, meaning(x.astype(np.int32), clamped)), "what it does instead"


def test_integers_of_64_bits_are_right_in_onnx_runtime() -> None:
    """The witness beside: what the file means is not in doubt."""
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    x = np.array([[1, 2, 3], [40_000, -70_000, 2**31 - 2]])
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node("Mul", "x x", "y")],
        "net",
        [info("x", TensorProto.INT64, [2, 3])],
        [info("y", TensorProto.INT64, [2, 3])],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (given,) = ort.InferenceSession(made.SerializeToString()).run(None, {"x": x})
    assert np.array_equal(given, x * x)
