"""Windows cost what they see, not what their attributes say: a kernel, a dilation or a padding of
a million beside a map of 7 x 5 takes kilobytes, in every arithmetic, in the judge, and compiled.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.ir.graph import Builder, Graph
from verax.ir.operator import Operator
from verax.ir.types import TensorType
from verax.judge.explain.node import explain
from verax.judge.regions.network import survey
from verax.ops.pointwise.activation import Relu
from verax.ops.quantized.requantization import AveragePoolInteger
from verax.ops.sums.response_normalization import LRN
from verax.ops.windows.convolution import Conv
from verax.ops.windows.deconvolution import ConvTranspose
from verax.ops.windows.global_pooling import GlobalAveragePool, GlobalLpPool, GlobalMaxPool
from verax.ops.windows.integer_convolution import ConvInteger, ConvTransposeInteger
from verax.ops.windows.pooling import AveragePool, LpPool, MaxPool
from verax.ops.windows.windows import Windows
from verax.records.verdict import Kind
from verax.reference.evaluate import evaluate, promised

MOST = 24 << 20
"""Bytes that any of these may hold; a border of the attributes' size would be gigabytes."""
MANY = 10**6
HANGING: dict[str, Any] = {
    "kernel_shape": (1280, 1280),
    "strides": (1280, 1280),
    "ceil_mode": True,
}
"""The last pool of EfficientNet-B0 as it is exported: its kernel is the number of channels."""
FAR: dict[str, Any] = {"dilations": (MANY, MANY), "pads": ((MANY, MANY), (MANY, MANY))}
"""A kernel of 3 x 3 whose outer taps never meet the map."""
STEPS: dict[str, Any] = {"strides": (MANY, MANY), "pads": ((MANY, 0), (MANY, 0))}
FLAT = (1, 1)


