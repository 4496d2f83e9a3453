"""Which inputs of a network are images: the one place that decides where preprocessing is tried.

Layouts, colors, flips and scalings are mistakes that people make with images. Tried on a tensor of
sizes or scales they ask for tensors a thousand times too large and prove nothing.
"""

from __future__ import annotations

from verax.ir.graph import Graph
from verax.ir.types import DType, TensorType
from verax.judge.harness.readings import IMAGE_CHANNELS
from verax.ops.pointwise.elementwise import Elementwise
from verax.ops.sums.linear import Gemm, MatMul
from verax.ops.windows.convolution import Conv
from verax.ops.windows.deconvolution import ConvTranspose
from verax.ops.windows.integer_convolution import ConvInteger, ConvTransposeInteger
from verax.ops.windows.pooling import Pool

LEAST_EXTENT = 4
"""Pixels that an image has along height and width at least."""
SEEING = (Conv, ConvTranspose, ConvInteger, ConvTransposeInteger, Pool, Gemm, MatMul)
"""What looks at pixels: windows, and products of what was an image with weights."""
PASSING = (
    *("Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Cast", "Pad"),
    *("Resize", "Slice", "Split", "Concat", "Gather", "SpaceToDepth", "BatchNormalization"),
    *("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "InstanceNormalization"),
)
"""Operators whose first input is still an image behind them, or its pixels in another order."""


def is_image(graph: Graph, name: str) -> bool:
    """Whether an input can be an image: pixels by type and shape, which reach what looks at them.

    Float or uint8, three or four axes, 1, 3 or 4 channels at one end of the spatial ones, at least
    LEAST_EXTENT pixels along both of these; and its elements arrive as data (never as sizes,
    scales, indices or weights) at a convolution, a pool or a product.
    """
    return has_pixels(graph.types[name]) and _reaches(graph, name)


def has_pixels(type_: TensorType) -> bool:
    """Whether the element type and the shape are those of an image or of a batch of them."""
    if not (type_.dtype.is_float or type_.dtype is DType.uint8) or type_.rank not in (3, 4):
        return False
    first, *middle, last = type_.dims[-3:]
    return any(
        channels in IMAGE_CHANNELS
        and all(not isinstance(n, int) or n >= LEAST_EXTENT for n in extents)
        for channels, extents in ((first, (*middle, last)), (last, (first, *middle)))
    )


def _reaches(graph: Graph, name: str) -> bool:
    """Whether an input arrives as data at an operator that looks at pixels."""
    waiting, seen = [name], {name}
    while waiting:
        value = waiting.pop()
        for node in graph.consumers.get(value, ()):
            op = node.op
            if isinstance(op, SEEING) and node.inputs[0] == value:
                return True
            passing = isinstance(op, Elementwise) or (
                op.kind in PASSING and (node.inputs[0] == value or op.kind == "Concat")
            )
            if passing:
                waiting += (v for v in node.outputs if v not in seen)
                seen.update(node.outputs)
    return False
