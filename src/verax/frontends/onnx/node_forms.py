"""How nodes are spelled in ONNX, where that is not simply name, attributes and inputs."""

from __future__ import annotations

import numpy as np
from onnx import numpy_helper

from verax.frontends.onnx.fixed_point_forms import requantize, softmax_integer
from verax.frontends.onnx.forms import Form, Maker, made_node, plain
from verax.frontends.onnx.integer_forms import (
    average_pool_integer,
    conv_integer,
    conv_transpose_integer,
)
from verax.ir.dim import ceildiv
from verax.ir.graph import Graph, Node
from verax.ir.types import DType

SINCE = {
    "RoiAlign": 16,
    "Resize": 11,
    "Softmax": 13,
    "LogSoftmax": 13,
    "Hardmax": 13,
    "Split": 13,
    "GridSample": 20,
}
"""First operator set in which the same spelling has today's meaning (the rest shows by itself)."""


def form_of(node: Node, graph: Graph, version: int) -> Form:
    """How `node` is spelled in operator set `version`."""
    kind = node.op.kind
    if version < SINCE.get(kind, 0):
        return Form(problem=f"{kind} means something else there")
    return SPECIAL.get(kind, plain)(node, graph, version)


def _constant_of_shape(node: Node, graph: Graph, version: int) -> Form:
    given = node.op.attributes()
    value = numpy_helper.from_array(np.array([given["value"]], given["dtype"].numpy))
    return Form([made_node(node, "ConstantOfShape", node.inputs, node.outputs, value=value)])


def _split(node: Node, graph: Graph, version: int) -> Form:
    """Sizes are an input, or the number of parts is told: since opset 18 by an attribute."""
    op = node.op.attributes()
    axis = {"axis": op["axis"]}
    if len(node.inputs) > 1 and node.inputs[1] is not None:
        return Form([made_node(node, "Split", node.inputs, node.outputs, **axis)])
    if version >= 18:
        axis["num_outputs"] = op["num_outputs"]
    else:
        size = graph.types[node.outputs[0]].dims[op["axis"]]
        if any(graph.types[v].dims[op["axis"]] != size for v in node.outputs):
            return Form(problem="Split into uneven parts needs opset 18")
    return Form([made_node(node, "Split", node.inputs, node.outputs, **axis)])


def _flattening(node: Node, graph: Graph, version: int) -> Form:
    """Softmax over all axes from `axis` on: flattened, and shaped back."""
    op = node.op.attributes()
    if not op["flatten"]:
        return plain(node, graph, version, flatten=None)
    x, y = node.inputs[0], node.outputs[0]
    flat, done, shape = (f"{y}/{part}" for part in ("flat", "done", "shape"))
    rank = graph.types[str(x)].rank
    axis = op["axis"] % rank if rank else 0
    return Form(
        [
            made_node(node, "Flatten", [x], [flat], axis=axis),
            made_node(node, node.op.kind, [flat], [done], axis=-1),
            made_node(node, "Shape", [x], [shape]),
            made_node(node, "Reshape", [done, shape], [y]),
        ]
    )


def _group_normalization(node: Node, graph: Graph, version: int) -> Form:
    """Scale and bias per group exist in opsets 18 to 20, per channel since 21."""
    if not node.op.attributes()["per_group"]:
        if version < 21:
            return Form(problem="scale and bias are per group there")
        return plain(node, graph, version, per_group=None)
    if 18 <= version < 21:
        return plain(node, graph, version, per_group=None)
    channels = graph.types[str(node.inputs[0])].dims[1]
    groups = node.op.attributes()["num_groups"]
    if version < 18 or not isinstance(channels, int):
        return Form(problem="scale and bias per group")
    y = node.outputs[0]
    index = np.repeat(np.arange(groups), channels // groups)
    spread = [f"{y}/scale", f"{y}/bias"]
    gathers = [
        made_node(node, "Gather", [v, f"{y}/groups"], [s], axis=0)
        for v, s in zip(node.inputs[1:], spread)
    ]
    inner = plain(node, graph, version, per_group=None).nodes[0]
    del inner.input[1:]
    inner.input.extend(spread)
    return Form([*gathers, inner], {f"{y}/groups": index})


def _pad(node: Node, graph: Graph, version: int) -> Form:
    if node.op.attributes()["mode"] == "wrap" and version < 19:
        return Form(problem="Pad has no mode wrap")
    return plain(node, graph, version)


def _resize(node: Node, graph: Graph, version: int) -> Form:
    rule = node.op.attributes()["coordinate_transformation_mode"]
    if rule == "half_pixel_symmetric" and version < 19:
        return Form(problem="Resize has no half_pixel_symmetric")
    return plain(node, graph, version)


def _pool(node: Node, graph: Graph, version: int) -> Form:
    """ceil_mode kept a last window that sees only padding before opset 22."""
    op = node.op.attributes()
    x, y = graph.types[str(node.inputs[0])], graph.types[node.outputs[0]]
    if op["ceil_mode"] and version < 22 and not isinstance(op["pads"], str):
        for axis, size in enumerate(op["kernel_shape"]):
            stride = op["strides"][axis] if op["strides"] else 1
            dilation = op["dilations"][axis] if op["dilations"] else 1
            pads = sum(op["pads"][axis]) if op["pads"] else 0
            last = ceildiv(x.dims[axis + 2] + pads - (size - 1) * dilation - 1, stride) + 1
            if last != y.dims[axis + 2]:
                return Form(problem="ceil_mode keeps a window in the padding there")
    return plain(node, graph, version)


def _mean_variance(node: Node, graph: Graph, version: int) -> Form:
    """ONNX defines it by a function with a float32 constant in it."""
    if graph.types[node.outputs[0]].dtype is not DType.float32:
        return Form(problem="ONNX's MeanVarianceNormalization is for float32 in effect")
    return plain(node, graph, version)


SPECIAL: dict[str, Maker] = {
    "MaxPool": _pool,
    "AveragePool": _pool,
    "LpPool": _pool,
    "MeanVarianceNormalization": _mean_variance,
    "ConstantOfShape": _constant_of_shape,
    "Split": _split,
    "Softmax": _flattening,
    "LogSoftmax": _flattening,
    "Hardmax": _flattening,
    "GroupNormalization": _group_normalization,
    "Pad": _pad,
    "Resize": _resize,
    "ConvInteger": conv_integer,
    "ConvTransposeInteger": conv_transpose_integer,
    "Requantize": requantize,
    "AveragePoolInteger": average_pool_integer,
    "SoftmaxInteger": softmax_integer,
}
