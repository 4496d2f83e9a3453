"""Types of 8, 4 and 2 bits: every code and every number of 16 bits, against `ml_dtypes` and ONNX
Runtime, in NumPy and in compiled code."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.ir.graph import Graph, Node, infer_node
from verax.ir.operator import Operator
from verax.ir.types import NARROW, NARROW_FLOATS, NARROW_INTEGERS, DType, TensorType
from verax.numerics.arith_numpy import NumpyArith
from verax.numerics.formats import FORMATS
from verax.onnx_format.dtypes import CODES
from verax.onnx_format.packing import packed, stored_bytes, unpacked
from verax.ops.pointwise.cast import Cast
from verax.ops.quantized.quantization import DequantizeLinear, QuantizeLinear
from verax.reference.evaluate import promised as of_promise

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

M = NumpyArith()
NATIVE = Settings(opt_level=1, threads=1, require_native=True)
POWER = DType.float8_e8m0fnu
SIGNED_FLOATS = sorted(NARROW_FLOATS - {POWER})
IN_ONNX_RUNTIME = [
    *(d for d in SIGNED_FLOATS if d is not DType.float4_e2m1fn),
    *(DType.int4, DType.uint4),
]
"""What its CPU kernels know."""


def codes_of(dtype: DType) -> np.ndarray:
    bits = 4 if dtype is DType.float4_e2m1fn else int(dtype.value.lstrip("uint") or 8) if (
        dtype in NARROW_INTEGERS) else 8  # fmt: skip
    return np.arange(1 << bits, dtype=np.uint8).view(dtype.numpy)


def every_number(dtype: str) -> np.ndarray:
    return np.arange(1 << 16, dtype=np.uint16).view(DType(dtype).numpy)


def promised(op: Cast, x: np.ndarray) -> np.ndarray:
    return np.asarray(op.promised(M, x))


def compiled(op: Cast, x: np.ndarray) -> np.ndarray:
    types = {"x": TensorType.of(x), "y": TensorType.of(x).with_dtype(op.to)}
    graph = Graph(("x",), ("y",), (Node(op, ("x",), ("y",)),), {}, types)
    return compile(graph, NATIVE).run({"x": x})["y"]


def assert_same(found: np.ndarray, expected: np.ndarray) -> None:
    """The same numbers, signs of zeros too; NaN where NaN is."""
    a, b = found.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(np.signbit(a) & ~np.isnan(a), np.signbit(b) & ~np.isnan(b))


@pytest.mark.parametrize("narrow", sorted(NARROW))
def test_every_code_reads_as_in_ml_dtypes(narrow: DType) -> None:
    codes = codes_of(narrow)
    for to in (DType.float32, DType.float16, DType.bfloat16):
        with np.errstate(all="ignore"):
            expected = codes.astype(np.float32).astype(to.numpy)
        assert_same(promised(Cast(to=to), codes), expected)
    assert_same(compiled(Cast(to=DType.float32), codes), codes.astype(np.float32))


@pytest.mark.parametrize("source", ["float16", "bfloat16"])
@pytest.mark.parametrize("narrow", SIGNED_FLOATS)
def test_every_number_of_16_bits_is_rounded_as_in_ml_dtypes(narrow: DType, source: str) -> None:
    """Without saturation, which `ml_dtypes` does not know; with it, after clipping."""
    x = every_number(source)
    wide = x.astype(np.float32)
    most = float(ml_dtypes.finfo(narrow.numpy).max)
    with np.errstate(all="ignore"):
        plain, clipped = wide.astype(narrow.numpy), np.clip(wide, -most, most).astype(narrow.numpy)
    if narrow is DType.float4_e2m1fn:  # the sign of what a NaN becomes is nobody's rule
        x, plain, clipped = (a[~np.isnan(wide)] for a in (x, plain, clipped))
    for saturate, expected in ((False, plain), (True, clipped)):
        op = Cast(to=narrow, saturate=saturate)
        found = promised(op, x)
        assert_same(found, expected)
        np.testing.assert_array_equal(compiled(op, x).view(np.uint8), found.view(np.uint8))


@pytest.mark.parametrize("narrow", sorted(NARROW_INTEGERS))
def test_integers_of_few_bits_take_the_low_ones(narrow: DType) -> None:
    low, high = narrow.ends
    for source in (DType.int8, DType.int32, DType.float32):
        x = np.arange(-100, 100).astype(source.numpy)
        expected = (np.arange(-100, 100) - low) % (high - low + 1) + low
        found = promised(Cast(to=narrow), x)
        np.testing.assert_array_equal(found.astype(np.int64), expected)
        np.testing.assert_array_equal(compiled(Cast(to=narrow), x).astype(np.int64), expected)
    assert promised(Cast(to=narrow), np.float32([1.9, -0.9])).astype(int).tolist() == [1, 0]


def nearest_powers(x: np.ndarray, mode: str) -> np.ndarray:
    """Exponents that a power of two for x has, by frexp."""
    mantissa, exponent = np.frexp(x.astype(np.float64))
    up = {"up": mantissa > 0.5, "down": mantissa > 1, "nearest": mantissa >= 0.75}[mode]
    return exponent - 1 + up


@pytest.mark.parametrize("source", ["float16", "bfloat16"])
@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
def test_powers_of_two_are_rounded_by_their_mode(mode: str, source: str) -> None:
    x = every_number(source)
    wide = x.astype(np.float64)
    for saturate in (True, False):
        op = Cast(to=POWER, saturate=saturate, round_mode=mode)
        with np.errstate(all="ignore"):
            exponent = nearest_powers(np.where(np.isfinite(wide) & (wide > 0), wide, 1.0), mode)
            expected = 2.0 ** np.clip(exponent, -127, 127)
            ends = (2.0**-127, 2.0**127) if saturate else (np.nan, np.nan)
            expected = np.where(wide < 2.0**-127, ends[0], expected)
            expected = np.where(
                (wide > 0) & (exponent > 127) | np.isposinf(wide), ends[1], expected
            )
            expected = np.where((wide < 0) | np.isnan(wide), np.nan, expected)
        found = promised(op, x)
        np.testing.assert_array_equal(found.astype(np.float64), expected)
        np.testing.assert_array_equal(compiled(op, x).view(np.uint8), found.view(np.uint8))


@pytest.mark.parametrize("narrow", SIGNED_FLOATS)
@given(data=st.data())
def test_wider_numbers_are_rounded_once(narrow: DType, data: st.DataObject) -> None:
    """Numbers just beside the middle between two neighbours, which float32 cannot tell from it."""
    finite = np.unique(codes_of(narrow).astype(np.float64))
    finite = finite[np.isfinite(finite)]
    i = data.draw(st.integers(0, finite.size - 2))
    middle = (finite[i] + finite[i + 1]) / 2
    side = data.draw(st.sampled_from([-1, 1]))
    x = np.array([np.nextafter(middle, side * np.inf)])
    found = float(promised(Cast(to=narrow), x)[0])
    assert found == finite[i if side < 0 else i + 1]
    whole = data.draw(st.integers(-(2**62), 2**62))
    exact = min(max(whole, -FORMATS[narrow].largest), FORMATS[narrow].largest)
    gap = np.abs(finite - float(exact))
    near = float(promised(Cast(to=narrow), np.array([whole], np.int64))[0])
    assert abs(near - float(exact)) == gap.min()


def in_onnxruntime(nodes: list[Any], x: np.ndarray, constants: Any = ()) -> np.ndarray:
    """What ONNX Runtime's CPU kernels make of x, in float32, unoptimized."""
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, list(x.shape)) for name in "xy"
    ]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], list(constants))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return np.asarray(session.run(["y"], {"x": x})[0])


