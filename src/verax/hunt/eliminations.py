"""Near misses of what optimizers remove or merge: neutral elements, casts, quantization, residuals.

An element is neutral for one operator and one side only, a cast loses what it loses, and a fusion
of a residual or a bias holds for the shapes that it was written for.
"""

from __future__ import annotations

import numpy as np

from verax.hunt.case import Draft, FusionPattern, pick
from verax.ir.operator import REGISTRY
from verax.ir.types import DType


def _op(draft: Draft, kind: str, *inputs: str | None, **attributes: object) -> str:
    return draft.add(REGISTRY[kind](**attributes), *inputs)


def _neutral(draft: Draft) -> tuple[str, str]:
    """x + 0, 0 - x, x / 1, 1 / x, x * 1, x ** 1, with elements that broadcast x to more."""
    kind, element, left = pick(draft.random, (
        ("Add", 0.0, False), ("Sub", 0.0, False), ("Sub", 0.0, True), ("Mul", 1.0, False),
        ("Div", 1.0, False), ("Div", 1.0, True), ("Pow", 1.0, False), ("Pow", 1.0, True),
        ("Add", 1.0, False), ("Mul", 0.0, False), ("Max", 0.0, False)))  # fmt: skip
    shape = pick(draft.random, ((), (1,), (1, 1, 1, 1), (3, 1, 5), (1, 5), (2, 1, 4, 5)))
    x = draft.input(np.abs(draft.normal(1, 4, 5)) + np.float32(0.5))
    c = draft.constant(np.full(shape, element), np.float32)
    y = _op(draft, kind, *((c, x) if left else (x, c)))
    text = f"{kind} of {element:g} {list(shape)}" + (" on the left" if left else "")
    return _op(draft, pick(draft.random, ("Relu", "Neg", "Exp")), y), text


def _casts(draft: Draft) -> tuple[str, str]:
    """Casts there and back, of which only some lose nothing."""
    middle = pick(draft.random, ("int32", "int8", "uint8", "float16", "float64", "bool", "int64"))
    x = draft.input(draft.random.uniform(0.0, 90.0, (2, 5, 3)).astype(np.float32))
    y = _op(draft, "Cast", x, to=DType(middle))
    if draft.random.random() < 0.5 and middle != "bool":
        y = _op(draft, "Cast", y, to=DType(pick(draft.random, ("float64", "int32", "float16"))))
    return _op(draft, "Cast", y, to=DType("float32")), f"through {middle}"


def _clips(draft: Draft) -> tuple[str, str]:
    """Relu and Clip, Clip and Clip: they merge into one, not into the last."""
    x = draft.input(draft.normal(3, 7, 5) * 3)
    bounds = [(-1.0, 2.0), (0.5, 6.0), (-3.0, -0.5), (1.0, 0.5), (0.0, 6.0)]
    first, second = pick(draft.random, bounds), pick(draft.random, bounds)

    def clip(value: str, pair: tuple[float, float]) -> str:
        low, high = (draft.constant(b, np.float32) for b in pair)
        return _op(draft, "Clip", value, low, high)

    order = int(draft.random.integers(3))
    if order == 0:
        return clip(_op(draft, "Relu", x), second), f"Relu, Clip {second}"
    if order == 1:
        return _op(draft, "Relu", clip(x, second)), f"Clip {second}, Relu"
    return clip(clip(x, first), second), f"Clip {first}, Clip {second}"


def _residual(draft: Draft) -> tuple[str, str]:
    """Conv, normalized or not, plus something that broadcasts, then an activation."""
    x = draft.input(draft.normal(2, 4, 9, 7))
    w, bias = draft.constant(draft.normal(6, 4, 3, 2) / 3), draft.constant(draft.normal(6))
    y = _op(draft, "Conv", x, w, *((bias,) if draft.random.random() < 0.5 else ()),
            pads=((1, 1), (0, 1)))  # fmt: skip
    if draft.random.random() < 0.5:
        arrays = (draft.normal(6), draft.normal(6), draft.normal(6),
                  draft.random.uniform(0.2, 2.0, 6).astype(np.float32))  # fmt: skip
        y = _op(draft, "BatchNormalization", y, *map(draft.constant, arrays))
    size = draft.shape(y)
    shape = pick(draft.random, (size, size, (6, 1, 1), (1, *size[1:]), (size[3],), (2, 1, 1, 1)))
    second = draft.input(draft.normal(*shape))
    y = _op(draft, "Add", *((y, second) if draft.random.random() < 0.5 else (second, y)))
    kind = pick(draft.random, ("Relu", "Relu", "Sigmoid", "Tanh", "Neg"))
    return _op(draft, kind, y), f"Add of {list(shape)}, {kind}"


def _skip_norm(draft: Draft) -> tuple[str, str]:
    """A sum before LayerNormalization, over the last axis or another one."""
    x = draft.input(draft.normal(2, 5, 12))
    shape = pick(draft.random, ((2, 5, 12), (5, 12), (12,), (1, 5, 12), (2, 1, 12), (5, 1)))
    y = _op(draft, "Add", x, draft.input(draft.normal(*shape)))
    if draft.random.random() < 0.4:
        y = _op(draft, "Add", y, draft.constant(draft.normal(12)))
    axis = pick(draft.random, (-1, -1, 1))
    sizes = draft.shape(y)[axis:]
    scale, bias = draft.constant(draft.normal(*sizes)), draft.constant(draft.normal(*sizes))
    y = _op(draft, "LayerNormalization", y, scale, bias, axis=axis, epsilon=1e-3)
    return y, f"Add of {list(shape)}, axis {axis}"


