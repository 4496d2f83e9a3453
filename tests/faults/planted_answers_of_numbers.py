"""Wrong answers of casts, shifts, activations, normalizations, reductions, Resize and attention."""

from __future__ import annotations

import math

import numpy as np
from planted_answers import Array, PlantedAnswer, attended, normal, planted, shares

from verax.ops.images.resize import Resize
from verax.ops.pointwise.activation_smooth import Gelu, Selu
from verax.ops.pointwise.arithmetic import Div, Mul, Pow, Reciprocal, Sqrt
from verax.ops.pointwise.cast import Cast
from verax.ops.pointwise.logic import BitShift
from verax.ops.pointwise.transcendental import Log
from verax.ops.quantized.quantization import QuantizeLinear
from verax.ops.sums.attention import Attention
from verax.ops.sums.linear import Gemm
from verax.ops.sums.normalization import BatchNormalization, InstanceNormalization
from verax.ops.sums.reduction import ReduceSum
from verax.ops.sums.response_normalization import LpNormalization
from verax.ops.sums.softmax import Softmax

Random = np.random.Generator


@planted("per-axis parameters: BatchNormalization along the last axis")
def batch_norm_axis(random: Random) -> PlantedAnswer:
    x = normal(random, 2, 5, 3, 5)
    scale, bias, mean = (normal(random, 5) for _ in range(3))
    var = random.uniform(0.5, 2, 5).astype(np.float32)
    y = (x.astype(np.float64) - mean) / np.sqrt(var + 1e-5) * scale + bias
    op = BatchNormalization(epsilon=1e-5)
    return PlantedAnswer(op, [x, scale, bias, mean, var], y, "along axis 3")


@planted("per-axis parameters: InstanceNormalization along the last axis")
def instance_norm_axis(random: Random) -> PlantedAnswer:
    x, scale, bias = normal(random, 2, 5, 3, 5), normal(random, 5), normal(random, 5)
    wide = x.astype(np.float64)
    centered = wide - wide.mean((2, 3), keepdims=True)
    y = centered / np.sqrt(wide.var((2, 3), keepdims=True) + 1e-5) * scale + bias
    return PlantedAnswer(InstanceNormalization(epsilon=1e-5), [x, scale, bias], y, "along axis 3")


@planted("per-axis parameters: scales of QuantizeLinear along the first axis")
def quantize_axis(random: Random) -> PlantedAnswer:
    x = normal(random, 4, 4, 5)
    scale, zero = np.array([0.01, 0.02, 0.05, 0.03], np.float32), np.array([3, -7, 12, 0], np.int8)
    column = (4, 1, 1)
    y = np.rint(x / scale.reshape(column)) + zero.reshape(column)
    y = np.clip(y, -128, 127).astype(np.int8)
    return PlantedAnswer(QuantizeLinear(axis=1), [x, scale, zero], y, "along axis 0")


@planted("epsilon added to a norm that has none")
def epsilon_of_norm(random: Random) -> PlantedAnswer:
    x = normal(random, 3, 5, 7)
    norm = np.sqrt((x.astype(np.float64) ** 2).sum(-1, keepdims=True))
    return PlantedAnswer(LpNormalization(axis=-1), [x], x / (norm + 1e-3), "epsilon 0.001")


@planted("epsilon added below a root that has none")
def epsilon_of_norm_inside(random: Random) -> PlantedAnswer:
    x = normal(random, 3, 5, 7)
    square = (x.astype(np.float64) ** 2).sum(-1, keepdims=True)
    return PlantedAnswer(LpNormalization(axis=-1), [x], x / np.sqrt(square + 1e-2), "epsilon 0.01")


@planted("epsilon added to a logarithm's argument")
def epsilon_of_log(random: Random) -> PlantedAnswer:
    x = random.uniform(0.001, 2, (3, 5, 7)).astype(np.float32)
    return PlantedAnswer(Log(), [x], np.log(x.astype(np.float64) + 1e-5), "epsilon 1e-05")


