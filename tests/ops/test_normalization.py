"""Normalisations against PyTorch in float64, ONNX Runtime, and their definitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from witness import DOUBLE, agree, errors, evaluation, meaning, onnxruntime_says

from verax.base.errors import GraphError
from verax.ir.operator import Case, Inference, Operator, as_tuple
from verax.ir.types import TensorType
from verax.ops.sums.layer_normalization import (
    LayerNormalization,
    MeanVarianceNormalization,
    RMSNormalization,
)
from verax.ops.sums.normalization import (
    BatchNormalization,
    GroupNormalization,
    InstanceNormalization,
)
from verax.ops.sums.response_normalization import LRN, LpNormalization

torch = pytest.importorskip("torch", reason="torch is not installed")

F = torch.nn.functional
CASES = [
    case
    for cls in (
        BatchNormalization,
        InstanceNormalization,
        GroupNormalization,
        LayerNormalization,
        RMSNormalization,
        MeanVarianceNormalization,
        LRN,
        LpNormalization,
    )
    for case in cls.cases(np.random.default_rng(3))
]


def label(case: Case) -> str:
    return f"{case.op} {case.label}"


def batch(op: Any, x: Any, scale: Any, b: Any, mean: Any, var: Any) -> list[Any]:
    if not op.training_mode:
        return [F.batch_norm(x, mean, var, scale, b, False, 0.0, op.epsilon)]
    y = F.batch_norm(x, None, None, scale, b, True, 0.0, op.epsilon)
    axes, keep = [0, *range(2, x.ndim)], single(op.momentum)
    running = [
        old * keep + new * (1 - keep)
        for old, new in ((mean, x.mean(axes)), (var, x.var(axes, correction=0)))
    ]
    return [y, *running]


def single(value: float) -> float:
    """An attribute is a float32 number beside float32 tensors."""
    return float(np.float32(value))


def instance(op: Any, x: Any, scale: Any, b: Any) -> list[Any]:
    return [F.instance_norm(x, None, None, scale, b, True, 0.0, op.epsilon)]


def group(op: Any, x: Any, scale: Any, b: Any) -> list[Any]:
    if op.per_group:
        repeats = x.shape[1] // op.num_groups
        scale, b = scale.repeat_interleave(repeats), b.repeat_interleave(repeats)
    return [F.group_norm(x, op.num_groups, scale, b, op.epsilon)]


def layer(op: Any, x: Any, scale: Any, b: Any = None) -> list[Any]:
    axes = list(range(op.axis % x.ndim, x.ndim))
    shape = [x.shape[a] for a in axes]
    y = F.layer_norm(x, shape, None, None, op.epsilon) * scale + (0 if b is None else b)
    mean, variance = x.mean(axes, keepdim=True), x.var(axes, correction=0, keepdim=True)
    return [y, mean, torch.rsqrt(variance + op.epsilon)][: op.output_count]


def rms(op: Any, x: Any, scale: Any) -> list[Any]:
    return [F.rms_norm(x, x.shape[op.axis % x.ndim :], None, op.epsilon) * scale]


def mean_variance(op: Any, x: Any) -> list[Any]:
    axes = [a % x.ndim for a in op.axes]
    deviation = x.std(axes, correction=0, keepdim=True)
    return [(x - x.mean(axes, keepdim=True)) / (deviation + single(1e-9))]


def lrn(op: Any, x: Any) -> list[Any]:
    # PyTorch's window of an even size reaches one further to the front than ONNX's.
    reverse = (1,) if op.size % 2 == 0 else ()
    image = x.reshape(*x.shape, 1).flip(reverse)
    y = F.local_response_norm(image, op.size, single(op.alpha), op.beta, op.bias)
    return [y.flip(reverse).reshape(x.shape)]


def lp(op: Any, x: Any) -> list[Any]:
    norm = (torch.sum(x.abs() ** op.p, op.axis, True) + op.epsilon) ** (1 / op.p)
    return [torch.nan_to_num(x / norm.clamp_min(op.floor), nan=0.0)]


IN_TORCH: dict[str, Callable[..., list[Any]]] = {
    "BatchNormalization": batch,
    "InstanceNormalization": instance,
    "GroupNormalization": group,
    "LayerNormalization": layer,
    "RMSNormalization": rms,
    "MeanVarianceNormalization": mean_variance,
    "LRN": lrn,
    "LpNormalization": lp,
}


def as_declared(op: Operator, x: np.ndarray) -> Operator:
    """`op` with float attributes as the float32 numbers that they are beside float32 tensors."""
    if x.dtype != np.float32:
        return op
    fields = {k: single(v) if isinstance(v, float) else v for k, v in op.attributes().items()}
    return type(op)(**fields)


@pytest.mark.parametrize("case", CASES, ids=label)
def test_normalisation_is_pytorchs(case: Case) -> None:
    inputs = [x for x in case.inputs if x is not None]
    wide = [torch.from_numpy(x.astype(np.float64)) for x in inputs]
    op = as_declared(case.op, inputs[0])
    agree(case.op, inputs, [y.numpy() for y in IN_TORCH[op.kind](op, *wide)], DOUBLE)


def onnx_attributes(op: Operator) -> dict[str, Any]:
    renamed = {
        k: v for k, v in op.attributes().items() if k not in ("with_statistics", "per_group")
    }
    if op.kind == "LpNormalization":
        renamed = {k: renamed[k] for k in ("axis", "p")}
    if "stash_type" in renamed:
        renamed["stash_type"] = 1
    return {k: int(v) if isinstance(v, bool) else v for k, v in renamed.items()}


@pytest.mark.parametrize("case", CASES, ids=label)
def test_onnx_runtime_stays_within_the_error_bound(case: Case) -> None:
    op: Any = case.op
    inputs = [x for x in case.inputs if x is not None]
    if inputs[0].dtype != np.float32:
        pytest.skip("PyTorch speaks for float64")
    if op.kind == "LRN" and (op.size % 2 == 0 or inputs[0].ndim != 4):
        pytest.skip("ONNX Runtime wants odd sizes and images")
    if getattr(op, "training_mode", False) or getattr(op, "per_group", False):
        pytest.skip("ONNX Runtime has no such kernel")
    if getattr(op, "floor", 0) or (op.kind == "LpNormalization" and op.epsilon):
        pytest.skip("ONNX has neither epsilon nor a floor there")
    attributes = onnx_attributes(op)
    agree(op, inputs, onnxruntime_says(op.kind, inputs, attributes, op.output_count))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
def test_response_normalisation_is_its_definition(size: int) -> None:
    op = LRN(size=size, alpha=0.5, beta=0.5, bias=2.0)
    x = np.random.default_rng(size).standard_normal((2, 5, 3)).astype(np.float32)
    want = np.empty(x.shape)
    for c in range(5):
        near = [i for i in range(c - (size - 1) // 2, c + size // 2 + 1) if 0 <= i < 5]
        total = (x[:, near].astype(np.float64) ** 2).sum(axis=1)
        want[:, c] = x[:, c] / np.sqrt(2.0 + 0.5 / size * total)
    agree(op, [x], [want], DOUBLE)


@pytest.mark.parametrize("case", [c for c in CASES if c.inputs[0].dtype == np.float32], ids=label)  # type: ignore[union-attr]
def test_the_error_model_is_not_far_above_the_errors_made(case: Case) -> None:
    """The promised bits err by at least a fiftieth of sigma in root mean square."""
    ours = as_tuple(case.op.canonical(evaluation(case.op, case.inputs), *case.inputs))
    for got, want, error in zip(
        ours, meaning(case.op, *case.inputs), errors(case.op, *case.inputs)
    ):
        assert error is not None
        z = (got - want)[error.sigma > 0] / error.sigma[error.sigma > 0]
        if z.size > 20:
            assert 1 / 50 < np.sqrt(np.mean(z**2)) < 2, np.sqrt(np.mean(z**2))


def test_a_norm_of_zero_gives_zero() -> None:
    x = np.zeros((2, 3), np.float32)
    np.testing.assert_array_equal(meaning(LpNormalization(), x)[0], x)


@pytest.mark.parametrize(
    ("op", "types", "cause"),
    [
        (BatchNormalization(), ("float32[2, 3, 4]", *["float32[4]"] * 4), "scale"),
        (InstanceNormalization(), ("float32[2, 3]", "float32[3]", "float32[3]"), "spatial"),
        (GroupNormalization(num_groups=4), ("float32[2, 6, 5]", *["float32[6]"] * 2), "groups"),
        (GroupNormalization(num_groups=3), ("float32[2, 6, 5]", *["float32[3]"] * 2), "scale"),
        (LayerNormalization(axis=3), ("float32[2, 6, 5]", "float32[5]"), "axis"),
        (LayerNormalization(), ("float32[2, 6, 5]", "float32[6]"), "broadcast"),
        (LayerNormalization(epsilon=-1.0), ("float32[2, 6, 5]", "float32[5]"), "epsilon"),
        (RMSNormalization(), ("float32[2, 6, 5]", "float32[2]"), "broadcast"),
        (MeanVarianceNormalization(), ("float32[2, 6, 5]",), "axes"),
        (LRN(size=0), ("float32[2, 6, 5]",), "size"),
        (LpNormalization(p=3), ("float32[2, 6, 5]",), "p must"),
        (LRN(size=1), ("int32[2, 6, 5]",), "float"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_cause(
    op: Operator, types: tuple[str, ...], cause: str
) -> None:
    with pytest.raises(GraphError, match=cause):
        op.infer(Inference(tuple(TensorType.parse(t) for t in types)))
