"""What the formats of TensorFlow's family share (TFLite, TensorFlow, Keras).

Their operators are channels-last, Verax's channels-first. Data is moved there and back by Transpose
nodes, exactly; constant weights are transposed once, as data. Adjacent transposes cancel in the
compiler, so nothing here tries to avoid them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common import shapes
from verax.frontends.common.context import Conversion, Result
from verax.ir.types import DType


def to_first(rank: int) -> tuple[int, ...]:
    """Permutation [n, *spatial, c] -> [n, c, *spatial]."""
    return (0, rank - 1, *range(1, rank - 1))


def to_last(rank: int) -> tuple[int, ...]:
    """Permutation [n, c, *spatial] -> [n, *spatial, c]."""
    return (0, *range(2, rank), 1)


def channels_first(c: Conversion, value: str) -> str:
    """The value with its channels moved from the last axis to the second."""
    perm = to_first(c.builder.types[value].rank)
    return c.add("Transpose", [value], perm=perm)


def channels_back(c: Conversion, value: str) -> str:
    """The value with its channels moved from the second axis to the last."""
    return c.add("Transpose", [value], perm=to_last(c.rank(value)))


def finish_channels_last(c: Conversion, value: str) -> tuple[str, ...]:
    """Move the channels back; the result defines the foreign node's output."""
    return c.result("Transpose", [value], perm=to_last(c.rank(value)))


def constant_array(c: Conversion, value: str | None) -> np.ndarray | None:
    """The array of a graph value that is a constant of any size, else None."""
    if value is None:
        return None
    return c.builder.constants.get(value, c.builder.known.get(value))


def transposed(c: Conversion, value: str, perm: Sequence[int]) -> str:
    """The value transposed: as data when it is a constant, else by a node."""
    array = c.builder.constants.get(value)
    if array is None or array.ndim != len(perm):
        return c.add("Transpose", [value], perm=tuple(perm))
    return c.constant(np.ascontiguousarray(array.transpose(perm)))


def reshaped(c: Conversion, value: str, shape: Sequence[int]) -> str:
    """The value with another shape: as data when it is a constant, else by a node."""
    array = c.builder.constants.get(value)
    if array is None:
        return c.add("Reshape", [value, c.ints(shape)])
    return c.constant(array.reshape(shape))


# Constant operands


def constant_ints(c: Conversion, index: int, description: str) -> tuple[int, ...]:
    """A constant operand of integers, flat. Raises `ValueNeededError` when it is computed."""
    return tuple(int(v) for v in np.ravel(c.constant_input(index, description)))


def static_dims(c: Conversion, index: int, description: str) -> tuple[int, ...]:
    """Sizes of an operand that must be known."""
    return c.known_sizes(index, dependent=f"what becomes of {description}")


def longs(c: Conversion, index: int) -> str:
    """An operand of integers as an int64 vector."""
    constant = c.known_value(index)
    if constant is not None and constant.dtype != object:
        return c.ints([int(v) for v in constant.ravel()])
    return c.cast(c.required(index), DType.int64)


def pads(c: Conversion) -> str:
    """Operand 1, (begin, end) per axis, as `Pad` takes it: all begins, then all ends. It may be
    computed: detectors fill up with zeros what was kept."""
    constant = c.known_value(1)
    if constant is None or constant.dtype == object:
        transposed = c.add("Transpose", [c.cast(c.required(1), DType.int64)], perm=(1, 0))
        return c.add("Reshape", [transposed, c.ints((-1,))])
    flat = np.array(constant_ints(c, 1, "the paddings"), np.int64)
    if flat.size != 2 * c.rank(0) or (flat < 0).any():
        raise ModelError(f"paddings {flat.tolist()} for {c.type(0)}", place=c.node.place)
    return c.ints(flat.reshape(-1, 2).T.ravel().tolist())


def mirror_mode(c: Conversion) -> str:
    """`mode` of a mirroring pad: SYMMETRIC repeats the border element, which for one position is
    the edge."""
    mode = {"REFLECT": "reflect", "SYMMETRIC": "edge"}.get(c.attributes.text("mode", "REFLECT"))
    if mode is None:
        c.attributes.refuse("mode", "unknown mode")
    if mode == "edge" and max(constant_ints(c, 1, "the paddings"), default=0) > 1:
        c.attributes.refuse("mode", "wider than one position")
    assert mode is not None
    return mode


# Operators whose parameters are operands, in TensorFlow as in TFLite