@planted("epsilon added to a divisor")
def epsilon_of_divisor(random: Random) -> PlantedAnswer:
    x, d = normal(random, 3, 5, 7), random.uniform(0.01, 2, (5, 7)).astype(np.float32)
    return PlantedAnswer(Div(), [x, d], x / (d.astype(np.float64) + 1e-4), "epsilon 0.0001")


@planted("epsilon added below a root")
def epsilon_of_root(random: Random) -> PlantedAnswer:
    x = random.uniform(0.001, 2, (3, 5, 7)).astype(np.float32)
    return PlantedAnswer(Sqrt(), [x], np.sqrt(x.astype(np.float64) + 1e-5), "epsilon 1e-05")


@planted("epsilon added to what is inverted")
def epsilon_of_reciprocal(random: Random) -> PlantedAnswer:
    x = random.uniform(0.01, 2, (3, 5, 7)).astype(np.float32)
    return PlantedAnswer(Reciprocal(), [x], 1 / (x.astype(np.float64) + 1e-6), "epsilon 1e-06")


@planted("noop_with_empty_axes: reduced over everything")
def noop_ignored(random: Random) -> PlantedAnswer:
    x = normal(random, 3, 5, 7)
    op = ReduceSum(noop_with_empty_axes=True)
    total = x.astype(np.float64).sum(keepdims=True)
    return PlantedAnswer(op, [x, np.zeros(0, np.int64)], total, "every axis")


@planted("noop_with_empty_axes: nothing reduced")
def noop_taken(random: Random) -> PlantedAnswer:
    x = normal(random, 3, 5, 7)
    return PlantedAnswer(ReduceSum(), [x, np.zeros(0, np.int64)], x, "taken as none")


SOURCE, TARGET = 9, 4
CORNERS = {"half_pixel": lambda i: (i + 0.5) * SOURCE / TARGET - 0.5,
           "asymmetric": lambda i: i * SOURCE / TARGET,
           "align_corners": lambda i: i * (SOURCE - 1) / (TARGET - 1)}  # fmt: skip


def resized(x: Array, *, support: float = 1.0, transform: str = "half_pixel", exclude: bool = True,
            cubic: float | None = None) -> Array:  # fmt: skip
    """The last axis from 9 to 4 by triangles `support` wide, or by cubics; in float64. exclude:
    what lies outside has no weight, instead of the border's pixel."""
    table = np.zeros((TARGET, SOURCE))
    for i in range(TARGET):
        center = CORNERS[transform](i)
        for j in range(math.floor(center - 2 * support) - 1, math.ceil(center + 2 * support) + 2):
            distance = abs(j - center) / support
            weight = max(0.0, 1 - distance) if cubic is None else _cubic(distance, cubic)
            if 0 <= j < SOURCE or not exclude:
                table[i, min(max(j, 0), SOURCE - 1)] += weight
        table[i] /= table[i].sum()
    return np.einsum("nchw,ow->ncho", x.astype(np.float64), table)


def _cubic(t: float, a: float) -> float:
    if t < 1:
        return (a + 2) * t**3 - (a + 3) * t**2 + 1
    return a * (t**3 - 5 * t**2 + 8 * t - 4) if t < 2 else 0.0


def _plant_resize(
    name: str, attributes: dict[str, object], faulty: dict[str, object], cause: str
) -> None:
    @planted(name)
    def make(random: Random) -> PlantedAnswer:
        x = normal(random, 2, 3, 5, SOURCE)
        op = Resize(**attributes)  # type: ignore[arg-type]
        sizes = np.array([2, 3, 5, TARGET])
        return PlantedAnswer(op, [x, None, None, sizes], resized(x, **faulty), cause)  # type: ignore[arg-type]


