"""How nodes are spelled in ONNX, where that is not simply name, attributes and inputs."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

import numpy as np

from verax.export.onnx.attention import safe_softmax
from verax.export.onnx.emission import (
    NodeGroup,
    OnnxEmission,
    emission_of,
    numbered_pads,
    onnx_node_of,
    plain,
    widened,
    written_for,
)
from verax.ir.dim import ceildiv
from verax.ir.graph import Graph, Node
from verax.ir.types import DType, TensorType
from verax.onnx_format.package import numpy_helper
from verax.ops.pointwise.cast import Cast, has_saturation
from verax.ops.pointwise.factors import SMALLEST_FACTOR
from verax.ops.sums.response_normalization import LpNormalization
from verax.ops.sums.strassen import StrassenMatMul
from verax.ops.windows.convolution import Conv
from verax.ops.windows.strassen import StrassenConv
from verax.ops.windows.winograd import WinogradConv


@written_for("ConstantOfShape")
def _constant_of_shape(node: Node, graph: Graph, version: int) -> OnnxEmission:
    attributes = node.op.attributes()
    value = numpy_helper.from_array(np.array([attributes["value"]], attributes["dtype"].numpy))
    return OnnxEmission(
        [onnx_node_of(node, "ConstantOfShape", node.inputs, node.outputs, value=value)]
    )


@written_for("Split")
def _split(node: Node, graph: Graph, version: int) -> OnnxEmission:
    """Sizes are an input, or the number of parts is told: since opset 18 by an attribute."""
    op = node.op.attributes()
    axis = {"axis": op["axis"]}
    if len(node.inputs) > 1 and node.inputs[1] is not None:
        return OnnxEmission([onnx_node_of(node, "Split", node.inputs, node.outputs, **axis)])
    if version >= 18:
        axis["num_outputs"] = op["num_outputs"]
    else:
        size = graph.types[node.outputs[0]].dims[op["axis"]]
        if any(graph.types[v].dims[op["axis"]] != size for v in node.outputs):
            return OnnxEmission(problem="Split into uneven parts needs opset 18")
    return OnnxEmission([onnx_node_of(node, "Split", node.inputs, node.outputs, **axis)])


@written_for("Softmax", "LogSoftmax", "Hardmax")
def _flattening(node: Node, graph: Graph, version: int) -> OnnxEmission:
    """Softmax over all axes from `axis` on: flattened, and shaped back."""
    op = node.op.attributes()
    if op.get("masked_to_zero"):
        return _safe_softmax(node, graph, version)
    if not op["flatten"]:
        return plain(node, graph, version, flatten=None, masked_to_zero=None)
    is_empty = 0 in graph.types[str(node.inputs[0])].dims
    if is_empty and version < 14:
        return OnnxEmission(problem="Reshape to an axis of size 0")
    # Without it a 0 stands for the size that was there.
    attributes = {"allowzero": 1} if is_empty else {}
    x, y = node.inputs[0], node.outputs[0]
    flat, done, shape = (f"{y}/{suffix}" for suffix in ("flat", "done", "shape"))
    rank = graph.types[str(x)].rank
    axis = op["axis"] % rank if rank else 0
    return OnnxEmission(
        [
            onnx_node_of(node, "Flatten", [x], [flat], axis=axis),
            onnx_node_of(node, node.op.kind, [flat], [done], axis=-1),
            onnx_node_of(node, "Shape", [x], [shape]),
            onnx_node_of(node, "Reshape", [done, shape], [y], **attributes),
        ]
    )


def _safe_softmax(node: Node, graph: Graph, version: int) -> OnnxEmission:
    """Softmax that gives zeros for a masked line."""
    op, g = node.op.attributes(), NodeGroup(node, graph)
    x, dtype, rank = g.input(0), g.type(0).dtype, g.type(0).rank
    if not op["flatten"]:
        return g.finish(safe_softmax(g, x, op["axis"], dtype, version))
    flat = g.add("Flatten", x, axis=op["axis"] % rank if rank else 0)
    shares = safe_softmax(g, flat, -1, dtype, version)
    return g.finish(g.add("Reshape", shares, g.add("Shape", x)))


@written_for("GroupNormalization")
def _group_normalization(node: Node, graph: Graph, version: int) -> OnnxEmission:
    """Scale and bias per group exist in opsets 18 to 20, per channel since 21."""
    if not node.op.attributes()["per_group"]:
        if version < 21:
            return OnnxEmission(problem="scale and bias are per group there")
        return plain(node, graph, version, per_group=None)
    if 18 <= version < 21:
        return plain(node, graph, version, per_group=None)
    channels = graph.types[str(node.inputs[0])].dims[1]
    groups = node.op.attributes()["num_groups"]
    if version < 18 or not isinstance(channels, int):
        return OnnxEmission(problem="scale and bias per group")
    y = node.outputs[0]
    index = np.repeat(np.arange(groups), channels // groups)
    spread = [f"{y}/scale", f"{y}/bias"]
    gathers = [
        onnx_node_of(node, "Gather", [v, f"{y}/groups"], [s], axis=0)
        for v, s in zip(node.inputs[1:], spread)
    ]
    inner = plain(node, graph, version, per_group=None).nodes[0]
    del inner.input[1:]
    inner.input.extend(spread)
    return OnnxEmission([*gathers, inner], {f"{y}/groups": index})


@written_for("LpNormalization")
def _lp_normalization(node: Node, graph: Graph, version: int) -> OnnxEmission:
    """With epsilon or a floor, which the operator has not, in its parts; the norm is no 0 then."""
    op = node.op
    assert isinstance(op, LpNormalization)
    if not op.epsilon and not op.floor:
        return plain(node, graph, version, epsilon=None, floor=None)
    if version < 13:
        return OnnxEmission(problem="epsilon or a floor")
    g = NodeGroup(node, graph)
    x, dtype = g.input(0), g.type(0).dtype.numpy
    powers = g.add("Mul", x, x) if op.p == 2 else g.add("Abs", x)
    norm = g.add("ReduceSum", powers, g.constant([op.axis]))
    if op.epsilon:
        norm = g.add("Add", norm, g.constant(op.epsilon, dtype))
    if op.p == 2:
        norm = g.add("Sqrt", norm)
    if op.floor:
        norm = g.add("Max", norm, g.constant(op.floor, dtype))
    return g.finish(g.add("Div", x, norm))


@written_for("Pad")
def _pad(node: Node, graph: Graph, version: int) -> OnnxEmission:
    if node.op.attributes()["mode"] == "wrap" and version < 19:
        return OnnxEmission(problem="Pad has no mode wrap")
    return widened(node, graph, version)


@written_for("Resize")
def _resize(node: Node, graph: Graph, version: int) -> OnnxEmission:
    rule = node.op.attributes()["coordinate_transformation_mode"]
    if rule == "half_pixel_symmetric" and version < 19:
        return OnnxEmission(problem="Resize has no half_pixel_symmetric")
    if graph.types[node.outputs[0]].dtype.is_float:
        return plain(node, graph, version)
    return _resize_integers(node, graph, version)


def _resize_integers(node: Node, graph: Graph, version: int) -> OnnxEmission:
    """With the sizes of all axes: ONNX Runtime moves transpositions through a Resize of
    integers and loses the sizes of some axes there (1.31)."""
    g, dims = NodeGroup(node, graph), graph.types[node.outputs[0]].dims
    op = node.op.attributes()
    is_plain_stretch = op["keep_aspect_ratio_policy"] == "stretch"
    is_plain_stretch &= (
        op["coordinate_transformation_mode"] != "tf_crop_and_resize"
    )  # has a roi per axis
    has_sizes = len(node.inputs) > 3 and node.inputs[3] is not None
    if not (is_plain_stretch and has_sizes and all(isinstance(d, int) for d in dims)):
        return widened(node, graph, version)
    sizes = g.constant(np.array(dims, np.int64))
    for_all_axes = replace(node.op, axes=None)  # type: ignore[call-arg]
    full = replace(node, inputs=(*node.inputs[:3], sizes), op=for_all_axes)
    with_sizes = replace(graph, types={**graph.types, sizes: TensorType(DType.int64, (len(dims),))})
    emission = widened(full, with_sizes, version)
    return OnnxEmission(
        emission.nodes, {**g.emission.constants, **emission.constants}, emission.problem
    )


@written_for("GatherND")
def _gather_nd(node: Node, graph: Graph, version: int) -> OnnxEmission:
    """ONNX's indices are int64."""
    g = NodeGroup(node, graph)
    if g.type(1).dtype is DType.int64:
        return plain(node, graph, version)
    at = g.cast(g.input(1), DType.int64)
    gather = plain(node, graph, version).nodes[0]
    gather.input[1] = at
    g.emission.nodes.append(gather)
    return g.emission


