"""Coarser arithmetics are named by recomputing in them; mistakes of the same size are not."""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from verax.ir.graph import Node
from verax.ir.operator import Inference, Operator
from verax.ir.types import TensorType
from verax.judge.decide.local import check_node
from verax.judge.decide.possible import using
from verax.judge.decide.precision import asymmetric_uint8, find_precision, symmetric_int8, truncated
from verax.numerics.formats import BFLOAT16, FLOAT16, TF32, FloatFormat, round_to
from verax.ops.pointwise.activation import Relu
from verax.ops.pointwise.arithmetic import Add
from verax.ops.sums.linear import Gemm, MatMul
from verax.ops.sums.softmax import Softmax
from verax.ops.windows.convolution import Conv
from verax.ops.windows.deconvolution import ConvTranspose
from verax.records.verdict import Finding, Kind

torch = pytest.importorskip("torch", reason="torch is not installed")
Array = np.ndarray


def draw(seed: int, *shape: int, scale: float = 1.0) -> Array:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def float32(function: Callable[..., object], *arrays: Array) -> Array:
    return function(*(torch.from_numpy(np.asarray(a, np.float32)) for a in arrays)).numpy()  # type: ignore[attr-defined]


LAYERS: dict[str, tuple[Operator, tuple[tuple[int, ...], ...], Callable[..., object], int]] = {
    "Conv": (
        Conv(strides=(2, 1), groups=2),
        ((2, 12, 9, 11), (10, 6, 3, 2), (10,)),
        lambda x, w, b: torch.nn.functional.conv2d(x, w, b, stride=(2, 1), groups=2),
        0,
    ),
    "ConvTranspose": (
        ConvTranspose(strides=(2, 3)),
        ((2, 12, 5, 4), (12, 7, 3, 2), (7,)),
        lambda x, w, b: torch.nn.functional.conv_transpose2d(x, w, b, stride=(2, 3)),
        1,
    ),
    "Gemm": (
        Gemm(trans_b=True),
        ((17, 48), (21, 48), (21,)),
        lambda x, w, b: torch.nn.functional.linear(x, w, b),
        0,
    ),
    "MatMul": (MatMul(), ((3, 17, 48), (48, 21)), torch.matmul, -1),
}


def per_tensor(x: Array, axis: int) -> Array:
    return symmetric_int8(x)


def to(fmt: FloatFormat) -> Callable[[Array, int], Array]:
    return lambda x, axis: round_to(x, fmt)


def same(x: Array, axis: int) -> Array:
    return x


WAYS: dict[str, tuple[Callable, Callable, FloatFormat | None]] = {
    "TF32 or fp16 inputs": (to(TF32), to(TF32), None),
    "TF32 inputs, truncated": (*[lambda x, axis: truncated(x, TF32)] * 2, None),
    "bf16 inputs": (to(BFLOAT16), to(BFLOAT16), None),
    "bf16 inputs and output": (to(BFLOAT16), to(BFLOAT16), BFLOAT16),
    "bf16 throughout": (to(BFLOAT16), to(BFLOAT16), BFLOAT16),
    "bf16 weights": (same, to(BFLOAT16), None),
    "bf16 output": (same, same, BFLOAT16),
    "fp16 inputs and output": (to(FLOAT16), to(FLOAT16), FLOAT16),
    "fp16 weights": (same, to(FLOAT16), None),
    "fp16 output": (same, same, FLOAT16),
    "int8 weights per tensor": (same, per_tensor, None),
    "int8 weights per channel": (same, symmetric_int8, None),
    "int8 per tensor": (per_tensor, per_tensor, None),
    "int8 per channel": (per_tensor, symmetric_int8, None),
    "int8 per channel, asymmetric": (lambda x, axis: asymmetric_uint8(x), symmetric_int8, None),
}


def judged(op: Operator, arrays: tuple[Array, ...], given: Array) -> Finding:
    names = ("x", "w", "b")[: len(arrays)]
    types = tuple(TensorType.of(a) for a in arrays)
    node = Node(op, names, ("y",), "node")
    return check_node(node, arrays, [given], tuple(op.infer(Inference(types))))[0]


