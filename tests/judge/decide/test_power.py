"""What the judge says that it sees of a node it does see, at every conditioning."""

from __future__ import annotations

import numpy as np
import pytest

from verax.campaign.power import Situation, is_seen, situations
from verax.numerics import statistics as st
from verax.ops.sums.layer_normalization import LayerNormalization
from verax.ops.sums.reduction import ReduceMean, ReduceSum
from verax.records.verdict import Kind

SAMPLE = list(situations(seed=3))[::3]


@pytest.mark.parametrize("situation", SAMPLE, ids=lambda s: f"{s.op.kind}, {s.condition}")
def test_claims_are_true_and_near(situation: Situation) -> None:
    own = situation.promised()
    found = situation.judge(own)
    assert found.kind in (Kind.identical, Kind.rounding)
    assert situation.judge(situation.plain()).kind in (Kind.identical, Kind.rounding)
    if found.visible < 1:
        assert is_seen(situation, own, found.visible)
    # no claim so careful that it says nothing
    assert not is_seen(situation, own, found.visible / 100) or found.visible < 1e-4


@pytest.mark.parametrize("op", [ReduceSum(), ReduceMean()])
def test_where_all_errors_point_one_way_no_more_is_claimed(op: ReduceSum | ReduceMean) -> None:
    """Sums of one number, repeated: a sequential sum errs far beyond sigma, and may."""
    rng = np.random.default_rng(5)
    x = np.repeat(rng.uniform(0.1, 0.2, (5, 1)), 9001, axis=1).astype(np.float32)
    x[:, ::2] *= np.float32(-0.9999)
    situation = Situation(op, (x, np.array([1], np.int64)), "repeated")
    found = situation.judge(situation.promised())
    assert found.visible < 1 and is_seen(situation, situation.promised(), found.visible)


def test_zeros_hide_nothing_and_chance_hides_all() -> None:
    constant = np.full((4, 300), 40.0, np.float32)
    ones, zeros = np.ones(300, np.float32), np.zeros(300, np.float32)
    op = LayerNormalization(epsilon=0.0)
    found = Situation(op, (constant + np.float32(1e-5), ones, zeros), "constant")
    assert found.judge(np.zeros((4, 300), np.float32)).visible == 0.0
    noise = constant + np.random.default_rng(6).integers(-1, 2, (4, 300)).astype(np.float32) * (
        np.float32(2.0**-18)
    )
    rough = Situation(op, (noise, ones, zeros), "the last bit alone varies")
    assert rough.judge(rough.promised()).visible > st.BLIND
