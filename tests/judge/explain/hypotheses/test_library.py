"""Every hypothesis, made in honest float32, is found again; strangers stay unexplained."""

from __future__ import annotations

import numpy as np
import pytest
from suspects import DRAWS, answered, honest, planted, strangers, types_of, wrong_parameters

from verax.judge.decide.criterion import decide
from verax.judge.decide.orders import float32_runs
from verax.judge.explain.hypotheses.base import Hypothesis, Suspect
from verax.judge.explain.hypotheses.library import hypotheses
from verax.judge.explain.node import explain, fits, predict, same_numbers, separated, suspect_of
from verax.ops.windows.convolution import Conv
from verax.records.verdict import Kind

TRUTHS = 8
"""Hypotheses planted in each draw."""


def is_mistake(suspect: Suspect) -> bool:
    rounding = suspect.meaning.roundings[suspect.output]
    return decide(suspect.actual, suspect.expected, rounding).kind is Kind.mistake


def planted_truths(name: str, seed: int, count: int) -> list[tuple[Hypothesis, Suspect]]:
    """Up to `count` visible mistakes of the library on one draw."""
    random = np.random.default_rng([seed, *name.encode()])
    suspect = honest(random, name)
    library = [h for h in hypotheses(suspect) if not h.fitted]
    found = []
    for i in random.permutation(len(library)):
        guilty = planted(random, suspect, library[i])
        if guilty is not None and is_mistake(guilty):
            found.append((library[i], guilty))
        if len(found) == count:
            break
    return found


@pytest.mark.parametrize("name", DRAWS)
def test_honest_answers_are_no_mistakes(name: str) -> None:
    assert not is_mistake(honest(np.random.default_rng(7), name))


@pytest.mark.parametrize("name", DRAWS)
def test_names_are_unique(name: str) -> None:
    names = [h.name for h in hypotheses(honest(np.random.default_rng(3), name))]
    assert len(names) == len(set(names)), sorted(n for n in names if names.count(n) > 1)


@pytest.mark.parametrize("name", DRAWS)
def test_the_truth_is_found_and_nothing_ranks_before_it_that_differs(name: str) -> None:
    for truth, guilty in planted_truths(name, 0, TRUTHS):
        found = fits(guilty)
        names = [fit.hypothesis.name for fit in found]
        own = predict(guilty, truth)
        first = predict(guilty, found[0].hypothesis) if found else None
        assert own is not None and first is not None, (truth.name, names)
        assert not separated(own, first), (truth.name, names)
        predictions = [predict(guilty, fit.hypothesis) for fit in found]
        synonyms = [p for p in predictions if p is not None and same_numbers(own.value, p.value)]
        assert truth.name in names or synonyms, (truth.name, names)


@pytest.mark.parametrize("name", DRAWS)
def test_what_nothing_means_is_not_explained(name: str) -> None:
    """A wrong number of a parameter has no other cause than that parameter."""
    random = np.random.default_rng([1, *name.encode()])
    suspect = honest(random, name)
    for what, stranger in strangers(random, suspect):
        if is_mistake(stranger):
            assert [f.hypothesis.name for f in fits(stranger)] == [], what
    for what, wrong in wrong_parameters(random, suspect):
        if is_mistake(wrong):
            index = what.rpartition(" ")[2]
            own = {f"input {index} of other elements", f"input {index} scaled in channels"}
            if name == "batch norm":  # gamma and variance are one factor, beta and mean one offset
                own.add(f"input {5 - int(index)} of other elements")
            assert {f.hypothesis.name for f in fits(wrong)} <= own, what


def test_on_constant_data_real_orders_of_summation_are_allowed_for() -> None:
    """All errors point the same way there, and no random model of rounding holds."""
    x = np.full((1, 16, 20, 22), 0.1, np.float32)
    w = np.arange(1, 6, dtype=np.float32).reshape(5, 1, 1, 1) * np.full((1, 16, 5, 5), 0.3)
    arrays = [x, w.astype(np.float32), np.array([1, -2, 0.5, 3, -1], np.float32)]
    op = Conv(pads=((2, 2), (2, 2)))
    node, types = types_of(op, arrays)
    suspect = suspect_of(node, arrays, np.zeros(types[0].shape, np.float32), types)
    assert suspect is not None
    for given in float32_runs(node, suspect.meaning.ev, [*arrays[:2], None], 0):
        assert is_mistake(answered(suspect, given))
        found = explain(node, arrays, given, types)
        assert [e.hypothesis for e in found] == ["bias missing"]