def arrays(seed: int, *shapes: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    return tuple(rng.standard_normal(shape).astype(np.float32) for shape in shapes)


def integers(seed: int, *shapes: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    return tuple(rng.integers(-9, 10, shape).astype(np.int8) for shape in shapes)


MAP, WEIGHTS, SPREAD = (2, 3, 7, 5), (4, 3, 3, 3), (3, 4, 3, 3)
X, W, V = arrays(41, MAP, WEIGHTS, SPREAD)
XI, WI, VI = integers(42, MAP, WEIGHTS, SPREAD)
ALIKE: list[tuple[Operator, tuple[Any, ...], Operator, tuple[Any, ...]]] = [
    (AveragePool(**HANGING), (X,), GlobalAveragePool(), (X,)),
    (MaxPool(**HANGING), (X,), GlobalMaxPool(), (X,)),
    (LpPool(**HANGING), (X,), GlobalLpPool(), (X,)),
    (LpPool(**HANGING, p=1), (X,), GlobalLpPool(p=1), (X,)),
    (LpPool(**HANGING, p=3), (X,), GlobalLpPool(p=3), (X,)),
    (
        MaxPool(**HANGING, with_indices=True),
        (X,),
        MaxPool(kernel_shape=(7, 5), with_indices=True),
        (X,),
    ),
    (
        AveragePool(kernel_shape=(1001, 801), pads="SAME_UPPER"),
        (X,),
        AveragePool(kernel_shape=(13, 9), pads="SAME_UPPER"),
        (X,),
    ),
    (
        MaxPool(kernel_shape=(3, 3), **FAR),
        (X,),
        MaxPool(kernel_shape=FLAT),
        (X,),
    ),
    (
        AveragePool(kernel_shape=(3, 3), **FAR),
        (X,),
        AveragePool(kernel_shape=FLAT),
        (X,),
    ),
    (Conv(**FAR), (X, W), Conv(), (X, W[:, :, 1:2, 1:2])),
    (
        Conv(dilations=(MANY, MANY), pads="SAME_LOWER"),
        (X, W),
        Conv(),
        (X, W[:, :, 1:2, 1:2]),
    ),
    (Conv(groups=3, **FAR), (X, W[:3, :1]), Conv(groups=3), (X, W[:3, :1, 1:2, 1:2])),
    (ConvTranspose(**FAR), (X, V), ConvTranspose(), (X, V[:, :, 1:2, 1:2])),
    (ConvInteger(**FAR), (XI, WI), ConvInteger(), (XI, WI[:, :, 1:2, 1:2])),
    (
        ConvTransposeInteger(**FAR),
        (XI, VI),
        ConvTransposeInteger(),
        (XI, VI[:, :, 1:2, 1:2]),
    ),
    (
        AveragePoolInteger(kernel_shape=(1001, 801), pads="SAME_UPPER"),
        (XI,),
        AveragePoolInteger(kernel_shape=(13, 9), pads="SAME_UPPER"),
        (XI,),
    ),
    (LRN(size=10**9 + 1, alpha=2e9), (X,), LRN(size=5, alpha=10.0), (X,)),
]
IDS = [f"{i} {case[0].kind}" for i, case in enumerate(ALIKE)]


def network(op: Operator, inputs: tuple[Any, ...], *, constants: bool = True) -> Graph:
    """A graph of one node; weights are constants unless they are to be inputs too."""
    b = Builder()
    names = [b.input("x", TensorType.of(inputs[0]))]
    names += [b.constant(a, f"w{i}") for i, a in enumerate(inputs[1:])]
    return b.graph(b.add_all(op, names, ("y",)))


@contextmanager
def little_memory() -> Iterator[None]:
    """Fails when what happens inside holds more than MOST bytes at a time."""
    tracemalloc.start()
    try:
        yield
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < MOST, f"{most:,} bytes were held"


@pytest.mark.parametrize(("op", "inputs", "same", "others"), ALIKE, ids=IDS)
def test_meaning_follows_the_tensors(
    op: Operator, inputs: tuple[Any, ...], same: Operator, others: tuple[Any, ...]
) -> None:
    graph, small = network(op, inputs), network(same, others)
    with little_memory():
        found = evaluate(graph, {"x": inputs[0]})
    expected = evaluate(small, {"x": others[0]})
    for a, b in zip(found.values(), expected.values(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("op", "inputs", "same", "others"), ALIKE, ids=IDS)
def test_promised_bits_follow_the_tensors_and_compiled_code_has_them(
    op: Operator, inputs: tuple[Any, ...], same: Operator, others: tuple[Any, ...]
) -> None:
    graph = network(op, inputs)
    with little_memory():
        found = promised(graph, {"x": inputs[0]})
        compiled = compile(graph, Settings(threads=1)).run({"x": inputs[0]})
    for a, b in zip(found.values(), compiled.values(), strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize(("op", "inputs", "same", "others"), ALIKE, ids=IDS)
def test_the_judge_follows_the_tensors(
    op: Operator, inputs: tuple[Any, ...], same: Operator, others: tuple[Any, ...]
) -> None:
    graph = network(op, inputs)
    right = promised(graph, {"x": inputs[0]})
    with little_memory():
        honest = survey(graph, {"x": inputs[0]}, right).findings
    assert {f.kind for f in honest} <= {Kind.identical, Kind.rounding}
    wrong = {v: np.roll(y, 1, axis=1) + y.dtype.type(3) for v, y in right.items()}
    node, fed = graph.nodes[0], [inputs[0], *inputs[1:]]
    with little_memory():
        judged = survey(graph, {"x": inputs[0]}, wrong).findings
        for output, value in enumerate(graph.outputs):
            explain(node, fed, wrong[value], graph.output_types(node), output=output)
    assert {f.kind for f in judged} == {Kind.mistake}


@pytest.mark.parametrize(
    "op", [case[0] for case in ALIKE if case[1][0] is X and case[0].output_count == 1], ids=str
)
def test_derivatives_follow_the_tensors(op: Operator) -> None:
    """Judged from the output alone, the node hidden between two others."""
    inputs = next(case[1] for case in ALIKE if case[0] is op)
    b = Builder()
    x = b.input("x", TensorType.of(inputs[0]))
    weights = [b.constant(a, f"w{i}") for i, a in enumerate(inputs[1:])]
    y = b.add(Relu(), [b.add(op, [b.add(Relu(), [x], ("r",)), *weights], ("h",))], ("y",))
    graph = b.graph([y])
    given = promised(graph, {"x": inputs[0]})
    with little_memory():
        found = survey(graph, {"x": inputs[0]}, given)
    assert [f.kind for f in found.findings] in ([Kind.rounding], [Kind.identical])


@pytest.mark.parametrize(
    ("input", "output", "kernel", "stride", "dilation", "pad"),
    [
        (5, 9, 11, 1, 1, 7),
        (4, 3, 70, 9, 1, 31),
        (3, 40, 2000, 50, 7, 1500),
        (6, 5, 3, 2, 4, 5),
        (1, 1, 9, 1, 1, 0),
        (2, 7, 500, 100, 3, 650),
        (3, 2, 2, 5, 50, 20),
    ],
)
def test_overlaps_are_the_taps_inside_the_input(
    input: int, output: int, kernel: int, stride: int, dilation: int, pad: int
) -> None:
    windows = Windows((input,), (output,), (kernel,), (stride,), (dilation,), ((pad, pad),))
    met = {
        (k, o, o * stride + k * dilation - pad)
        for k in range(kernel)
        for o in range(output)
        if 0 <= o * stride + k * dilation - pad < input
    }
    found = []
    for tap in windows.overlaps():
        where = (np.arange(output)[tap.output], np.arange(input)[tap.input])
        found += [(*tap.position, int(o), int(i)) for o, i in zip(*where, strict=True)]
    assert set(found) == met
    assert len(found) == len(met)
    assert [k for k, _, _ in found] == sorted(k for k, _, _ in found)
    assert windows.seen_taps == len({k for k, _, _ in met})
    counted = [sum(o == at for _, at, _ in met) for o in range(output)]
    assert windows.counts(include_pad=False).tolist() == counted


def test_a_tap_is_the_same_with_a_border_and_without() -> None:
    (x,) = arrays(43, (2, 3, 4, 5))
    windows = Conv(pads=((3, 1), (0, 4)), strides=(2, 1), dilations=(1, 2)).geometry((3, 2))
    padded = windows.windows(x.shape[2:]).padded(x, 7)
    bare = type(padded)(padded.windows, x, 7, stored=False)
    assert padded.stored
    for position in padded.windows.positions():
        for rows in (None, slice(1, 3)):
            expected = padded.tap(position, rows)
            np.testing.assert_array_equal(bare.tap(position, rows), expected)


def test_a_padded_tap_still_multiplies_infinite_weights() -> None:
    """Padding counts as 0, and 0 times infinity is NaN: taps outside are not left out there."""
    x, w = X[:1, :1], W[:1, :1].copy()
    w[0, 0, 0, 0] = np.inf
    found = promised(network(Conv(**FAR), (x, w)), {"x": x})["y"]
    assert np.isnan(found).all()
