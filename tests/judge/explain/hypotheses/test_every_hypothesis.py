"""Explaining never fails on any operator, and never explains what nothing means."""

from __future__ import annotations

import numpy as np
import pytest
from suspects import answered, strangers, types_of

import verax.ops  # noqa: F401  (registers every operator)
from verax.ir.operator import REGISTRY
from verax.judge.decide.criterion import decide
from verax.judge.explain.distinguish import narrow_down
from verax.judge.explain.hypotheses.base import Suspect
from verax.judge.explain.hypotheses.library import BY_KIND
from verax.judge.explain.node import fits, suspect_of
from verax.judge.explain.structure import structure
from verax.judge.explain.weights import weights
from verax.records.verdict import Kind

LEAST = 16
"""Elements from which nothing is explained by chance."""


def changed(suspect: Suspect, random: np.random.Generator) -> list[Suspect]:
    """The suspect with strange answers."""
    truth = suspect.expected
    if truth.dtype.kind == "f" and np.isfinite(truth).all():
        return [stranger for _, stranger in strangers(random, answered(suspect, truth))]
    other = truth.copy()
    flat = other.reshape(-1)
    where = random.integers(0, flat.size, 1 + flat.size // 3)
    flat[where] = ~flat[where] if flat.dtype == bool else flat[where] + 1
    return [answered(suspect, other)]


def test_families_speak_about_operators_that_exist() -> None:
    assert set(BY_KIND) <= set(REGISTRY)


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_strange_answers_are_survived_and_not_explained(name: str) -> None:
    random = np.random.default_rng(1)
    case = next(REGISTRY[name].cases(np.random.default_rng(0)))
    node, types = types_of(case.op, list(case.inputs))
    for k, kind in enumerate(types):
        if not kind.is_static:
            continue
        empty = np.zeros(kind.shape, kind.dtype.numpy)
        suspect = suspect_of(node, case.inputs, empty, types, k)
        if suspect is None or not suspect.expected.size:
            continue
        for stranger in changed(suspect, random):
            rounding = stranger.meaning.roundings[k]
            if decide(stranger.actual, stranger.expected, rounding).kind is not Kind.mistake:
                continue
            found = fits(stranger)
            narrow_down(stranger, found, None)
            structure(
                stranger.actual, stranger.expected, None if rounding is None else rounding.sigma
            )
            weights(stranger)
            few = stranger.actual.size < LEAST
            assert few or not found, [f.hypothesis.name for f in found]
