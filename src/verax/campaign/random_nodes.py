"""One random node of each common operator, with random attributes, fitted to the value it reads.

`MAKERS` maps an operator's name to a function that appends such a node to a `Sketch` and returns
its output. A maker may raise `GraphError` (a window larger than its input): the caller draws again.
Images are float32 [batch, channels, height, width].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from verax.base.errors import GraphError
from verax.campaign.network_sketch import Sketch, op

Maker = Callable[[Sketch, str], str]
MOST_CHANNELS = 24
"""Operators that add channels do not go beyond; small networks keep a campaign quick."""
MOST_PIXELS = 900
"""Operators that enlarge an image do not go beyond."""
SMOOTH = ("Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Softplus", "Erf", "Mish", "Softsign")
BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min")
SIMPLE = ("Relu", "Abs", "Neg", "Selu", *SMOOTH)


def _pick(s: Sketch, *choices: Any) -> Any:
    return choices[int(s.random.integers(len(choices)))]


def _pads(s: Sketch, *limits: int) -> tuple[tuple[int, int], ...]:
    return tuple((_between(s, 0, m), _between(s, 0, m)) for m in limits)


def _between(s: Sketch, low: int, high: int) -> int:
    return int(s.random.integers(low, high + 1))


def _channels(s: Sketch, x: str) -> int:
    return s.shape(x)[1]


def _divisors(n: int) -> list[int]:
    return [d for d in range(2, n + 1) if n % d == 0]


def _filters(s: Sketch, *shape: int) -> str:
    """Weights that keep the size of what they are applied to."""
    return s.normal(*shape, scale=float(np.prod(shape[1:])) ** -0.5)


def conv(s: Sketch, x: str, groups: int = 1) -> str:
    """Convolution: kernel 1 to 5, both strides, dilations, and pads of both ends."""
    kernel = (_between(s, 1, 5), _between(s, 1, 4))
    dilations = (_pick(s, 1, 1, 2), _pick(s, 1, 1, 3) if kernel[1] > 1 else 1)
    # ONNX Runtime refuses a rule together with dilation.
    rules = ("SAME_UPPER", "SAME_LOWER") if max(dilations) == 1 else ()
    c = _channels(s, x)
    filters = groups * max(1, _between(s, 3, MOST_CHANNELS) // groups)
    node = op(
        "Conv",
        strides=(_pick(s, 1, 1, 2), _pick(s, 1, 1, 3, 2)),
        pads=_pick(s, _pads(s, 2, 2), _pads(s, 3, 2), *rules),
        dilations=dilations,
        groups=groups,
    )
    bias = s.uniform(-0.5, 0.5, filters) if s.random.random() < 0.6 else None
    return s.add(node, [x, _filters(s, filters, c // groups, *kernel), bias])


def grouped_conv(s: Sketch, x: str) -> str:
    """Grouped or depthwise convolution."""
    return conv(s, x, _pick(s, *(_divisors(_channels(s, x)) or [1])))


def conv_transpose(s: Sketch, x: str) -> str:
    """Transposed convolution with output_padding, groups and dilations."""
    c, height, width = s.shape(x)[1:]
    groups = _pick(s, 1, 1, *_divisors(c))
    strides = (_pick(s, 1, 2, 3), _pick(s, 1, 2))
    if height * width * strides[0] * strides[1] > MOST_PIXELS:
        strides = (1, 1)
    kernel = (_between(s, 2, 4), _between(s, 1, 3))
    dilations = (_pick(s, 1, 1, 2), 1)
    extra = tuple(_between(s, 0, a - 1) for a in strides)  # runtimes refuse more
    per_group = max(1, _between(s, 2, 12) // groups)
    node = op(
        "ConvTranspose",
        strides=strides,
        pads=_pads(s, 1, 2),
        dilations=dilations,
        groups=groups,
        output_padding=extra,
    )
    scale = (c // groups * kernel[0] * kernel[1] / (strides[0] * strides[1])) ** -0.5
    w = s.normal(c, per_group, *kernel, scale=scale)
    bias = s.uniform(-0.5, 0.5, per_group * groups) if s.random.random() < 0.6 else None
    return s.add(node, [x, w, bias])


def pool(s: Sketch, x: str, kind: str, **more: Any) -> str:
    """A pooling window with pads smaller than the kernel, ceil_mode at random.

    Under ceil_mode no window may begin in the padding behind the input, which OpenVINO keeps
    against ONNX's rule, and padding is not counted, as OpenVINO counts what hangs over as well.
    """
    kernel = (_between(s, 2, 4), _between(s, 2, 3))
    strides = (_pick(s, 1, 2, 2), _pick(s, 1, 2, 3))
    pads = _pads(s, kernel[0] // 2, kernel[1] - 1)
    begins = [
        (-(-(n + sum(p) - k) // step) * step, n + p[0])
        for n, p, k, step in zip(s.shape(x)[2:], pads, kernel, strides)
    ]
    counted = more.get("count_include_pad", False)
    ceil = bool(s.random.random() < 0.4) and all(last < end for last, end in begins)
    ceil = ceil and not counted
    node = op(kind, kernel_shape=kernel, strides=strides, pads=pads, ceil_mode=ceil, **more)
    return s.add(node, [x])


def batch_norm(s: Sketch, x: str) -> str:
    """BatchNorm whose statistics are those of its input, roughly, and whose scales have signs.

    One channel in a few has a tiny variance, where epsilon matters.
    """
    value = s.values[x].astype(np.float64)
    axes = tuple(a for a in range(value.ndim) if a != 1)
    c = value.shape[1]
    spread = s.random.uniform(0.5, 2.0, c)
    variance = value.var(axes) * spread + 1e-4
    variance[s.random.random(c) < 0.2] = 2e-3
    mean = value.mean(axes) + 0.2 * s.random.standard_normal(c) * np.sqrt(variance)
    scale = s.random.uniform(0.5, 1.5, c) * _signs(s, c)
    scale *= np.minimum(1.0, np.sqrt(variance / (value.var(axes) + 1e-6)))
    shift = np.asarray(s.random.uniform(-0.5, 0.5, c))
    statistics: list[np.ndarray] = [scale, shift, mean, variance]
    node = op("BatchNormalization", epsilon=_pick(s, 1e-5, 1e-3, 1e-4))
    return s.add(node, [x, *(s.constant(a) for a in statistics)])


def _signs(s: Sketch, count: int) -> np.ndarray:
    return np.where(s.random.random(count) < 0.3, -1.0, 1.0)


def instance_norm(s: Sketch, x: str) -> str:
    c = _channels(s, x)
    node = op("InstanceNormalization", epsilon=_pick(s, 1e-5, 1e-3))
    return s.add(node, [x, s.uniform(0.5, 1.5, c), s.uniform(-0.5, 0.5, c)])


def layer_norm(s: Sketch, x: str) -> str:
    width = s.shape(x)[-1]
    node = op("LayerNormalization", axis=-1, epsilon=_pick(s, 1e-5, 1e-3))
    return s.add(node, [x, s.uniform(0.5, 1.5, width), s.uniform(-0.5, 0.5, width)])


def lrn(s: Sketch, x: str) -> str:
    size = _pick(s, 3, 5)
    node = op(
        "LRN",
        size=size,
        alpha=_pick(s, 0.1, 0.5),
        beta=_pick(s, 0.75, 0.5),
        bias=_pick(s, 1.0, 2.0),
    )
    return s.add(node, [x])


def resize(s: Sketch, x: str) -> str:
    """Nearest or linear, to a larger or smaller image, in any of the usual coordinates."""
    n, c, height, width = s.shape(x)
    mode = _pick(s, "nearest", "linear", "linear")
    rounding = _pick(s, "floor", "round_prefer_floor") if mode == "nearest" else None
    node = op(
        "Resize",
        mode=mode,
        coordinate_transformation_mode=_pick(s, "half_pixel", "asymmetric", "align_corners"),
        **({"nearest_mode": rounding} if rounding else {}),
    )
    if height * width * 6 > MOST_PIXELS:
        sizes = [n, c, max(2, height // 2), max(2, width * 2 // 3)]
    else:
        sizes = [n, c, height * 2, width * 3]
    return s.add(node, [x, None, None, s.constant(sizes, np.int64)])


def unary(s: Sketch, x: str, *kinds: str) -> str:
    """One of `kinds`, or of all functions without attributes."""
    return s.add(op(_pick(s, *(kinds or SIMPLE))), [x])


def smooth(s: Sketch, x: str, *kinds: str) -> str:
    """An activation that has an attribute."""
    attributes: dict[str, dict[str, Any]] = {
        "LeakyRelu": {"alpha": _pick(s, 0.1, 0.2, 0.01)},
        "Elu": {"alpha": _pick(s, 1.0, 0.5)},
        "Gelu": {"approximate": _pick(s, "none", "tanh")},
    }
    kind = _pick(s, *(kinds or attributes))
    return s.add(op(kind, **attributes[kind]), [x])


def prelu(s: Sketch, x: str) -> str:
    """Slopes per channel. Not behind a MatMul, where OpenVINO takes them along the last axis."""
    if s.made_by(x) == "MatMul":
        raise GraphError("OpenVINO fuses PRelu into MatMul wrongly", place=x)
    c = _channels(s, x)
    return s.add(op("PRelu"), [x, s.uniform(-0.3, 0.6, c, 1, 1)])


def clip(s: Sketch, x: str) -> str:
    low, high = _pick(s, (0.0, 6.0), (-1.0, 1.0), (0.0, 1.0))
    return s.add(op("Clip"), [x, s.constant(np.array(low)), s.constant(np.array(high))])


def binary(s: Sketch, x: str, *kinds: str) -> str:
    """Add, Sub, Mul, Max, Min or Div with another value of the network or with a constant."""
    shape = s.shape(x)
    same = [v for v in s.values if v != x and v in s.builder.types and _is_made(s, v, shape)]
    kind = _pick(s, *(kinds or ("Add", *BINARY)))
    per_channel = (shape[1], *(1,) * (len(shape) - 2)) if len(shape) > 1 else shape
    if kind == "Div" or not same or s.random.random() < 0.3:
        operand = s.constant(s.random.uniform(0.4, 1.6, per_channel) * _signs(s, 1)[0])
    else:
        operand = _pick(s, *same)
    return s.add(op(kind), [x, operand])


def _is_made(s: Sketch, value: str, shape: tuple[int, ...]) -> bool:
    return value not in s.builder.constants and s.shape(value) == shape and s.tame(value)


def add(s: Sketch, x: str) -> str:
    """A residual: x plus a convolution of it."""
    c = _channels(s, x)
    inner = s.add(op("Conv", pads=((1, 1), (0, 1))), [x, _filters(s, c, c, 3, 2)])
    return s.add(op("Add"), [inner, x])


def concat(s: Sketch, x: str) -> str:
    """Two or three values that agree but for the axis of concatenation."""
    shape = s.shape(x)
    fitting = [v for v in s.values if _is_concatenable(s, v, shape) and v != x]
    fitting_values = [_pick(s, *fitting)] if fitting else [s.add(op("Tanh"), [x])]
    operands = [x, *fitting_values] if s.random.random() < 0.5 else [*fitting_values, x]
    return s.add(op("Concat", axis=1), operands)


def _is_concatenable(s: Sketch, value: str, shape: tuple[int, ...]) -> bool:
    if value in s.builder.constants or len(shape) < 2 or len(s.shape(value)) != len(shape):
        return False
    value_shape = s.shape(value)
    fits = (value_shape[0], *value_shape[2:]) == (shape[0], *shape[2:])
    return fits and value_shape[1] + shape[1] <= MOST_CHANNELS and s.tame(value)


def pad(s: Sketch, x: str) -> str:
    """Padding of the spatial axes, different at every end, in any mode."""
    mode = _pick(s, "constant", "edge", "reflect")
    widths = [0, 0, _between(s, 0, 2), _between(s, 0, 1), 0, 0, _between(s, 1, 3), 2]
    arguments = [x, s.constant(widths, np.int64)]
    if mode == "constant":
        arguments.append(s.constant(np.array(_pick(s, 0.0, -1.5))))
    return s.add(op("Pad", mode=mode), arguments)


def slice_(s: Sketch, x: str) -> str:
    """A slice of one axis, sometimes backwards or in steps."""
    shape = s.shape(x)
    axis = _between(s, 1, len(shape) - 1)
    start, stop, step = _pick(s, (1, shape[axis], 1), (0, -1, 1), (-1, -shape[axis] - 1, -1),
                              (0, shape[axis], 2))  # fmt: skip
    return s.add(op("Slice"), [x, *(s.constant([v], np.int64) for v in (start, stop, axis, step))])


def softmax(s: Sketch, x: str) -> str:
    rank = len(s.shape(x))
    return s.add(op("Softmax", axis=_between(s, 1, rank - 1)), [x])


def gemm(s: Sketch, x: str) -> str:
    """Rows of whatever shape, times a matrix in either layout, with alpha and beta."""
    rows = x if len(s.shape(x)) == 2 else s.add(op("Flatten"), [x])
    width = s.shape(rows)[1]
    out = _between(s, 3, MOST_CHANNELS)
    transposed = bool(s.random.random() < 0.7)
    shape = (out, width) if transposed else (width, out)
    node = op("Gemm", trans_b=transposed, alpha=_pick(s, 1.0, 0.5), beta=_pick(s, 1.0, 2.0))
    return s.add(node, [rows, s.normal(*shape, scale=width**-0.5), s.uniform(-0.5, 0.5, out)])


def matmul(s: Sketch, x: str) -> str:
    width = s.shape(x)[-1]
    return s.add(op("MatMul"), [x, s.normal(width, _between(s, 3, 15), scale=width**-0.5)])


def reduce(s: Sketch, x: str, *kinds: str) -> str:
    """A reduction over the last axis or over the channels."""
    rank = len(s.shape(x))
    axes = s.constant([rank - 1] if s.random.random() < 0.5 else [1], np.int64)
    return s.add(op(_pick(s, *(kinds or ("ReduceMean", "ReduceSum", "ReduceMax")))), [x, axes])


def transpose(s: Sketch, x: str) -> str:
    rank = len(s.shape(x))
    order = [0, *(1 + int(i) for i in s.random.permutation(rank - 1))]
    return s.add(op("Transpose", perm=tuple(order)), [x])


def depth_to_space(s: Sketch, x: str) -> str:
    """Four times the channels first, where there are not enough."""
    c = _channels(s, x)
    wide = s.add(op("Conv"), [x, _filters(s, 12, c, 1, 1)]) if c % 4 or c < 8 else x
    return s.add(op("DepthToSpace", blocksize=2, mode=_pick(s, "DCR", "CRD")), [wide])


IMAGE_MAKERS: dict[str, Maker] = {
    "Conv": conv,
    "GroupedConv": grouped_conv,
    "ConvTranspose": conv_transpose,
    "MaxPool": lambda s, x: pool(s, x, "MaxPool"),
    "AveragePool": lambda s, x: pool(
        s, x, "AveragePool", count_include_pad=bool(s.random.random() < 0.5)
    ),
    "BatchNormalization": batch_norm,
    "InstanceNormalization": instance_norm,
    "LRN": lrn,
    "Resize": resize,
    "PRelu": prelu,
    "Pad": pad,
    "GlobalAveragePool": lambda s, x: s.add(op("GlobalAveragePool"), [x]),
    "DepthToSpace": depth_to_space,
    "Add": add,
}
"""Makers that need an image."""

ANY_MAKERS: dict[str, Maker] = {
    "Relu": lambda s, x: s.add(op("Relu"), [x]),
    "Unary": unary,
    "Smooth": smooth,
    "Clip": clip,
    "Binary": binary,
    "Concat": concat,
    "Slice": slice_,
    "Softmax": softmax,
    "Gemm": gemm,
    "MatMul": matmul,
    "LayerNormalization": layer_norm,
    "Reduce": reduce,
    "Transpose": transpose,
}
"""Makers that take a value of any rank from 2."""

MAKERS: dict[str, Maker] = {**IMAGE_MAKERS, **ANY_MAKERS}
"""Makers by name; those of random networks."""


def _only(maker: Callable[..., str], kind: str) -> Maker:
    return lambda s, x: maker(s, x, kind)


EXACTLY: dict[str, Maker] = {
    **MAKERS,
    **{kind: _only(unary, kind) for kind in SIMPLE},
    **{kind: _only(smooth, kind) for kind in ("LeakyRelu", "Elu", "Gelu")},
    **{kind: _only(binary, kind) for kind in BINARY},
    **{kind: _only(reduce, kind) for kind in ("ReduceMean", "ReduceSum")},
    "Flatten": lambda s, x: s.add(op("Flatten"), [x]),
}
"""Makers of exactly one kind of operator (and the mixed ones), to ask a network for it."""
