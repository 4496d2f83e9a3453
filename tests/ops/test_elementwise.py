"""Elementwise operators against PyTorch in float64, ONNX Runtime, and their own promised bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from witness import DOUBLE, agree, evaluation, onnxruntime_says

from verax.base.errors import GraphError
from verax.ir.dim import maximum, symbol
from verax.ir.operator import REGISTRY, Case, Evaluation, Inference, Operator
from verax.ir.types import DType, TensorType
from verax.numerics.arith_numpy import NumpyArith
from verax.numerics.expr import evaluate
from verax.ops.pointwise.activation import Clip, LeakyRelu, PRelu, Relu
from verax.ops.pointwise.arithmetic import Add, Max, Min, Mul
from verax.ops.pointwise.elementwise import Elementwise
from verax.ops.pointwise.transcendental import Exp
from verax.ops.pointwise.where import Where

torch = pytest.importorskip("torch", reason="torch is not installed")
F = torch.nn.functional

NAMES = [n for n, c in REGISTRY.items() if issubclass(c, Elementwise)]


def f32(value: float) -> float:
    return float(np.float32(value))


def hard_sigmoid(op: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.clamp(f32(op.alpha) * x + f32(op.beta), 0, 1)


def shrink(op: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.where(x < -op.lambd, x + op.bias, torch.where(x > op.lambd, x - op.bias, 0 * x))


def mean(op: Any, *xs: torch.Tensor) -> torch.Tensor:
    return torch.stack(torch.broadcast_tensors(*xs)).mean(0)


def total(op: Any, *xs: torch.Tensor) -> torch.Tensor:
    return torch.stack(torch.broadcast_tensors(*xs)).sum(0)


def largest(op: Any, *xs: torch.Tensor) -> torch.Tensor:
    return torch.stack(torch.broadcast_tensors(*xs)).amax(0)


def smallest(op: Any, *xs: torch.Tensor) -> torch.Tensor:
    return torch.stack(torch.broadcast_tensors(*xs)).amin(0)


def plain(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    return lambda op, *xs: function(*xs)


SAME_NAME = [
    *("Sqrt", "Reciprocal", "Exp", "Log", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan"),
    *("Sinh", "Cosh", "Tanh", "Asinh", "Acosh", "Atanh", "Erf", "Sigmoid"),
    *("Neg", "Abs", "Sign", "Floor", "Ceil", "Round", "IsNaN"),
]
TORCH: dict[str, Callable[..., torch.Tensor]] = {
    **{name: plain(getattr(torch, name.lower())) for name in SAME_NAME},
    "Add": plain(torch.add),
    "Sub": plain(torch.sub),
    "Mul": plain(torch.mul),
    "Div": plain(torch.div),
    "Pow": plain(torch.pow),
    "Mod": lambda op, a, b: (torch.fmod if op.fmod else torch.remainder)(a, b),
    "Sum": total,
    "Mean": mean,
    "Max": largest,
    "Min": smallest,
    "Relu": plain(torch.relu),
    "LeakyRelu": lambda op, x: F.leaky_relu(x, f32(op.alpha)),
    "PRelu": lambda op, x, slope: torch.where(x < 0, x * slope, x),
    "ThresholdedRelu": lambda op, x: F.threshold(x, f32(op.alpha), 0.0),
    "HardSigmoid": hard_sigmoid,
    "HardSwish": plain(F.hardswish),
    "Softsign": plain(F.softsign),
    "Shrink": shrink,
    "Elu": lambda op, x: F.elu(x, op.alpha),
    "Selu": lambda op, x: f32(op.gamma) * F.elu(x, f32(op.alpha)),
    "Celu": lambda op, x: F.celu(x, op.alpha),
    "Gelu": lambda op, x: F.gelu(x, approximate=op.approximate),
    "Mish": plain(F.mish),
    "Swish": lambda op, x: x * torch.sigmoid(op.alpha * x),
    "Softplus": plain(F.softplus),
    "Equal": plain(torch.eq),
    "Less": plain(torch.lt),
    "LessOrEqual": plain(torch.le),
    "Greater": plain(torch.gt),
    "GreaterOrEqual": plain(torch.ge),
    "Where": plain(torch.where),
    "Identity": plain(torch.clone),
}


def cases(name: str) -> list[Case]:
    return list(REGISTRY[name].cases(np.random.default_rng(7)))


def is_single(case: Case) -> bool:
    """Whether all float inputs are float32: others carry other attributes' roundings."""
    return all(x is None or x.dtype in (np.float32, np.bool_) for x in case.inputs)


