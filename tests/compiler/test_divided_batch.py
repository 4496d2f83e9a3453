"""A batch that goes through the network in parts has the bits of one that does not; whatever takes
something of one binary to another is not divided."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

import verax.ops  # noqa: F401  (registers the operators)
from tests.compiler.graphs import networks
from tests.compiler.test_bits import bits
from tests.compiler.test_operators import graph_of
from verax.base.errors import VeraxError
from verax.base.option_groups.settings import Settings
from verax.compiler.artifacts.save import save
from verax.compiler.artifacts.saved_program import SavedExecutable
from verax.compiler.compile import compile
from verax.compiler.executable import Executable
from verax.compiler.place import program
from verax.compiler.place.binary import emit
from verax.compiler.plan.batch import batch_of, best_part, divided
from verax.ir.graph import Builder, Graph, reinfer
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.ops.movement.reshaping import Reshape, Transpose
from verax.ops.pointwise.activation import Relu
from verax.ops.pointwise.arithmetic import Add
from verax.ops.sums.linear import MatMul
from verax.ops.sums.reduction import ReduceMean
from verax.ops.windows.convolution import Conv
from verax.reference import promised

Arrays = dict[str, np.ndarray]


def part_of(arrays: Arrays, part: int, parts: int) -> Arrays:
    """The images of one part."""
    return {v: np.split(a, parts)[part] for v, a in arrays.items()}


def in_parts(graph: Graph, smaller: Graph, arrays: Arrays) -> Arrays:
    """What `smaller` promises, part by part, one behind the other."""
    name = graph.inputs[0]
    parts = graph.types[name].shape[0] // smaller.types[name].shape[0]
    found = [promised(smaller, part_of(arrays, i, parts)) for i in range(parts)]
    return {v: np.concatenate([f[v] for f in found]) for v in graph.outputs}


def doubled(graph: Graph, arrays: Arrays) -> tuple[Graph, Arrays] | None:
    """The same network for twice the images, the second half unlike the first; None where a larger
    batch has no type."""
    rng = np.random.default_rng(3)
    twice = {v: np.concatenate([a, rng.permutation(a.reshape(-1)).reshape(a.shape)])
             for v, a in arrays.items() if a.ndim}  # fmt: skip
    if len(twice) != len(arrays):
        return None
    try:
        made = reinfer(graph, {v: TensorType.of(a) for v, a in twice.items()})
    except VeraxError:
        return None
    return (made, twice) if all(t.is_static for t in made.types.values()) else None


def batches(name: str) -> Iterator[tuple[Graph, Arrays]]:
    """The cases of an operator, as they are and for twice the images, in turn with all of its
    inputs computed and with the first alone; of the first case both."""
    for number, case in enumerate(REGISTRY[name].cases(np.random.default_rng(0))):
        for constant in (False, True) if number == 0 else (number % 2 == 1,):
            graph, arrays = graph_of(case, constant)
            larger = doubled(graph, arrays) if graph.inputs else None
            yield from filter(None, ((graph, arrays), larger))


DIVIDED = {
    *("Add", "ArgMax", "ArgMin", "Attention", "AveragePool", "AveragePoolInteger", "Clip"),
    *("BatchNormalization", "Concat", "Conv", "ConvInteger", "ConvTranspose", "DepthToSpace"),
    *("ConvTransposeInteger", "DequantizeLinear", "Expand", "Flatten", "Gather", "Gemm"),
    *("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "GroupNormalization", "Hardmax"),
    *("InstanceNormalization", "LRN", "LayerNormalization", "LogSoftmax", "LpNormalization"),
    *("LpPool", "MatMul", "MaxPool", "MeanVarianceNormalization", "PRelu", "Pad"),
    *("QuantizeLinear", "RMSNormalization", "ReduceMax", "ReduceMean", "ReduceSum", "Requantize"),
    *("Reshape", "Resize", "Slice", "Softmax", "SpaceToDepth", "Split", "Squeeze"),
    *("StrassenConv", "StrassenMatMul", "TopK", "Transpose", "Unsqueeze", "Where"),
    "WinogradConv",
}
"""Operators of which some case is divided: of others none need be."""


@pytest.mark.parametrize("name", sorted(n for n, op in REGISTRY.items() if not op.unsupported))
def test_whatever_may_be_divided_has_the_same_bits_in_parts(name: str) -> None:
    tried = 0
    for graph, arrays in batches(name):
        whole = batch_of(graph) or 1
        for part in (n for n in range(1, whole) if whole % n == 0):
            smaller = divided(graph, part)
            if smaller is None:
                continue
            tried += 1
            want, got = promised(graph, arrays), in_parts(graph, smaller, arrays)
            for value, array in want.items():
                shown = f"{graph.nodes[0].op} for {part} of {whole}"
                assert got[value].shape == np.shape(array), shown
                assert bits(got[value]) == bits(np.asarray(array)), shown
    assert tried or name not in DIVIDED


def compiled(graph: Graph, part: int, monkeypatch: pytest.MonkeyPatch, **how: int) -> Executable:
    monkeypatch.setattr(program, "best_part", lambda graph: part)
    return compile(graph, Settings(**{"opt_level": 1, "threads": 1, **how}))


def convolutional(batch: int = 6) -> tuple[Graph, Arrays]:
    """Borders, a residual sum, a token for each binary, rows of all images, a product of each."""
    rng = np.random.default_rng(batch)
    b = Builder("convolutional")

    def weights(*shape: int) -> str:
        return b.constant((rng.standard_normal(shape) / shape[-1]).astype(np.float32))

    x = b.input("x", TensorType.parse(f"float32[{batch}, 3, 13, 11]"))
    pads = ((1, 1), (1, 1))
    first = b.add(Relu(), [b.add(Conv(pads=pads), [x, weights(21, 3, 3, 3)])])
    second = b.add(Conv(pads=pads, strides=(2, 2)), [first, weights(21, 21, 3, 3)])
    third = b.add(Add(), [second, b.add(Conv(pads=pads), [second, weights(21, 21, 3, 3)])])
    rows = b.add(Reshape(), [third, b.constant(np.array([batch, 21, -1]))])
    rows = b.add(Transpose(perm=(0, 2, 1)), [rows])
    token = b.constant(np.repeat(rng.standard_normal((1, 1, 21)).astype(np.float32), batch, 0))
    rows = b.add(REGISTRY["Concat"](axis=1), [token, rows])
    flat = b.add(Reshape(), [rows, b.constant(np.array([-1, 21]))])
    flat = b.add(MatMul(), [flat, weights(21, 19)])
    back = b.add(Reshape(), [flat, b.constant(np.array([batch, 43, 19]))])
    back = b.add(MatMul(), [back, b.add(Transpose(perm=(0, 2, 1)), [back])])
    mean = b.add(ReduceMean(keepdims=False), [back, b.constant(np.array([1]))])
    x = rng.standard_normal((batch, 3, 13, 11)).astype(np.float32)
    return b.graph([mean, third]), {"x": x}


@pytest.mark.parametrize("part, threads", itertools.product((1, 2, 3), (1, 3)))
def test_a_compiled_network_has_the_promised_bits_in_parts(
    part: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, arrays = convolutional()
    exe = compiled(graph, part, monkeypatch, threads=threads)
    assert f"divide_batch: {part} of 6 images at a time" in exe.trace.notes
    want = promised(graph, arrays)
    for _ in range(2):  # the second finds an arena that was used
        for value, array in exe.run(arrays).items():
            assert bits(array) == bits(np.asarray(want[value])), value
    assert exe.plan.lines[0] == f"{6 // part} times, for {part} of 6 images each:"


def test_parts_go_through_all_native_functions_of_a_long_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph, arrays = convolutional()
    monkeypatch.setattr(emit, "MAX_RUN", 3)
    exe = compiled(graph, 2, monkeypatch)
    want = promised(graph, arrays)
    assert all(bits(a) == bits(np.asarray(want[v])) for v, a in exe.run(arrays).items())


def test_the_arena_is_as_large_as_a_part_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, _ = convolutional(batch=40)
    whole, part = (compiled(graph, n, monkeypatch).plan.arena_bytes for n in (40, 4))
    assert part < whole / 8


def test_a_file_of_parts_runs_without_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, arrays = convolutional()
    want = promised(graph, arrays)
    save(compiled(graph, 2, monkeypatch), tmp_path / "parts.vx")
    got = SavedExecutable(tmp_path / "parts.vx", threads=1).run(arrays)
    assert all(bits(a) == bits(np.asarray(want[v])) for v, a in got.items())


def test_a_profile_counts_all_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, arrays = convolutional()
    flops = [
        sum(s.flops for s in compiled(graph, part, monkeypatch).profile(arrays, 2).steps)
        for part in (6, 2)
    ]
    assert flops[0] == pytest.approx(flops[1], rel=0.02)  # rows of a block are counted whole


@given(networks())
def test_random_networks_have_the_promised_bits_image_by_image(
    made: tuple[Graph, Arrays],
) -> None:
    graph, arrays = made
    if batch_of(graph) is None:
        return
    with pytest.MonkeyPatch.context() as patch:
        exe = compiled(graph, 1, patch)
    want = promised(graph, arrays)
    for value, array in exe.run(arrays).items():
        assert bits(array) == bits(np.asarray(want[value])), graph


def one(op: str, shape: str, *constants: np.ndarray, **attributes: object) -> Graph:
    b = Builder(op)
    x = b.input("x", TensorType.parse(f"float32{shape}"))
    return b.graph([b.add(REGISTRY[op](**attributes), [x, *map(b.constant, constants)])])


def many(op: str, *types: str, **attributes: object) -> Graph:
    b = Builder(op)
    given = [b.input(f"x{i}", TensorType.parse(t)) for i, t in enumerate(types)]
    return b.graph([b.add(REGISTRY[op](**attributes), given)])


MIXING = {
    "places in all images": many("Gather", "float32[4, 3]", "int64[4]", axis=0),
    "queries seeing all tokens": many("Attention", *3 * ["float32[4, 3, 5]"], heads_inside="qkvy"),
    "a product of all rows": many("MatMul", "float32[4, 4]", "float32[4, 4]"),
    "softmax over images": one("Softmax", "[4, 3]", axis=0),
    "softmax over images, counted from the end": one("Softmax", "[4, 3, 5]", axis=-3),
    "images turned into channels": one("Transpose", "[4, 4, 5]", perm=(1, 0, 2)),
    "a mean of images": one("ReduceMean", "[4, 6]", np.array([0]), keepdims=True),
    "images in reverse": one(
        "Slice", "[4, 3]", np.array([-1]), np.array([-9]), np.array([0]), np.array([-1])
    ),
    "a sum of unlike shares": one("Add", "[4, 3]", np.arange(12.0, dtype=np.float32).reshape(4, 3)),
    "statistics of the batch": one(
        "BatchNormalization", "[4, 3]", *np.ones((4, 3), np.float32), training_mode=True
    ),
    "rows of one matrix added by Strassen": one("StrassenMatMul", "[8, 6]", np.ones((6, 4), "f")),
    "a reshape across images": one("Reshape", "[4, 6]", np.array([3, 8])),
    "positions that count from the first image": one(
        "MaxPool", "[4, 3, 6, 5]", kernel_shape=(2, 2), with_indices=True
    ),
}


@pytest.mark.parametrize("what", MIXING)
def test_what_takes_something_of_another_image_is_not_divided(what: str) -> None:
    graph = MIXING[what]
    assert batch_of(graph) in (4, 8)
    assert divided(graph, 2) is None


def test_large_images_with_small_weights_are_divided_and_others_are_not() -> None:
    def network(batch: int, size: int, channels: int) -> Graph:
        b = Builder("n")
        x = b.input("x", TensorType.parse(f"float32[{batch}, {channels}, {size}, {size}]"))
        w = np.zeros((channels, channels, 1, 1), np.float32)
        for _ in range(4):
            x = b.add(Conv(), [x, b.constant(w)])
        return b.graph([x])

    assert best_part(network(8, 112, 64)) in (1, 2)
    assert best_part(network(8, 7, 1024)) is None
    assert best_part(network(1, 448, 64)) is None


def test_it_can_be_left_out() -> None:
    b = Builder("n")
    x = b.input("x", TensorType.parse("float32[8, 32, 128, 128]"))
    weights = b.constant(np.ones((32, 32, 1, 1), np.float32))
    for _ in range(4):
        x = b.add(Conv(), [x, weights])
    graph, settings = b.graph([x]), Settings(opt_level=1, threads=1)
    assert best_part(graph) is not None
    divided_one = compile(graph, settings)
    left_out = compile(graph, dataclasses.replace(settings, disable=("divide_batch",)))
    assert any(n.startswith("divide_batch") for n in divided_one.trace.notes)
    assert not any(n.startswith("divide_batch") for n in left_out.trace.notes)
    assert left_out.plan.arena_bytes > 1.9 * divided_one.plan.arena_bytes
    x = np.random.default_rng(1).standard_normal((8, 32, 128, 128)).astype(np.float32)
    got, want = ({**e.run({"x": x})} for e in (divided_one, left_out))
    assert all(bits(got[v]) == bits(want[v]) for v in want)
    assert math.isfinite(float(got[graph.outputs[0]].sum()))
