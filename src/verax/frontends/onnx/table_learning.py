"""ONNX's operators for classical learning (ai.onnx.ml, on numbers), n-grams, and single steps of
optimizers (ai.onnx.preview.training). Text is no number, and is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.context import Conversion, Result
from verax.frontends.onnx.rows import row
from verax.ir.types import DType

ML = "ai.onnx.ml"
TRAINING = "ai.onnx.preview.training"


@row("Binarizer", domain=ML)
def binarizer(c: Conversion) -> Result:
    """1 above the threshold, 0 elsewhere."""
    above = c.add("Greater", [c.required(0), c.like(c.scalar("threshold", 0.0))])
    return c.apply("Cast", [above], to=c.type(0).dtype)


@row("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(c: Conversion) -> Result:
    """Columns of the last axis by number; one row of them for a single axis."""
    x = c.required(0)
    if c.rank(0) == 1:
        x = c.add("Unsqueeze", [x, c.ints([0])])
    columns = c.add("Reshape", [c.required(1), c.ints([-1])])
    return c.apply("Gather", [x, columns], axis=-1)


@row("TfIdfVectorizer")
def n_grams(c: Conversion) -> Result:
    """How often each n-gram of a pool occurs in a row of integers: all lengths from the least to
    the greatest, with equal gaps of up to `max_skip_count` elements between neighbors."""
    a = c.attributes
    if a.has("pool_strings"):
        a.refuse("pool_strings", "text is no number")
    pool, columns = a.integers("pool_int64s", ()), a.integers("ngram_indexes", ())
    starts = a.integers("ngram_counts", ())
    shortest, longest = c.integer("min_gram_length", 1), c.integer("max_gram_length", 1)
    skips, mode = c.integer("max_skip_count", 0), c.choice("mode", ("TF", "IDF", "TFIDF"))
    if mode == "TF":
        a.irrelevant("weights", "the counts themselves are asked for")
    weights = None if mode == "TF" else a.numbers("weights")
    pools = _pools(pool, starts)
    count = sum(len(grams) for grams in pools)
    if count != len(columns) or not columns or len(set(columns)) < count or min(columns) < 0:
        raise ModelError(f"{count} n-grams for columns {columns[:8]}...", place=c.node.place)
    x, size = c.cast(c.required(0), DType.int64), c.known_size(0, -1)
    counts = [
        _counted(c, x, grams, size, skips if n > 1 else 0)
        if shortest <= n <= longest
        else _never(c, x, len(grams))
        for n, grams in enumerate(pools, 1)
        if len(grams)
    ]
    occurrences = c.add("Concat", [*counts, _never(c, x, 1)], axis=-1)
    width = max(columns) + 1
    c.check_count(width)
    source = np.full(width, count)
    source[list(columns)] = np.arange(count)
    y = c.add("Gather", [occurrences, c.ints(source.tolist())], axis=-1)
    if mode == "IDF":
        y = c.cast(c.add("Greater", [y, c.like(0, y)]), DType.float32)
    if weights is None:
        return c.same(y)
    if len(weights) != count:
        raise ModelError(f"{len(weights)} weights of {count} n-grams", place=c.node.place)
    factors = np.zeros(width, np.float32)
    factors[list(columns)] = weights
    return c.apply("Mul", [y, c.constant(factors)])


def _pools(pool: tuple[int, ...], starts: tuple[int, ...]) -> list[np.ndarray]:
    """The n-grams of length 1, 2, ..., each [count, n]."""
    bounds = [*starts, len(pool)]
    if any(not 0 <= a <= b for a, b in pairwise(bounds)):
        raise ValueError(f"n-grams that begin at {starts} of {len(pool)} integers")
    sections = [pool[first:last] for first, last in pairwise(bounds)]
    return [np.array(p, np.int64).reshape(-1, n) for n, p in enumerate(sections, 1)]


def _never(c: Conversion, x: str, count: int) -> str:
    """Zeros [..., count] for rows [..., size]."""
    front = c.add("Shape", [x], end=c.rank(x) - 1)
    shape = c.add("Concat", [front, c.ints([count])], axis=0)
    return c.add("Expand", [c.constant(0, np.float32), shape])


def _counted(c: Conversion, x: str, grams: np.ndarray, size: int, skips: int) -> str:
    """[..., count]: how often each of the n-grams [count, n] occurs in rows of x [..., size]."""
    count, n = grams.shape
    counts = []
    for gap in range(1, skips + 2):
        windows = size - (n - 1) * gap
        if windows < 1:
            break
        c.check_count(windows * count * n)
        positions = np.arange(windows)[:, None] + gap * np.arange(n)
        elements = c.add("Gather", [x, c.constant(positions, np.int64)], axis=-1)
        elements = c.add("Unsqueeze", [elements, c.ints([-2])])
        equal = c.cast(c.add("Equal", [elements, c.constant(grams)]), DType.float32)
        matches = c.add("ReduceMin", [equal, c.ints([-1])], keepdims=False)
        counts.append(c.add("ReduceSum", [matches, c.ints([-2])], keepdims=False))
    return c.add("Sum", counts) if counts else _never(c, x, count)


# Steps of optimizers: rate R, number of updates T, then tensors, gradients, and what is remembered


def _stepped(c: Conversion, kinds: int, step: Callable[..., tuple[str, ...]]) -> Result:
    """A step of each tensor: step(rate, updates, tensor, gradient, remembered...)."""
    count, remainder = divmod(len(c.inputs) - 2, kinds)
    if remainder or count < 1 or len(c.node.outputs) != count * (kinds - 1):
        raise ModelError(f"{len(c.inputs)} inputs of {kinds} kinds", place=c.node.place)
    groups = [[c.required(2 + k * count + i) for k in range(kinds)] for i in range(count)]
    dtype = c.type(groups[0][0]).dtype
    rate, updates = (c.cast(c.required(i), dtype) for i in range(2))
    results = [step(rate, updates, *group) for group in groups]
    return c.named([column for columns in zip(*results) for column in columns])


def _regularized(c: Conversion, x: str, gradient: str, factor: float) -> str:
    return c.add("Add", [c.add("Mul", [c.like(factor, x), x]), gradient])


def _mixed(c: Conversion, a: float | str, x: str, b: float | str, y: str) -> str:
    """a x + b y"""
    first, second = (v if isinstance(v, str) else c.like(v, x) for v in (a, b))
    return c.add("Add", [c.add("Mul", [first, x]), c.add("Mul", [second, y])])


@row("Adagrad", domain=TRAINING)
def adagrad(c: Conversion) -> Result:
    decay, epsilon = c.scalar("decay_factor", 0.0), c.scalar("epsilon", 1e-6)
    norm = c.scalar("norm_coefficient", 0.0)

    def step(rate: str, updates: str, x: str, g: str, h: str) -> tuple[str, ...]:
        slower = c.add("Add", [c.like(1, x), c.add("Mul", [updates, c.like(decay, x)])])
        g = _regularized(c, x, g, norm)
        h = c.add("Add", [h, c.add("Mul", [g, g])])
        size = c.add("Add", [c.add("Sqrt", [h]), c.like(epsilon, x)])
        update = c.add("Div", [c.add("Mul", [c.add("Div", [rate, slower]), g]), size])
        return c.add("Sub", [x, update]), h

    return _stepped(c, 3, step)


@row("Adam", domain=TRAINING)
def adam(c: Conversion) -> Result:
    alpha, beta = c.scalar("alpha", 0.9), c.scalar("beta", 0.999)
    epsilon, norm = c.scalar("epsilon", 1e-6), c.scalar("norm_coefficient", 0.0)
    after = c.scalar("norm_coefficient_post", 0.0)

    def step(rate: str, updates: str, x: str, g: str, v: str, h: str) -> tuple[str, ...]:
        g = _regularized(c, x, g, norm)
        v = _mixed(c, alpha, v, 1 - alpha, g)
        h = _mixed(c, beta, h, 1 - beta, c.add("Mul", [g, g]))
        one = c.like(1, x)
        left = [
            c.add("Sub", [one, c.add("Pow", [c.like(base, x), updates])]) for base in (beta, alpha)
        ]
        warm = c.add("Div", [c.add("Mul", [rate, c.add("Sqrt", [left[0]])]), left[1]])
        begun = c.add("Greater", [updates, c.like(0, x)])
        rate = c.add("Where", [begun, warm, rate])
        size = c.add("Add", [c.add("Sqrt", [h]), c.like(epsilon, x)])
        x = c.add("Sub", [x, c.add("Div", [c.add("Mul", [rate, v]), size])])
        return c.add("Mul", [c.like(1 - after, x), x]), v, h

    return _stepped(c, 4, step)


@row("Momentum", domain=TRAINING)
def momentum(c: Conversion) -> Result:
    alpha, beta = c.scalar("alpha", math.nan), c.scalar("beta", math.nan)
    norm = c.scalar("norm_coefficient", math.nan)
    mode = c.choice("mode", ("standard", "nesterov"))
    if math.isnan(alpha + beta + norm):
        raise ModelError("alpha, beta or norm_coefficient is missing", place=c.node.place)

    def step(rate: str, updates: str, x: str, g: str, v: str) -> tuple[str, ...]:
        g = _regularized(c, x, g, norm)
        begun = c.add("Greater", [updates, c.like(0, x)])
        v = _mixed(c, alpha, v, c.add("Where", [begun, c.like(beta, x), c.like(1, x)]), g)
        direction = (
            v if mode == "standard" else c.add("Add", [g, c.add("Mul", [c.like(alpha, x), v])])
        )
        return c.add("Sub", [x, c.add("Mul", [rate, direction])]), v

    return _stepped(c, 3, step)