@pytest.mark.parametrize("name", TORCH)
def test_the_meaning_is_that_of_pytorch_in_double(name: str) -> None:
    chosen = [c for c in cases(name) if is_single(c)]
    assert chosen
    for case in chosen:
        xs = [
            torch.from_numpy(x if x.dtype == bool else x.astype(np.float64))
            for x in case.inputs
            if x is not None
        ]
        agree(case.op, case.inputs, [TORCH[name](case.op, *xs).numpy()], DOUBLE)


def onnx_attributes(op: Operator) -> dict[str, Any]:
    def plain_value(value: Any) -> Any:
        if isinstance(value, DType):
            return onnx.helper.np_dtype_to_tensor_dtype(value.numpy)
        return int(value) if isinstance(value, bool) else value

    unsaid = ("saturate", "round_mode") if op.kind == "Cast" else ()  # of 8, 4 and 2 bits alone
    stated = {k: v for k, v in op.attributes().items() if k not in unsaid}
    return {k: plain_value(v) for k, v in stated.items() if v is not None}


def has_foreign_semantics(case: Case) -> bool:
    """What ONNX leaves open and ONNX Runtime decides otherwise, or cannot be given."""
    kinds = {x.dtype.name for x in case.inputs if x is not None}
    if "bfloat16" in kinds:
        return True
    if case.op.kind == "Cast":
        source, to = kinds.pop(), case.op.attributes()["to"]
        if to.is_narrow or DType(source).is_narrow:
            return True  # tests/ops/test_narrow_types.py has them
        return (source.endswith(("float16", "float32", "float64")) and to.is_integer) or (
            "bfloat16" in (source, to)
        )
    if case.op.kind == "Div":
        return any(np.any(np.asarray(x) == 0) for x in case.inputs[1:]) and "float32" not in kinds
    if case.op.kind == "Mod":  # of floats only with fmod there
        zero = any(np.any(np.asarray(x) == 0) for x in case.inputs[1:])
        return zero or ("float32" in kinds and not case.op.attributes()["fmod"])
    if case.op.kind == "BitShift":
        return True  # needs opset 28 for signed and for large counts
    return case.label in ("wraps", "int64 ** float32")


WITHOUT_ORT = ("BitShift", "Swish", "Dropout", "BitCast")
"""Operators of ONNX that this version of ONNX Runtime has not, or has otherwise."""
WITH_ORT = [n for n in NAMES if onnx.defs.has(n) and n not in WITHOUT_ORT]


@pytest.mark.parametrize("name", WITH_ORT)
def test_onnx_runtime_agrees_within_the_error_model(name: str) -> None:
    compared = 0
    for case in cases(name):
        if has_foreign_semantics(case):
            continue
        try:
            found = onnxruntime_says(name, case.inputs, onnx_attributes(case.op))
        except Exception as error:
            # The last: its Python interface has no arrays of 8, 4 and 2 bits.
            reasons = "NOT_IMPLEMENTED", "INVALID_GRAPH", "can't be converted to MLDataType"
            assert any(r in str(error) for r in reasons), str(error)
            continue
        agree(case.op, case.inputs, found)
        compared += 1
    assert compared


@pytest.mark.parametrize("name", NAMES)
def test_the_expression_gives_the_promised_bits(name: str) -> None:
    """What the compiler is given is what the oracle evaluates, whenever there is an expression."""
    traced = 0
    for case in cases(name):
        op: Any = case.op
        expr = op.expression([None if x is None else DType.of(x) for x in case.inputs])
        if expr is None or op.output_count > 1:
            continue
        traced += 1
        got = np.asarray(evaluate(expr, NumpyArith(), case.inputs))
        types = tuple(None if x is None else TensorType.of(x) for x in case.inputs)
        known = tuple(x if i in case.constant else None for i, x in enumerate(case.inputs))
        ev = Evaluation(types, tuple(op.infer(Inference(types, known))))
        assert got.dtype == ev.outputs[0].dtype.numpy
        promised = np.asarray(op.canonical(ev, *case.inputs))
        if DType.of(promised).is_narrow:  # NumPy does not know their NaN
            got, promised = got.astype(np.float32), promised.astype(np.float32)
        np.testing.assert_array_equal(np.broadcast_to(got, promised.shape), promised)
    assert traced


@pytest.mark.parametrize("dtype", [DType.float64, DType.float32, DType.float16])
def test_functions_of_every_float_have_an_expression(dtype: DType) -> None:
    expr = Exp().expression([dtype])
    assert expr is not None and expr.dtype == str(dtype)


