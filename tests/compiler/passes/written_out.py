"""What the tests of the recognising passes share: a builder with short names, and the judge's word.

The witness is the float64 meaning of the network as it was written out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import verax
import verax.ops
from verax.compiler.passes.base import Pass, RewriteFunction
from verax.compiler.pipeline import levels
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.records.verdict import Kind, Verdict

SHAPE = (2, 3, 7, 5)
Make = Callable[["Net"], str]


class Net:
    """A network of one input x, float32[2, 3, 7, 5] unless told otherwise."""

    def __init__(self, shape: tuple[int, ...] = SHAPE, dtype: str = "float32") -> None:
        self.b, self.rng = Builder("net"), np.random.default_rng([31, *shape])
        self.shape, self.dtype = shape, dtype
        dims = ", ".join(map(str, shape))
        self.x = self.b.input("x", TensorType.parse(f"{dtype}[{dims}]"))

    def constant(self, values: Any, dtype: Any = None) -> str:
        return self.b.constant(np.asarray(values, dtype or self.dtype))

    def axes(self, *axes: int) -> str:
        return self.constant(axes, np.int64)

    def weights(self, *shape: int) -> str:
        return self.constant(self.rng.standard_normal(shape))

    def add(self, kind: str, *inputs: Any, **attributes: Any) -> str:
        """A node; numbers among the inputs become constants."""
        given = [v if v is None or isinstance(v, str) else self.constant(v) for v in inputs]
        return self.b.add(REGISTRY[kind](**attributes), given)

    def mean(self, x: str, *axes: int, keepdims: bool = True) -> str:
        return self.add("ReduceMean", x, self.axes(*(axes or (-1,))), keepdims=keepdims)

    def total(self, x: str, *axes: int, keepdims: bool = True) -> str:
        return self.add("ReduceSum", x, self.axes(*(axes or (-1,))), keepdims=keepdims)


def of(make: Make, shape: tuple[int, ...] = SHAPE, dtype: str = "float32") -> Graph:
    """The network that ends in what `make` gives."""
    net = Net(shape, dtype)
    y = make(net)
    return net.b.graph([y])


def kinds(graph: Graph) -> str:
    return " ".join(node.op.kind for node in graph.nodes)


def drawn(graph: Graph, seed: int, size: float = 1.0, shift: float = 0.0) -> dict[str, np.ndarray]:
    """Values for x: normal numbers of that size around `shift`."""
    normal = np.random.default_rng([seed, 5]).standard_normal(graph.types["x"].shape)
    return {"x": (normal * size + shift).astype(np.float32)}


def judged(graph: Graph, inputs: dict[str, np.ndarray], *, watch: bool = True) -> Verdict:
    """What the judge says of the network compiled at O2."""
    return verax.check(graph, "verax:O2", inputs, watch=watch, explain=False)


def assert_rounding(
    graph: Graph, inputs: dict[str, np.ndarray], watch: tuple[bool, ...] = (True,)
) -> None:
    """O2 is within rounding of the network as it was: where it shows what is left of the values
    inside (True), and by the outputs alone (False)."""
    for shown in watch:
        verdict = judged(graph, inputs, watch=shown)
        assert verdict.kind in (Kind.identical, Kind.rounding), (shown, verdict.reasons)


def plant(monkeypatch: pytest.MonkeyPatch, name: str, broken: RewriteFunction) -> None:
    """Put a broken twin in a pass's place in the pipeline."""
    broken.__name__ = name
    pipeline = tuple(
        dataclasses.replace(p, run=broken) if p.name == name else p for p in levels.PIPELINE
    )
    assert pipeline != levels.PIPELINE and isinstance(pipeline[0], Pass)
    monkeypatch.setattr(levels, "PIPELINE", pipeline)


def assert_named(graph: Graph, inputs: dict[str, np.ndarray], name: str) -> None:
    """The judge calls the compiled network a mistake, and bisect names the pass."""
    record = verax.bisect(graph, "verax:O2", inputs)
    assert record.verdict.kind is Kind.mistake, record.verdict.reasons
    assert record.optimizations is not None
    assert record.optimizations.guilty.startswith(f"{name}: "), record.optimizations.words