def squeeze(c: Conversion) -> Result:
    """Axes of size 1 go: those listed, or all."""
    axes = c.integers("squeeze_dims", ())
    return c.apply("Squeeze", [c.required(0), c.ints(axes) if axes else None])


def expand_dims(c: Conversion) -> Result:
    return c.apply("Unsqueeze", [c.required(0), c.ints(constant_ints(c, 1, "the axis"))])


def transpose(c: Conversion) -> Result:
    return c.apply("Transpose", [c.required(0)], perm=constant_ints(c, 1, "the permutation"))


def tile(c: Conversion) -> Result:
    return c.apply("Tile", [c.required(0), longs(c, 1)])


def broadcast_to(c: Conversion) -> Result:
    return c.apply("Expand", [c.required(0), longs(c, 1)])


def fill(c: Conversion) -> Result:
    """Operands: shape, value."""
    return c.apply("Expand", [c.required(1), longs(c, 0)])


def reverse(c: Conversion) -> Result:
    return shapes.turned_round(c, c.required(0), constant_ints(c, 1, "the axes"))


def scatter(c: Conversion) -> Result:
    """Operands: indices, updates, shape. Onto zeros; updates of one place add up."""
    return shapes.added_to_zeros(c, c.required(0), c.required(1), longs(c, 2))


def running_sum(c: Conversion, kind: str = "CumSum") -> Result:
    axis = c.constant(constant_ints(c, 1, "the axis")[0], np.int64)
    flags = {name: c.flag(name) for name in ("exclusive", "reverse")}
    return c.apply(kind, [c.required(0), axis], **flags)


# Images


def pixel_positions(c: Conversion) -> tuple[bool, bool]:
    """Whether corners are aligned, and whether pixels have their centers in the middle."""
    aligned, half = c.flag("align_corners"), c.flag("half_pixel_centers")
    if aligned and half:
        c.attributes.refuse("half_pixel_centers", "together with align_corners")
    return aligned, half


def resized(c: Conversion, x: str, mode: str) -> tuple[str, ...]:
    """An image at the size that operand 1 is. Nearest: the floor of the scaled position; with
    half-pixel centers floor((i + 1/2) scale), with aligned corners the position rounded, halves up.
    """
    aligned, half = pixel_positions(c)
    fields: dict[str, object] = {"mode": mode, "axes": (2, 3)}
    if mode == "nearest":
        fields["nearest_mode"] = "round_prefer_ceil" if aligned or half else "floor"
    rule = "align_corners" if aligned else "half_pixel" if half else "asymmetric"
    size = c.ints(constant_ints(c, 1, "the size"))
    inputs = [channels_first(c, x), None, None, size]
    y = c.add("Resize", inputs, coordinate_transformation_mode=rule, **fields)
    return finish_channels_last(c, y)


# Transposed convolutions


def transposed_pads(
    c: Conversion, shape: Sequence[int], sizes: Sequence[object], kernel: Sequence[int],
    strides: Sequence[int], dilations: Sequence[int], rule: object,
) -> dict[str, object]:  # fmt: skip
    """Pads and output padding of a transposed convolution of `sizes` to the spatial sizes `shape`.

    What is cut off at the beginning is what the forward convolution pads there: half of what SAME
    needs, nothing, or what `rule` states; the end is wherever the output's shape says.
    """
    if len(shape) != len(sizes) or min(strides) < 1:
        raise ModelError(f"the output is {shape} wide, strides {strides}", place=c.node.place)
    pads, extra = [], []
    for i, (out, size, k) in enumerate(zip(shape, sizes, kernel)):
        wide, stride = (k - 1) * dilations[i] + 1, strides[i]
        if not isinstance(size, int) or not isinstance(out, int):
            c.refuse("its sizes are computed while the network runs: give shapes")
        if isinstance(rule, tuple):
            begin, end_pad = rule[i] if rule else (0, 0)
            fits = (out + begin + end_pad - wide) // stride + 1
        else:
            fits = -(-out // stride)
            begin = max((fits - 1) * stride + wide - out, 0) // 2
        if fits != size:
            raise ModelError(f"an output of {out} does not fit {size} inputs", place=c.node.place)
        end = (size - 1) * stride + wide - out - begin
        pads.append((begin, max(end, 0)))
        extra.append(max(-end, 0))
    return {"strides": tuple(strides), "pads": tuple(pads), "output_padding": tuple(extra)}