def layer(name: str, seed: int = 1) -> tuple[Operator, tuple[Array, ...], Callable, int]:
    op, shapes, run, axis = LAYERS[name]
    arrays = [draw(seed + i, *s) for i, s in enumerate(shapes)]
    arrays[1] = arrays[1] * np.linspace(0.5, 2, arrays[1].shape[axis], dtype=np.float32).reshape(
        [-1 if a == axis % arrays[1].ndim else 1 for a in range(arrays[1].ndim)]
    )
    return op, tuple(arrays), run, axis


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", LAYERS)
def test_an_arithmetic_is_named_and_its_unit_estimated(name: str, way: str) -> None:
    op, arrays, run, axis = layer(name)
    data, weights, output = WAYS[way]
    wide = [a.astype(np.float64) for a in arrays]
    if way == "bf16 throughout":
        if len(wide) < 3:
            return  # without a bias it is "inputs and output"
        wide[2] = round_to(wide[2], BFLOAT16)
    given = float32(run, data(wide[0], 0), weights(wide[1], axis), *wide[2:])
    if output is not None:
        given = round_to(given, output).astype(np.float32)
    found = judged(op, arrays, given)
    assert (found.kind, found.test) == (Kind.precision, way), found
    assert found.precision is not None and found.precision.confirmed
    assert found.precision.format == way
    if way in ("bf16 inputs", "TF32 or fp16 inputs"):
        fmt = BFLOAT16 if "bf16" in way else TF32
        assert 0.7 < found.precision.unit_roundoff / fmt.unit_roundoff < 1.4
    if "int8" not in way and "fp16" not in way:
        assert found.precision.unit_roundoff > 2.0**-13


def test_a_node_can_be_asked_alone() -> None:
    op, arrays, run, _ = layer("Conv")
    node = Node(op, ("x", "w", "b"), ("y",), "node")
    outputs = tuple(op.infer(Inference(tuple(map(TensorType.of, arrays)))))
    rounded = [round_to(a, BFLOAT16) for a in arrays[:2]]
    found = find_precision(node, arrays, float32(run, *rounded, arrays[2]), outputs)
    assert found is not None and (found.format, found.node, found.confirmed) == (
        "bf16 inputs",
        "node",
        True,
    )
    assert find_precision(node, arrays, float32(run, *arrays), outputs) is None


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("size", [2.0**-6, 2.0**-8, 2.0**-11])
def test_noise_of_the_size_of_a_format_is_no_format(name: str, size: float) -> None:
    op, arrays, run, _ = layer(name, seed=7)
    noisy = arrays[1] * (1 + size * draw(3, *arrays[1].shape))
    assert judged(op, arrays, float32(run, arrays[0], noisy, *arrays[2:])).kind is Kind.mistake


@pytest.mark.parametrize("name", LAYERS)
def test_a_mistake_on_top_of_a_format_stays_a_mistake(name: str) -> None:
    op, arrays, run, axis = layer(name, seed=11)
    rounded = [round_to(a, BFLOAT16) for a in arrays[:2]]
    rounded[1] = np.roll(rounded[1], 1, axis=axis)
    assert judged(op, arrays, float32(run, *rounded, *arrays[2:])).kind is Kind.mistake


def test_sums_in_float16_are_named() -> None:
    x, w = draw(1, 9, 40), draw(2, 40, 21)
    total = np.zeros((9, 21), np.float16)
    for k in range(40):
        total = total + x[:, k : k + 1].astype(np.float16) * w[k].astype(np.float16)
    found = judged(MatMul(), (x, w), total.astype(np.float32))
    assert (found.kind, found.test) == (Kind.precision, "fp16 accumulation")