_plant_resize("antialias ignored", {"mode": "linear", "antialias": True}, {}, "antialias")
_plant_resize("antialias used", {"mode": "linear"}, {"support": SOURCE / TARGET}, "antialias")
_plant_resize(
    "exclude_outside ignored", {"mode": "cubic", "exclude_outside": True},
    {"cubic": -0.75, "exclude": False}, "exclude_outside",
)  # fmt: skip
_plant_resize("exclude_outside used", {"mode": "cubic"}, {"cubic": -0.75}, "exclude_outside")
for _mode in ("asymmetric", "align_corners"):
    _plant_resize(f"coordinates: {_mode}", {"mode": "linear"}, {"transform": _mode}, _mode)
_plant_resize(
    "coordinates and another coefficient", {"mode": "cubic"},
    {"cubic": -0.5, "exclude": False, "transform": "asymmetric"}, "two mistakes",
)  # fmt: skip


@planted("coordinates: the symmetric half pixel")
def symmetric(random: Random) -> PlantedAnswer:
    x = normal(random, 2, 3, 5, SOURCE)
    scales = np.array([1, 1, 1, 0.5], np.float32)
    center = (np.arange(4) + 0.5) / 0.5 - 0.5 + SOURCE / 2 * (1 - 4 / 4.5)
    low = np.floor(center).astype(int)
    t = center - low
    wide = x.astype(np.float64)
    y = wide[..., low] * (1 - t) + wide[..., np.minimum(low + 1, SOURCE - 1)] * t
    return PlantedAnswer(Resize(mode="linear"), [x, None, scales], y, "half_pixel_symmetric")


@planted("coordinates: the region of interest ignored")
def crop_ignored(random: Random) -> PlantedAnswer:
    x = normal(random, 2, 3, 5, SOURCE)
    roi = np.array([0, 0, 0, 0.2, 1, 1, 1, 0.8], np.float32)
    op = Resize(mode="linear", coordinate_transformation_mode="tf_crop_and_resize")
    sizes = np.array([2, 3, 5, TARGET])
    y = resized(x, transform="align_corners")
    return PlantedAnswer(op, [x, roi, None, sizes], y, "region of interest")


def _masked(random: Random) -> tuple[Array, Array, Array]:
    return normal(random, 2, 4, 5, 8), normal(random, 2, 4, 7, 8), normal(random, 2, 4, 7, 6)


@planted("attention: the causal mask from the lower right corner")
def causal_corner(random: Random) -> PlantedAnswer:
    q, k, v = _masked(random)
    hidden = np.where(np.tri(5, 7, 2, dtype=bool), 0, -np.inf)
    return PlantedAnswer(
        Attention(scale=8**-0.5, causal=True), [q, k, v], attended(q, k, v, hidden), "lower right"
    )


@planted("attention: a query does not see its own place")
def causal_strict(random: Random) -> PlantedAnswer:
    q, k, v = _masked(random)
    hidden = np.where(np.tri(5, 7, -1, dtype=bool), 0, -np.inf)
    hidden[0] = 0  # which would see nothing
    y = attended(q, k, v, hidden)
    y[..., 0, :] = 0
    return PlantedAnswer(Attention(scale=8**-0.5, causal=True), [q, k, v], y, "own place")


@planted("attention: a window of keys")
def window(random: Random) -> PlantedAnswer:
    q, k, v = _masked(random)
    far = np.arange(5)[:, None] - np.arange(7)
    hidden = np.where((far >= 0) & (far < 3), 0, -np.inf)
    y = attended(q, k, v, hidden)
    return PlantedAnswer(Attention(scale=8**-0.5, causal=True), [q, k, v], y, "last 3 keys")


@planted("attention: the window one key too wide")
def wider_window(random: Random) -> PlantedAnswer:
    q, k, v = _masked(random)
    far = np.arange(5)[:, None] - np.arange(7)
    mask = (far >= 0) & (far < 2)
    y = attended(q, k, v, np.where((far >= 0) & (far < 3), 0, -np.inf))
    return PlantedAnswer(Attention(scale=8**-0.5), [q, k, v, mask], y, "last 3 keys")


