"""One node on its actual inputs: honest algorithms pass, Winograd and coarse formats are named."""

import numpy as np
import pytest

from verax.ir.graph import Node
from verax.ir.operator import Evaluation, Inference
from verax.ir.types import TensorType
from verax.judge.decide.local import check_node
from verax.judge.decide.orders import float32_runs, winograd_applies, winograd_runs
from verax.judge.decide.possible import using
from verax.numerics.formats import BFLOAT16, FLOAT16, TF32, round_to
from verax.ops.sums.arg import ArgMax
from verax.ops.sums.linear import MatMul
from verax.ops.sums.reduction import ReduceMean
from verax.ops.windows.convolution import Conv
from verax.records.verdict import Finding, Kind

torch = pytest.importorskip("torch", reason="torch is not installed: it is the honest peer here")


def judge(op, arrays, given, **options) -> Finding:
    node = Node(op, tuple(f"i{k}" for k in range(len(arrays))), ("y",), "node")
    types = tuple(TensorType.of(a) for a in arrays)
    outputs = tuple(op.infer(Inference(types, tuple(arrays))))
    return check_node(node, arrays, [np.asarray(given)], outputs, **options)[0]


def data(kind: str, random: np.random.Generator, x_shape, w_shape) -> tuple[np.ndarray, ...]:
    """Inputs, weights and bias of the kinds that broke simpler criteria."""
    x, w = random.standard_normal(x_shape), random.standard_normal(w_shape)
    b = random.standard_normal(w_shape[0])
    if kind == "constant":
        x, w = np.full(x_shape, 0.1), np.full(w_shape, 0.1)
    if kind == "bad scale":
        x = x * 10 ** random.uniform(-4, 4, (1, x_shape[1], 1, 1))
        w = w * 10 ** random.uniform(-3, 3, (w_shape[0], 1, 1, 1))
    if kind == "offset":
        x = x + 100
    if kind == "relu":
        x = np.maximum(x, 0)
    if kind == "large bias":
        b = b * 30
    if kind == "sorted":
        x, w = np.abs(x), np.sort(w.reshape(w_shape[0], -1), 1).reshape(w_shape)
    if kind == "cancelling" and x_shape[1] > 1:
        half = x_shape[1] // 2
        x[:, half : 2 * half] = x[:, :half] * (1 + 1e-5 * random.standard_normal(x[:, :half].shape))
        if w_shape[1] > 1:
            w[:, half : 2 * half] = -w[:, :half]
    return x.astype(np.float32), w.astype(np.float32), b.astype(np.float32)