@pytest.mark.parametrize(
    ("device", "name"), [(True, "fp16 accumulation"), (False, "arithmetic in float16 itself")]
)
def test_only_a_gpu_is_said_to_accumulate_in_float16(device: bool, name: str) -> None:
    """ONNX Runtime on a processor leaves out the casts between two products in float16: a factor
    that is shown rounded was not, and the sums are float32's."""
    x, w = draw(3, 11, 96), draw(4, 96, 23).astype(np.float16)
    given = (x.astype(np.float64) @ w).astype(np.float16)
    with using(None, device):
        found = judged(MatMul(), (x.astype(np.float16), w), given)
    assert (found.kind, found.test) == (Kind.precision, name)


@pytest.mark.parametrize(
    ("op", "arrays"),
    [
        (Relu(), (draw(1, 2, 5, 7),)),
        (Add(), (draw(1, 2, 5, 7), draw(2, 5, 7))),
        (Softmax(), (draw(1, 4, 19),)),
    ],
    ids=str,
)
@pytest.mark.parametrize("fmt", [BFLOAT16, FLOAT16], ids=lambda f: f.name)
def test_any_operator_may_store_its_result_in_a_half_format(op, arrays, fmt) -> None:
    wide = [a.astype(np.float64) for a in arrays]
    exact = {"Relu": lambda x: np.maximum(x, 0), "Add": np.add}.get(
        op.kind, lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)
    )(*wide)
    given = round_to(exact, fmt).astype(np.float32)
    found = judged(op, arrays, given)
    name = "bf16 output" if fmt is BFLOAT16 else "fp16 output"
    assert (found.kind, found.test) == (Kind.precision, name)
    given.flat[np.argmax(np.abs(given))] *= np.float32(1 + 2.0**-6)
    assert judged(op, arrays, given).kind is Kind.mistake


def by_fourier(x: Array, w: Array, b: Array, tile: int) -> Array:
    """A valid correlation in float32 by transforms of overlapping tiles (numbers made by torch)."""
    t, k = torch.from_numpy, np.array(w.shape[2:])
    height, width = np.array(x.shape[2:]) - k + 1
    y = torch.zeros(len(x), len(w), height, width)
    step = tile - k + 1
    kernels = torch.fft.rfft2(t(w), s=(tile, tile)).conj()
    for r in range(0, height, step[0]):
        for c in range(0, width, step[1]):
            part = torch.fft.rfft2(t(x)[:, :, r : r + tile, c : c + tile], s=(tile, tile))
            mixed = torch.einsum("nchw,ochw->nohw", part, kernels)
            seen = torch.fft.irfft2(mixed, s=(tile, tile))[:, :, : step[0], : step[1]]
            target = y[:, :, r : r + step[0], c : c + step[1]]
            target += seen[:, :, : target.shape[2], : target.shape[3]]
    return (y + t(b).reshape(1, -1, 1, 1)).numpy()


POINTS = {
    2: (0, 1, -1),
    4: (0, 1, -1, 2, -2),
    6: (0, 1, -1, 2, -2, Fraction(1, 2), Fraction(-1, 2)),
}
"""Where polynomials are interpolated, beside infinity."""


