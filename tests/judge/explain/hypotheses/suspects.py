"""Nodes of every family on small random inputs, with pairwise different sizes, and what happened.

A planted mistake is a hypothesis of the library itself, in honest float32: its float64 value with
noise of its own rounding on top. A stranger is a change that no hypothesis of the library means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from verax.ir.graph import Builder, Node
from verax.ir.operator import Operator
from verax.ir.types import TensorType
from verax.judge.decide.local import meaning
from verax.judge.explain.hypotheses.base import Hypothesis, Suspect
from verax.judge.explain.node import predict, suspect_of
from verax.ops.images.resize import Resize
from verax.ops.images.sampling import GridSample
from verax.ops.movement.gather import Gather
from verax.ops.movement.generation import Trilu
from verax.ops.movement.padding import Pad
from verax.ops.movement.reshaping import DepthToSpace, Flatten, Transpose
from verax.ops.movement.slicing import Concat, Slice
from verax.ops.pointwise.activation import Clip, HardSigmoid, HardSwish, LeakyRelu, PRelu, Relu
from verax.ops.pointwise.activation_smooth import Elu, Gelu, Swish
from verax.ops.pointwise.arithmetic import Add, Div, Mul, Sub, Sum
from verax.ops.pointwise.comparison import Greater
from verax.ops.pointwise.transcendental import Sigmoid, Tanh
from verax.ops.pointwise.where import Where
from verax.ops.quantized.quantization import DequantizeLinear, QuantizeLinear
from verax.ops.recurrent.recurrent import GRU, LSTM, RNN, Recurrent
from verax.ops.sums.arg import ArgMax
from verax.ops.sums.cumulative import CumSum
from verax.ops.sums.layer_normalization import LayerNormalization, RMSNormalization
from verax.ops.sums.linear import Gemm, MatMul
from verax.ops.sums.normalization import (
    BatchNormalization,
    GroupNormalization,
    InstanceNormalization,
)
from verax.ops.sums.reduction import ReduceMean, ReduceSum
from verax.ops.sums.response_normalization import LRN
from verax.ops.sums.softmax import LogSoftmax, Softmax
from verax.ops.windows.convolution import Conv
from verax.ops.windows.deconvolution import ConvTranspose
from verax.ops.windows.global_pooling import GlobalAveragePool, GlobalMaxPool
from verax.ops.windows.integer_convolution import ConvInteger
from verax.ops.windows.pooling import AveragePool, MaxPool

Draw = Callable[[np.random.Generator], tuple[Operator, list[Any]]]


def _f(random: np.random.Generator, *shape: int, scale: float = 1.0) -> np.ndarray:
    return (random.standard_normal(shape) * scale).astype(np.float32)


def _positive(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.uniform(0.01, 1.0, shape).astype(np.float32)


def _pad(random: np.random.Generator) -> tuple[int, int]:
    return int(random.integers(0, 3)), int(random.integers(0, 3))


def conv(random: np.random.Generator) -> tuple[Operator, list[Any]]:
    stride = int(random.integers(1, 3))
    op = Conv(
        strides=(stride, stride),
        pads=(_pad(random), _pad(random)),
        dilations=(int(random.integers(1, 3)), 1),
    )
    bias = [_f(random, 5)] if random.random() < 0.7 else []
    return op, [_f(random, 2, 6, 11, 13), _f(random, 5, 6, 3, 3, scale=0.3), *bias]


def square_conv(random: np.random.Generator) -> tuple[Operator, list[Any]]:
    op = Conv(pads=((1, 1), (1, 1)))
    return op, [_f(random, 2, 7, 9, 10), _f(random, 7, 7, 3, 3, scale=0.3), _f(random, 7)]


def grouped_conv(random: np.random.Generator) -> tuple[Operator, list[Any]]:
    op = Conv(groups=2, pads=((1, 2), (0, 1)), strides=(2, 1))
    return op, [_f(random, 2, 8, 11, 9), _f(random, 6, 4, 3, 2, scale=0.3), _f(random, 6)]


def integer_conv(random: np.random.Generator) -> tuple[Operator, list[Any]]:
    op = ConvInteger(pads=((1, 2), (0, 1)), strides=(2, 1))
    x = random.integers(0, 255, (2, 4, 9, 11)).astype(np.uint8)
    w = random.integers(-128, 127, (5, 4, 3, 2)).astype(np.int8)
    return op, [x, w, np.array(97, np.uint8), random.integers(-9, 9, 5).astype(np.int8)]


def depthwise(random: np.random.Generator) -> tuple[Operator, list[Any]]:
    op = Conv(groups=6, pads=((1, 1), (1, 1)))
    return op, [_f(random, 2, 6, 9, 8), _f(random, 6, 1, 3, 3)]


def transposed(random: np.random.Generator) -> tuple[Operator, list[Any]]:
    op = ConvTranspose(strides=(2, 2), pads=(_pad(random), _pad(random)), output_padding=(1, 1))
    return op, [_f(random, 2, 5, 6, 7), _f(random, 5, 4, 4, 3, scale=0.3), _f(random, 4)]


def line_conv(random: np.random.Generator) -> tuple[Operator, list[Any]]:
    op = Conv(strides=(2,), pads=((2, 1),))
    return op, [_f(random, 3, 4, 23), _f(random, 5, 4, 3, scale=0.4), _f(random, 5)]


def batch_norm(random: np.random.Generator) -> tuple[Operator, list[Any]]:
    parameters = [_f(random, 6), _f(random, 6), _f(random, 6), _positive(random, 6)]
    op = BatchNormalization(epsilon=float(random.choice([1e-3, 1e-5, 2e-5])))
    return op, [_f(random, 2, 6, 7, 9), *parameters]


def max_pool(random: np.random.Generator) -> tuple[Operator, list[Any]]:
    op = MaxPool(kernel_shape=(3, 2), strides=(2, 2), pads=((1, 1), (0, 1)))
    return op, [_f(random, 2, 4, 11, 9)]


def average_pool(random: np.random.Generator) -> tuple[Operator, list[Any]]:
    op = AveragePool(kernel_shape=(3, 2), strides=(2, 1), pads=((1, 0), (1, 0)), ceil_mode=True)
    return op, [_f(random, 2, 4, 12, 9)]


def resize(random: np.random.Generator) -> tuple[Operator, list[Any]]:
    mode = str(random.choice(["nearest", "linear", "cubic"]))
    sizes = np.array([2, 3, int(random.integers(8, 20)), int(random.integers(8, 20))])
    return Resize(mode=mode), [_f(random, 2, 3, 7, 9), None, None, sizes]


def resize_by_scale(random: np.random.Generator) -> tuple[Operator, list[Any]]:
    scales = np.array([1, 1, 1.7, 2.3], np.float32)
    op = Resize(mode="linear", coordinate_transformation_mode="asymmetric")
    return op, [_f(random, 2, 3, 7, 9), None, scales]


def quantise(random: np.random.Generator) -> tuple[Operator, list[Any]]:
    x = (random.integers(-60, 60, (2, 3, 40)) * 0.125).astype(np.float32)
    return QuantizeLinear(), [x, np.array(0.25, np.float32), np.array(7, np.int8)]


def dequantise(random: np.random.Generator) -> tuple[Operator, list[Any]]:
    x = random.integers(0, 255, (2, 3, 40)).astype(np.uint8)
    scale, zero = _positive(random, 3), np.array([3, 100, 200], np.uint8)
    return DequantizeLinear(), [x, scale, zero]


def _shape(random: np.random.Generator) -> np.ndarray:
    return _f(random, 2, 6, 5, 7, scale=2)


DRAWS: dict[str, Draw] = {
    "conv": conv,
    "square conv": square_conv,
    "grouped conv": grouped_conv,
    "depthwise conv": depthwise,
    "integer conv": integer_conv,
    "transposed conv": transposed,
    "conv along one axis": line_conv,
    "batch norm": batch_norm,
    "max pool": max_pool,
    "average pool": average_pool,
    "global average": lambda r: (GlobalAveragePool(), [_f(r, 3, 8, 5, 6)]),
    "global maximum": lambda r: (GlobalMaxPool(), [_f(r, 3, 8, 5, 6)]),
    "relu": lambda r: (Relu(), [_shape(r)]),
    "leaky relu": lambda r: (LeakyRelu(alpha=0.15), [_shape(r)]),
    "prelu": lambda r: (PRelu(), [_shape(r), _positive(r, 6, 1, 1)]),
    "clip": lambda r: (Clip(), [_shape(r) * 4, np.float32(0), np.float32(6)]),
    "elu": lambda r: (Elu(alpha=0.7), [_shape(r)]),
    "gelu": lambda r: (Gelu(), [_shape(r)]),
    "swish": lambda r: (Swish(), [_shape(r)]),
    "sigmoid": lambda r: (Sigmoid(), [_shape(r)]),
    "tanh": lambda r: (Tanh(), [_shape(r)]),
    "hard swish": lambda r: (HardSwish(), [_shape(r)]),
    "hard sigmoid": lambda r: (HardSigmoid(), [_shape(r)]),
    "add": lambda r: (Add(), [_shape(r), _shape(r)]),
    "add a row": lambda r: (Add(), [_f(r, 2, 5, 4, 5), _f(r, 5, 1, 1)]),
    "mul": lambda r: (Mul(), [_shape(r), _shape(r)]),
    "sub": lambda r: (Sub(), [_shape(r), _shape(r)]),
    "div": lambda r: (Div(), [_shape(r), _positive(r, 2, 6, 5, 7)]),
    "sum": lambda r: (Sum(), [_shape(r), _shape(r), _shape(r)]),
    "gemm": lambda r: (Gemm(trans_b=True), [_f(r, 3, 24), _f(r, 7, 24), _f(r, 7)]),
    "gemm, scaled": lambda r: (
        Gemm(alpha=0.5, beta=2.0),
        [_f(r, 4, 24), _f(r, 24, 7), _f(r, 7)],
    ),
    "matmul": lambda r: (MatMul(), [_f(r, 2, 5, 9), _f(r, 9, 7)]),
    "square matmul": lambda r: (MatMul(), [_f(r, 2, 5, 9), _f(r, 9, 9)]),
    "softmax": lambda r: (Softmax(axis=1), [_shape(r)]),
    "log softmax": lambda r: (LogSoftmax(axis=-1), [_shape(r)]),
    "lrn": lambda r: (LRN(size=3, alpha=0.2, bias=1.5), [_shape(r)]),
    "lrn, even": lambda r: (LRN(size=4, alpha=0.3), [_shape(r)]),
    "layer norm": lambda r: (LayerNormalization(), [_f(r, 2, 5, 9), _f(r, 9), _f(r, 9)]),
    "rms norm": lambda r: (RMSNormalization(), [_f(r, 2, 5, 9), _f(r, 9)]),
    "instance norm": lambda r: (
        InstanceNormalization(epsilon=1e-3),
        [_shape(r) * np.float32(0.2), _f(r, 6), _f(r, 6)],
    ),
    "group norm": lambda r: (
        GroupNormalization(num_groups=2),
        [_shape(r), _f(r, 6), _f(r, 6)],
    ),
    "reduce mean": lambda r: (ReduceMean(), [_f(r, 3, 4, 5, 6), np.array([2, 3])]),
    "reduce sum": lambda r: (ReduceSum(keepdims=False), [_f(r, 4, 5, 6), np.array([1])]),
    "concat": lambda r: (Concat(axis=1), [_f(r, 2, 3, 5), _f(r, 2, 4, 5), _f(r, 2, 3, 5)]),
    "flatten": lambda r: (Flatten(), [_f(r, 2, 3, 4, 5)]),
    "transpose": lambda r: (Transpose(perm=(0, 2, 3, 1)), [_f(r, 2, 3, 4, 5)]),
    "depth to space": lambda r: (DepthToSpace(blocksize=2), [_f(r, 2, 12, 3, 5)]),
    "pad": lambda r: (
        Pad(),
        [_f(r, 2, 3, 5, 6), np.array([0, 0, 1, 2, 0, 0, 3, 1]), np.array(0.5, np.float32)],
    ),
    "slice": lambda r: (
        Slice(),
        [_f(r, 2, 3, 9, 8), np.array([1, 2]), np.array([7, 6]), np.array([2, 3])],
    ),
    "gather": lambda r: (Gather(axis=1), [_f(r, 2, 7, 4), np.array([3, 1, -2, 5])]),
    "grid sample": lambda r: (
        GridSample(),
        [_f(r, 2, 3, 6, 7), r.uniform(-1.2, 1.2, (2, 4, 5, 2)).astype(np.float32)],
    ),
    "greater": lambda r: (Greater(), [_shape(r), _shape(r)]),
    "where": lambda r: (Where(), [r.random((2, 6, 5, 7)) < 0.5, _shape(r), _shape(r)]),
    "trilu": lambda r: (Trilu(), [_f(r, 2, 6, 7)]),
    "argmax": lambda r: (ArgMax(axis=1), [_shape(r)]),
    "cumulative sum": lambda r: (CumSum(), [_f(r, 2, 6, 7), np.array(1)]),
    "batch norm, training": lambda r: (
        BatchNormalization(training_mode=True),
        [_f(r, 3, 4, 5, 6), _f(r, 4), _f(r, 4), _f(r, 4), _positive(r, 4)],
    ),
    "rnn": lambda r: (RNN(clip=0.75), list(_recurrent(r, RNN(), "blh"))),
    "gru": lambda r: (GRU(direction="reverse"), list(_recurrent(r, GRU(), "bh"))),
    "gru, bidirectional": lambda r: (
        GRU(direction="bidirectional", linear_before_reset=True),
        list(_recurrent(r, GRU(direction="bidirectional"), "bl")),
    ),
    "lstm": lambda r: (LSTM(), list(_recurrent(r, LSTM(), "blhcp"))),
    "lstm, bidirectional": lambda r: (
        LSTM(direction="bidirectional", cell_clip=0.5),
        list(_recurrent(r, LSTM(direction="bidirectional"), "bhc")),
    ),
    "resize": resize,
    "resize by scale": resize_by_scale,
    "quantise": quantise,
    "dequantise": dequantise,
}
"""What is drawn -> how."""


def _recurrent(random: np.random.Generator, op: Recurrent, given: str) -> tuple[Any, ...]:
    return op.drawn(random, op, given, steps=6, batch=3, features=5, hidden=4)


def types_of(op: Operator, arrays: list[Any]) -> tuple[Node, tuple[TensorType, ...]]:
    """The node and its declared output types, shape inputs being constants."""
    b = Builder("one")
    names = [None if a is None else b.constant(np.array(a)) for a in arrays]
    listed = ["y", *(f"y{i}" for i in range(1, op.output_count))]
    outputs = b.add_all(op, names, listed, "suspect")
    return b.nodes[0], tuple(b.types[v] for v in outputs)


def honest(random: np.random.Generator, name: str) -> Suspect:
    """A node of the family whose subject answers the meaning with honest noise."""
    op, arrays = DRAWS[name](random)
    arrays = [None if a is None else np.asarray(a) for a in arrays]
    node, types = types_of(op, arrays)
    shape = types[0].shape
    empty = np.zeros(shape, types[0].dtype.numpy)
    suspect = suspect_of(node, arrays, empty, types)
    assert suspect is not None
    rounding = suspect.meaning.roundings[0]
    return answered(suspect, noisy(random, suspect.expected, rounding))


def noisy(random: np.random.Generator, value: np.ndarray, rounding: Any) -> np.ndarray:
    """An honest float32 answer: noise of the size of sigma, within the hard bound."""
    if rounding is None:
        return value
    noise = random.standard_normal(value.shape) * rounding.sigma
    return value + np.clip(noise, -0.9 * rounding.bound, 0.9 * rounding.bound)


def answered(suspect: Suspect, value: np.ndarray) -> Suspect:
    """The same suspect with another answer, rounded to the declared type."""
    dtype = suspect.outputs[suspect.output].dtype.numpy
    with np.errstate(all="ignore"):
        given = np.asarray(value).astype(dtype)
    return Suspect(
        suspect.node, suspect.inputs, suspect.outputs, given, suspect.meaning, suspect.output
    )


def planted(random: np.random.Generator, suspect: Suspect, truth: Hypothesis) -> Suspect | None:
    """The suspect having made this mistake; None where it makes no ordinary difference."""
    found = predict(suspect, truth)
    if found is None or found.value.shape != suspect.expected.shape:
        return None
    if not np.isfinite(found.value).all():
        return None
    return answered(suspect, noisy(random, found.value, found.rounding))


def strangers(random: np.random.Generator, suspect: Suspect) -> Iterator[tuple[str, Suspect]]:
    """Changes that no hypothesis means: (what, suspect)."""
    y = suspect.wide
    size = float(np.sqrt(np.mean(y**2))) or 1.0
    yield "noise of 1e-3", answered(suspect, y + size * 1e-3 * random.standard_normal(y.shape))
    yield "noise of 10 percent", answered(suspect, y + size * 0.1 * random.standard_normal(y.shape))
    one = y.copy()
    one[np.unravel_index(int(random.integers(y.size)), y.shape)] += size
    yield "one element", answered(suspect, one)
    some = y * np.where(random.random(y.shape) < 0.3, 1.25, 1.0)
    yield "a third of the elements by 1.25", answered(suspect, some)
    if y.ndim > 1 and y.shape[1] > 4:
        chosen = random.permutation(y.shape[1])[: y.shape[1] // 2]
        some = y.copy()
        some[:, chosen] *= 1 + 0.1 * random.standard_normal(len(chosen)).reshape(
            -1, *(1,) * (y.ndim - 2)
        )
        yield "a factor of its own for half of the channels", answered(suspect, some)
    if y.size > 30:
        yield "elements shuffled", answered(suspect, random.permutation(y.ravel()).reshape(y.shape))


def wrong_parameters(
    random: np.random.Generator, suspect: Suspect
) -> Iterator[tuple[str, Suspect]]:
    """One number of one parameter off by 0.01 % to 100 %, all else in honest float32."""
    for i, array in enumerate(suspect.inputs[1:], 1):
        if array is None or array.dtype.kind != "f" or array.size < 4:
            continue
        wrong = array.copy()
        wrong[tuple(int(random.integers(n)) for n in array.shape)] *= np.float32(
            1 + 10 ** random.uniform(-4, 0)
        )
        arrays = [wrong if k == i else a for k, a in enumerate(suspect.inputs)]
        found = meaning(suspect.node, arrays, suspect.meaning.ev.inputs, suspect.outputs)
        value = noisy(random, found.outputs[suspect.output], found.roundings[suspect.output])
        yield f"one number of input {i}", answered(suspect, value)
