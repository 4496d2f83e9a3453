"""Which hypotheses are tried on a suspect.

A family is registered where it is written (`hypotheses_of`), in any file of this folder. An
operator without one says in its declaration why (`no_hypotheses`) and has `by_attributes`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from verax.base.discovery import import_modules
from verax.judge.explain.hypotheses.attributes import by_attributes, exchanged
from verax.judge.explain.hypotheses.base import BY_KIND, Hypothesis, Prior, Suspect
from verax.judge.explain.hypotheses.generic import generic
from verax.judge.explain.hypotheses.missing_elements import missing_elements
from verax.judge.explain.hypotheses.parameters import parameters
from verax.judge.explain.hypotheses.shapes import other_shape

MOST_EXCHANGED = 8
"""Inputs of a node up to which pairs of them are tried exchanged."""
import_modules(__package__, [str(Path(__file__).parent)])


def hypotheses(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield every hypothesis known for a suspect, those of its own family first."""
    if suspect.actual.shape != suspect.expected.shape:
        yield from other_shape(suspect)
        return
    family = BY_KIND.get(suspect.op.kind, by_attributes)
    yield from family(suspect)
    if family is not by_attributes and len(suspect.inputs) <= MOST_EXCHANGED:
        yield from exchanged(suspect, Prior.common)
    yield from generic(suspect)
    yield from missing_elements(suspect)
    yield from parameters(suspect)
