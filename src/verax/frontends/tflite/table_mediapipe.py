"""MediaPipe's pools that tell where the largest elements were, and what puts elements back there.

They are custom operators whose options are TfLitePoolParams, a structure of C: padding (1: SAME,
2: VALID), strides of columns and rows, the window's columns and rows, the activation (of the pool),
and room for what is computed from these. Positions are counted within each window and are floats.
"""

from __future__ import annotations

import numpy as np

from verax.frontends.common.channels_last import channels_back, channels_first
from verax.frontends.common.context import Conversion, Result
from verax.frontends.tflite.rows import activated, row
from verax.frontends.tflite.schema import ENUMS
from verax.ir.types import DType
from verax.ops.windows.windows import geometry

WORDS, MOST = 6, 10
"""Numbers that the options begin with, and how many they may be with the room behind."""
INSIDE = np.float32(0.1)
"""What the pool adds to a position, so that cutting off its fraction gives it again."""


@row("MaxPoolingWithArgmax2D", domain="custom")
def max_pool_with_positions(c: Conversion) -> Result:
    """The largest element of each window, and its position in the window in row-major order."""
    rule, strides, window, act = _options(c)
    sizes = c.known_sizes(0, (1, 2), "where elements lie in their windows")
    form = geometry(window, strides, rule)
    counts, pads = form.output_dims(sizes), form.resolved_pads(sizes)
    x = channels_first(c, c.required(0))
    fields = {"kernel_shape": window, "strides": strides, "pads": rule}
    y, indices = c.add_all("MaxPool", [x], **fields, with_indices=True)
    plane_index = c.add("Mod", [indices, c.constant(sizes[0] * sizes[1], np.int64)])
    at = [c.add("FloorDiv", [plane_index, c.constant(sizes[1], np.int64)])]
    at.append(c.add("Mod", [plane_index, c.constant(sizes[1], np.int64)]))
    inner = []
    for axis, (value, n, s, (begin, _)) in enumerate(zip(at, counts, strides, pads)):
        first = np.arange(int(n), dtype=np.int64) * s - begin
        shape = (-1, 1) if axis == 0 else (1, -1)
        inner.append(c.add("Sub", [value, c.constant(first.reshape(shape))]))
    rows = c.add("Mul", [inner[0], c.constant(window[1], np.int64)])
    position = c.cast(c.add("Add", [rows, inner[1]]), DType.float32)
    position = c.add("Add", [position, c.constant(INSIDE)])
    return channels_back(c, activated(c, y, act)), channels_back(c, position)


@row("MaxUnpooling2D", domain="custom")
def max_unpool(c: Conversion) -> Result:
    """Each element at its position in a window of zeros. Operands: data, positions. Windows that
    overlap or leave gaps are refused: which element is written last is the kernel's choice."""
    _, strides, window, _ = _options(c)
    if strides != window:
        c.attributes.refuse("custom_options", f"windows of {window} at strides of {strides}")
    sizes = c.known_sizes(0, (1, 2, 3), "the result")
    split = c.ints((-1, sizes[0], 1, sizes[1], 1, sizes[2]))
    x = c.add("Reshape", [c.required(0), split])
    position = c.add("Reshape", [c.cast(c.required(1), DType.int64), split])
    inside = np.arange(window[0] * window[1]).reshape(1, 1, window[0], 1, window[1], 1)
    mine = c.add("Equal", [position, c.constant(inside, np.int64)])
    y = c.add("Where", [mine, x, c.constant(0, np.float32)])
    unpooled_shape = (-1, sizes[0] * window[0], sizes[1] * window[1], sizes[2])
    return c.result("Reshape", [y, c.ints(unpooled_shape)])


def _options(c: Conversion) -> tuple[str | tuple[()], tuple[int, int], tuple[int, int], str]:
    """Pads, strides and window (rows, columns), and the activation."""
    options = c.attributes.tensor("custom_options").astype(np.uint8)
    words = options[: options.size & ~3].view("<i4").tolist()
    activations = {i: name for i, name in ENUMS["activation"].items() if i <= 3}
    is_supported = WORDS <= len(words) <= MOST and options.size % 4 == 0
    if (
        not is_supported
        or words[0] not in (1, 2)
        or min(words[1:5]) < 1
        or words[5] not in activations
    ):
        c.attributes.refuse("custom_options", f"they are {words}")
    rule: str | tuple[()] = "SAME_UPPER" if words[0] == 1 else ()
    return rule, (words[2], words[1]), (words[4], words[3]), activations[words[5]]
