"""ONNX models for foreign runtimes: found or written, checked, inner values made outputs."""

from __future__ import annotations

import dataclasses
import importlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from verax.base.errors import UsageError
from verax.ir.graph import Graph
from verax.judge.protocol import Shape
from verax.onnx_format.codes import TensorProto
from verax.onnx_format.package import onnx, shape_inference

Writer = Callable[[Graph], bytes]
SHOWN = "/shown"
_FLOATS = ("FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ", "FLOAT8E8M0")
_WIDER: dict[int, int] = {
    getattr(TensorProto, name): code
    for names, code in (
        ((*_FLOATS, "FLOAT4E2M1"), TensorProto.FLOAT),
        (("INT4", "INT2"), TensorProto.INT8),
        (("UINT4", "UINT2"), TensorProto.UINT8),
    )
    for name in names
}
"""Types of which runtimes' Python interfaces have no arrays, and what holds their numbers."""


def model_of(
    model: str | os.PathLike[str] | bytes | None, writer: Writer | None, graph: Graph, name: str
) -> str | bytes:
    """What a runtime is to run: bytes, an absolute path, or `graph` as ONNX when neither is given.

    Raises `UsageError` when there is no writer either.
    """
    if isinstance(model, bytes):
        return model
    if model is not None:
        return str(Path(model).resolve())
    if writer is None:
        raise UsageError(
            "there is no ONNX file to run and no writer to make one",
            place=name,
            next_step="give the model's file",
        )
    return writer(graph)


@dataclasses.dataclass(frozen=True)
class Source:
    """An ONNX model and the folder that its external data lies in."""

    proto: onnx.ModelProto
    folder: str


def load(model: str | bytes) -> Source:
    """Read a model from a path or from bytes. Raises `UsageError`."""
    try:
        if isinstance(model, bytes):
            return Source(onnx.load_model_from_string(model), "")
        return Source(onnx.load_model(model), str(Path(model).parent))
    except Exception as error:
        raise UsageError(
            f"the ONNX model cannot be read ({type(error).__name__}: {error})",
            place=model if isinstance(model, str) else "ONNX bytes",
        ) from error


def prepare() -> Callable[[], None]:
    """Import what reading a file needs, which starts no threads (see `worker.main`)."""
    importlib.import_module("onnx")
    return lambda: None


def input_shapes(proto: onnx.ModelProto) -> dict[str, Shape]:
    """Shapes of the inputs that are no constants, by name."""
    constants = {t.name for t in proto.graph.initializer}
    return {v.name: _shape(v) for v in proto.graph.input if v.name not in constants}


def _shape(value: onnx.ValueInfoProto) -> Shape:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return tuple(d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim)


def add_outputs(proto: onnx.ModelProto, keep: Sequence[str]) -> None:
    """Make every value in `keep` that the model computes an output; of floats and integers of
    8 bits and fewer that NumPy has not, a wider copy, whose name `plain_name` takes back."""
    small = _narrow_values(proto, keep)
    computed = {v for node in proto.graph.node for v in node.output if v}
    present = {v.name for v in proto.graph.output}
    for name in keep:
        if name in small:
            to, copy = small[name], name + SHOWN
            proto.graph.node.append(onnx.helper.make_node("Cast", [name], [copy], to=to))
            proto.graph.output.append(onnx.helper.make_tensor_value_info(copy, to, None))
        elif name in computed and name not in present:
            proto.graph.output.append(onnx.ValueInfoProto(name=name))
            present.add(name)


def plain_name(name: str) -> str:
    """The value that an output of `add_outputs` shows."""
    return name.removesuffix(SHOWN)


def _narrow_values(proto: onnx.ModelProto, keep: Sequence[str]) -> dict[str, int]:
    """Values in `keep` of types that NumPy has not, with ONNX's code of one that holds them."""
    codes = {t.data_type for t in proto.graph.initializer}
    codes |= {
        a.i for n in proto.graph.node for a in n.attribute if a.name in ("to", "output_dtype")
    }
    if not keep or not codes & set(_WIDER):
        return {}
    inferred = shape_inference.infer_shapes(proto).graph
    codes_by_value = {
        v.name: v.type.tensor_type.elem_type for v in (*inferred.value_info, *inferred.output)
    }
    return {v: _WIDER[codes_by_value[v]] for v in keep if codes_by_value.get(v) in _WIDER}


def text_of(node: onnx.NodeProto) -> str:
    """A node in the text form that graphs of Verax have."""
    attributes = [
        f"{a.name}={onnx.helper.get_attribute_value(a)!r}" for a in node.attribute if a.type < 9
    ]
    inputs = ", ".join(f"%{v}" if v else "_" for v in node.input)
    outputs = ", ".join(f"%{v}" for v in node.output)
    return f"{outputs} = {node.op_type}({', '.join(attributes)})({inputs})"
