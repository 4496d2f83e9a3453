"""DFT, STFT and MelWeightMatrix of ONNX, against NumPy in double precision and ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

import verax
from verax import onnx_backend
from verax.base.errors import ModelError, UnsupportedError
from verax.frontends.onnx import load_onnx

UNIT = 2.0**-24


def network(text: str, opset: int = 20) -> onnx.ModelProto:
    head = f'<ir_version: 9, opset_import: ["": {opset}]> net '
    return parser.parse_model(head + text)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng([1965, *shape]).standard_normal(shape).astype(np.float32)


def parts(z: np.ndarray) -> np.ndarray:
    return np.stack([z.real, z.imag], -1)


def whole(x: np.ndarray) -> np.ndarray:
    """Complex numbers of pairs, real ones of a last axis of one, in double precision."""
    wide = x.astype(np.float64)
    return wide[..., 0] if x.shape[-1] == 1 else wide[..., 0] + 1j * wide[..., 1]


CASES: list[tuple[str, tuple[int, ...], Any]] = [
    ("axis: int = 1", (3, 15, 4, 1), lambda z: parts(np.fft.fft(z, axis=1))),
    ("axis: int = -2", (2, 3, 17, 2), lambda z: parts(np.fft.fft(z, axis=2))),
    ("axis: int = 2, inverse: int = 1", (2, 3, 9, 2), lambda z: parts(np.fft.ifft(z, axis=2))),
    ("axis: int = 1, inverse: int = 1", (2, 6, 1), lambda z: parts(np.fft.ifft(z, axis=1))),
    ("axis: int = 2, onesided: int = 1", (2, 3, 9, 1), lambda z: parts(np.fft.rfft(z, axis=2))),
    ("axis: int = 1, onesided: int = 1", (2, 8, 3, 1), lambda z: parts(np.fft.rfft(z, axis=1))),
    (
        "axis: int = 2, onesided: int = 1, inverse: int = 1",
        (2, 3, 5, 2),
        lambda z: np.fft.irfft(z, axis=2)[..., None],
    ),
]


@pytest.mark.parametrize(("attributes", "shape", "wanted"), CASES)
def test_a_transform_is_that_of_numpy(attributes, shape, wanted):
    dims = ",".join(map(str, shape))
    proto = network(f"(float[{dims}] x) => (float y) {{ y = DFT<{attributes}>(x) }}", 17)
    del proto.graph.output[0].type.tensor_type.shape.dim[:]
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    x = numbers(*shape)
    want = wanted(whole(x))
    total = np.abs(x).sum(axis=(1, -1)).max()
    meant = verax.reference(verax.load(proto), {"x": x})["y"]
    # Cosines and sines are rounded to float32: half a unit of each of the terms at most.
    assert np.abs(meant - want).max() <= UNIT * total
    (y,) = onnx_backend.prepare(proto, engine="compiler").run([x])
    assert y.dtype == np.float32 and y.shape == want.shape
    assert np.abs(y - want).max() <= 4 * UNIT * total


@pytest.mark.parametrize("length", [5, 12, 20])
def test_a_length_cuts_the_axis_or_continues_it_with_zeros(length):
    x, axis = numbers(2, 12, 3, 1), np.array(-3)
    proto = network(
        f"""(float[2,12,3,1] x) => (float[2,n,3,2] y) {{
        n = Constant<value_int: int = {length}>()
        axis = Constant<value_int: int = -3>()
        y = DFT(x, n, axis)
    }}"""
    )
    (y,) = onnx_backend.prepare(proto).run([x])
    want = parts(np.fft.fft(whole(x), length, axis=int(axis) + 4))
    np.testing.assert_allclose(y, want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("window", [True, False])
@pytest.mark.parametrize("onesided", [0, 1])
def test_windows_are_transformed_each(window, onesided):
    proto = network(
        f"""(float[2,61,1] x) => (float[2,n,m,2] y) {{
        step = Constant<value_int: int = 7>()
        length = Constant<value_int: int = 12>()
        w = HannWindow(length)
        y = STFT<onesided: int = {onesided}>(x, step, {"w" if window else ""}, length)
    }}""",
        17,
    )
    x = numbers(2, 61, 1)
    (theirs,) = ReferenceEvaluator(proto).run(None, {"x": x})
    turn = np.cos(2 * np.pi * np.arange(12) / 12)
    w = (0.5 - 0.5 * turn) if window else np.ones(12)
    frames = np.stack([whole(x)[:, i : i + 12] for i in range(0, 50, 7)], 1) * w
    want = parts(np.fft.rfft(frames) if onesided else np.fft.fft(frames))
    for engine in ("reference", "compiler"):
        (y,) = onnx_backend.prepare(proto, engine=engine).run([x])
        assert y.shape == theirs.shape == want.shape
        np.testing.assert_allclose(y, theirs, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(y, want, rtol=0, atol=4 * UNIT * np.abs(frames).sum(-1).max())


def test_windows_of_complex_numbers_are_transformed():
    proto = network(
        """(float[2,29,2] x, float[8] w) => (float[2,n,8,2] y) {
        step = Constant<value_int: int = 3>()
        y = STFT<onesided: int = 0>(x, step, w)
    }""",
        17,
    )
    x, w = numbers(2, 29, 2), numbers(8)
    (y,) = onnx_backend.prepare(proto).run([x, w])
    z = np.stack([whole(x)[:, i : i + 8] for i in range(0, 22, 3)], 1) * w
    np.testing.assert_allclose(y, parts(np.fft.fft(z)), rtol=1e-6, atol=1e-6)


MEL = """(int32 bins, int32 size, int32 rate, float low, float high) => (float[n,m] y) {
    y = MelWeightMatrix(bins, size, rate, low, high)
}"""


@pytest.mark.parametrize(
    "given",
    [(23, 400, 16000, 20.0, 7600.0), (40, 60, 8000, 0.0, 4000.0), (7, 511, 44100, 300.0, 900.0)],
)
def test_mel_weights_are_those_of_onnx_runtime(given):
    proto = network(MEL)
    kinds = (np.int32, np.int32, np.int32, np.float32, np.float32)
    feed = {v.name: np.array(g, k) for v, g, k in zip(proto.graph.input, given, kinds)}
    session = pytest.importorskip("onnxruntime").InferenceSession(proto.SerializeToString())
    (want,) = session.run(None, feed)
    (y,) = onnx_backend.prepare(proto).run(feed)
    assert y.shape == want.shape
    np.testing.assert_allclose(y, want, rtol=2e-7)


def test_what_a_transform_lacks_is_said():
    with pytest.raises(UnsupportedError, match="one side of the transform of complex"):
        load_onnx(network("(float[2,8,2] x) => (float y) { y = DFT<onesided: int = 1>(x) }", 17))
    with pytest.raises(ModelError, match="1 or 2 parts"):
        load_onnx(network("(float[2,8,3] x) => (float y) { y = DFT(x) }", 17))
    with pytest.raises(UnsupportedError, match=r"the Mel bins .* computed while"):
        load_onnx(network(MEL))
