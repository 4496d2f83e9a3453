"""Integer operators written as groups of ONNX operators: ONNX Runtime gives the same integers."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

from verax.base.errors import UnsupportedError
from verax.export.onnx import to_onnx
from verax.frontends.onnx import load_onnx
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.onnx_backend import run_reference

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

onnxruntime.set_default_logger_severity(4)
INT32 = np.iinfo(np.int32)


def network(kind: str, x: np.ndarray, *constants: np.ndarray, **attributes: object) -> Graph:
    b = Builder("one")
    inputs = [b.input("x", TensorType.of(x)), *(b.constant(np.array(c)) for c in constants)]
    return b.graph([b.add(REGISTRY[kind](**attributes), inputs, ["y"], "node")])


def both(graph: Graph, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What the graph means, and what ONNX Runtime makes of the written file."""
    proto = to_onnx(graph)
    onnx.checker.check_model(proto, full_check=True)
    want = run_reference(graph, {"x": x})["y"]
    assert np.array_equal(run_reference(load_onnx(proto).graph, {"x": x})["y"], want)
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return want, session.run(None, {"x": x})[0]


def assert_same(graph: Graph, x: np.ndarray) -> None:
    want, found = both(graph, x)
    assert found.dtype == want.dtype
    assert np.array_equal(found, want)


def int32s(low: int = INT32.min, high: int = INT32.max) -> st.SearchStrategy[np.ndarray]:
    """Arrays of 3 x 5 numbers, the ends and the neighbourhood of halves often among them."""
    edges = [low, high, 0, 1, -1, *(s * 2**k + d for k in (8, 30) for s in (1, -1) for d in (0, 1))]
    number = st.integers(low, high) | st.sampled_from([e for e in edges if low <= e <= high])
    return st.lists(number, min_size=15, max_size=15).map(lambda v: np.reshape(v, (3, 5)))


@settings(max_examples=30, deadline=None)
@given(
    int32s(),
    st.lists(st.integers(2**30, 2**31 - 1) | st.just(0), min_size=5, max_size=5),
    st.lists(st.integers(-31, 12), min_size=5, max_size=5),
    st.sampled_from([("int8", -7), ("uint8", 128), ("int16", 0), ("int32", 0)]),
    st.booleans(),
)
def test_factors_rounded_twice(x, multiplier, shift, target, per_index) -> None:
    factors = [np.array(f if per_index else f[0], np.int32) for f in (multiplier, shift)]
    x = x.astype(np.int32)
    to, zero = target
    assert_same(network("Requantize", x, *factors, output_dtype=to, zero_point=zero), x)


@settings(max_examples=20, deadline=None)
@given(
    int32s(-(2**31), 2**31 - 1),
    st.integers(2**30, 2**31 - 1),
    st.integers(-20, 14),
    st.sampled_from(["short", "once"]),
)
def test_factors_of_wide_sums(x, multiplier, shift, rounding) -> None:
    x = x.astype(np.int64)
    factors = [np.array(f, np.int32) for f in (multiplier, shift)]
    fields = {"output_dtype": "int16", "rounding": rounding, "low": -900}
    assert_same(network("Requantize", x, *factors, **fields), x)


@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(["int8", "uint8"]),
    st.sampled_from(["int8", "uint8", "int16"]),
    st.sampled_from([0.002, 0.05, 0.4, 3.0]),
)
def test_softmax(seed, kind, to, factor) -> None:
    info = np.iinfo(kind)
    x = np.random.default_rng(seed).integers(info.min, info.max, (3, 11), endpoint=True)
    x[0, :] = info.max
    x[1, :] //= 9
    x = x.astype(kind)
    assert_same(network("SoftmaxInteger", x, factor=factor, output_dtype=to), x)


@pytest.mark.parametrize(("kind", "to"), [("int8", "uint8"), ("uint8", "int16"), ("int16", "int8")])
def test_a_table(kind, to) -> None:
    random = np.random.default_rng(41)
    info, results = np.iinfo(kind), np.iinfo(to)
    x = random.integers(info.min, info.max, (3, 11), kind, endpoint=True)
    table = random.integers(results.min, results.max, 1 << info.bits, to, endpoint=True)
    assert_same(network("LookupTable", x, table), x)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-5, 7e-4, 0.02]), st.sampled_from([1, 13]))
def test_softmax_of_16_bits(seed, factor, size) -> None:
    x = np.random.default_rng(seed).integers(-(2**15), 2**15, (4, size), np.int16)
    x[1], x[2] = 2**15 - 1, x[2] // 300
    assert_same(network("SoftmaxInteger", x, factor=factor, output_dtype="int16"), x)


@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([("int8", -3), ("uint8", 129)]),
    st.sampled_from([1, 2, 19, 7000]),
)
def test_lengths(seed, kind, size) -> None:
    """Lengths from 0 to that of 7,000 numbers at the end of the type, which has 29 bits."""
    dtype, zero = kind
    info = np.iinfo(dtype)
    x = np.random.default_rng(seed).integers(info.min, info.max, (4, size), dtype, endpoint=True)
    x[0], x[1], x[2] = zero, info.max, zero + (np.arange(size) == 0)
    assert_same(network("L2NormalizeInteger", x, zero_point=zero), x)


