"""Tiny networks in every format, written without any framework, and the seeds of all fuzzing.

`Files` maps paths inside of a folder to contents; the first one is the path to load.
"""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tests.frontends.from_coreml.coreml_models import network, setting
from tests.frontends.from_coreml.test_coreml_programs import stored
from tests.frontends.from_keras.h5_files import sequential
from tests.frontends.from_mxnet.mxnet_models import params_bytes, symbol
from tests.frontends.from_tflite.tflite_writer import T, const, one
from tests.frontends.onnx_models import small_network

from verax.frontends.tensorflow.bundle import masked_crc
from verax.frontends.tensorflow.messages import CLASSES

EXAMPLES = Path(__file__).parents[2] / "examples" / "digits"
Files = dict[str, bytes]


def written(folder: Path, files: Files) -> Path:
    """The path to load (a package's is its folder), after writing all files below `folder`."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    path = folder / next(iter(files))
    return next((p for p in path.parents if p.suffix == ".mlpackage"), path)


# TensorFlow


def tf_node(graph: Any, name: str, op: str, *inputs: str, **attributes: Any) -> Any:
    """Append a node; attributes are texts, flags, types by number ("T", "dtype"), arrays, ints."""
    node = graph.node.add(name=name, op=op, input=inputs)
    for key, value in attributes.items():
        attribute = node.attr[key]
        if isinstance(value, str):
            attribute.s = value.encode()
        elif isinstance(value, bool):
            attribute.b = value
        elif isinstance(value, np.ndarray):
            attribute.tensor.dtype = {"float32": 1, "int32": 3, "int64": 9}[value.dtype.name]
            for size in value.shape:
                attribute.tensor.tensor_shape.dim.add(size=size)
            attribute.tensor.tensor_content = value.tobytes()
        elif isinstance(value, list):
            attribute.list.i.extend(value)
        elif key in ("N", "axis"):
            attribute.i = value
        else:
            attribute.type = value
    return node


def tf_graph(shape: Sequence[int] | None = (2, 7, 8, 3)) -> Any:
    """A graph with the placeholder `x`; -1 is an open size, None an unknown rank."""
    graph = CLASSES["Graph"]()
    holder = tf_node(graph, "x", "Placeholder", dtype=1)
    if shape is None:
        holder.attr["shape"].shape.unknown_rank = True
    for size in shape or ():
        holder.attr["shape"].shape.dim.add(size=size)
    return graph


def tf_const(graph: Any, name: str, value: Any, dtype: Any = np.int32) -> str:
    array = np.asarray(value, dtype)
    code = {"float32": 1, "int32": 3, "int64": 9}[array.dtype.name]
    tf_node(graph, name, "Const", dtype=code, value=array)
    return name


def tf_conv(shape: Sequence[int] | None = (2, 7, 8, 3)) -> Files:
    graph = tf_graph(shape)
    weights = np.random.default_rng(1).standard_normal((3, 2, 3, 4))
    tf_const(graph, "w", weights, np.float32)
    tf_node(graph, "c", "Conv2D", "x", "w", T=1, strides=[1, 2, 1, 1], padding="SAME",
            data_format="NHWC", dilations=[1, 1, 1, 1])  # fmt: skip
    tf_node(graph, "y", "Relu", "c", T=1)
    return {"net.pb": graph.SerializeToString()}


def saved_model() -> Files:
    """A SavedModel with one variable, its table of variables written by hand."""
    graph = tf_graph((-1, 5))
    handle = tf_node(graph, "v", "VarHandleOp", dtype=1, shared_name="v")
    handle.attr["shape"].shape.dim.add(size=5)
    tf_node(graph, "r", "ReadVariableOp", "v", dtype=1)
    tf_node(graph, "y", "AddV2", "x", "r", T=1)
    saved = CLASSES["SavedModel"]()
    meta = saved.meta_graphs.add()
    meta.graph_def.CopyFrom(graph)
    signature = meta.signature_def["serving_default"]
    for table, name in ((signature.inputs, "x"), (signature.outputs, "y")):
        table[name].name, table[name].dtype = f"{name}:0", 1
        for size in (-1, 5):
            table[name].tensor_shape.dim.add(size=size)
    data = np.arange(5, dtype=np.float32).tobytes()
    entry = CLASSES["BundleEntry"](dtype=1, size=len(data))
    entry.shape.dim.add(size=5)
    header = CLASSES["BundleHeader"](num_shards=1)
    pairs = [(b"", header.SerializeToString()), (b"v", entry.SerializeToString())]
    return {
        "saved/saved_model.pb": saved.SerializeToString(),
        "saved/variables/variables.index": sorted_table(pairs),
        "saved/variables/variables.data-00000-of-00001": data,
    }


def sorted_table(pairs: Sequence[tuple[bytes, bytes]]) -> bytes:
    """LevelDB's table of one block; keys and values shorter than 128 bytes."""

    def block(entries: Sequence[tuple[bytes, bytes]]) -> bytes:
        rows = b"".join(bytes([0, len(k), len(v)]) + k + v for k, v in entries)
        return rows + struct.pack("<II", 0, 1)

    first = block(pairs)
    handle = bytes([0]) + bytes([len(first)]) if len(first) < 128 else None
    assert handle is not None
    index = block([(b"z", handle)])
    at = len(first) + 5
    footer = bytes([0, 0, at, len(index)]).ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)
    blocks = (b + bytes(1) + masked_crc(b + bytes(1)) for b in (first, index))
    return b"".join((*blocks, footer))


