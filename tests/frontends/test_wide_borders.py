"""A pool whose window hangs far over its data, which files write as a Pad of that border: in each
of the seven formats neither the meaning nor any level's program holds what only the border fills.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from tests.frontends.from_coreml.coreml_models import network, setting
from tests.frontends.from_keras.h5_files import sequential
from tests.frontends.from_mxnet.mxnet_models import params_bytes, symbol, write
from tests.frontends.from_tensorflow import tf_graphs as tf
from tests.frontends.from_tflite.tflite_writer import Op, T, const
from tests.frontends.from_tflite.tflite_writer import model as tflite_model
from tests.frontends.onnx_models import model as onnx_model

import verax
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.frontends.model import Model
from verax.reference.evaluate import evaluate

N, C, H, W, K = 2, 3, 7, 5, 640
"""The window is K x K, the data N x C x H x W: the border in front of it takes 9.8 MB."""
SAME_ARENA = 4
"""Largest tensors that an arena may hold, beside what every program holds."""
FIRST, LAST = (N, C, H, W), (N, H, W, C)
BOTH = [[0, 0], [0, K - H], [0, K - W], [0, 0]]


def onnx_file(folder: Path) -> Path:
    nodes = [
        helper.make_node("Pad", ["x", "pads"], ["p"]),
        helper.make_node("AveragePool", ["p"], ["y"], kernel_shape=[K, K]),
    ]
    pads = np.array([0, 0, 0, 0, 0, 0, K - H, K - W])
    made = onnx_model(nodes, {"x": FIRST}, {"y": (N, C, 1, 1)}, {"pads": pads})
    onnx.save(made, folder / "net.onnx")
    return folder / "net.onnx"


def torch_file(folder: Path) -> Path:
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            padded = torch.nn.functional.pad(x, (0, K - W, 0, K - H))
            return torch.nn.functional.avg_pool2d(padded, K)

    torch.export.save(torch.export.export(Net(), (torch.zeros(FIRST),)), folder / "net.pt2")
    return folder / "net.pt2"


def tflite_file(folder: Path) -> Path:
    tensors = [
        T(LAST, name="x"), const(np.array(BOTH, np.int32)), T((N, K, K, C)), T((N, 1, 1, C)),
    ]  # fmt: skip
    window = {"filter_height": K, "filter_width": K, "stride_h": K, "stride_w": K}
    ops = [Op("PAD", [0, 1], [2]), Op("AVERAGE_POOL_2D", [2], [3], {**window, "padding": "VALID"})]
    (folder / "net.tflite").write_bytes(tflite_model(tensors, ops, [0], [3]))
    return folder / "net.tflite"


def tensorflow_file(folder: Path) -> Path:
    graph = tf.empty()
    x = tf.placeholder(graph, "x", LAST)
    pads = tf.constant(graph, "pads", np.array(BOTH, np.int32))
    tf.node(graph, "p", "Pad", x, pads, T=1, Tpaddings=3)
    window = [1, K, K, 1]
    tf.node(graph, "y", "AvgPool", "p", T=1, ksize=window, strides=window, padding="VALID")
    (folder / "net.pb").write_bytes(graph.SerializeToString())
    return folder / "net.pb"


def keras_file(folder: Path) -> Path:
    layers = [
        ("ZeroPadding2D", {"padding": [[0, K - H], [0, K - W]]}, []),
        ("AveragePooling2D", {"pool_size": [K, K], "strides": [K, K], "padding": "valid"}, []),
    ]
    (folder / "net.h5").write_bytes(sequential(layers, LAST))
    return folder / "net.h5"


def coreml_file(folder: Path) -> Path:
    def border(params: Any) -> None:
        params.constant.value = 0
        for end in (K - H, K - W):
            params.paddingAmounts.borderAmounts.add(endEdgeSize=end)

    def pool(params: Any) -> None:
        setting(type=1, kernelSize=(K, K), stride=(K, K))(params)
        params.valid.SetInParent()

    layers = [("padding", "p", ["x"], ["p"], border), ("pooling", "y", ["p"], ["y"], pool)]
    made = network(layers, {"x": FIRST}, {"y": ()})
    (folder / "net.mlmodel").write_bytes(made.SerializeToString())
    return folder / "net.mlmodel"


def mxnet_file(folder: Path) -> Path:
    pads = {"mode": "constant", "pad_width": f"(0,0,0,0,0,{K - H},0,{K - W})"}
    pool = {"kernel": f"({K}, {K})", "pool_type": "avg", "stride": f"({K}, {K})"}
    made = symbol(
        ("null", "x", {}, []), ("Pad", "p", pads, [0]), ("Pooling", "y", pool, [1]),
    )  # fmt: skip
    return write(folder, made, params_bytes({}))


FORMATS: list[Callable[[Path], Path]] = [
    onnx_file, torch_file, tflite_file, tensorflow_file, keras_file, coreml_file, mxnet_file,
]  # fmt: skip


@pytest.mark.parametrize("make", FORMATS, ids=lambda f: f.__name__.removesuffix("_file"))
def test_a_border_that_only_a_window_reads_is_never_held(
    make: Callable[[Path], Path], tmp_path: Path
) -> None:
    path = make(tmp_path)
    sizes = {"shapes": {"x": FIRST}} if make is mxnet_file else {}
    model = verax.load(path, **sizes)
    assert isinstance(model, Model)
    (name, type_), *_ = model.inputs.items()
    x = np.random.default_rng(5).standard_normal(type_.shape).astype(np.float32)
    last = type_.shape == LAST
    expected = x.sum((1, 2) if last else (2, 3), np.float64).ravel() / K**2
    tracemalloc.start()
    (meaning,) = evaluate(model.graph, {name: x}).values()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 1 << 20
    np.testing.assert_allclose(meaning.ravel(), expected, rtol=1e-12)
    found = []
    for level in (0, 1):
        program = compile(model.graph, Settings(opt_level=level, threads=1))
        # Of blocked data: channels are rounded up to 16, whatever few there are.
        assert program.plan.arena_bytes <= SAME_ARENA * N * 16 * H * W * 4 + 8192
        (y,) = program.run({name: x}).values()
        found.append(y.tobytes())
        np.testing.assert_allclose(y.ravel(), expected, rtol=1e-4, atol=1e-8)
    assert found[0] == found[1]


def test_a_modest_border_stays_as_the_file_has_it(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Pad", ["x", "pads"], ["p"]),
        helper.make_node("AveragePool", ["p"], ["y"], kernel_shape=[3, 3]),
    ]
    pads = np.array([0, 0, 1, 0, 0, 0, 0, 1])
    made = onnx_model(nodes, {"x": FIRST}, {"y": (N, C, 6, 4)}, {"pads": pads})
    onnx.save(made, tmp_path / "net.onnx")
    graph = verax.load(tmp_path / "net.onnx").graph
    assert [node.op.kind for node in graph.nodes] == ["Pad", "AveragePool"]
