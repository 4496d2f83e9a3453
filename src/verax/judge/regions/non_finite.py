"""Whether rounding alone makes NaN or infinity where the reference is finite.

The logarithm of a Softmax is -130 in the reference and minus infinity in float32, where the Softmax
is 0; in float16 a small sum of squares is. That is no mistake. Baseline runs in the declared types,
bit-exact and with rounding noise, tell such elements from others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from verax.ir.graph import Node
from verax.ir.types import TensorType
from verax.judge.decide.local import conform
from verax.judge.regions.sampler import Sampler, Values
from verax.numerics import statistics as st
from verax.reference.evaluate import evaluate_node

RARE = 0.25
"""Share of honest runs below which a place counts as left by chance."""


def left_by_rounding(sampler: Sampler, value: str, stray: np.ndarray) -> str:
    """Name of the first node whose rounding makes NaN or infinity of a value that is finite in the
    reference and so explains the elements in `stray` (booleans of its shape); "" where none does.

    Most baseline runs have them at the same elements; where rounding decides the element too (a
    difference that is 0 or not), as many others are explained as only a few baseline runs have.
    """
    runs = _Runs(sampler)
    masks = [runs.non_finite(value, scale) for scale in (0.0, *[1.0] * st.SAMPLES_FEW)]
    masks = [mask for mask in masks if mask.shape == stray.shape]
    counts = np.sum(masks, axis=0) if masks else np.zeros(stray.shape)
    now_and_then = (counts > 0) & (counts < RARE * len(masks))
    beside = stray & (counts == 0)
    return runs.first if beside.sum() <= now_and_then.sum() and counts.any() else ""


def baseline_values(sampler: Sampler, value: str) -> Iterator[np.ndarray]:
    """Yield an observed value in baseline runs: bit-exact, then with rounding noise."""
    runs = _Runs(sampler)
    for scale in (0.0, *[1.0] * st.SAMPLES_FEW):
        sample = runs.values(scale)[value]
        if sample.shape == sampler.expected[value].shape:
            yield sample


class _Runs:
    """Baseline runs of a region in the declared types.

    first: the first node that made a non-finite number of finite inputs."""

    def __init__(self, sampler: Sampler) -> None:
        self.sampler, self.first = sampler, ""

    def non_finite(self, value: str, scale: float) -> np.ndarray:
        """Mask of NaN and infinity in an observed value, with `scale` times the rounding noise."""
        return ~np.isfinite(self.values(scale)[value].astype(np.float64))

    def values(self, scale: float) -> Values:
        """The shown values, with `scale` times the noise of rounding."""
        sampler, graph = self.sampler, self.sampler.graph

        def stored(node: Node, arrays: Sequence[Any]) -> tuple[np.ndarray, ...]:
            declared = [
                None if v is None else conform(a, graph.types[v].dtype)
                for v, a in zip(node.inputs, arrays)
            ]
            types = tuple(
                None if v is None or a is None else TensorType(graph.types[v].dtype, a.shape)
                for v, a in zip(node.inputs, declared)
            )
            results = evaluate_node(
                node, declared, types, graph.output_types(node), promised_bits=True
            )
            noisy = tuple(
                self._with_noise(node, v, y, scale) for v, y in zip(node.outputs, results)
            )
            inputs = [a for a in declared if a is not None]
            if not self.first and all(map(_finite, inputs)) and not all(map(_finite, noisy)):
                self.first = node.name or node.outputs[0]
            return noisy

        return sampler.run(stored)

    def _with_noise(self, node: Node, value: str, array: np.ndarray, scale: float) -> np.ndarray:
        if not scale or not self.sampler.graph.types[value].dtype.is_float:
            return array
        with np.errstate(all="ignore"):
            noisy = self.sampler.noise(node, value, array.astype(np.float64), scale)
            return np.where(np.isfinite(array), noisy, array).astype(array.dtype)


def _finite(array: np.ndarray) -> bool:
    return array.dtype.kind in "biu" or bool(np.isfinite(array.astype(np.float64)).all())