KINDS = ("normal", "relu", "constant", "bad scale", "offset", "large bias", "sorted", "cancelling")
LAYERS = {
    "3x3": ((2, 24, 11, 13), (10, 24, 3, 3), 1),
    "1x1": ((1, 96, 7, 9), (20, 96, 1, 1), 1),
    "depthwise": ((2, 24, 11, 13), (24, 1, 3, 3), 24),
    "7x7": ((1, 3, 20, 17), (9, 3, 7, 7), 1),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layer", LAYERS)
def test_torch_and_numpy_convolutions_are_rounding(kind: str, layer: str) -> None:
    x_shape, w_shape, groups = LAYERS[layer]
    arrays = data(kind, np.random.default_rng(len(kind)), x_shape, w_shape)
    op = Conv(groups=groups)
    tensors = [torch.from_numpy(a) for a in arrays]
    answers = [torch.nn.functional.conv2d(*tensors, groups=groups).numpy()]
    with torch.backends.mkldnn.flags(enabled=False):
        answers.append(torch.nn.functional.conv2d(*tensors, groups=groups).numpy())
    for given in answers:
        found = judge(op, arrays, given)
        assert found.kind in (Kind.rounding, Kind.identical, Kind.precision), found
        assert found.kind is not Kind.precision or "Winograd" in found.test


@pytest.mark.parametrize("kind", KINDS)
def test_own_orders_are_rounding(kind: str) -> None:
    arrays = data(kind, np.random.default_rng(7), (2, 12, 9, 8), (5, 12, 3, 2))
    op = Conv(pads=((1, 0), (2, 1)))
    node = Node(op, ("x", "w", "b"), ("y",))
    types = tuple(TensorType.of(a) for a in arrays)
    ev = Evaluation(types, tuple(op.infer(Inference(types))))
    for run in float32_runs(node, ev, arrays, 0):
        assert judge(op, arrays, run).kind in (Kind.rounding, Kind.identical)


@pytest.mark.parametrize("tile", [2, 4])
def test_winograd_is_named_unless_ruled_out(tile: int) -> None:
    arrays = data("relu", np.random.default_rng(1), (2, 48, 15, 13), (7, 48, 3, 3))
    op = Conv(pads=((1, 1), (1, 1)))
    node = Node(op, ("x", "w", "b"), ("y",))
    assert winograd_applies(node, arrays)
    run = winograd_runs(node, arrays)[tile]
    expected = torch.nn.functional.conv2d(*map(torch.from_numpy, arrays), padding=1).numpy()
    assert np.abs(run - expected).max() < np.abs(expected).max() / 1000
    found = judge(op, arrays, run)
    assert found.kind is Kind.rounding or "Winograd" in found.test
    if tile == 4:
        with using(frozenset()):
            assert judge(op, arrays, run).kind is Kind.mistake


@pytest.mark.parametrize("fmt", [TF32, BFLOAT16, FLOAT16], ids=lambda f: f.name)
def test_coarse_inputs_are_named(fmt) -> None:
    x, w, b = data("normal", np.random.default_rng(2), (2, 16, 9, 11), (6, 16, 3, 2))
    given = torch.nn.functional.conv2d(
        torch.from_numpy(round_to(x, fmt).astype(np.float32)),
        torch.from_numpy(round_to(w, fmt).astype(np.float32)),
        torch.from_numpy(b),
    ).numpy()
    found = judge(Conv(), (x, w, b), given)
    assert found.kind is Kind.precision
    # Float16 and TF32 keep as many bits: on data of scale 1 nobody can tell them apart.
    name = "bf16 inputs" if fmt is BFLOAT16 else "TF32 or fp16 inputs"
    assert found.test == name


def test_no_coarse_format_explains_a_wrong_weight() -> None:
    x, w, b = data("normal", np.random.default_rng(3), (2, 16, 9, 11), (6, 16, 3, 2))
    w2 = w.copy()
    w2[4, 3, 1, 0] *= np.float32(1.01)
    given = torch.nn.functional.conv2d(*map(torch.from_numpy, (x, w2, b))).numpy()
    found = judge(Conv(), (x, w, b), given)
    assert found.kind is Kind.mistake


@pytest.mark.parametrize("shape", [(3, 5, 700), (2, 4, 9, 70)])
def test_constant_means_are_rounding_in_sequence(shape) -> None:
    x = np.full(shape, 0.1, np.float32)
    axes = np.array([-1])
    given = np.add.accumulate(x, axis=-1)[..., -1:] / np.float32(shape[-1])
    assert judge(ReduceMean(), (x, axes), given).kind in (Kind.rounding, Kind.identical)


@pytest.mark.parametrize("dtype", ["float16", "float64", "bfloat16"])
def test_other_float_types_have_their_own_rounding(dtype: str) -> None:
    random = np.random.default_rng(5)
    kind = getattr(torch, dtype)
    a = torch.from_numpy(random.standard_normal((4, 60))).to(kind)
    b = torch.from_numpy(random.standard_normal((60, 7))).to(kind)
    arrays = [_numpy(t) for t in (a, b)]
    given = _numpy(a @ b)
    assert judge(MatMul(), arrays, given).kind in (Kind.rounding, Kind.identical)
    wide = given.astype(np.float64)
    wide[2, 3] *= 1.05 if dtype != "float64" else 1 + 1e-12
    found = judge(MatMul(), arrays, wide.astype(given.dtype))
    if dtype == "float64":
        assert found.kind is Kind.mistake
    else:  # an error of 5 % is possible when every step is rounded to so few bits: it says so
        assert found.kind is Kind.mistake or f"arithmetic in {dtype}" in found.test
    wide[2, 3] *= 2
    assert judge(MatMul(), arrays, wide.astype(given.dtype)).kind is Kind.mistake


def _numpy(tensor) -> np.ndarray:
    import ml_dtypes

    if tensor.dtype is torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def test_an_index_may_not_differ_on_the_same_input() -> None:
    x = np.array([[1.0, 3.0, 2.0], [5.0, 4.0, 0.0]], np.float32)
    assert judge(ArgMax(axis=1), (x,), np.array([[1], [0]])).kind is Kind.identical
    assert judge(ArgMax(axis=1), (x,), np.array([[2], [0]])).kind is Kind.mistake
