"""O3 errs at most 16 times as much as O1 where errors are amplified, or leaves the layer exact.

Random networks: a product or a convolution that O3 computes by Strassen's or Winograd's algorithm,
on inputs with zeros, tiny rows and wide ranges, then an operator that may amplify its error. The
networks are small, so that the sizes from which the algorithms pay are set aside; all numbers are
the promised bits, which other tests hold against compiled code.

The algorithms' broken twins, which lack the scales that let each row and each tile err relative to
itself, must fail.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest

from tests.compiler import amplifying
from tests.compiler.amplifying import (
    ALGORITHMS,
    AMPLIFIERS,
    Piece,
    bias,
    cosine_similarity,
    feature_norm,
    pooled,
    product,
    residual,
    spatial_norm,
    unary,
    unit_norm,
)
from verax.base.option_groups.settings import Settings
from verax.compiler.passes import choose_strassen, choose_winograd
from verax.compiler.pipeline.levels import run_passes
from verax.ir.graph import Graph
from verax.numerics import strassen, winograd
from verax.numerics.error_model import U
from verax.reference.evaluate import evaluate, promised

PASSES = {"strassen": choose_strassen, "winograd": choose_winograd}
FACTOR = 16
"""O3 may err so many times as much as O1, and so many units in the last place of the largest
number more."""
EPSILON = 1e-5
FEW, MANY = 30, 1000
SIZES = {"ROWS": 21, "TERMS": 48, "COLUMNS": 32, "IMAGE": (2, 16, 13, 10), "FILTERS": 20}
Inputs = dict[str, np.ndarray]

NORMS: dict[str, Piece] = {
    "unit norm": unit_norm,
    "cosine similarity": cosine_similarity,
    "RMS norm": feature_norm("RMSNormalization", 1e-12),
    "layer norm": feature_norm("LayerNormalization", EPSILON),
    "spatial norm": spatial_norm(EPSILON),
}
PLAIN: dict[str, Piece] = {
    "gelu": unary("Gelu"),
    "relu": unary("Relu"),
    "softplus": unary("Softplus"),
}
BETWEEN: dict[str, Piece] = {
    "bias": bias,
    "relu": unary("Relu"),
    "leaky": unary("LeakyRelu", alpha=0.1),
    "negated": unary("Neg"),
}
POOLS: dict[str, Piece] = {
    "max pool": unary("MaxPool", kernel_shape=(2, 3)),
    "average pool": unary("AveragePool", kernel_shape=(3, 2)),
    "pooled": pooled,
}


@dataclasses.dataclass(frozen=True)
class Drawn:
    """A network, its inputs, and what it is made of."""

    graph: Graph
    inputs: Inputs
    algorithm: str
    label: str
    keeps_epsilon: bool  # whether an epsilon bounds its gain, and nothing else does


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small networks, and passes that take them."""
    for name, size in SIZES.items():
        monkeypatch.setattr(amplifying, name, size)
    monkeypatch.setattr(choose_strassen, "fewest_rows", lambda terms, columns: 1)
    monkeypatch.setattr(choose_winograd, "WORTH", 0.0)


