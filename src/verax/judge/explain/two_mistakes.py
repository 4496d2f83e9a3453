"""Two mistakes in one node, where no single one explains it."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

from verax.ir.operator import Operator
from verax.judge.explain.hypotheses.base import (
    Arrays,
    Edit,
    Hypothesis,
    Prior,
    Suspect,
)
from verax.judge.explain.hypotheses.library import hypotheses

MOST_SINGLE = 48
"""Single mistakes that are combined, the usual ones first: some thousand pairs."""
LEAST_ELEMENTS, MOST_ELEMENTS = 32, 1 << 14
"""Elements of an answer: with fewer some pair agrees by chance, with more pairs take too long."""


def two_mistakes(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield pairs of usual mistakes that can be made together, the most usual first."""
    if suspect.actual.shape != suspect.expected.shape:
        return
    if not LEAST_ELEMENTS <= suspect.actual.size <= MOST_ELEMENTS:
        return
    single = [
        h
        for h in hypotheses(suspect)
        if not h.fitted and h.prior <= Prior.common and not (h.after is not None and h.after.exact)
    ]
    single = sorted(single, key=lambda h: h.prior)[:MOST_SINGLE]
    for first, second in sorted(
        itertools.combinations(single, 2), key=lambda pair: pair[0].prior + pair[1].prior
    ):
        combined = _combined(suspect, first, second)
        if combined is not None:
            yield combined


def _combined(suspect: Suspect, a: Hypothesis, b: Hypothesis) -> Hypothesis | None:
    """Both mistakes; None where they change the same, or where what one changes hides the other."""
    op: Operator | None = a.op or b.op
    if a.op is not None and b.op is not None:
        op = _with_both(suspect.op, a.op, b.op)
        if op is None:
            return None
    if a.after is not None and b.after is not None:
        return None
    inputs: Edit | None = a.inputs or b.inputs
    if a.inputs is not None and b.inputs is not None:
        inputs = _in_turn(a.inputs, b.inputs)
    return Hypothesis(
        f"two mistakes: {a.name}; {b.name}",
        f"two mistakes: {a.words}, and {b.words}",
        Prior.rare,
        op=op,
        inputs=inputs,
        after=a.after or b.after,
        attributes={**a.attributes, **b.attributes},
        crop=a.crop or b.crop,
    )


def _with_both(own: Operator, a: Operator, b: Operator) -> Operator | None:
    """The operator with the attributes that `a` and `b` change, each of its own; None for another
    operator."""
    if not type(own) is type(a) is type(b):
        return None
    changed = [
        {k: v for k, v in mistaken.attributes().items() if v != getattr(own, k)}
        for mistaken in (a, b)
    ]
    if not changed[0].keys().isdisjoint(changed[1]):
        return None
    return dataclasses.replace(own, **changed[0], **changed[1])


APART = "these two mistakes cannot be made together"


def _in_turn(a: Edit, b: Edit) -> Edit:
    """Both edits, one behind the other."""

    def edit(arrays: Arrays) -> Arrays:
        first = a(arrays)
        try:
            result = b(first)
        except AttributeError as error:  # of None: the first took away what the second changes
            raise ValueError(APART) from error
        if any(x is None and y is not None for x, y in zip(first, result)):
            raise ValueError(APART)  # NumPy takes None for a truth
        return result

    return edit