@pytest.mark.parametrize(
    ("narrow", "saturate"),
    [(d, s) for d in IN_ONNX_RUNTIME for s in (True, False) if s or d in NARROW_FLOATS],
)
def test_onnxruntime_casts_alike(narrow: DType, saturate: bool) -> None:
    """Whole numbers to integers, as it rounds others where ONNX's own evaluator truncates. Without
    saturation numbers in range: of others it makes NaN in float8_e5m2, and 448 of 480 to 496 in
    float8_e4m3fn, where ONNX says infinity and NaN."""
    if narrow in NARROW_INTEGERS:
        x = np.arange(-20, 20).astype(np.float32)
    else:
        x = every_number("float16").astype(np.float32)
        x = x[np.isfinite(x)]
        x = x if saturate else x[np.abs(x) <= FORMATS[narrow].largest]
    told = {} if saturate else {"saturate": 0}
    nodes = [
        helper.make_node("Cast", ["x"], ["n"], to=CODES[narrow], **told),
        helper.make_node("Cast", ["n"], ["y"], to=TensorProto.FLOAT),
    ]
    own = promised(Cast(to=DType.float32), promised(Cast(to=narrow, saturate=saturate), x))
    np.testing.assert_array_equal(in_onnxruntime(nodes, x), own)


@pytest.mark.parametrize("narrow", IN_ONNX_RUNTIME)
def test_onnxruntime_quantizes_alike(narrow: DType) -> None:
    """A scale per row, through the file that both read."""
    rng = np.random.default_rng(7)
    x = rng.normal(0, 30, (3, 400)).astype(np.float32)
    scale = np.array([0.3, 2.5, 7.0], np.float32)
    zero = np.zeros(3, np.float32) if narrow in NARROW_FLOATS else np.array([1, 2, 0])
    constants = [
        onnx.numpy_helper.from_array(scale, "s"),
        onnx.numpy_helper.from_array(zero.astype(narrow.numpy), "z"),
    ]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["n"], axis=0),
        helper.make_node("DequantizeLinear", ["n", "s", "z"], ["y"], axis=0),
    ]
    given_there = in_onnxruntime(nodes, x, constants)
    quantized = QuantizeLinear(axis=0), (x, scale, zero.astype(narrow.numpy))
    found = answered(*quantized)
    own = answered(DequantizeLinear(axis=0), (found, *quantized[1][1:]))
    np.testing.assert_array_equal(given_there, own)


