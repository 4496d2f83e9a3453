"""What a verdict says that it would have seen is seen."""

from __future__ import annotations

import pytest

from verax.campaign.coverage_claims import VIEWS, Claims, false_claims
from verax.campaign.deep_networks import deep_network
from verax.campaign.random_networks import random_network
from verax.records.verdict import Kind

FEW = 6
"""Nodes of a network."""


def test_claims_are_true() -> None:
    """5 and 7 have norms behind other nodes, which hide a factor."""
    tried, false = false_claims([random_network(s, nodes=FEW) for s in (2, 5, 7, 9)], count=3)
    assert tried >= 30 and not false


def test_a_factor_that_a_norm_takes_away_is_not_claimed() -> None:
    claims = Claims(random_network(5, nodes=8), "outputs")
    coverage = claims.verdict.coverage
    assert coverage is not None
    assert {"MatMul3", "Resize5"} <= set(coverage.hidden_factors)
    (said,) = [r for r in claims.verdict.reasons if "would have shown" in r]
    assert "judged by outputs only" in said and "one factor" in said and "MatMul3" in said
    watched = Claims(random_network(5, nodes=8), "watched").verdict
    assert watched.coverage is not None and not watched.coverage.hidden_factors


@pytest.mark.parametrize("seed", [307, 319])
def test_the_smallest_visible_errors_of_a_record_are_visible(seed: int) -> None:
    """Values that only a wider view explains, errors below one unit in the last place, outputs that
    few directions lead to."""
    tried, false = false_claims([random_network(seed, nodes=FEW)], count=5, smallest=True)
    assert tried >= 10 and not false


def test_power_is_required_by_the_same_numbers() -> None:
    claims = Claims(random_network(319, nodes=FEW), "watched")
    assert claims.verdict.coverage is not None
    weakest = claims.verdict.coverage.weakest
    assert weakest == max(p.smallest_visible for p in claims.verdict.power)
    for required, kind in ((weakest, Kind.rounding), (0.9 * weakest, Kind.undecided)):
        assert claims.judged(claims.values, require_power=required).kind is kind


@pytest.mark.slow
def test_a_thousand_smallest_visible_errors() -> None:
    networks = [random_network(300 + s, nodes=3 + s % 6) for s in range(84)]
    tried, false = false_claims(networks, count=4, seed=7, smallest=True)
    print(f"{tried} claims in {len(VIEWS)} views, {len(false)} false: {false}")
    assert tried >= 900 and len(false) <= tried // 100


@pytest.mark.slow
def test_a_thousand_claims() -> None:
    networks = [random_network(100 + s, nodes=3 + s % 6) for s in range(90)]
    networks += [deep_network(s) for s in range(2)]
    tried, false = false_claims(networks, count=4, seed=1)
    print(f"{tried} claims in {len(VIEWS)} views, {len(false)} false: {false}")
    assert tried >= 900 and len(false) <= tried // 100
