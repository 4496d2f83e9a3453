"""Whether Winograd's or Strassen's algorithm inside a region explains an error.

Where rounding noise does not explain an error, the region's 3x3 convolutions are computed by
Winograd's algorithm, its matrix products and 1x1 convolutions by Strassen's. Their distance from
the reference becomes the noise of the samples, each convolution's spread over its tiles, each
product's over the quarters; all else is as in `region`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from verax.ir.graph import Node
from verax.judge.decide.criterion import (
    Decision,
    channel_rms,
    pooled_maximum,
    strassen_sigma,
)
from verax.judge.decide.orders import WINOGRAD_MATRICES, winograd_applies, winograd_runs
from verax.judge.decide.possible import UNCLAIMED, WINOGRAD, is_claimed, is_possible
from verax.judge.decide.strassen import strassen_applies, strassen_run, variants
from verax.judge.regions.sampler import Sampler, Values
from verax.numerics import statistics as st
from verax.numerics import strassen
from verax.numerics.error_model import TINY
from verax.numerics.winograd import NAMES
from verax.records.verdict import Kind

LIMITS = {
    **dict.fromkeys(NAMES.values(), st.WINOGRAD_REGION_T),
    strassen.NAME: st.STRASSEN_T,
}
"""Of T, by algorithm."""
USUAL = 4
"""The largest tile of most who take this algorithm."""


def fast_decision(
    sampler: Sampler, value: str, error: np.ndarray, sigma: np.ndarray
) -> Decision | None:
    """Decision `precision` where a fast algorithm inside explains the error of an observed value.

    sigma: of ordinary rounding, for the record. None where no node of the region can use such an
    algorithm, or where the errors are larger.
    """
    tests: dict[str, st.GroupTest] = {}
    for name, noise in _algorithms(sampler):
        distances = [
            np.nan_to_num(sample[value] - sampler.expected[value])
            for sample in _samples(sampler, noise, error.size)
            if sample[value].shape == error.shape
        ]
        if not distances:
            return None
        wide = st.sampled_sigma(np.mean([d * d for d in distances], axis=0))
        tests[name] = st.group_test(st.standardised(error, wide + TINY))
        if name == NAMES[USUAL] and tests[name].statistic <= LIMITS[name]:
            break  # larger tiles need not be looked at
    fitting = [n for n, test in tests.items() if test.statistic <= LIMITS[n]]
    if not fitting:
        return None
    name = min(fitting, key=lambda n: abs(np.log(max(tests[n].statistic, 1e-9))))
    test = tests[name]
    claimed = name != strassen.NAME or is_claimed(name)
    fits = f"the errors fit {name} inside these {len(sampler.region.nodes)} nodes"
    return Decision(
        Kind.precision if claimed else Kind.undecided,
        fits if claimed else UNCLAIMED.format("Strassen's algorithm"),
        name,
        test.statistic,
        test.group,
        None,
        st.root_mean_square(sigma),
        st.root_mean_square(error),
    )


def _algorithms(sampler: Sampler) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Yield (algorithm name, sigma of the inner results that it computes)."""
    products = _noise_of_products(sampler) if is_possible(strassen.NAME) else {}
    if products:
        yield strassen.NAME, products
    for tile in WINOGRAD_MATRICES if is_possible(WINOGRAD) else ():
        noise = _noise(sampler, tile)
        if noise:
            yield NAMES[tile], {**(products if is_claimed(strassen.NAME) else {}), **noise}


def _noise(sampler: Sampler, tile: int) -> dict[str, np.ndarray]:
    """Sigma of the errors of Winograd's algorithm with this tile, by result of a convolution."""
    sigma_of: dict[str, np.ndarray] = {}

    def fast(node: Node, arrays: Sequence[Any]) -> Sequence[np.ndarray]:
        outputs = sampler.evaluate(node, arrays).outputs
        sigma = sampler.sigma.get(node.outputs[0])
        if sigma is None or not winograd_applies(node, arrays) or sigma.shape != outputs[0].shape:
            return outputs
        computed = winograd_runs(node, arrays)[tile].astype(np.float64)
        pooled = pooled_maximum(sigma, st.WINOGRAD_POOL[tile])
        own = np.nan_to_num(computed - outputs[0])
        spread = np.maximum(1.0, channel_rms(st.standardised(own, pooled)))
        sigma_of[node.outputs[0]] = pooled * np.maximum(spread, np.median(spread))
        return outputs

    run: Callable[..., Values] = sampler.run
    run(fast)
    return sigma_of


def _noise_of_products(sampler: Sampler) -> dict[str, np.ndarray]:
    """Sigma of the errors of Strassen's algorithm, by result of a product."""
    sigma_of: dict[str, np.ndarray] = {}

    def fast(node: Node, arrays: Sequence[Any]) -> Sequence[np.ndarray]:
        outputs = sampler.evaluate(node, arrays).outputs
        sigma = sampler.sigma.get(node.outputs[0])
        if sigma is not None and sigma.shape == outputs[0].shape and strassen_applies(node, arrays):
            candidates = variants(node, arrays, levels=(1,))
            runs = [strassen_run(node, arrays, sigma, variant) for variant in candidates]
            spread = [strassen_sigma(run - outputs[0], wide) for run, wide in runs]
            sigma_of[node.outputs[0]] = np.maximum.reduce(spread)
        return outputs

    run: Callable[..., Values] = sampler.run
    run(fast)
    return sigma_of


def _samples(sampler: Sampler, noise: Mapping[str, np.ndarray], elements: int) -> list[Values]:
    """Samples of the observed values, with `noise` in place of the same nodes' own."""
    count = st.SAMPLES_MANY if elements >= st.MANY_ELEMENTS else st.SAMPLES_FEW
    own = sampler.sigma
    sampler.sigma = {**own, **noise}
    try:
        return [sampler.sample() for _ in range(count)]
    finally:
        sampler.sigma = own