# PyTorch


def pt2(
    nodes: Sequence[tuple[str, Mapping[str, Any], str]],
    shapes: Mapping[str, Sequence[Any]],
    weights: Mapping[str, np.ndarray] | None = None,
    change: Callable[[Any], None] = lambda program: None,
) -> bytes:
    """A `.pt2` of (operator, arguments, output) nodes. An argument: a tensor's name, an int, a
    float, a flag, None, or a list of ints. A size in `shapes` may be the name of a symbol."""
    weights = weights or {}

    def argument(value: Any) -> dict[str, Any]:
        if value is None:
            return {"as_none": True}
        if isinstance(value, str):
            return {"as_tensor": {"name": value}}
        kind = {bool: "as_bool", int: "as_int", float: "as_float", list: "as_ints"}[type(value)]
        return {kind: value}

    def meta(shape: Sequence[Any]) -> dict[str, Any]:
        sizes = [
            {"as_int": s} if isinstance(s, int) else {"as_expr": {"expr_str": s, "hint": None}}
            for s in shape
        ]
        numbers = [s if isinstance(s, int) else 2 for s in shape]
        strides = [int(np.prod(numbers[i + 1 :])) for i in range(len(numbers))]
        return {
            "dtype": 7, "sizes": sizes, "strides": [{"as_int": s} for s in strides],
            "storage_offset": {"as_int": 0}, "requires_grad": False, "layout": 7,
            "device": {"type": "cpu", "index": None},
        }  # fmt: skip

    made = [
        {
            "target": f"torch.ops.aten.{target}",
            "inputs": [{"name": k, "arg": argument(v), "kind": 1} for k, v in arguments.items()],
            "outputs": [{"as_tensor": {"name": output}}],
            "metadata": {},
            "is_hop_single_tensor_return": None,
            "name": output,
        }
        for target, arguments, output in nodes
    ]
    specs = [{"parameter": {"arg": {"name": f"p_{n}"}, "parameter_name": n}} for n in weights] + [
        {"user_input": {"arg": {"as_tensor": {"name": n}}}} for n in shapes
    ]
    last = nodes[-1][2]
    values = {f"p_{n}": meta(a.shape) for n, a in weights.items()}
    values |= {n: meta(s) for n, s in shapes.items()}
    graph = {
        "inputs": [{"as_tensor": {"name": n}} for n in values],
        "outputs": [{"as_tensor": {"name": last}}],
        "nodes": made, "tensor_values": values, "sym_int_values": {}, "sym_bool_values": {},
        "sym_float_values": {}, "custom_obj_values": {}, "is_single_tensor_return": False,
    }  # fmt: skip
    outputs = [{"user_output": {"arg": {"as_tensor": {"name": last}}}}]
    program = {
        "graph_module": {
            "graph": graph,
            "signature": {"input_specs": specs, "output_specs": outputs},
            "module_call_graph": [],
        },
        "opset_version": {"aten": 10}, "range_constraints": {},
        "schema_version": {"major": 8, "minor": 20}, "verifiers": ["TRAINING"],
        "torch_version": "2.13.0", "guards_code": [],
    }  # fmt: skip
    change(program)
    stored = {
        n: {"path_name": f"weight_{i}", "is_param": True, "use_pickle": False,
            "tensor_meta": meta(a.shape)}
        for i, (n, a) in enumerate(weights.items())
    }  # fmt: skip
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for i, array in enumerate(weights.values()):
            archive.writestr(f"net/data/weights/weight_{i}", array.astype(np.float32).tobytes())
        archive.writestr(
            "net/data/weights/model_weights_config.json", json.dumps({"config": stored})
        )
        archive.writestr("net/data/constants/model_constants_config.json", '{"config": {}}')
        archive.writestr("net/models/model.json", json.dumps(program))
        archive.writestr("net/byteorder", "little")
    return buffer.getvalue()


