"""A batch of 0 is a batch: every operator means, runs and is judged on it, unless it needs an
element that is not there."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np
import pytest

import verax
import verax.ops
from verax.base.errors import GraphError, InputError
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY, Case
from verax.ir.types import DType, TensorType
from verax.judge import check
from verax.judge.decide.local import meaning
from verax.ops.control import control
from verax.ops.movement.reshaping import Flatten
from verax.ops.pointwise.activation import Relu
from verax.ops.pointwise.arithmetic import Mul
from verax.ops.sums.linear import Gemm
from verax.ops.sums.softmax import Softmax
from verax.ops.windows.convolution import Conv
from verax.ops.windows.deconvolution import ConvTranspose
from verax.ops.windows.global_pooling import GlobalAveragePool
from verax.records.verdict import Kind
from verax.reference.evaluate import evaluate, promised
from verax.runners.arrays import ArraysRunner
from verax.runners.own import ReferenceRunner

assert verax.ops
SUPPORTED = [name for name, op in REGISTRY.items() if not op.unsupported]
FINE = (Kind.identical, Kind.rounding)
NEEDS_ELEMENTS = {
    *("RoiAlign", "MaxRoiPool", "Gather", "GatherElements", "GatherND", "Compress"),
    *("ReverseSequence", "ScatterElements", "ScatterND", "Reshape", "Expand", "Tile", "Split"),
    *("AffineGrid", "RNN", "GRU", "LSTM", "Loop"),
}
"""Indices, counts or sizes in an input that stays as it is tell of elements that are gone; a loop
that elements would end has none."""
KERNELS = (
    *("Conv", "ConvTranspose", "ConvInteger", "Gemm", "MatMul", "MaxPool", "GroupNormalization"),
    *("BatchNormalization", "Softmax", "ReduceSum", "Concat", "Resize"),
)


def emptied(case: Case) -> Iterator[list[np.ndarray | None]]:
    """The case's inputs without any sample: the first axis is the batch, of all inputs of the first
    one's rank, of the first alone, or of all that are as long."""
    free = [i for i in range(len(case.inputs)) if i not in case.constant]
    variable = {i: a for i in free if (a := case.inputs[i]) is not None and a.ndim}
    if not variable:
        return
    first = min(variable)
    x = variable[first]
    long = {i for i, a in variable.items() if a.shape[0] == x.shape[0]}
    for chosen in {frozenset(i for i in long if variable[i].ndim == x.ndim), frozenset([first]),
                   frozenset(long)}:  # fmt: skip
        yield [a[:0] if a is not None and i in chosen else a for i, a in enumerate(case.inputs)]


def networks(name: str) -> Iterator[tuple[Graph, dict[str, np.ndarray]]]:
    """One node of the operator on each of its emptied cases that its type rule allows."""
    for case in REGISTRY[name].cases(np.random.default_rng(zlib.crc32(name.encode()))):
        for inputs in emptied(case):
            b = Builder("empty")
            given: dict[str, np.ndarray] = {}
            values: list[str | None] = []
            for i, array in enumerate(inputs):
                if array is None:
                    values.append(None)
                elif i in case.constant:
                    values.append(b.constant(array, f"c{i}"))
                else:
                    values.append(b.input(f"x{i}", TensorType.of(array)))
                    given[f"x{i}"] = array
            outputs = [f"y{k}" for k in range(case.op.output_count)]
            try:
                b.add(case.op, values, outputs, "node")
            except GraphError:
                continue
            yield b.graph(outputs), given


@pytest.mark.parametrize("name", SUPPORTED)
def test_every_operator_means_something_on_no_samples(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "MOST_RUNS", 99)  # a loop that elements would end never ends
    for graph, given in networks(name):
        (node,) = graph.nodes
        try:
            values = evaluate(graph, given)
            bits = promised(graph, given)
        except (InputError, GraphError):
            assert name in NEEDS_ELEMENTS, f"{node.op} on {given}"
            continue
        arrays = [None if v is None else {**given, **graph.constants}[v] for v in node.inputs]
        types = tuple(None if a is None else TensorType.of(a) for a in arrays)
        found = meaning(node, arrays, types, graph.output_types(node))
        for output, rounding in zip(node.outputs, found.roundings, strict=True):
            assert values[output].shape == bits[output].shape
            assert rounding is None or np.shape(rounding.bound) in ((), values[output].shape)


