"""Small networks in which the result of a large product, or of a 3x3 convolution, reaches an
operator that amplifies errors. Where rows, pixels or channels are chosen they are chosen for the
algorithms: these sizes are among the smallest that O3 computes by Strassen's and Winograd's.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY, Operator
from verax.ir.types import DType, TensorType

ROWS, TERMS, COLUMNS = 98, 416, 384
IMAGE, FILTERS = (2, 16, 14, 11), 24
ALGORITHMS = ("strassen", "winograd")
Piece = Callable[[Builder, str], str]


def op(kind: str, **attributes: object) -> Operator:
    return REGISTRY[kind](**attributes)  # type: ignore[call-arg]


def axis_of(b: Builder, value: str) -> int:
    """The axis of features: columns of a matrix, channels of an image."""
    return 1 if b.types[value].rank == 4 else -1


def number(b: Builder, value: float) -> str:
    return b.constant(np.array(value, np.float32))


def axes(b: Builder, *values: int) -> str:
    return b.constant(np.array(values, np.int64))


def approximated(b: Builder, algorithm: str, seed: int = 0, pruned: float = 0) -> str:
    """The node "layer" that O3 computes by `algorithm`, on the input "x". pruned: the share of its
    weights that are zero."""
    rng = np.random.default_rng(seed)

    def weights(shape: tuple[int, ...], terms: int) -> str:
        w = rng.standard_normal(shape) / np.sqrt(terms) * (rng.random(shape) >= pruned)
        return b.constant(w.astype(np.float32), "w")

    if algorithm == "strassen":
        x = b.input("x", TensorType.parse(f"float32[{ROWS}, {TERMS}]"))
        return b.add(op("MatMul"), [x, weights((TERMS, COLUMNS), TERMS)], ["k"], "layer")
    x = b.input("x", TensorType.parse(f"float32[{', '.join(map(str, IMAGE))}]"))
    conv = op("Conv", kernel_shape=(3, 3), pads=((1, 1), (1, 1)))
    w = weights((FILTERS, IMAGE[1], 3, 3), 9 * IMAGE[1])
    return b.add(conv, [x, w], ["k"], "layer")


def network(algorithm: str, *pieces: Piece, seed: int = 0, pruned: float = 0) -> Graph:
    """The layer, then these pieces one behind the other."""
    b = Builder("net")
    value = approximated(b, algorithm, seed, pruned)
    for piece in pieces:
        value = piece(b, value)
    return b.graph([value])


def unary(kind: str, **attributes: object) -> Piece:
    return lambda b, v: b.add(op(kind, **attributes), [v])


def log(b: Builder, v: str) -> str:
    return b.add(op("Log"), [b.add(op("Add"), [b.add(op("Abs"), [v]), number(b, 1e-20)])])


def rsqrt(b: Builder, v: str) -> str:
    return b.add(op("Rsqrt"), [b.add(op("Add"), [b.add(op("Mul"), [v, v]), number(b, 1e-20)])])


def reciprocal(b: Builder, v: str) -> str:
    shifted = b.add(op("Add"), [b.add(op("Abs"), [v]), number(b, 1e-20)])
    return b.add(op("Div"), [number(b, 1.0), shifted])


def threshold(b: Builder, v: str) -> str:
    return b.add(op("Cast"), [b.add(op("Greater"), [v, number(b, 0.0)])])


def is_zero(b: Builder, v: str) -> str:
    """What is not exactly zero is marked."""
    mask = b.add(op("Equal"), [v, number(b, 0.0)])
    return b.add(op("Where"), [mask, number(b, 0.0), number(b, 1.0)])


def rounded(b: Builder, v: str) -> str:
    return b.add(op("Round"), [b.add(op("Mul"), [v, number(b, 8.0)])])


def argmax(b: Builder, v: str) -> str:
    return b.add(op("ArgMax", axis=axis_of(b, v), keepdims=False), [v])


def top(b: Builder, v: str) -> str:
    found = b.add_all(op("TopK", axis=axis_of(b, v)), [v, axes(b, 3)])
    return b.add(op("Cast"), [found[1]])


def modulo(b: Builder, v: str) -> str:
    return b.add(op("Mod"), [v, number(b, 0.25)])


def unit_norm(b: Builder, v: str) -> str:
    return b.add(op("LpNormalization", axis=axis_of(b, v), p=2), [v])


def own_sum(b: Builder, v: str) -> str:
    """Division by the sum of sizes, in its parts."""
    sizes = b.add(op("Abs"), [v])
    total = b.add(op("ReduceSum"), [sizes, axes(b, axis_of(b, v))])
    return b.add(op("Div"), [v, b.add(op("Add"), [total, number(b, 1e-20)])])


def standardized(b: Builder, v: str) -> str:
    """Minus the mean, divided by the standard deviation, in its parts: what patches get."""
    over = axes(b, axis_of(b, v))
    centered = b.add(op("Sub"), [v, b.add(op("ReduceMean"), [v, over])])
    square = b.add(op("Mul"), [centered, centered])
    variance = b.add(op("ReduceMean"), [square, over])
    root = b.add(op("Sqrt"), [b.add(op("Add"), [variance, number(b, 1e-20)])])
    return b.add(op("Div"), [centered, root])


def spatial_norm(epsilon: float) -> Piece:
    """InstanceNormalization; of a matrix over its rows."""

    def piece(b: Builder, v: str) -> str:
        if b.types[v].rank == 2:
            v = b.add(op("Transpose", perm=(1, 0)), [v])
            v = b.add(op("Reshape"), [v, axes(b, 1, COLUMNS, ROWS)])
        channels = b.types[v].shape[1]
        ones = b.constant(np.ones(channels, np.float32))
        zeros = b.constant(np.zeros(channels, np.float32))
        return b.add(op("InstanceNormalization", epsilon=epsilon), [v, ones, zeros])

    return piece


def feature_norm(kind: str, epsilon: float) -> Piece:
    """LayerNormalization or RMSNormalization of each row's, or each pixel's, features."""

    def piece(b: Builder, v: str) -> str:
        if b.types[v].rank == 4:
            v = b.add(op("Transpose", perm=(0, 2, 3, 1)), [v])
        scale = b.constant(np.ones(b.types[v].shape[-1], np.float32))
        return b.add(op(kind, epsilon=epsilon), [v, scale])

    return piece


def cosine_similarity(b: Builder, v: str) -> str:
    """Of all rows, or of all pixels, with each other: cosine attention without its softmax."""
    if b.types[v].rank == 4:
        v = b.add(op("Reshape"), [v, axes(b, IMAGE[0], FILTERS, -1)])
        v = b.add(op("Transpose", perm=(0, 2, 1)), [v])
    n = b.add(op("LpNormalization", axis=-1, p=2), [v])
    rank = b.types[n].rank
    swapped = (*range(rank - 2), rank - 1, rank - 2)
    return b.add(op("MatMul"), [n, b.add(op("Transpose", perm=swapped), [n])])


def residual(b: Builder, v: str) -> str:
    """Added to another value of its shape, which no product made."""
    x = b.input(b.fresh("beside"), b.types[v])
    return b.add(op("Add"), [v, x])


def product(b: Builder, v: str) -> str:
    """A product with weights over the features."""
    features = b.types[v].shape[axis_of(b, v)]
    w = np.random.default_rng(features).standard_normal((features, 20)) / np.sqrt(features)
    if b.types[v].rank == 4:
        weights = b.constant(w.T.reshape(20, features, 1, 1).astype(np.float32))
        return b.add(op("Conv"), [v, weights])
    return b.add(op("MatMul"), [v, b.constant(w.astype(np.float32))])


def convolution(b: Builder, v: str) -> str:
    """5x5 and hence direct at every level."""
    w = np.random.default_rng(8).standard_normal((20, b.types[v].shape[1], 5, 5)) / 20
    conv = op("Conv", pads=((2, 2), (2, 2)))
    return b.add(conv, [v, b.constant(w.astype(np.float32))])


def bias(b: Builder, v: str) -> str:
    n = b.types[v].shape[axis_of(b, v)]
    shape = (n, 1, 1) if b.types[v].rank == 4 else (n,)
    made = np.random.default_rng(n).standard_normal(shape).astype(np.float32)
    return b.add(op("Add"), [v, b.constant(made)])


def pooled(b: Builder, v: str) -> str:
    return b.add(op("GlobalAveragePool"), [v])


def quantized(b: Builder, v: str) -> str:
    zero = b.constant(np.array(0, np.int8))
    scale = number(b, 0.05)
    q = b.add(op("QuantizeLinear"), [v, scale, zero])
    return b.add(op("DequantizeLinear"), [q, scale, zero])


def as_int8(b: Builder, v: str) -> str:
    return b.add(op("Cast", to=DType.int8), [b.add(op("Clip"), [v])])


AMPLIFIERS: dict[str, Piece] = {
    "cosine similarity": cosine_similarity,
    "unit norm": unit_norm,
    "log": log,
    "rsqrt": rsqrt,
    "reciprocal": reciprocal,
    "spatial norm, epsilon 1e-12": spatial_norm(1e-12),
    "feature norm, epsilon 1e-12": feature_norm("LayerNormalization", 1e-12),
    "sign": unary("Sign"),
    "threshold": threshold,
    "is zero": is_zero,
    "argmax": argmax,
    "top": top,
    "standardized": standardized,
    "own sum": own_sum,
    "round": rounded,
    "floor": unary("Floor"),
    "modulo": modulo,
    "cast": as_int8,
    "square root": lambda b, v: b.add(op("Sqrt"), [b.add(op("Abs"), [v])]),
}
BY_OWN_NORM = {"cosine similarity", "unit norm"}
"""Harmless where each row errs relative to itself, as by Strassen's algorithm with its scales."""
