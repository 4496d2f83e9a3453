"""200 plain functions with correct variants and injected faults, for the claim on derived bounds.

25 families, 8 draws of sizes and data each. A variant gets float32 arrays and works in float32
unless its name says otherwise. `derived_bound_figures` judges them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray
Formula = Callable[..., Any]
DRAWS = 8
f32 = np.float32


@dataclass(frozen=True)
class PlainFunction:
    """A meaning on inputs, with variants by type.

    correct: reordered, fused, other formula; unstable: a formula that loses digits, which may be
    called a mistake; faulty: what was injected.
    """

    name: str
    meaning: Formula
    inputs: tuple[Array, ...]
    correct: Mapping[str, Formula]
    faulty: Mapping[str, Formula]
    unstable: Mapping[str, Formula] = field(default_factory=dict)


FAMILIES: list[Callable[[np.random.Generator], PlainFunction]] = []


def family(make: Callable[[np.random.Generator], PlainFunction]) -> Any:
    FAMILIES.append(make)
    return make


def functions(draws: int = DRAWS, seed: int = 2026) -> Iterator[PlainFunction]:
    """Every family, drawn so many times."""
    for index, make in enumerate(FAMILIES):
        for draw in range(draws):
            yield make(np.random.default_rng([seed, index, draw]))


def normal(random: np.random.Generator, *shape: int) -> Array:
    return random.standard_normal(shape).astype(f32)


def sizes(random: np.random.Generator, count: int, low: int = 5, high: int = 90) -> list[int]:
    return [int(n) for n in random.choice(np.arange(low, high), count, replace=False)]


def in_float64(formula: Formula) -> Formula:
    """Computed in float64, rounded once: the most fused that there is."""
    return lambda *xs: np.asarray(formula(*(x.astype(np.float64) for x in xs))).astype(f32)


def in_bfloat16(formula: Formula) -> Formula:
    bf = ml_dtypes.bfloat16
    return lambda *xs: formula(*(x.astype(bf).astype(f32) for x in xs)).astype(bf).astype(f32)


def without_last(formula: Formula, tile: int = 4) -> Formula:
    """The last rows are left at zero, as by a kernel whose grid is too small."""

    def faulty(*xs: Array) -> Array:
        y = np.array(formula(*xs))
        y[-min(tile, max(1, len(y) // 3)) :] = 0
        return y

    return faulty


@family
def product(random: np.random.Generator) -> PlainFunction:
    m, k, n = sizes(random, 3)

    def meaning(a: Any, b: Any) -> Any:
        return a @ b

    def backwards(a: Array, b: Array) -> Array:
        total = np.zeros((m, n), f32)
        for i in reversed(range(k)):
            total = total + a[:, i : i + 1] * b[i]
        return total

    return PlainFunction(
        "product",
        meaning,
        (normal(random, m, k), normal(random, k, n)),
        {"reordered": backwards, "fused": in_float64(meaning)},
        {
            "missing term": lambda a, b: a[:, :-1] @ b[:-1],
            "coarser type": in_bfloat16(meaning),
            "last tile": without_last(meaning),
        },
    )


@family
def softmax(random: np.random.Generator) -> PlainFunction:
    m, n = sizes(random, 2)

    def meaning(x: Any) -> Any:
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    def plain(x: Array) -> Array:
        e = np.exp(x)
        return e / e.sum(-1, keepdims=True)

    def online(x: Array) -> Array:
        top, total = x[:, :1], np.ones((len(x), 1), f32)
        for i in range(1, x.shape[1]):
            new = np.maximum(top, x[:, i : i + 1])
            total = total * np.exp(top - new) + np.exp(x[:, i : i + 1] - new)
            top = new
        return np.exp(x - top) / total

    return PlainFunction(
        "softmax",
        meaning,
        (normal(random, m, n) * 2,),
        {"reordered": online, "fused": in_float64(meaning), "other formula": plain},
        {
            "wrong axis": lambda x: np.exp(x) / np.exp(x).sum(0, keepdims=True),
            "missing term": lambda x: np.exp(x) / np.exp(x[:, :-1]).sum(-1, keepdims=True),
            "wrong constant": lambda x: plain(x * f32(1.0001)),
        },
    )


@family
def layer_norm(random: np.random.Generator) -> PlainFunction:
    m, n = sizes(random, 2, 8)

    def meaning(x: Any, g: Any, b: Any) -> Any:
        d = x - x.mean(-1, keepdims=True)
        return d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5) * g + b

    def one_pass(x: Array, g: Array, b: Array) -> Array:
        mean = x.mean(-1, keepdims=True)
        variance = (x * x).mean(-1, keepdims=True) - mean * mean
        scale = g * (f32(1) / np.sqrt(variance + f32(1e-5)))
        return x * scale + (b - mean * scale)

    def outside(x: Array, g: Array, b: Array) -> Array:
        d = x - x.mean(-1, keepdims=True)
        return d / (np.sqrt((d * d).mean(-1, keepdims=True)) + f32(1e-5)) * g + b

    def unbiased(x: Array, g: Array, b: Array) -> Array:
        d = x - x.mean(-1, keepdims=True)
        return d / np.sqrt((d * d).sum(-1, keepdims=True) / f32(n - 1) + f32(1e-5)) * g + b

    return PlainFunction(
        "layer_norm",
        meaning,
        (normal(random, m, n) + f32(0.5), normal(random, n), normal(random, n)),
        {"other formula": one_pass, "fused": in_float64(meaning)},
        {
            "eps misplaced": outside,
            "off by one": unbiased,
            "missing term": lambda x, g, b: meaning(x, g, 0 * b).astype(f32),
        },
    )


@family
def logsumexp(random: np.random.Generator) -> PlainFunction:
    m, n = sizes(random, 2)

    def meaning(x: Any) -> Any:
        top = x.max(-1)
        return top + np.log(np.exp(x - top[:, None]).sum(-1))

    def plain(x: Array) -> Array:
        return np.log(np.exp(x).sum(-1))

    return PlainFunction(
        "logsumexp",
        meaning,
        (normal(random, m, n) * 3,),
        {
            "other formula": plain,
            "reordered": lambda x: np.logaddexp.reduce(x, -1),
            "fused": in_float64(meaning),
        },
        {
            "missing term": lambda x: plain(x[:, :-1]),
            "wrong constant": lambda x: plain(x) - np.log(f32(n)),
            "coarser type": in_bfloat16(plain),
        },
    )


@family
def prefix_sum(random: np.random.Generator) -> PlainFunction:
    m, n = sizes(random, 2, 20, 200)

    def meaning(x: Any) -> Any:
        return np.cumsum(x, -1)

    def doubling(x: Array) -> Array:
        y, step = x.copy(), 1
        while step < n:
            shifted = y.copy()
            shifted[:, step:] += y[:, :-step]
            y, step = shifted, 2 * step
        return y

    def exclusive(x: Array) -> Array:
        return np.cumsum(x, -1) - x

    return PlainFunction(
        "prefix_sum",
        meaning,
        (normal(random, m, n),),
        {"reordered": doubling, "fused": in_float64(meaning)},
        {
            "off by one": exclusive,
            "wrong axis": lambda x: np.cumsum(x, 0),
            "coarser type": in_bfloat16(meaning),
        },
    )


@family
def variance(random: np.random.Generator) -> PlainFunction:
    m, n = sizes(random, 2, 10)

    def welford(x: Array) -> Array:
        mean, total = np.zeros(m, f32), np.zeros(m, f32)
        for i in range(n):
            d = x[:, i] - mean
            mean = mean + d / f32(i + 1)
            total = total + d * (x[:, i] - mean)
        return total / f32(n)

    return PlainFunction(
        "variance",
        lambda x: x.var(-1),
        (normal(random, m, n) + f32(random.uniform(0, 1)),),
        {"other formula": welford, "fused": in_float64(lambda x: x.var(-1))},
        {
            "off by one": lambda x: x.var(-1, ddof=1),
            "missing term": lambda x: (x * x).mean(-1),
            "coarser type": in_bfloat16(lambda x: x.var(-1)),
        },
        {"squares subtracted": lambda x: (x * x).mean(-1) - x.mean(-1) ** 2},
    )


@family
def gelu(random: np.random.Generator) -> PlainFunction:
    m, n = sizes(random, 2)

    def meaning(x: Any) -> Any:
        inner = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
        return 0.5 * x * (1 + np.tanh(inner))

    def by_sigmoid(x: Array) -> Array:
        inner = f32(2 * np.sqrt(2 / np.pi)) * (x + f32(0.044715) * (x * x * x))
        return x / (f32(1) + np.exp(-inner))

    def rounded_constant(x: Array) -> Array:
        return f32(0.5) * x * (1 + np.tanh(f32(0.8) * (x + f32(0.044715) * x * x * x)))

    return PlainFunction(
        "gelu",
        meaning,
        (normal(random, m, n),),
        {"other formula": by_sigmoid, "fused": in_float64(meaning)},
        {
            "wrong constant": rounded_constant,
            "missing term": lambda x: f32(0.5) * x * (1 + np.tanh(f32(0.7978846) * x)),
            "last tile": without_last(meaning),
        },
    )


@family
def distances(random: np.random.Generator) -> PlainFunction:
    m, n, k = sizes(random, 3, 5, 40)

    def meaning(a: Any, b: Any) -> Any:
        d = a[:, None] - b[None]
        return np.sqrt((d * d).sum(-1))

    def by_product(a: Array, b: Array) -> Array:
        squares = (a * a).sum(-1)[:, None] + (b * b).sum(-1) - 2 * (a @ b.T)
        return np.sqrt(np.maximum(squares, 0))

    return PlainFunction(
        "distances",
        meaning,
        (normal(random, m, k), normal(random, n, k)),
        {"other formula": by_product, "fused": in_float64(meaning)},
        {
            "missing term": lambda a, b: meaning(a[:, 1:], b[:, 1:]),
            "wrong constant": lambda a, b: meaning(a, b) + f32(1e-4),
            "coarser type": in_bfloat16(meaning),
        },
    )


@family
def convolution(random: np.random.Generator) -> PlainFunction:
    n, k = sizes(random, 1, 40, 120)[0], int(random.integers(3, 9))

    def meaning(x: Any, w: Any) -> Any:
        return sum(x[:, i : n - k + 1 + i] * w[i] for i in range(k))

    def backwards(x: Array, w: Array) -> Array:
        total = np.zeros((3, n - k + 1), f32)
        for i in reversed(range(k)):
            total = total + x[:, i : n - k + 1 + i] * w[i]
        return total

    def by_windows(x: Array, w: Array) -> Array:
        return np.lib.stride_tricks.sliding_window_view(x, k, -1) @ w

    return PlainFunction(
        "convolution",
        meaning,
        (normal(random, 3, n), normal(random, k)),
        {"reordered": backwards, "other formula": by_windows, "fused": in_float64(meaning)},
        {
            "flipped": lambda x, w: meaning(x, w[::-1]),
            "missing term": lambda x, w: meaning(x, np.append(w[:-1], f32(0))),
            "off by one": lambda x, w: np.roll(meaning(x, w), 1, -1),
        },
    )


@family
def attention(random: np.random.Generator) -> PlainFunction:
    m, n, k = sizes(random, 3, 5, 40)

    def meaning(q: Any, key: Any, v: Any) -> Any:
        s = q @ key.T / np.sqrt(k)
        e = np.exp(s - s.max(-1, keepdims=True))
        return (e / e.sum(-1, keepdims=True)) @ v

    def late(q: Array, key: Array, v: Array) -> Array:
        e = np.exp((q * f32(1 / np.sqrt(k))) @ key.T)
        return (e @ v) / e.sum(-1, keepdims=True)

    return PlainFunction(
        "attention",
        meaning,
        (normal(random, m, k), normal(random, n, k), normal(random, n, k)),
        {"other formula": late, "fused": in_float64(meaning)},
        {
            "wrong constant": lambda q, key, v: late(q * f32(np.sqrt(k)), key, v),
            "missing term": lambda q, key, v: late(q, key[:-1], v[:-1]),
            "coarser type": in_bfloat16(late),
        },
    )


@family
def horner(random: np.random.Generator) -> PlainFunction:
    n, degree = sizes(random, 1, 50, 300)[0], int(random.integers(3, 8))

    def meaning(x: Any, c: Any) -> Any:
        return sum(c[i] * x**i for i in range(degree))

    def nested(x: Array, c: Array) -> Array:
        y = np.zeros_like(x)
        for i in reversed(range(degree)):
            y = y * x + c[i]
        return y

    return PlainFunction(
        "horner",
        meaning,
        (random.uniform(-1.5, 1.5, n).astype(f32), normal(random, degree)),
        {"other formula": nested, "fused": in_float64(nested)},
        {
            "missing term": lambda x, c: nested(x, np.append(c[:-1], f32(0))),
            "off by one": lambda x, c: nested(x, c) * x,
            "wrong constant": lambda x, c: nested(x, c * f32(1.00005)),
        },
    )


@family
def recurrence(random: np.random.Generator) -> PlainFunction:
    m, n = sizes(random, 2, 6, 40)

    def meaning(x: Any, a: Any) -> Any:
        h, rows = 0 * x[0], []
        for i in range(m):
            h = np.tanh(a * h + x[i])
            rows.append(h)
        return np.stack(rows)

    def sigmoid(x: Array, a: Array) -> Array:
        h, rows = np.zeros(n, f32), []
        for i in range(m):
            h = f32(2) / (f32(1) + np.exp(f32(-2) * (x[i] + h * a))) - f32(1)
            rows.append(h)
        return np.stack(rows)

    def stale(x: Array, a: Array) -> Array:
        return np.tanh(x + a * np.vstack([np.zeros((1, n), f32), np.tanh(x[:-1])]))

    return PlainFunction(
        "recurrence",
        meaning,
        (normal(random, m, n), random.uniform(-0.9, 0.9, n).astype(f32)),
        {"fused": in_float64(meaning)},
        {
            "off by one": lambda x, a: np.roll(meaning(x, a), 1, 0),
            "missing term": stale,
            "last tile": without_last(meaning),
        },
        {"tanh by sigmoid, near zero": sigmoid},
    )


@family
def normalize(random: np.random.Generator) -> PlainFunction:
    m, n = sizes(random, 2)

    def meaning(x: Any) -> Any:
        return x / np.linalg.norm(x, axis=-1, keepdims=True)

    def by_rsqrt(x: Array) -> Array:
        return x * (f32(1) / np.sqrt(np.einsum("ij,ij->i", x, x)))[:, None]

    return PlainFunction(
        "normalize",
        meaning,
        (normal(random, m, n),),
        {"other formula": by_rsqrt, "fused": in_float64(meaning)},
        {
            "wrong axis": lambda x: x / np.linalg.norm(x, axis=0, keepdims=True),
            "eps misplaced": lambda x: x / (np.linalg.norm(x, axis=-1, keepdims=True) + f32(1e-3)),
            "last tile": without_last(by_rsqrt),
        },
    )


@family
def solve(random: np.random.Generator) -> PlainFunction:
    n, m = sizes(random, 2, 4, 24)
    a = normal(random, n, n) + f32(n) * np.eye(n, dtype=f32)

    def jacobi(a: Array, b: Array) -> Array:
        d, x = np.diag(a)[:, None], np.zeros_like(b)
        for _ in range(60):
            x = (b - (a @ x - d * x)) / d
        return x

    return PlainFunction(
        "solve",
        np.linalg.solve,
        (a, normal(random, n, m)),
        {
            "other formula": lambda a, b: np.linalg.inv(a) @ b,
            "fused": in_float64(np.linalg.solve),
            "reordered": jacobi,
        },
        {
            "transposed": lambda a, b: np.linalg.solve(a.T, b),
            "missing term": lambda a, b: b / np.diag(a)[:, None],
            "wrong constant": lambda a, b: np.linalg.solve(a, b) * f32(1.0001),
        },
    )


@family
def spectrum(random: np.random.Generator) -> PlainFunction:
    m, n = sizes(random, 2, 8)

    def meaning(x: Any) -> Any:
        i = np.arange(n)
        angle = 2 * np.pi * np.outer(i, i) / n
        return (x @ np.cos(angle)) ** 2 + (x @ np.sin(angle)) ** 2

    def by_fft(x: Array) -> Array:
        y = np.fft.fft(x)
        return (y.real**2 + y.imag**2).astype(f32)

    return PlainFunction(
        "spectrum",
        meaning,
        (normal(random, m, n),),
        {"other formula": by_fft, "fused": in_float64(meaning)},
        {
            "wrong constant": lambda x: by_fft(x) / f32(n),
            "missing term": lambda x: (np.fft.fft(x).real ** 2).astype(f32),
            "off by one": lambda x: np.roll(by_fft(x), 1, -1),
        },
    )


@family
def cross_entropy(random: np.random.Generator) -> PlainFunction:
    m, n = sizes(random, 2)

    def meaning(x: Any, p: Any) -> Any:
        s = x - x.max(-1, keepdims=True)
        return (p * (np.log(np.exp(s).sum(-1, keepdims=True)) - s)).sum(-1)

    def plain(x: Array, p: Array) -> Array:
        return np.log(np.exp(x).sum(-1)) * p.sum(-1) - (p * x).sum(-1)

    shares = random.dirichlet(np.ones(n), m).astype(f32)
    return PlainFunction(
        "cross_entropy",
        meaning,
        (normal(random, m, n), shares),
        {"other formula": plain, "fused": in_float64(meaning)},
        {
            "sign": lambda x, p: -plain(x, p),
            "missing term": lambda x, p: -(p * x).sum(-1),
            "wrong constant": lambda x, p: plain(x, p) / f32(n),
        },
    )


@family
def rotary(random: np.random.Generator) -> PlainFunction:
    m, half = sizes(random, 2, 5, 40)

    def meaning(x: Any, t: Any) -> Any:
        a, b = x[:, :half], x[:, half:]
        return np.concatenate([a * np.cos(t) - b * np.sin(t), a * np.sin(t) + b * np.cos(t)], -1)

    def complex_product(x: Array, t: Array) -> Array:
        y = (x[:, :half] + 1j * x[:, half:]) * np.exp(1j * t).astype(np.complex64)
        return np.concatenate([y.real, y.imag], -1).astype(f32)

    def swapped(x: Array, t: Array) -> Array:
        return meaning(x, -t)

    return PlainFunction(
        "rotary",
        meaning,
        (normal(random, m, 2 * half), random.uniform(0, 6, (m, half)).astype(f32)),
        {"other formula": complex_product, "fused": in_float64(meaning)},
        {
            "sign": swapped,
            "off by one": lambda x, t: meaning(x, np.roll(t, 1, 0)),
            "coarser type": in_bfloat16(meaning),
        },
    )


@family
def running_average(random: np.random.Generator) -> PlainFunction:
    m, n = sizes(random, 2, 20, 80)
    k = int(random.integers(3, 8))

    def meaning(x: Any) -> Any:
        return np.stack([x[:, i : i + k].mean(-1) for i in range(n - k + 1)], -1)

    def by_differences(x: Array) -> Array:
        sums = np.concatenate([np.zeros((m, 1), f32), np.cumsum(x, -1)], -1)
        return (sums[:, k:] - sums[:, :-k]) / f32(k)

    return PlainFunction(
        "running_average",
        meaning,
        (normal(random, m, n),),
        {"fused": in_float64(meaning)},
        {
            "off by one": lambda x: np.roll(meaning(x), 1, -1),
            "wrong constant": lambda x: meaning(x) * f32(k / (k + 1)),
            "coarser type": in_bfloat16(meaning),
        },
        {"differences of running sums": by_differences},
    )


@family
def thresholded(random: np.random.Generator) -> PlainFunction:
    m, k, n = sizes(random, 3, 10, 80)

    def meaning(a: Any, b: Any) -> Any:
        y = a @ b
        return np.where(y > 1, y, 0)

    def backwards(a: Array, b: Array) -> Array:
        y = a[:, ::-1] @ np.ascontiguousarray(b[::-1])
        return np.where(y > 1, y, f32(0))

    return PlainFunction(
        "thresholded",
        meaning,
        (normal(random, m, k), normal(random, k, n)),
        {"reordered": backwards, "fused": in_float64(meaning)},
        {
            "wrong constant": lambda a, b: np.where(a @ b > 1.1, a @ b, f32(0)),
            "missing term": lambda a, b: a @ b,
            "coarser type": in_bfloat16(meaning),
        },
    )


@family
def bucketed(random: np.random.Generator) -> PlainFunction:
    m, k, n = sizes(random, 3, 10, 60)

    def meaning(a: Any, b: Any) -> Any:
        return np.floor(4 * (a @ b)) / 4

    def by_rint(a: Array, b: Array) -> Array:
        return np.rint(f32(4) * (a @ b)) / f32(4)

    return PlainFunction(
        "bucketed",
        meaning,
        (normal(random, m, k), normal(random, k, n)),
        {
            "reordered": lambda a, b: meaning(
                np.ascontiguousarray(a[:, ::-1]), np.ascontiguousarray(b[::-1])
            ),
            "fused": in_float64(meaning),
        },
        {
            "rounded instead of cut": by_rint,
            "wrong constant": lambda a, b: np.floor(f32(2) * (a @ b)) / f32(2),
            "missing term": lambda a, b: meaning(a[:, :-1], b[:-1]),
        },
    )


@family
def geometric_mean(random: np.random.Generator) -> PlainFunction:
    m, n = sizes(random, 2, 5, 30)

    def meaning(x: Any) -> Any:
        return np.exp(np.log(x).mean(-1))

    return PlainFunction(
        "geometric_mean",
        meaning,
        (random.uniform(0.3, 3, (m, n)).astype(f32),),
        {
            "other formula": lambda x: np.prod(x, -1) ** f32(1 / n),
            "fused": in_float64(meaning),
        },
        {
            "arithmetic instead": lambda x: x.mean(-1),
            "missing term": lambda x: meaning(x[:, :-1]),
            "coarser type": in_bfloat16(meaning),
        },
    )


@family
def interpolation(random: np.random.Generator) -> PlainFunction:
    m, n = sizes(random, 2, 8, 40)
    fine = 3 * n

    def meaning(x: Any) -> Any:
        at = np.clip((np.arange(fine) + 0.5) / 3 - 0.5, 0, n - 1)
        low = np.minimum(np.floor(at).astype(int), n - 2)
        t = at - low
        return x[:, low] * (1 - t) + x[:, low + 1] * t

    def lerp(x: Array) -> Array:
        at = np.clip((np.arange(fine, dtype=f32) + f32(0.5)) / f32(3) - f32(0.5), 0, f32(n - 1))
        low = np.minimum(np.floor(at).astype(int), n - 2)
        return x[:, low] + (at - low).astype(f32) * (x[:, low + 1] - x[:, low])

    def corners(x: Array) -> Array:
        at = np.linspace(0, n - 1, fine)
        low = np.minimum(np.floor(at).astype(int), n - 2)
        t = (at - low).astype(f32)
        return x[:, low] * (f32(1) - t) + x[:, low + 1] * t

    return PlainFunction(
        "interpolation",
        meaning,
        (normal(random, m, n),),
        {"fused": lambda x: meaning(x).astype(f32)},
        {
            "aligned corners": corners,
            "nearest instead": lambda x: np.repeat(x, 3, -1),
            "off by one": lambda x: np.roll(lerp(x), 1, -1),
        },
        {"coordinates in float32": lerp},
    )


@family
def rms_norm(random: np.random.Generator) -> PlainFunction:
    m, n = sizes(random, 2, 8)

    def meaning(x: Any, g: Any) -> Any:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * g

    def by_dot(x: Array, g: Array) -> Array:
        squares = np.einsum("ij,ij->i", x, x)[:, None] / f32(n)
        return x * (f32(1) / np.sqrt(squares + f32(1e-6)) * g)

    return PlainFunction(
        "rms_norm",
        meaning,
        (normal(random, m, n), normal(random, n)),
        {"other formula": by_dot, "fused": in_float64(meaning)},
        {
            "wrong constant": lambda x, g: by_dot(x, g + f32(1e-4)),
            "missing term": lambda x, g: x * g,
            "off by one": lambda x, g: by_dot(x, np.roll(g, 1)),
        },
    )


@family
def quadratic_form(random: np.random.Generator) -> PlainFunction:
    m, n = sizes(random, 2, 5, 60)

    def meaning(x: Any, a: Any) -> Any:
        return np.einsum("bi,ij,bj->b", x, a, x)

    return PlainFunction(
        "quadratic_form",
        meaning,
        (normal(random, m, n), normal(random, n, n)),
        {
            "reordered": lambda x, a: ((x @ a) * x).sum(-1),
            "other formula": lambda x, a: np.stack([r @ (a @ r) for r in x]),
            "fused": in_float64(meaning),
        },
        {
            "missing term": lambda x, a: ((x @ np.triu(a)) * x).sum(-1),
            "wrong constant": lambda x, a: f32(0.5) * ((x @ a) * x).sum(-1),
            "coarser type": in_bfloat16(meaning),
        },
    )


@family
def mixture(random: np.random.Generator) -> PlainFunction:
    m, n = sizes(random, 2, 5, 60)

    def meaning(x: Any, w: Any) -> Any:
        g = 1 / (1 + np.exp(-w))
        return (g * np.maximum(x, 0) + (1 - g) * np.tanh(x)).mean(0)

    def lerp(x: Array, w: Array) -> Array:
        g = f32(0.5) * (np.tanh(f32(0.5) * w) + f32(1))
        t = np.tanh(x)
        return np.add.reduce((t + g * (np.maximum(x, f32(0)) - t))[::-1], 0) / f32(m)

    return PlainFunction(
        "mixture",
        meaning,
        (normal(random, m, n), normal(random, n)),
        {"other formula": lerp, "fused": in_float64(meaning)},
        {
            "swapped": lambda x, w: lerp(x, -w),
            "off by one": lambda x, w: lerp(x[1:], w) * f32((m - 1) / m),
            "wrong constant": lambda x, w: lerp(x, w) + f32(1e-4),
        },
    )