@planted("attention: the mask added before the scale")
def mask_scaled(random: Random) -> PlantedAnswer:
    (q, k, v), mask = _masked(random), normal(random, 4, 5, 7)
    y = attended(q, k, v, mask * 8**-0.5)
    return PlantedAnswer(Attention(scale=8**-0.5), [q, k, v, mask], y, "mask was scaled")


@planted("attention: the mask of the first head for all")
def mask_of_head(random: Random) -> PlantedAnswer:
    (q, k, v), mask = _masked(random), normal(random, 2, 4, 5, 7)
    y = attended(q, k, v, mask[:, :1])
    return PlantedAnswer(Attention(scale=8**-0.5), [q, k, v, mask], y, "first head")


@planted("attention: the scores capped")
def capped(random: Random) -> PlantedAnswer:
    q, k, v = _masked(random)
    q *= 9
    return PlantedAnswer(
        Attention(scale=8**-0.5), [q, k, v], attended(q, k, v, cap=20.0), "capped at 20"
    )


@planted("attention: the mask added as numbers")
def mask_as_numbers(random: Random) -> PlantedAnswer:
    (q, k, v), mask = _masked(random), random.random((5, 7)) < 0.6
    mask[:, 3] = True
    y = attended(q, k, v, mask.astype(np.float64))
    return PlantedAnswer(Attention(scale=8**-0.5), [q, k, v, mask], y, "added as numbers")


@planted("attention: the mask behind the Softmax")
def mask_late(random: Random) -> PlantedAnswer:
    (q, k, v), mask = _masked(random), random.random((5, 7)) < 0.6
    mask[:, 3] = True
    scores = q.astype(np.float64) @ k.swapaxes(-1, -2) * 8**-0.5
    y = np.where(mask, shares(scores), 0) @ v
    return PlantedAnswer(Attention(scale=8**-0.5), [q, k, v, mask], y, "behind the Softmax")


def _shift(random: Random) -> tuple[Array, Array]:
    x = random.integers(-(2**31), 2**31, (3, 5, 7)).astype(np.int32)
    return x, random.integers(20, 50, (5, 7)).astype(np.int32)


@planted("shift: the count taken modulo the width")
def shift_wraps(random: Random) -> PlantedAnswer:
    x, y = _shift(random)
    return PlantedAnswer(BitShift(direction="LEFT"), [x, y], x << (y % 32), "modulo 32")


@planted("shift: the count saturated at the width less one")
def shift_saturates(random: Random) -> PlantedAnswer:
    x, y = _shift(random)
    return PlantedAnswer(BitShift(direction="LEFT"), [x, y], x << np.minimum(y, 31), "at most 31")


@planted("shift: no sign shifted in")
def shift_logically(random: Random) -> PlantedAnswer:
    x, y = _shift(random)
    y = (y % 32).astype(np.int32)
    answer = (x.view(np.uint32) >> y.view(np.uint32)).view(np.int32)
    return PlantedAnswer(BitShift(direction="RIGHT"), [x, y], answer, "without sign")


def _cast(name: str, to: str, answer: object, cause: str, source: str = "float32",
          times: float = 300) -> None:  # fmt: skip
    @planted(name)
    def make(random: Random) -> PlantedAnswer:
        x = (random.standard_normal((3, 5, 7)) * times).astype(source)
        return PlantedAnswer(Cast(to=to), [x], answer(x), cause)  # type: ignore[arg-type, operator]


_cast("cast: rounded", "int32", lambda x: np.rint(x).astype(np.int32), "rounded to the nearest")
_cast("cast: rounded down", "int32", lambda x: np.floor(x).astype(np.int32), "rounded down")
_cast(
    "cast: saturated", "int8", lambda x: np.clip(x, -128, 127).astype(np.int8), "saturated", "int32"
)
_cast("cast: read without a sign", "int32", lambda x: x.view(np.uint16).astype(np.int32),
      "read as uint16", "int16")  # fmt: skip