@written_for("MaxPool", "AveragePool", "LpPool")
def _pool(node: Node, graph: Graph, version: int) -> OnnxEmission:
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
                return OnnxEmission(problem="ceil_mode keeps a window in the padding there")
    pads = numbered_pads(node.op, op["kernel_shape"], x.dims[2:])
    return widened(node, graph, version, pads=pads)


@written_for("MeanVarianceNormalization")
def _mean_variance(node: Node, graph: Graph, version: int) -> OnnxEmission:
    """ONNX defines it by a function with a float32 constant in it."""
    if graph.types[node.outputs[0]].dtype is not DType.float32:
        return OnnxEmission(problem="ONNX's MeanVarianceNormalization is for float32 in effect")
    return plain(node, graph, version)


@written_for("Mod")
def _mod(node: Node, graph: Graph, version: int) -> OnnxEmission:
    """ONNX has the remainder with the sign of the divisor for integers only."""
    g = NodeGroup(node, graph)
    if node.op.attributes()["fmod"] or not graph.types[node.outputs[0]].dtype.is_float:
        return plain(node, graph, version)
    divisor = g.input(1)
    remainder = g.add("Mod", g.input(0), divisor, fmod=1)
    zero = g.constant(0, graph.types[node.outputs[0]].dtype.numpy)
    turns = g.add("Less", g.add("Mul", g.add("Sign", remainder), g.add("Sign", divisor)), zero)
    return g.finish(g.add("Where", turns, g.add("Add", remainder, divisor), remainder))


