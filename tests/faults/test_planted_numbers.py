"""Planted mistakes in the numbers: each is a mistake, and of exactly the planted node."""

import dataclasses

import numpy as np
import pytest
from planted import MISTAKES, Planted, small_network

from verax.judge import check
from verax.records.verdict import Kind

GRAPH = small_network()


@pytest.mark.parametrize("what", MISTAKES)
def test_a_planted_mistake_is_pinned_to_its_node(what: str) -> None:
    guilty, change = MISTAKES[what]
    verdict = check(GRAPH, Planted([guilty], change))
    assert verdict.kind is Kind.mistake
    assert [b.node for b in verdict.blame] == [guilty]
    assert verdict.exit_code == 1


@pytest.mark.parametrize("what", MISTAKES)
def test_a_planted_mistake_shows_at_the_outputs_alone(what: str) -> None:
    guilty, change = MISTAKES[what]
    subject = Planted([guilty], change)
    subject.capabilities = dataclasses.replace(subject.capabilities, watches=False)
    # Blame does not hang on the search for causes, which takes most of the time: a few have it.
    verdict = check(GRAPH, subject, explain=list(MISTAKES).index(what) % 16 == 0)
    assert verdict.kind is Kind.mistake
    assert any(guilty in b.region or guilty == b.node for b in verdict.blame)


def test_two_mistakes_are_both_found() -> None:
    changes = {name: MISTAKES[what][1] for name, what in PAIR.items()}
    subject = Planted(list(changes), lambda n, a, y: changes[n.name](n, a, y))
    assert [b.node for b in check(GRAPH, subject).blame] == list(PAIR)


PAIR = {"bn": "epsilon 1e-5 for 1e-3", "up": "output shifted"}


@pytest.mark.parametrize("seed", range(8))
def test_honest_float32_is_never_accused(seed: int) -> None:
    verdict = check(small_network(seed), Planted(), seed=seed)
    assert verdict.kind is Kind.rounding
    assert verdict.blame == ()
    blind = Planted()
    blind.capabilities = dataclasses.replace(blind.capabilities, watches=False)
    assert check(small_network(seed), blind, seed=seed).kind is Kind.rounding


def test_the_wrong_element_is_among_the_worst_places() -> None:
    guilty, change = MISTAKES["one element wrong"]
    verdict = check(GRAPH, Planted([guilty], change))
    (found,) = [f for f in verdict.nodes if f.node == guilty]
    assert found.worst[0].index == np.unravel_index(5, (2, 5))