def torch_conv(shape: Sequence[Any] = (2, 3, 7, 5)) -> Files:
    weights = {"w": np.random.default_rng(1).standard_normal((4, 3, 3, 2))}
    arguments = {"input": "x", "weight": "p_w", "bias": None, "stride": [2, 1], "padding": [1, 0]}
    nodes = [("conv2d.default", arguments, "c"), ("relu.default", {"self": "c"}, "y")]
    return {"net.pt2": pt2(nodes, {"x": shape}, weights)}


# The others


def keras_dense(shape: Sequence[int | None] = (None, 5)) -> Files:
    kernel = np.random.default_rng(1).standard_normal((5, 3)).astype(np.float32)
    layers = [("Dense", {"units": 3, "use_bias": False}, [kernel]), ("ReLU", {}, [])]
    return {"net.h5": sequential(layers, shape)}


def coreml_conv() -> Files:
    kernel = np.random.default_rng(1).uniform(-1, 1, (4, 3, 3, 2)).astype(np.float32)
    base = {"outputChannels": 4, "kernelChannels": 3, "kernelSize": (3, 2), "weights": kernel}
    layers = [
        ("convolution", "c", ["x"], ["c"], setting(**base, valid__paddingAmounts=((1, 1), (0, 2)))),
        ("activation", "a", ["c"], ["y"], setting(leakyReLU__alpha=0.5)),
    ]
    return {"net.mlmodel": network(layers, {"x": (2, 3, 6, 5)}, {"y": ()}).SerializeToString()}


def package() -> Files:
    """An ML program of two convolutions with its weight file."""
    case, inner = stored()["convolutions"], "net.mlpackage/Data/com.apple.CoreML"
    items = {"0": {"path": "com.apple.CoreML/model.mlmodel"}}
    manifest = {"itemInfoEntries": items, "rootModelIdentifier": "0"}
    return {
        "net.mlpackage/Manifest.json": json.dumps(manifest).encode(),
        f"{inner}/model.mlmodel": case["model"].tobytes(),
        f"{inner}/weights/weight.bin": case["weights"].tobytes(),
    }


def mxnet_conv() -> Files:
    conv = {"kernel": "(3, 2)", "num_filter": "4", "stride": "(2, 1)", "no_bias": "True"}
    nodes = symbol(
        ("null", "data", {"__shape__": "(2, 3, 7, 5)"}, []),
        ("null", "c_weight", {}, []),
        ("Convolution", "c", conv, [0, 1]),
        ("Activation", "y", {"act_type": "relu"}, [2]),
    )
    kernel = np.random.default_rng(3).standard_normal((4, 3, 3, 2), dtype=np.float32)
    return {
        "net-symbol.json": json.dumps(nodes).encode(),
        "net-0000.params": params_bytes({"arg:c_weight": kernel}),
    }


def tflite_add() -> Files:
    weights = const(np.arange(3, dtype=np.float32))
    return {"net.tflite": one("ADD", [T((2, 3)), weights], T((2, 3)))}


def onnx_network() -> Files:
    return {"net.onnx": small_network().SerializeToString()}


SMALL: dict[str, Callable[[], Files]] = {
    "onnx": onnx_network,
    "pt2": torch_conv,
    "pb": tf_conv,
    "SavedModel": saved_model,
    "tflite": tflite_add,
    "h5": keras_dense,
    "keras": lambda: {"net.keras": (EXAMPLES / "digits.keras").read_bytes()},
    "mlmodel": coreml_conv,
    "mlpackage": package,
    "mxnet": mxnet_conv,
}
"""One small network per format."""