def answered(op: Operator, arrays: tuple[np.ndarray, ...]) -> np.ndarray:
    """The promise of a node, which compiled code keeps."""
    names = tuple(f"x{i}" for i in range(len(arrays)))
    types = {n: TensorType.of(a) for n, a in zip(names, arrays)}
    node = Node(op, names, ("y",))
    (made,), _ = infer_node(node, types, {})
    constants = dict(zip(names[1:], arrays[1:]))
    graph = Graph(names[:1], ("y",), (node,), constants, {**types, "y": made})
    promise = of_promise(graph, {"x0": arrays[0]})["y"]
    run = compile(graph, NATIVE).run({"x0": arrays[0]})["y"]
    np.testing.assert_array_equal(run.view(np.uint8), promise.view(np.uint8))
    return promise


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 8])
@pytest.mark.parametrize("narrow", sorted(NARROW))
def test_packed_data_are_those_of_onnx(narrow: DType, count: int) -> None:
    every = codes_of(narrow)
    array = every[np.arange(count) * 7 % every.size]
    data = packed(array)
    assert len(data) == stored_bytes(narrow, count)
    there = onnx.numpy_helper.from_array(array, "a")
    assert there.data_type == CODES[narrow] and there.raw_data == data
    if narrow in NARROW_INTEGERS or narrow is DType.float4_e2m1fn:
        back = unpacked(np.frombuffer(data, np.uint8), narrow, count)
        np.testing.assert_array_equal(back.view(np.uint8), array.view(np.uint8))
