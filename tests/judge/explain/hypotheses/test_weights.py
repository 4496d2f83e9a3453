"""Wrong weights are named, by index and by how much; other mistakes are not blamed on weights."""

from __future__ import annotations

import numpy as np
import pytest
from suspects import answered, honest, noisy, strangers

from verax.judge.decide.local import meaning
from verax.judge.explain.hypotheses.base import Suspect
from verax.judge.explain.weights import weights, wrong_weights

LINEAR = [
    "conv",
    "square conv",
    "grouped conv",
    "depthwise conv",
    "transposed conv",
    "conv along one axis",
]


def with_inputs(random: np.random.Generator, suspect: Suspect, index: int, array) -> Suspect:
    """The suspect having computed with another input, in honest float32."""
    arrays = list(suspect.inputs)
    arrays[index] = array
    kinds = list(suspect.meaning.ev.inputs)
    found = meaning(suspect.node, arrays, kinds, suspect.outputs)
    return answered(suspect, noisy(random, found.outputs[0], found.roundings[0]))


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("seed", range(3))
def test_a_single_wrong_weight_is_named(name: str, seed: int) -> None:
    random = np.random.default_rng([seed, *name.encode()])
    suspect = honest(random, name)
    w = suspect.inputs[1].copy()
    index = tuple(int(random.integers(n)) for n in w.shape)
    off = np.float32(1e-3 if seed else 0.5)
    w[index] += off
    (found,) = wrong_weights(with_inputs(random, suspect, 1, w))
    assert found.index == index and not found.is_bias
    assert found.off == pytest.approx(float(w[index]) - found.expected, rel=0.05)


def test_two_wrong_weights_and_a_wrong_bias_are_named() -> None:
    random = np.random.default_rng(4)
    suspect = honest(random, "square conv")
    w = suspect.inputs[1].copy()
    w[2, 0, 1, 2] += np.float32(1e-2)
    w[5, 3, 0, 0] *= np.float32(1.5)
    guilty = with_inputs(random, suspect, 1, w)
    found = {f.index for f in wrong_weights(guilty)}
    assert found == {(2, 0, 1, 2), (5, 3, 0, 0)}
    b = suspect.inputs[2].copy()
    b[4] += np.float32(0.01)
    (found_bias,) = wrong_weights(with_inputs(random, suspect, 2, b))
    assert found_bias.is_bias and found_bias.index == (4,)
    assert "bias of channel 4" in weights(with_inputs(random, suspect, 2, b))[0]


def test_a_whole_wrong_filter_is_found_by_least_squares() -> None:
    random = np.random.default_rng(5)
    suspect = honest(random, "conv along one axis")
    w = suspect.inputs[1].copy()
    w[3] = random.standard_normal(w.shape[1:]).astype(np.float32)
    found = wrong_weights(with_inputs(random, suspect, 1, w))
    assert {f.index[0] for f in found} == {3}
    assert len(found) > w[3].size // 2


@pytest.mark.parametrize("name", LINEAR)
def test_other_mistakes_are_not_blamed_on_weights(name: str) -> None:
    random = np.random.default_rng([9, *name.encode()])
    for what, suspect in strangers(random, honest(random, name)):
        if "of the channels" not in what:  # which is just what other weights give
            assert weights(suspect) == (), what


def test_a_wrong_weight_of_a_matrix_product_is_named() -> None:
    random = np.random.default_rng(6)
    suspect = honest(random, "matmul")
    w = suspect.inputs[1].copy()
    w[4, 2] += np.float32(0.25)
    (found,) = wrong_weights(with_inputs(random, suspect, 1, w))
    assert found.index == (4, 2)