@written_for("Rsqrt")
def _rsqrt(node: Node, graph: Graph, version: int) -> OnnxEmission:
    """ONNX has the root and the reciprocal."""
    g = NodeGroup(node, graph)
    return g.finish(g.add("Reciprocal", g.add("Sqrt", g.input(0))))


@written_for("Where")
def _select(node: Node, graph: Graph, version: int) -> OnnxEmission:
    """ONNX Runtime chooses between numbers only: between truths it is logic."""
    g = NodeGroup(node, graph)
    if g.type(1).dtype is not DType.bool_:
        return widened(node, graph, version)
    both_true = g.add("And", g.input(0), g.input(1))
    return g.finish(g.add("Or", both_true, g.add("And", g.add("Not", g.input(0)), g.input(2))))


@written_for("Conv")
def _conv(node: Node, graph: Graph, version: int) -> OnnxEmission:
    assert isinstance(node.op, Conv)
    x, w = graph.types[str(node.inputs[0])], graph.types[str(node.inputs[1])]
    return plain(node, graph, version, pads=numbered_pads(node.op, w.dims[2:], x.dims[2:]))


@written_for("WinogradConv")
def _winograd(node: Node, graph: Graph, version: int) -> OnnxEmission:
    """The convolution that it means: ONNX leaves the algorithm to whoever runs it."""
    assert isinstance(node.op, WinogradConv)
    return _conv(dataclasses.replace(node, op=node.op.plain), graph, version)


@written_for("StrassenMatMul", "StrassenConv")
def _strassen(node: Node, graph: Graph, version: int) -> OnnxEmission:
    """The product, or convolution, that it means."""
    assert isinstance(node.op, StrassenMatMul | StrassenConv)
    return emission_of(dataclasses.replace(node, op=node.op.plain), graph, version)


@written_for("Bfloat16Factor")
def _bfloat16_factor(node: Node, graph: Graph, version: int) -> OnnxEmission:
    g = NodeGroup(node, graph)
    rounded = g.cast(g.cast(g.input(0), DType.bfloat16), DType.float32)
    zero, smallest = (g.constant(v, np.float32) for v in (0, SMALLEST_FACTOR))
    return g.finish(g.add("Where", g.add("Less", g.add("Abs", rounded), smallest), zero, rounded))


@written_for("Cast")
def _cast(node: Node, graph: Graph, version: int) -> OnnxEmission:
    """`saturate` and `round_mode` are said only where the target has a use for them: ONNX Runtime
    refuses them elsewhere."""
    op = node.op
    assert isinstance(op, Cast)
    unused: dict[str, None] = {}
    if not has_saturation(op.to):
        unused["saturate"] = None
    if op.to is not DType.float8_e8m0fnu:
        unused["round_mode"] = None
    return plain(node, graph, version, **unused)


@written_for("OneHot")
def _one_hot(node: Node, graph: Graph, version: int) -> OnnxEmission:
    """ONNX Runtime marks with float32 or int64 at int64 places."""
    g = NodeGroup(node, graph)
    to = g.type(2).dtype
    types = [g.type(i).dtype for i in range(3)]
    if to.is_float or all(t is DType.int64 for t in types):
        return plain(node, graph, version)
    inputs = [g.cast(g.input(i), DType.int64) for i in range(3)]
    marked = g.add("OneHot", *inputs, axis=node.op.attributes()["axis"])
    return g.finish(g.cast(marked, to))


@written_for("SpaceToDepth")
def _space_to_depth(node: Node, graph: Graph, version: int) -> OnnxEmission:
    """Its mode is as young as opset 28: before, a reshaping."""
    op, g = node.op.attributes(), NodeGroup(node, graph)
    channels, height, width = g.type(0).dims[1:]
    b = op["blocksize"]
    sizes = all(isinstance(d, int) for d in (channels, height, width))
    if op["mode"] == "DCR" or version >= 28 or not sizes:
        return plain(node, graph, version)
    rows, columns = int(height) // b, int(width) // b  # type: ignore[arg-type]
    cut = g.constant([-1, channels, rows, b, columns, b])
    transposed = g.add("Transpose", g.add("Reshape", g.input(0), cut), perm=[0, 1, 3, 5, 2, 4])
    shape = g.constant([-1, int(channels) * b * b, rows, columns])  # type: ignore[arg-type]
    return g.finish(g.add("Reshape", transposed, shape))