@pytest.mark.parametrize("name", SUPPORTED)
def test_every_operator_is_judged_on_no_samples(name: str) -> None:
    """Alone, and with rounding hidden behind it."""
    graph, given = next(networks(name), (None, None))
    if graph is None or given is None or name in NEEDS_ELEMENTS:
        pytest.skip("it takes no empty batch")
    verdict = check(graph, ReferenceRunner(bits=True), given, twice=False)
    nothing_wrong = "NaN" in verdict.reasons[0]  # a mean of nothing
    assert verdict.kind in FINE or nothing_wrong, verdict.reasons
    floats = [v for v in graph.outputs if graph.types[v].dtype is DType.float32]
    if not floats:
        return
    b = Builder("longer")
    names = {v: b.input(v, graph.types[v]) for v in graph.inputs}
    names |= {v: b.constant(a, v) for v, a in graph.constants.items()}
    (node,) = graph.nodes
    b.add(node.op, [v and names[v] for v in node.inputs], list(node.outputs), "node")
    scale = b.constant(np.float32(1.7), "scale")
    longer = b.graph([b.add(Mul(), [v, scale], [f"{v}.scaled"]) for v in floats])
    verdict = check(longer, ReferenceRunner(bits=True), given, twice=False, watch=False)
    nothing_wrong = "NaN" in verdict.reasons[0]
    assert verdict.kind in FINE or nothing_wrong, verdict.reasons


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("level", [0, 1])
def test_no_samples_run(name: str, level: int) -> None:
    graph, given = next(networks(name))
    exe = verax.compile(graph, opt_level=level, threads=1)
    expected = evaluate(graph, given)
    for output, array in exe.run(given).items():
        assert array.shape == expected[output].shape


def classifier() -> Graph:
    random = np.random.default_rng(41)

    def draw(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(np.float32)

    b = Builder("classifier")
    h = b.input("x", TensorType.parse("float32[n, 3, 7, 8]"))
    h = b.add(Conv(strides=(2, 1)), [h, b.constant(draw(4, 3, 3, 2), "w")], ["map"], "map")
    h = b.add(Relu(), [h], ["relu"], "relu")
    h = b.add(ConvTranspose(), [h, b.constant(draw(4, 6, 2, 3), "up")], ["larger"], "larger")
    h = b.add(GlobalAveragePool(), [h], ["pool"], "pool")
    h = b.add(Flatten(), [h], ["flat"], "flat")
    h = b.add(Gemm(), [h, b.constant(draw(6, 5), "dense")], ["scores"], "scores")
    return b.graph([b.add(Softmax(), [h], ["out"], "out")])


@pytest.mark.parametrize("watch", [True, False])
@pytest.mark.parametrize("subject", ["verax:O1", "onnxruntime"])
def test_a_network_is_judged_on_no_samples(subject: str, watch: bool) -> None:
    if subject == "onnxruntime":
        pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    x = {"x": np.zeros((0, 3, 7, 8), np.float32)}
    assert verax.reference(classifier(), x)["out"].shape == (0, 5)
    verdict = verax.check(classifier(), subject, x, watch=watch)
    assert verdict.kind is Kind.identical, verdict.reasons
    assert len(verdict.outputs) == 1


def test_a_wrong_shape_of_no_elements_is_a_mistake() -> None:
    x = {"x": np.zeros((0, 3, 7, 8), np.float32)}
    verdict = check(classifier(), ArraysRunner({"out": np.zeros((0, 6), np.float32)}), x)
    assert verdict.kind is Kind.mistake
    assert "it should be float32[0, 5]" in verdict.blame[0].reason