def _bias_gelu(draft: Draft) -> tuple[str, str]:
    x = draft.input(draft.normal(2, 5, 12))
    shape = pick(draft.random, ((12,), (1, 12), (5, 1), (5, 12), (1,), (2, 5, 12)))
    y = _op(draft, "Add", x, draft.constant(draft.normal(*shape)))
    mode = pick(draft.random, ("none", "tanh"))
    return _op(draft, "Gelu", y, approximate=mode), f"Add of {list(shape)}, Gelu {mode}"


def _pieces(draft: Draft) -> tuple[str, str]:
    """Slices that are joined again: in their order or another one, whole or not."""
    x = draft.input(draft.normal(3, 8, 5))
    bounds = pick(draft.random, (((0, 3), (3, 8)), ((3, 8), (0, 3)), ((0, 4), (3, 8)),
                                 ((0, 3), (4, 8)), ((0, 8), (0, 8))))  # fmt: skip
    pieces = [
        _op(draft, "Slice", x, *(draft.constant([b], np.int64) for b in (first, last, 1)))
        for first, last in bounds
    ]
    axis = pick(draft.random, (1, 1, -2))
    return _op(draft, "Concat", *pieces, axis=axis), f"{bounds} joined along {axis}"


def _gemms(draft: Draft) -> tuple[str, str]:
    """A product with factors, plus a matrix, behind a transposition."""
    a, b = bool(draft.random.integers(2)), bool(draft.random.integers(2))
    x = draft.input(draft.normal(*((7, 5) if a else (5, 7))))
    if draft.random.random() < 0.5:
        x = _op(draft, "Transpose", draft.input(draft.normal(*((5, 7) if a else (7, 5)))),
                perm=(1, 0))  # fmt: skip
    w = draft.constant(draft.normal(*((4, 7) if b else (7, 4))))
    alpha, beta = pick(draft.random, (1.0, 0.5, -2.0)), pick(draft.random, (1.0, 0.0, 0.25))
    y = _op(draft, "Gemm", x, w, trans_a=a, trans_b=b, alpha=alpha, beta=beta)
    shape = pick(draft.random, ((4,), (5, 1), (5, 4), (1, 4), (), (2, 5, 4)))
    y = _op(draft, "Add", y, draft.input(draft.normal(*shape)))
    kind = pick(draft.random, ("Relu", "LeakyRelu", "Tanh"))
    return _op(draft, kind, y), f"alpha {alpha:g}, beta {beta:g}, Add of {list(shape)}, {kind}"


QUANTIZED = (
    *("Add", "Mul", "MatMul", "Relu", "Sigmoid", "Softmax", "Concat", "ReduceMean"),
    *("GlobalAveragePool", "LeakyRelu", "Transpose"),
)
"""Operators between dequantization and quantization that runtimes have integer kernels for."""


def _quantized(draft: Draft) -> tuple[str, str]:
    """Dequantized operands, an operator, quantized again; per tensor or along an axis."""
    dtype = pick(draft.random, (np.uint8, np.int8))
    low = 0 if dtype is np.uint8 else -128

    def dequantized(shape: tuple[int, ...], scale: float | np.ndarray, axis: int | None) -> str:
        q = draft.random.integers(low, low + 256, shape).astype(dtype)
        scales = draft.constant(scale, np.float32)
        count = np.shape(scale)
        point = draft.constant(draft.random.integers(low + 100, low + 156, count), dtype)
        axes = {} if axis is None else {"axis": axis}
        return _op(draft, "DequantizeLinear", draft.input(q), scales, point, **axes)

    scale = float(pick(draft.random, (0.03125, 0.02)))
    axis = pick(draft.random, (None, None, 1))
    scales: float | np.ndarray = scale if axis is None else draft.random.uniform(0.01, 0.05, 4)
    x = dequantized((2, 4, 6, 6), scales, axis)
    kind = pick(draft.random, QUANTIZED)
    if kind in ("Add", "Mul", "MatMul", "Concat"):
        second = dequantized((2, 4, 6, 6), scale * 2, None)
        y = _op(draft, kind, x, second, **({"axis": 1} if kind == "Concat" else {}))
    elif kind == "ReduceMean":
        y = _op(draft, kind, x, draft.constant([2, 3], np.int64))
    elif kind == "Transpose":
        y = _op(draft, kind, x, perm=(0, 2, 3, 1))
    else:
        y = _op(draft, kind, x)
    point = draft.constant(int(draft.random.integers(low + 90, low + 160)), dtype)
    target = draft.constant(float(pick(draft.random, (0.0625, 0.013))), np.float32)
    return _op(draft, "QuantizeLinear", y, target, point), f"{kind} of {np.dtype(dtype)}, {axis}"


ELIMINATED: tuple[FusionPattern, ...] = (
    FusionPattern("neutral element", _neutral),
    FusionPattern("Cast and Cast", _casts),
    FusionPattern("Clip and Clip", _clips),
    FusionPattern("Conv and a residual", _residual),
    FusionPattern("sum and LayerNormalization", _skip_norm),
    FusionPattern("bias and Gelu", _bias_gelu),
    FusionPattern("Slice and Concat", _pieces),
    FusionPattern("Gemm and Add", _gemms),
    FusionPattern("quantized operator", _quantized),
)