def random_network(seed: int) -> Drawn:
    rng = np.random.default_rng(seed)
    algorithm = ALGORITHMS[seed % 2]
    kind = str(rng.choice(list(DATA)))
    names: list[str] = []
    pieces: list[Piece] = []

    def take(among: dict[str, Piece]) -> str:
        name = str(rng.choice(list(among)))
        names.append(name)
        pieces.append(among[name])
        return name

    group = (AMPLIFIERS, NORMS, PLAIN)[int(rng.choice(3, p=(0.4, 0.45, 0.15)))]
    for _ in range(int(rng.integers(0, 3))):
        take(BETWEEN)
    if group is NORMS and kind not in UNEVEN and rng.random() < 0.6:
        names.append("residual")
        pieces.append(residual)
    elif algorithm == "winograd" and rng.random() < 0.3:
        take(POOLS)
    last = take(group)
    if group is not AMPLIFIERS and last != "cosine similarity" and rng.random() < 0.3:
        names.append("product")
        pieces.append(product)
    pruned = float(rng.choice((0.0, 0.7))) if algorithm == "strassen" else 0.0
    graph = amplifying.network(algorithm, *pieces, seed=seed, pruned=pruned)
    x = DATA[kind](rng, graph.types["x"].shape).astype(np.float32)
    inputs = {"x": x}
    for value in graph.inputs[1:]:  # beside the layer: of the same size in each row or pixel
        layer = evaluate(
            graph, inputs | {value: np.zeros(graph.types[value].shape, np.float32)}, keep=["k"]
        )
        inputs[value] = np.roll(layer["k"], 7, axis=1).astype(np.float32)
    label = f"{seed}: {algorithm}, {kind}, {pruned:.0%} pruned: {', '.join(names)}"
    return Drawn(graph, inputs, algorithm, label, last in ("layer norm", "spatial norm"))


Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def per_place(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Shape of a factor for each row, or each pixel."""
    return (shape[0], 1, *shape[2:])


def zeros(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Padded tokens; a black border."""
    x = rng.standard_normal(shape)
    x[-(shape[0] // 3) :, ..., int(rng.integers(3, 7)) * (len(shape) > 2) :] = 0
    return x


def tiny(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    place = np.where(rng.random(per_place(shape)) < 0.3, 1e-9, 1)
    return rng.standard_normal(shape) * place


def edge(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Two thirds are a millionth of the rest; the edge lies inside a tile."""
    x = rng.standard_normal(shape)
    x[..., : 2 * shape[-1] // 3] *= 1e-6
    return x


def wide(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.standard_normal(shape) * np.exp(3 * rng.standard_normal(per_place(shape)))


def wide_everywhere(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.standard_normal(shape) * np.exp(2 * rng.standard_normal(shape))


def one_hot(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """One feature of each row, or of each pixel."""
    chosen = rng.integers(0, shape[1], per_place(shape))
    return (np.arange(shape[1]).reshape(1, -1, *(1,) * (len(shape) - 2)) == chosen).astype(float)


def constant(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.broadcast_to(rng.standard_normal((1, shape[1], *(1,) * (len(shape) - 2))), shape)


def sparse(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.maximum(rng.standard_normal(shape) - 1.5, 0)


DATA: dict[str, Draw] = {
    "ordinary": lambda rng, shape: rng.standard_normal(shape),
    "huge": lambda rng, shape: rng.standard_normal(shape) * 2e36,
    **{f.__name__: f for f in (zeros, tiny, edge, wide, wide_everywhere)},
    **{f.__name__: f for f in (one_hot, constant, sparse)},
}
UNEVEN = {"tiny", "edge", "wide", "wide_everywhere", "sparse"}
"""Data whose sizes differ from pixel to pixel: what is beside a layer is not of its tile's size."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """refused: the layer was left exact. excess: the error of O3 as a share of what it may be."""

    label: str
    refused: bool
    excess: float


def judged(drawn: Drawn) -> Outcome:
    graph, inputs = drawn.graph, drawn.inputs
    approximate, trace = run_passes(graph, Settings(3))
    if trace.refused:
        return Outcome(drawn.label, True, 0.0)
    chosen = [n for n in approximate.nodes if n.op.kind.lower().startswith(drawn.algorithm)]
    assert chosen, drawn.label
    true = evaluate(graph, inputs, keep=["k", *graph.outputs])
    got = promised(approximate, inputs)
    direct = promised(graph, inputs)
    excess = 0.0
    for name, theirs in zip(graph.outputs, approximate.outputs, strict=True):
        y = true[name]
        allowed = FACTOR * (_error(direct[name], y) + _spacing(y))
        if not np.isfinite(allowed):  # O1 overflows itself
            continue
        if drawn.keeps_epsilon:  # all else that has no variance is made so much larger
            allowed += FACTOR * U * EPSILON**-0.5 * np.abs(true["k"]).max()
        excess = max(excess, _error(got[theirs], y) / allowed)
    return Outcome(drawn.label, False, excess)


def _spacing(y: np.ndarray) -> float:
    """Of float32 at the largest number."""
    return float(np.spacing(np.abs(y).max().astype(np.float32)))


def _error(got: np.ndarray, true: np.ndarray) -> float:
    finite = np.isfinite(true)
    if not np.array_equal(np.isfinite(got), finite):
        return np.inf
    return float(np.abs(np.where(finite, got.astype(np.float64) - true, 0)).max())


def outcomes(count: int, first: int = 0) -> Iterator[Outcome]:
    for seed in range(first, first + count):
        yield judged(random_network(seed))


def remove_scales(algorithm: str, patch: pytest.MonkeyPatch) -> None:
    """Make `algorithm` its broken twin: the same sums, without scales and exact zeros.

    A function of another name is not replaced: then the twin is not broken, and the test fails.
    """

    def unscaled(x: np.ndarray, *, axis: int) -> tuple[np.ndarray, np.ndarray]:
        ones = np.ones_like(x.max(axis=axis, keepdims=True, initial=0))
        return x, ones if axis == -1 else ones[0]

    def factor(m: object, field: np.ndarray, inverse: np.ndarray) -> np.ndarray:
        return np.broadcast_to(inverse, np.shape(field))

    if algorithm == "strassen":
        patch.setattr(strassen, "scaled_left", partial(unscaled, axis=-1), raising=False)
        patch.setattr(strassen, "scaled_right", partial(unscaled, axis=0), raising=False)
    else:
        ones = np.ones_like
        patch.setattr(winograd, "scales", lambda m, x: (ones(x), ones(x)), raising=False)
        patch.setattr(winograd, "factor", factor, raising=False)


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.slow, id="many")])
def test_o3_errs_as_o1_does_or_leaves_the_layer_exact(small: None, count: int) -> None:
    found = list(outcomes(count))
    wrong = [o for o in found if o.excess > 1]
    assert not wrong, "\n".join(f"{o.excess:.3g} times {o.label}" for o in wrong)
    refused = sum(o.refused for o in found)
    assert count / 4 < refused < 3 * count / 4, "one side of the rule is hardly tried"


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_broken_twin_of_an_algorithm_fails(
    small: None, algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove_scales(algorithm, monkeypatch)
    tried = (random_network(seed) for seed in range(150) if algorithm == ALGORITHMS[seed % 2])
    assert any(judged(drawn).excess > 1 for drawn in tried)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_without_the_rule_it_fails(
    small: None, algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PASSES[algorithm], "amplifiers", lambda graph, errors: {})
    draw, pruned = (one_hot, 0.9) if algorithm == "strassen" else (edge, 0.0)
    right = set()
    for name in ("log", "rsqrt", "reciprocal", "is zero"):
        graph = amplifying.network(algorithm, AMPLIFIERS[name], pruned=pruned)
        x = draw(np.random.default_rng(7), graph.types["x"].shape).astype(np.float32)
        if judged(Drawn(graph, {"x": x}, algorithm, name, False)).excess <= 1:
            right.add(name)
    assert right <= {"is zero"}  # which a tiny number is not