_cast("cast: by float32", "int64", lambda x: x.astype(np.float32).astype(np.int64),
      "float32", "int32", 1e8)  # fmt: skip
_cast("cast: fractions cut off before the truth", "bool", lambda x: np.trunc(x) != 0,
      "cut off first", times=1)  # fmt: skip
_cast("cast: by float16", "int32", lambda x: x.astype(np.float16).astype(np.int32), "float16")


@planted("cast: bits cut off")
def bfloat16_cut(random: Random) -> PlantedAnswer:
    import ml_dtypes

    x = normal(random, 3, 5, 7)
    cut = (x.view(np.uint32) & 0xFFFF0000).view(np.float32).astype(ml_dtypes.bfloat16)
    return PlantedAnswer(Cast(to="bfloat16"), [x], cut, "toward zero")  # type: ignore[arg-type]


@planted("a fusion ignores the exponent")
def exponent_ignored(random: Random) -> PlantedAnswer:
    x = random.uniform(0.1, 2, (3, 5, 7)).astype(np.float32)
    y = x.astype(np.float64) ** 2
    return PlantedAnswer(Pow(), [x, np.float32(3)], y, "exponent was 2")


@planted("a fusion ignores the constant")
def constant_ignored(random: Random) -> PlantedAnswer:
    x = normal(random, 3, 5, 7)
    return PlantedAnswer(Mul(), [x, np.float32(0.37)], x, "second operand was left out")


@planted("Gelu with 0.8 for the root of 2 / pi")
def gelu_constant(random: Random) -> PlantedAnswer:
    x = normal(random, 3, 5, 7)
    wide = x.astype(np.float64)
    y = wide / 2 * (1 + np.tanh(0.8 * (wide + 0.044715 * wide**3)))
    return PlantedAnswer(Gelu(approximate="tanh"), [x], y, "0.8")


@planted("Gelu with 0.044 for 0.044715")
def gelu_cubic(random: Random) -> PlantedAnswer:
    x = 3 * normal(random, 3, 5, 7)
    wide = x.astype(np.float64)
    y = wide / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (wide + 0.044 * wide**3)))
    return PlantedAnswer(Gelu(approximate="tanh"), [x], y, "0.044")


@planted("Gelu with a root of 2 cut off")
def gelu_root(random: Random) -> PlantedAnswer:
    x = normal(random, 3, 5, 7)
    wide = x.astype(np.float64)
    y = wide / 2 * (1 + np.vectorize(math.erf)(wide / 1.41))
    return PlantedAnswer(Gelu(), [x], y, "1.41")


@planted("Selu with constants cut off")
def selu_constants(random: Random) -> PlantedAnswer:
    x = normal(random, 3, 5, 7)
    wide = x.astype(np.float64)
    y = 1.0507 * np.where(wide > 0, wide, 1.6733 * np.expm1(wide))
    return PlantedAnswer(Selu(), [x], y, "1.6733")


@planted("two mistakes: transposed and without alpha")
def two_of_gemm(random: Random) -> PlantedAnswer:
    a, b, c = normal(random, 7, 6), normal(random, 6, 6), normal(random, 6)
    y = a.astype(np.float64) @ b.T + c
    return PlantedAnswer(Gemm(alpha=0.7), [a, b, c], y, "two mistakes")


@planted("two mistakes: another axis, and the sign of the bias")
def two_of_softmax(random: Random) -> PlantedAnswer:
    x = normal(random, 3, 6, 5)
    y = shares(x.astype(np.float64).swapaxes(1, 2)).swapaxes(1, 2)
    return PlantedAnswer(Softmax(axis=-1), [x], -y, "two mistakes")


@planted("image 1 holds image 0's result")
def first_image_again(random: Random) -> PlantedAnswer:
    x, w = normal(random, 3, 5, 7), normal(random, 7, 4)
    y = x.astype(np.float64) @ w
    y[1] = y[0]
    from verax.ops.sums.linear import MatMul

    return PlantedAnswer(MatMul(), [x, w], y, "index 1")
