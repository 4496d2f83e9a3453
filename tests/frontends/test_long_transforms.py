"""Fourier transforms of more elements than one matrix takes, against NumPy in float64."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import verax
from verax.base.errors import UnsupportedError
from verax.frontends.common.fourier import is_one_product
from verax.frontends.onnx import load_onnx

ERROR = 1e-6
"""Root of the mean square of errors, by that of the results."""


def model(dims: list[int], size: int, axis: int, inverse: int, onesided: int) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, dims)
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    numbers = [helper.make_tensor(n, 7, [], [v]) for n, v in (("size", size), ("axis", axis))]
    names, fields = ["x", "size", "axis"], {"inverse": inverse, "onesided": onesided}
    node = helper.make_node("DFT", names, ["y"], **fields)
    graph = helper.make_graph([node], "long", [x], [y], numbers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])


CASES = {
    "real, one side": ([3, 5000, 1], 5000, 1, 0, 1),
    "two factors of a prime's size": ([2, 8198, 2], 8198, 1, 0, 0),
    "a prime, an axis in front": ([4099, 2, 2], 4099, 0, 1, 0),
    "cut": ([2, 4500, 2], 4200, 1, 0, 0),
    "continued with zeros": ([2, 3000, 2], 4410, 1, 1, 0),
    "real result of an even size": ([2, 2101, 2], 4200, 1, 1, 1),
    "real result of an odd size": ([2, 2053, 2], 4105, 1, 1, 1),
}


@pytest.mark.parametrize("name", CASES)
def test_a_long_transform_is_numpy_s(name: str) -> None:
    dims, size, axis, inverse, onesided = CASES[name]
    x = np.random.default_rng([11, size]).standard_normal(dims).astype(np.float32)
    exe = verax.compile(load_onnx(model(*CASES[name]).SerializeToString()), threads=1)
    (y,) = exe.run({"x": x}).values()
    z = x.astype(np.float64)
    z = z[..., 0] + 1j * z[..., 1] if dims[-1] == 2 else z[..., 0]
    if onesided:
        wanted = np.fft.irfft(z, size, axis) if inverse else np.fft.rfft(z, size, axis)
    else:
        wanted = (np.fft.ifft if inverse else np.fft.fft)(z, size, axis)
    found = y[..., 0] + 1j * y[..., 1] if y.shape[-1] == 2 else y[..., 0]
    assert not is_one_product(size) and found.shape == wanted.shape
    error = np.sqrt(np.mean(np.abs(found - wanted) ** 2) / np.mean(np.abs(wanted) ** 2))
    assert error < ERROR


def test_an_absurdly_long_transform_is_refused() -> None:
    proto = model([1, 8, 1], (1 << 20) + 1, 1, 0, 0)
    with pytest.raises(UnsupportedError, match="1 to 1048576 are supported"):
        load_onnx(proto.SerializeToString())