def by_interpolation(x: Array, w: Array, tile: int) -> Array:
    """A valid 3x3 correlation in float32 by F(tile x tile), by matrices made from the points (Toom
    and Cook's construction)."""
    points = POINTS[tile]

    def product(roots: Sequence[Any]) -> list[Any]:
        found = [Fraction(1)]
        for r in roots:
            found = [a - r * b for a, b in zip([Fraction(0), *found], [*found, Fraction(0)])]
        return found

    others = [[q for q in points if q != p] for p in points]
    into = [[*product(rest), Fraction(0)] for rest in others] + [product(points)]
    kernel = [
        [Fraction(p) ** k / math.prod(p - q for q in rest) for k in range(3)]
        for p, rest in zip(points, others)
    ] + [[0, 0, 1]]
    back = [[*(Fraction(p) ** i for p in points), int(i == tile - 1)] for i in range(tile)]
    b, g, a = (np.array([[float(v) for v in row] for row in m], np.float32)
               for m in (into, kernel, back))  # fmt: skip
    down, across = (-(-(n - 2) // tile) for n in x.shape[2:])
    wide = np.pad(x, ((0, 0), (0, 0), (0, down * tile + 2 - x.shape[2]),
                      (0, across * tile + 2 - x.shape[3])))  # fmt: skip
    seen = np.lib.stride_tricks.sliding_window_view(wide, (tile + 2,) * 2, axis=(2, 3))
    d = b @ seen[:, :, ::tile, ::tile] @ b.T
    u = g @ w @ g.T
    sums = np.zeros((len(x), len(w), *d.shape[2:]), np.float32)
    for c in range(w.shape[1]):
        sums += u[:, c, None, None] * d[:, None, c]
    y = (a @ sums @ a.T).transpose(0, 1, 2, 4, 3, 5)
    whole = y.reshape(len(x), len(w), down * tile, across * tile)
    return whole[:, :, : x.shape[2] - 2, : x.shape[3] - 2]


@pytest.mark.checkered
@pytest.mark.parametrize("tile", sorted(POINTS))
@pytest.mark.parametrize("seed", range(3))
def test_tiles_of_every_size_are_precision_and_mistakes_in_them_are_not(
    tile: int, seed: int
) -> None:
    rng = np.random.default_rng(100 * tile + seed)
    x = rng.standard_normal((2, 83, 31, 29)).astype(np.float32) + np.float32(0.5)
    w = (rng.standard_normal((13, 83, 3, 3)) / 20).astype(np.float32)
    found = judged(Conv(), (x, w), by_interpolation(x, w, tile))
    assert found.kind in (Kind.precision, Kind.rounding), found
    if tile > 2:
        assert (found.kind, found.test) == (Kind.precision, f"Winograd F({tile}x{tile}, 3x3)")
    wrong = w.copy()
    wrong[7, 11, 2, 0] *= np.float32(1.01)
    assert judged(Conv(), (x, w), by_interpolation(x, wrong, tile)).kind is Kind.mistake


@pytest.mark.checkered
@pytest.mark.parametrize("tile", [16, 32, 64])
@pytest.mark.parametrize("seed", range(4))
def test_fourier_transforms_are_named_unless_ruled_out(tile: int, seed: int) -> None:
    """A bright spot: transforms spread its rounding over the whole tile, direct sums do not."""
    x, w, b = draw(seed, 2, 17, 37, 41), draw(2, 6, 17, 5, 7, scale=0.1), draw(3, 6)
    x[:, :, 5:9, 20:26] *= 300
    given = by_fourier(x, w, b, tile)
    found = judged(Conv(), (x, w, b), given)
    assert (found.kind, found.test) == (Kind.precision, "FFT"), found
    node, types = Node(Conv(), ("x", "w", "b"), ("y",)), tuple(map(TensorType.of, (x, w, b)))
    outputs = tuple(Conv().infer(Inference(types)))
    with using(frozenset()):
        (bound,) = check_node(node, [x, w, b], [given], outputs)
    assert bound.kind is Kind.mistake and "FFT was ruled out" in bound.reason
    wrong = w.copy()
    wrong[4, 3, 1, 0] *= np.float32(1.01)
    assert judged(Conv(), (x, w, b), by_fourier(x, wrong, b, tile)).kind is Kind.mistake


def test_what_was_ruled_out_is_said() -> None:
    x, w = draw(1, 2, 17, 13, 11), draw(2, 6, 17, 3, 3)
    given = torch.nn.functional.conv2d(*map(torch.from_numpy, (x, w)), padding=1).numpy().copy()
    given[1, 3] *= np.float32(1.01)
    op, types = Conv(pads=((1, 1), (1, 1))), (TensorType.of(x), TensorType.of(w))
    node, outputs = Node(op, ("x", "w"), ("y",)), tuple(op.infer(Inference(types)))
    (free,) = check_node(node, [x, w], [given], outputs)
    tried = " and ".join(f"Winograd F({n}x{n}, 3x3)" for n in (2, 4, 6))
    assert f"{tried} would not err like this" in free.reason
    with using(frozenset()):
        (bound,) = check_node(node, [x, w], [given], outputs)
    assert "Winograd was ruled out" in bound.reason
    assert free.kind is bound.kind is Kind.mistake