def test_a_power_of_integers_has_none() -> None:
    assert REGISTRY["Pow"]().expression([DType.int32, DType.int64]) is None  # type: ignore[attr-defined]
    assert REGISTRY["Pow"]().expression([DType.int32, DType.float32]) is not None  # type: ignore[attr-defined]


def test_half_precision_is_rounded_once() -> None:
    """Mean of three float16: rounding after every step would give another result."""
    rng = np.random.default_rng(3)
    xs = [rng.uniform(-2, 2, 4000).astype(np.float16) for _ in range(3)]
    op = REGISTRY["Mean"]()
    got = op.canonical(evaluation(op, xs), *xs)
    single = (xs[0].astype(np.float32) + xs[1] + xs[2]) / np.float32(3)
    np.testing.assert_array_equal(got, single.astype(np.float16))
    stepwise = (xs[0] + xs[1] + xs[2]) / np.float16(3)
    assert np.any(got != stepwise)


@pytest.mark.parametrize("op", [Relu(), Clip(), Max(), Min(), LeakyRelu(), Exp()])
def test_nan_is_passed_on(op: Operator) -> None:
    x = np.array([1.0, np.nan, -2.0], np.float32)
    others = {
        "Clip": (np.float32(-1), np.float32(0.5)),
        "Max": (np.array([np.nan, 3.0, 0.0], np.float32),),
        "Min": (np.array([np.nan, 3.0, 0.0], np.float32),),
    }.get(op.kind, ())
    inputs = (x, *map(np.asarray, others))
    ev = evaluation(op, inputs)
    expected = [op.kind in ("Max", "Min"), True, False]
    for y in (op.canonical(ev, *inputs), op.reference(ev, *inputs)):
        np.testing.assert_array_equal(np.isnan(np.asarray(y)), expected)


def infer(op: Operator, *types: str) -> TensorType:
    found = tuple(None if t == "" else TensorType.parse(t) for t in types)
    return op.infer(Inference(found, place="n"))[0]


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        ("float32[2, 1, 5]", "float32[3, 1]", "float32[2, 3, 5]"),
        ("float32[n, 3, h, w]", "float32[3, 1, 1]", "float32[n, 3, h, w]"),
        ("float32[n, 4]", "float32[1, 4]", "float32[n, 4]"),
        ("float32[n, 4]", "float32[m, 4]", "float32[max(n, m), 4]"),
        ("float32[n, 4]", "float32[7, 1]", "float32[7, 4]"),
        ("float32[0, 4]", "float32[1]", "float32[0, 4]"),
        ("float32[]", "float32[2*n]", "float32[2*n]"),
    ],
)
def test_shapes_broadcast(left: str, right: str, result: str) -> None:
    assert infer(Add(), left, right) == TensorType.parse(result)


def test_two_symbols_broadcast_to_the_larger() -> None:
    n, m = symbol("n"), symbol("m")
    got = infer(Mul(), "float32[n]", "float32[m]").dims[0]
    assert got == maximum(n, m)


@pytest.mark.parametrize(
    ("op", "types", "cause"),
    [
        (Add(), ("float32[2, 3]", "float32[4, 3]"), "do not broadcast"),
        (Add(), ("float32[2]", "float64[2]"), "input 1 is float64"),
        (Add(), ("bool[2]", "bool[2]"), "bool is not allowed"),
        (Add(), ("float32[2]", ""), "input 1 is required"),
        (Clip(), ("float32[2, 3]", "float32[3]"), "min is not a scalar"),
        (PRelu(), ("float32[2, 3]", "float32[4, 2, 3]"), "slope"),
        (PRelu(), ("float32[2, 1]", "float32[3]"), "slope"),
        (Where(), ("int64[2]", "float32[2]", "float32[2]"), "the condition is int64"),
        (REGISTRY["And"](), ("int8[2]", "bool[2]"), "input 1 is bool"),
        (REGISTRY["Sqrt"](), ("int32[2]",), "int32 is not allowed"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(
    op: Operator, types: tuple[str, ...], cause: str
) -> None:
    with pytest.raises(GraphError, match=cause):
        infer(op, *types)


def test_wrong_attributes_are_refused() -> None:
    with pytest.raises(GraphError, match="approximate"):
        REGISTRY["Gelu"](approximate="fast")
    with pytest.raises(GraphError, match="direction"):
        REGISTRY["BitShift"](direction="UP")
