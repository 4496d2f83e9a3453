"""Pairs of networks that differ by one attribute, and pairs that are one function written twice.

A piece with one operator of interest stands between a convolution and a product, so that what
comes to it is known: `small`, `positive` or `negative` numbers keep it on one side of its corners,
and the change is hidden on ordinary inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import verax.api  # noqa: F401  (registers every operator)
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType

Piece = Callable[[Builder, str], str]
RANGES = {"wide": (1.0, 0.0), "small": (0.02, 0.0), "positive": (0.1, 4.0), "negative": (0.1, -4.0)}
"""How large the numbers that come to the piece are, and around what."""


@dataclass(frozen=True)
class Pair:
    """Two networks. hidden: ordinary inputs do not show that they differ."""

    label: str
    first: Graph
    second: Graph
    hidden: bool


def network(piece: Piece, near: str, seed: int, prefix: str = "", extra: bool = False) -> Graph:
    """A convolution whose results are of a size of our own, the piece, and a product. extra: an
    Identity in between, and other names."""
    random = np.random.default_rng(seed)
    size, offset = RANGES[near]
    b = Builder("net")
    x = b.input(prefix + "x", TensorType.parse("float32[2, 3, 9, 7]"))
    w = random.standard_normal((4, 3, 3, 3)).astype(np.float32) * np.float32(size / 5)
    bias = (offset + size * random.uniform(-0.1, 0.1, 4)).astype(np.float32)
    pads = ((1, 1), (1, 1))
    h = b.add(op("Conv", pads=pads), [x, b.constant(w), b.constant(bias)], [prefix + "conv"])
    if extra:
        h = b.add(op("Identity"), [h], [prefix + "inner"])
    h = piece(b, h)
    h = b.add(op("Flatten", axis=1), [h], [prefix + "flat"])
    width = int(str(b.types[h].dims[1]))
    last = random.standard_normal((width, 5)).astype(np.float32) / np.float32(np.sqrt(width))
    return b.graph([b.add(op("MatMul"), [h, b.constant(last)], [prefix + "y"])])


def op(kind: str, **attributes: Any) -> Any:
    """An operator by its name."""
    return REGISTRY[kind](**attributes)


def unary(kind: str, **attributes: Any) -> Piece:
    return lambda b, h: b.add(op(kind, **attributes), [h])


def number(b: Builder, value: float) -> str:
    return b.constant(np.float32(value))


def clip(low: float | None, high: float | None) -> Piece:
    def piece(b: Builder, h: str) -> str:
        bounds = [None if v is None else number(b, v) for v in (low, high)]
        return b.add(op("Clip"), [h, *bounds])

    return piece


def scaled(kind: str, shape: tuple[int, ...], count: int = 2, **attributes: Any) -> Piece:
    """A normalisation with a scale and a shift."""

    def piece(b: Builder, h: str) -> str:
        factors = [np.linspace(0.5, 1.5, int(np.prod(shape)), dtype=np.float32).reshape(shape)]
        return b.add(op(kind, **attributes), [h, *(b.constant(f) for f in factors * count)])

    return piece


def batch_norm(**attributes: Any) -> Piece:
    def piece(b: Builder, h: str) -> str:
        values = [np.linspace(0.5, 1.5, 4, dtype=np.float32) * np.float32(s) for s in (1, 1, 0, 4)]
        return b.add(op("BatchNormalization", **attributes), [h, *map(b.constant, values)])

    return piece


def then(*pieces: Piece) -> Piece:
    def piece(b: Builder, h: str) -> str:
        for p in pieces:
            h = p(b, h)
        return h

    return piece


def indices(kind: str, **attributes: Any) -> Piece:
    """Positions along an axis, as numbers beside what they came from."""

    def piece(b: Builder, h: str) -> str:
        k = b.add(op(kind, axis=1, keepdims=1, **attributes), [h])
        return b.add(op("Add"), [h, b.add(op("Cast", to="float32"), [k])])

    return piece


def top(**attributes: Any) -> Piece:
    def piece(b: Builder, h: str) -> str:
        k = b.constant(np.array([3], np.int64))
        values = b.add_all(op("TopK", axis=1, **attributes), [h, k])
        return str(values[0])

    return piece


def chosen(kind: str, limit: float, other: Piece) -> Piece:
    """Where(h kind limit, other(h), h)."""

    def piece(b: Builder, h: str) -> str:
        condition = b.add(op(kind), [h, number(b, limit)])
        return b.add(op("Where"), [condition, other(b, h), h])

    return piece


def special(**attributes: Any) -> Piece:
    def piece(b: Builder, h: str) -> str:
        return b.add(op("Where"), [b.add(op("IsInf", **attributes), [h]), number(b, 0.0), h])

    return piece


def binary(kind: str, value: float, **attributes: Any) -> Piece:
    return lambda b, h: b.add(op(kind, **attributes), [h, number(b, value)])


def reduced(kind: str, axes: tuple[int, ...], **attributes: Any) -> Piece:
    def piece(b: Builder, h: str) -> str:
        return b.add(op(kind, keepdims=1, **attributes), [h, b.constant(np.array(axes, np.int64))])

    return piece


def padded(mode: str) -> Piece:
    def piece(b: Builder, h: str) -> str:
        return b.add(op("Pad", mode=mode), [h, b.constant(np.array([0, 0, 1, 2, 0, 0, 2, 1]))])

    return piece


def resized(**attributes: Any) -> Piece:
    def piece(b: Builder, h: str) -> str:
        scales = b.constant(np.array([1, 1, 1.7, 2.3], np.float32))
        return b.add(op("Resize", **attributes), [h, None, scales])

    return piece


def convolved(**attributes: Any) -> Piece:
    def piece(b: Builder, h: str) -> str:
        w = np.random.default_rng(5).standard_normal((4, 4, 3, 3)).astype(np.float32) / 6
        return b.add(op("Conv", **attributes), [h, b.constant(w)])

    return piece


def hidden_changes() -> Iterator[tuple[str, str, Piece, Piece]]:
    """(label, where the numbers are, piece, the piece with one attribute changed)."""
    relu = unary("Relu")
    yield "Clip(0, 6) / Relu", "small", clip(0, 6), relu
    yield "Relu / Identity", "positive", relu, unary("Identity")
    for high in (5.5, 30.0, 1e4):
        yield f"Clip high {high}", "small", clip(0, 5), clip(0, high)
    for low in (-6.0, -1e3):
        yield f"Clip low {low}", "positive", clip(-5, 20), clip(low, 20)
    yield "Clip none", "small", clip(-6, 6), clip(-6, None)
    for alpha in (0.2, 0.011, 0.0):
        yield f"LeakyRelu {alpha}", "positive", unary("LeakyRelu"), unary("LeakyRelu", alpha=alpha)
    yield "LeakyRelu / Relu", "positive", unary("LeakyRelu", alpha=0.01), relu
    for kind in ("Elu", "Celu", "Selu"):
        other = unary(kind, alpha=2.0)
        yield f"{kind} alpha", "positive", unary(kind), other
    yield "ThresholdedRelu", "positive", *(unary("ThresholdedRelu", alpha=a) for a in (0.5, 1.0))
    yield "Shrink lambd", "positive", *(unary("Shrink", lambd=a) for a in (0.5, 1.0))
    yield "Shrink zero", "small", *(unary("Shrink", lambd=a) for a in (3.0, 4.0))
    saturated = (unary("HardSigmoid", alpha=a, beta=0.5) for a in (0.25, 0.3))
    yield "HardSigmoid alpha", "positive", *(then(binary("Mul", 3), p, relu_add) for p in saturated)
    yield "HardSwish / Identity", "positive", unary("HardSwish"), unary("Identity")
    yield "Abs / Identity", "positive", unary("Abs"), unary("Identity")
    for high in (9.0, 1e5):
        yield f"Min {high}", "small", binary("Min", 8.0), binary("Min", high)
    yield "Max", "positive", binary("Max", -2.0), binary("Max", -3.0)
    for limit in (9.0, 1e3, -1e3):
        kind = "Greater" if limit > 0 else "Less"
        branches = (chosen(kind, limit, unary("Tanh")), chosen(kind, limit * 2, unary("Tanh")))
        yield f"Where {limit}", "small", *branches
        yield f"Where other {limit}", "small", branches[0], chosen(kind, limit, unary("Neg"))
    yield "IsInf", "wide", special(), special(detect_negative=False)
    yield "ArgMax ties", "wide", indices("ArgMax"), indices("ArgMax", select_last_index=1)
    yield "ArgMin ties", "wide", indices("ArgMin"), indices("ArgMin", select_last_index=1)
    yield "Mod", "positive", binary("Mod", 100.0, fmod=1), binary("Mod", 200.0, fmod=1)
    for near, alpha in (("small", 1.0), ("positive", 1.0)):
        after = then(unary("Relu"), unary("LeakyRelu", alpha=0.1 * alpha))
        yield "LeakyRelu after Relu", near, after, then(relu, unary("LeakyRelu", alpha=0.3))
    yield "Clip after Sigmoid", "wide", *(then(unary("Sigmoid"), clip(0, h)) for h in (6, 7))
    yield (
        "Clip then LeakyRelu",
        "positive",
        *(then(clip(0, 9), unary("LeakyRelu", alpha=a)) for a in (0.1, 0.2)),
    )


def relu_add(b: Builder, h: str) -> str:
    """So that something of what was saturated goes on."""
    return b.add(op("Mul"), [h, number(b, 2.0)])


def shown_changes() -> Iterator[tuple[str, str, Piece, Piece]]:
    """The same, where ordinary inputs show the change."""
    for kind, names in {
        "LeakyRelu": ("alpha",), "Elu": ("alpha",), "Celu": ("alpha",), "Selu": ("alpha", "gamma"),
        "HardSigmoid": ("alpha", "beta"), "Swish": ("alpha",),
    }.items():  # fmt: skip
        for name in names:
            yield f"{kind} {name}", "wide", unary(kind), unary(kind, **{name: 0.37})
    yield "Gelu", "wide", unary("Gelu"), unary("Gelu", approximate="tanh")
    yield "Softmax axis", "wide", unary("Softmax", axis=1), unary("Softmax", axis=3)
    yield "LogSoftmax axis", "wide", unary("LogSoftmax", axis=1), unary("LogSoftmax", axis=2)
    for eps in (2e-5, 1e-3):
        yield f"Batch {eps}", "wide", batch_norm(epsilon=1e-5), batch_norm(epsilon=eps)
        yield (
            f"Layer {eps}",
            "small",
            *(scaled("LayerNormalization", (7,), epsilon=e) for e in (1e-5, eps)),
        )
        yield (
            f"Instance {eps}",
            "small",
            *(scaled("InstanceNormalization", (4,), epsilon=e) for e in (1e-5, eps)),
        )
        yield (
            f"RMS {eps}",
            "small",
            *(scaled("RMSNormalization", (7,), 1, epsilon=e) for e in (1e-5, eps)),
        )
    pool = {"kernel_shape": (3, 3), "strides": (2, 2)}
    for name, value in {
        "pads": ((1, 1), (0, 0)), "ceil_mode": True, "strides": (1, 2), "dilations": (2, 1),
    }.items():  # fmt: skip
        given = {**pool, "kernel_shape": (2, 2)}
        yield (
            f"MaxPool {name}",
            "wide",
            unary("MaxPool", **given),
            unary("MaxPool", **{**given, name: value}),
        )
    ones = {**pool, "pads": ((1, 1), (1, 1))}
    yield (
        "include pad",
        "wide",
        *(unary("AveragePool", **ones, count_include_pad=c) for c in (True, False)),
    )
    yield "LpPool p", "wide", *(unary("LpPool", **pool, p=p) for p in (2, 3))
    yield "LpNormalization p", "wide", *(unary("LpNormalization", axis=1, p=p) for p in (1, 2))
    yield "pads", "wide", *(convolved(pads=p) for p in (((1, 0), (1, 1)), ((0, 1), (1, 1))))
    yield "dilations", "wide", convolved(), convolved(dilations=(2, 1))
    yield "Pad", "wide", padded("reflect"), padded("edge")
    for mode in ("asymmetric", "align_corners"):
        yield (
            f"Resize {mode}",
            "wide",
            *(
                resized(mode="linear", coordinate_transformation_mode=m)
                for m in ("half_pixel", mode)
            ),
        )
    yield "cubic", "wide", *(resized(mode="cubic", cubic_coeff_a=a) for a in (-0.75, -0.5))
    yield "exclude", "wide", *(resized(mode="cubic", exclude_outside=a) for a in (0, 1))
    yield "nearest", "wide", *(resized(mode="nearest", nearest_mode=a) for a in ("floor", "ceil"))
    yield "ReduceMean", "wide", reduced("ReduceMean", (2,)), reduced("ReduceMean", (3,))
    yield "Transpose", "wide", *(unary("Transpose", perm=p) for p in ((0, 1, 3, 2), (0, 2, 1, 3)))
    yield "LRN", "wide", *(unary("LRN", size=3, alpha=a) for a in (1e-2, 2e-2))
    yield "TopK", "wide", top(), top(largest=False)
    yield "Trilu", "wide", unary("Trilu"), unary("Trilu", upper=False)


def mutated(count: int, seed: int) -> Iterator[Pair]:
    """`count` pairs that differ by one attribute, every second of them hidden."""
    lists = list(hidden_changes()), list(shown_changes())
    for i in range(count):
        changes = lists[i % 2]
        label, near, piece, other = changes[(i // 2 + seed) % len(changes)]
        turn = i // (2 * len(changes))
        networks = [
            network(piece, near, seed + i),
            network(other, near, seed + i, "q", turn % 2 == 1),
        ]
        if turn % 3 == 1:
            networks.reverse()
        yield Pair(label, networks[0], networks[1], i % 2 == 0)


def gemm(whole: bool) -> Piece:
    def piece(b: Builder, h: str) -> str:
        random = np.random.default_rng(3)
        w = b.constant(random.standard_normal((4 * 9 * 7, 6)).astype(np.float32) / 16)
        bias = b.constant(random.standard_normal(6).astype(np.float32))
        h = b.add(op("Flatten", axis=1), [h])
        if whole:
            return b.add(op("Gemm"), [h, w, bias])
        return b.add(op("Add"), [b.add(op("MatMul"), [h, w]), bias])

    return piece


def hard_swish(b: Builder, h: str) -> str:
    inner = clip(0, 6)(b, b.add(op("Add"), [h, number(b, 3)]))
    return b.add(op("Mul"), [h, b.add(op("Div"), [inner, number(b, 6)])])


def slope(b: Builder, h: str) -> str:
    condition = b.add(op("Greater"), [h, number(b, 0)])
    return b.add(op("Where"), [condition, h, b.add(op("Mul"), [h, number(b, 0.25)])])


def soft_max(b: Builder, h: str) -> str:
    axes = b.constant(np.array([3], np.int64))
    e = b.add(op("Exp"), [b.add(op("Sub"), [h, b.add(op("ReduceMax"), [h, axes])])])
    return b.add(op("Div"), [e, b.add(op("ReduceSum"), [e, axes])])


def layer_norm(b: Builder, h: str) -> str:
    axes = b.constant(np.array([3], np.int64))
    scale = b.constant(np.linspace(0.5, 1.5, 7, dtype=np.float32))
    d = b.add(op("Sub"), [h, b.add(op("ReduceMean"), [h, axes])])
    v = b.add(op("ReduceMean"), [b.add(op("Mul"), [d, d]), axes])
    root = b.add(op("Sqrt"), [b.add(op("Add"), [v, number(b, 1e-5)])])
    return b.add(op("Add"), [b.add(op("Mul"), [b.add(op("Div"), [d, root]), scale]), scale])


def folded_norm(b: Builder, h: str) -> str:
    gamma = np.linspace(0.5, 1.5, 4)
    scale = gamma / np.sqrt(4 * gamma + 1e-5)
    parts = [b.constant(a.astype(np.float32).reshape(4, 1, 1)) for a in (scale, gamma)]
    return b.add(op("Add"), [b.add(op("Mul"), [h, parts[0]]), parts[1]])


def turned(inner: Piece) -> Piece:
    """With channels last inside."""
    there, back = (unary("Transpose", perm=p) for p in ((0, 2, 3, 1), (0, 3, 1, 2)))
    return then(there, inner, back)


def written_twice() -> Iterator[tuple[str, Piece, Piece]]:
    """One function, written in two ways."""
    relu = unary("Relu")
    yield "as it is", then(relu, unary("Tanh")), then(relu, unary("Tanh"))
    yield "Max", relu, binary("Max", 0.0)
    yield "Clip from 0", relu, clip(0, None)
    yield "Clip to the largest", relu, clip(0, 3.4028234663852886e38)
    yield "Clip as Min and Max", clip(0, 6), then(binary("Max", 0.0), binary("Min", 6.0))
    turned_over = then(relu, binary("Mul", -1.0), binary("Max", -6.0), binary("Mul", -1.0), relu)
    yield "Clip as CoreML has it", then(clip(0, 6), relu), turned_over
    yield "Min and Max turned", then(binary("Min", 6.0), binary("Max", 0.0)), clip(0, 6)
    yield "HardSwish", unary("HardSwish"), hard_swish
    yield "slope", unary("LeakyRelu", alpha=0.25), slope
    yield "Relu twice", relu, then(relu, relu)
    yield "Gemm", gemm(True), gemm(False)
    yield "Softmax", unary("Softmax", axis=3), soft_max
    yield "LayerNormalization", scaled("LayerNormalization", (7,), epsilon=1e-5), layer_norm
    yield "BatchNormalization", batch_norm(), folded_norm
    yield "momentum", batch_norm(), batch_norm(momentum=0.5)
    yield "channels last", relu, turned(relu)
    yield "axis in another layout", unary("Softmax", axis=1), turned(unary("Softmax", axis=3))
    yield "negative axis", unary("Softmax", axis=3), unary("Softmax", axis=-1)
    yield "Dropout", relu, then(relu, unary("Dropout"))
    yield "Swish", unary("Swish"), lambda b, h: b.add(op("Mul"), [h, b.add(op("Sigmoid"), [h])])
    pool = {"kernel_shape": (3, 1), "strides": (3, 1)}
    yield "divides evenly", *(unary("MaxPool", **pool, ceil_mode=c) for c in (True, False))
    modes = ("half_pixel", "pytorch_half_pixel")
    yield (
        "results longer than 1",
        *(resized(mode="linear", coordinate_transformation_mode=m) for m in modes),
    )
    yield "global", unary("GlobalAveragePool"), unary("AveragePool", kernel_shape=(9, 7))


def honest(count: int, seed: int) -> Iterator[Pair]:
    """`count` pairs that are one function, in all ranges."""
    ways = list(written_twice())
    for i in range(count):
        label, piece, other = ways[i % len(ways)]
        near = list(RANGES)[(i // len(ways)) % len(RANGES)]
        first = network(piece, near, seed + i)
        second = network(other, near, seed + i, "q", i % 2 == 1)
        yield Pair(f"{label}, {near}", *((first, second) if i % 3 else (second, first)), False)
