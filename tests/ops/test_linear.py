"""Matrix products and Einstein sums against PyTorch, ONNX Runtime and rational arithmetic."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from witness import DOUBLE, agree, errors, evaluation, exactly, meaning, onnxruntime_says

from verax.base.errors import GraphError
from verax.ir.dim import symbol
from verax.ir.operator import Case, Inference, Operator
from verax.ir.types import TensorType
from verax.ops.sums.einsum import Einsum
from verax.ops.sums.linear import Gemm, MatMul

torch = pytest.importorskip("torch", reason="torch is not installed")

CASES = [c for op in (MatMul, Gemm, Einsum) for c in op.cases(np.random.default_rng(7))]


def label(case: Case) -> str:
    return f"{case.op} {case.label} {[x.shape for x in case.inputs if x is not None]}"


def in_torch(op: Any, inputs: list[Any]) -> Any:
    if op.kind == "MatMul":
        return torch.matmul(*inputs)
    if op.kind == "Einsum":
        return torch.einsum(op.equation, *inputs)
    a, b, *c = inputs
    single = inputs[0].dtype == torch.float64
    alpha, beta = (float(np.float32(v)) if single else int(v) for v in (op.alpha, op.beta))
    y = alpha * torch.matmul(a.T if op.trans_a else a, b.T if op.trans_b else b)
    return y + beta * c[0] if c else y


@pytest.mark.parametrize("case", CASES, ids=label)
def test_products_are_pytorchs(case: Case) -> None:
    inputs = [x for x in case.inputs if x is not None]
    if inputs[0].dtype == np.uint64:
        pytest.skip("PyTorch has no such kernel")
    floats = inputs[0].dtype.kind == "f"
    wide = [torch.from_numpy(x.astype(np.float64) if floats else x) for x in inputs]
    op: Any = case.op
    if op.kind == "Gemm" and inputs[0].dtype == np.float64:
        op = Gemm(trans_a=op.trans_a, trans_b=op.trans_b, alpha=0.25)
    agree(op, inputs, [in_torch(op, wide).numpy()], DOUBLE)


@pytest.mark.parametrize("case", CASES, ids=label)
def test_onnx_runtime_stays_within_the_error_bound(case: Case) -> None:
    inputs = [x for x in case.inputs if x is not None]
    op: Any = case.op
    if op.kind == "Gemm" and inputs[0].dtype.kind != "f":
        pytest.skip("ONNX Runtime has no such kernel")
    names = {"trans_a": "transA", "trans_b": "transB"}
    attributes = {
        names.get(k, k): int(v) if isinstance(v, bool) else v for k, v in op.attributes().items()
    }
    agree(op, inputs, onnxruntime_says(op.kind, inputs, attributes))


@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
def test_gemm_is_its_definition_in_rational_arithmetic(trans_a: bool, trans_b: bool) -> None:
    rng = np.random.default_rng(8)
    a, b = rng.standard_normal((3, 4)), rng.standard_normal((4, 5))
    a, b = np.float32(a), np.float32(b)
    c = np.float32(rng.standard_normal((3, 1)))
    op = Gemm(alpha=0.5, beta=-1.25, trans_a=trans_a, trans_b=trans_b)
    y = exactly(op, a.T if trans_a else a, b.T if trans_b else b, c)
    for i, j in np.ndindex(3, 5):
        total = sum(Fraction(float(a[i, k])) * Fraction(float(b[k, j])) for k in range(4))
        assert y[i, j] == total / 2 - Fraction(5, 4) * Fraction(float(c[i, 0]))


def single_steps(a: np.ndarray, b: np.ndarray, start: float) -> np.float32:
    """sum(a * b) from `start`, each product added with one rounding."""
    acc = Fraction(start)
    for x, y in zip(a, b):
        exact = Fraction(float(x)) * Fraction(float(y)) + acc
        near = np.float32(float(exact))
        around = (np.nextafter(near, np.float32(s * np.inf)) for s in (-1, 1))
        # float64 holds these short sums well enough that no tie is decided wrongly
        best = min((near, *around), key=lambda v: abs(Fraction(float(v)) - exact))
        acc = Fraction(float(best))
    return np.float32(float(acc))


def test_the_promised_bits_add_products_in_ascending_order() -> None:
    rng = np.random.default_rng(9)
    a, b = (
        np.float32(rng.standard_normal((2, 3, 37))),
        np.float32(rng.standard_normal((37, 5))),
    )
    y = MatMul().canonical(evaluation(MatMul(), [a, b]), a, b)
    c = np.float32(rng.standard_normal(5))
    gemm = Gemm().canonical(evaluation(Gemm(), [a[0], b, c]), a[0], b, c)
    sums = Einsum(equation="nik,kj->nji")
    swapped = sums.canonical(evaluation(sums, [a, b]), a, b)
    for i, j in np.ndindex(3, 5):
        assert y[1, i, j] == single_steps(a[1, i], b[:, j], 0.0) == swapped[1, j, i]
        assert gemm[i, j] == single_steps(a[0, i], b[:, j], float(c[j]))


def test_integer_products_wrap() -> None:
    a, b = np.full((1, 2), 2**31 - 1, np.int32), np.array([[2], [3]], np.int32)
    assert meaning(MatMul(), a, b)[0].tolist() == [[2**31 - 5]]
    assert errors(MatMul(), a, b) == [None]


def test_sizes_may_be_symbols() -> None:
    n, m = symbol("n"), symbol("m")

    def infer(op: Operator, *types: str) -> tuple[Any, ...]:
        return op.infer(Inference(tuple(TensorType.parse(t) for t in types)))[0].dims

    assert infer(MatMul(), "float32[n, 1, m, 4]", "float32[3, 4, 5]") == (n, 3, m, 5)
    assert infer(Gemm(trans_a=True), "float32[4, n]", "float32[4, m]") == (n, m)
    assert infer(Einsum(equation="...ij,jk->k..."), "float32[n, 3, m]", "float32[m, 5]") == (5, n)


@pytest.mark.parametrize(
    ("op", "types", "cause"),
    [
        (MatMul(), ("float32[3, 4]", "float32[5, 4]"), "shared axis"),
        (MatMul(), ("float32[]", "float32[5]"), "scalar"),
        (MatMul(), ("float32[3, 4]", "float64[4, 2]"), "float64"),
        (MatMul(), ("bool[3, 4]", "bool[4, 2]"), "not allowed"),
        (MatMul(), ("float32[2, 3, 4]", "float32[5, 4, 2]"), "broadcast"),
        (Gemm(), ("float32[2, 3, 4]", "float32[4, 2]"), "matrices"),
        (Gemm(trans_b=True), ("float32[3, 4]", "float32[4, 2]"), "shared axis"),
        (Gemm(), ("float32[3, 4]", "float32[4, 2]", "float32[3]"), "broadcast"),
        (Einsum(equation="ij,jk->ik"), ("float32[3, 4]",), "2 inputs"),
        (Einsum(equation="ij->il"), ("float32[3, 4]",), "output"),
        (Einsum(equation="ij->ii"), ("float32[3, 4]",), "output"),
        (Einsum(equation="ijk->i"), ("float32[3, 4]",), "does not fit"),
        (Einsum(equation="ij,jk->ik"), ("float32[3, 4]", "float32[5, 2]"), "broadcast"),
        (Einsum(equation="i1->i"), ("float32[3, 4]",), "letters"),
        (Einsum(equation="...i->i"), ("float32[3, 4]",), "name the axes"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_cause(
    op: Operator, types: tuple[str, ...], cause: str
) -> None:
    with pytest.raises(GraphError, match=cause):
        op.infer(Inference(tuple(TensorType.parse(t) for t in types)))