@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(["int8", "int16"]),
    st.integers(1, 13),
    st.integers(1, 9),
    st.sampled_from(["", "align_corners", "half_pixel_centers"]),
)
def test_bilinear_resizes(seed, dtype, height, width, mode) -> None:
    info = np.iinfo(dtype)
    x = np.random.default_rng(seed).integers(info.min, info.max, (2, 5, 4, 3), dtype, endpoint=True)
    fields = {mode: True} if mode else {}
    assert_same(network("ResizeInteger", x, sizes=(height, width), **fields), x)


WINDOWS = (
    {"kernel_shape": (2, 3)},
    {"kernel_shape": (3, 2), "strides": (2, 3), "pads": ((1, 0), (1, 1))},
    {"kernel_shape": (4, 3), "strides": (3, 2), "pads": "SAME_LOWER"},
)


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("kind", ["int8", "uint8", "int16"])
def test_means_at_the_ends_of_a_type(kind: str, window: dict) -> None:
    info = np.iinfo(kind)
    rng = np.random.default_rng(0)
    x = rng.integers(info.min, info.max, (2, 3, 7, 6), kind, endpoint=True)
    x[0, 0], x[0, 1] = info.min, info.max
    assert_same(network("AveragePoolInteger", x, low=-100, high=90, **window), x)


def test_means_of_a_large_window_are_cut_into_digits() -> None:
    x = np.random.default_rng(1).integers(-(2**15), 2**15, (1, 2, 130, 120), np.int16)
    assert_same(network("AveragePoolInteger", x, kernel_shape=(130, 120)), x)


def test_sums_beyond_2_to_the_24_are_exact() -> None:
    """Float sums in digits (16 bits, transposed), and byte sums with one zero point per channel."""
    rng = np.random.default_rng(2)
    high = rng.integers(30000, 32767, (1, 40, 5, 6), np.int16)
    weights = rng.integers(90, 127, (7, 40, 3, 3), np.int8)
    assert_same(network("ConvInteger", high, weights, output_dtype="int64"), high)
    flipped = np.ascontiguousarray(weights.transpose(1, 0, 2, 3))
    fields = {"strides": (2, 1), "output_padding": (1, 0), "output_dtype": "int64"}
    assert_same(network("ConvTransposeInteger", high, flipped, **fields), high)
    bytes_ = rng.integers(200, 255, (1, 400, 4, 3), np.uint8)
    weights = rng.integers(0, 255, (5, 400, 2, 3), np.uint8)
    weights[0], weights[1] = 255, 0
    zeros = np.array([0, 255, 3, 128, 77], np.uint8)
    assert_same(network("ConvInteger", bytes_, weights, np.uint8(3), zeros), bytes_)


def test_signed_bytes_do_not_saturate() -> None:
    """Pairs of products beyond 16 bits, which one of ONNX Runtime's kernels cannot hold."""
    x = np.full((1, 8, 3, 4), 127, np.int8)
    x[:, :, 1] = -128
    weights = np.full((3, 8, 2, 2), 127, np.int8)
    weights[1] = -128
    assert_same(network("ConvInteger", x, weights, np.int8(-128)), x)


def test_what_has_no_form_is_refused_by_name() -> None:
    x = np.arange(6, dtype=np.int32).reshape(2, 3)
    b = Builder("one")
    names = [b.input(n, TensorType.of(v)) for n, v in (("x", x), ("m", x[0, 0]), ("s", x[0, 0]))]
    graph = b.graph([b.add(REGISTRY["Requantize"](), names, ["y"], "scale")])
    with pytest.raises(UnsupportedError, match="Requantize by a factor that is computed") as error:
        to_onnx(graph)
    assert "scale" in str(error.value)
    negative = network("Requantize", x, np.int32(-(2**30)), np.int32(-3))
    with pytest.raises(UnsupportedError, match="by a negative factor"):
        to_onnx(negative)


def test_names_of_a_group_do_not_collide() -> None:
    """A network that already has a value of the name that a group would give."""
    b = Builder("taken")
    x = b.input("x", TensorType.parse("int8[2, 3, 4, 5]"))
    first = b.add(REGISTRY["AveragePoolInteger"](kernel_shape=(2, 3)), [x], ["y"], "pool")
    proto = to_onnx(b.graph([first]))
    inner = proto.graph.node[0].output[0]
    b = Builder("taken")
    x = b.input("x", TensorType.parse("int8[2, 3, 4, 5]"))
    other = b.add(REGISTRY["Identity"](), [x], [inner], "copy")
    first = b.add(REGISTRY["AveragePoolInteger"](kernel_shape=(2, 3)), [other], ["y"], "pool")
    onnx.checker.check_model(to_onnx(b.graph([first])), full_check=True)


def test_only_what_is_read_is_written() -> None:
    b = Builder("unread")
    x = b.input("x", TensorType.parse("int8[2, 3]"))
    kept = b.constant(np.array([[1, 2, 3]], np.int8), "kept")
    b.constant(np.zeros((50, 60), np.float32), "unread")
    proto = to_onnx(b.graph([b.add(REGISTRY["Max"](), [x, kept], ["y"])]))
    assert [numpy_helper.to_array(t).shape for t in proto.graph.initializer] == [(1, 3)]
