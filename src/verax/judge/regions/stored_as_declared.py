"""Proof by bits for networks that declare 16 bits: what is shown, computed with every value stored
as it is declared.

Rounding to 16 bits is so coarse that hardly any mistake would show beside it, and a check by sizes
is blind. Recomputed value for value, it is no noise any more: a run that follows the subject's
leaves only a part of the error against the unrounded meaning. With a mistake inside, other numbers
would fall to the other side at every rounding behind it, and nothing would be left to follow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from verax.base.errors import VeraxError
from verax.judge.decide.coarse import on_grid
from verax.judge.decide.precision import ARITHMETICS
from verax.judge.decide.recurrent_precision import RECURRENT, TABLE
from verax.judge.regions.exceptional import Exceptional
from verax.judge.regions.programs import SHORT, ProgramRunner, SubjectProgram
from verax.judge.regions.sampler import Sampler, Values
from verax.numerics import statistics as st
from verax.numerics.formats import FORMATS, round_to

WAYS = 3
"""Programs that are tried at most."""
SHORT_NAMES = {"bfloat16": "bf16", "float16": "fp16"}


@dataclass(frozen=True)
class Reproduced:
    """A run as the network declares it: how many of the shown numbers are the subject's to the last
    bit, and what part of the error against the unrounded meaning it leaves."""

    equal: int
    elements: int
    left: float


def reproduced_as_declared(sampler: Sampler, actual: Values) -> Reproduced | None:
    """The run that is nearest to `actual` (float64 by shown value); None where the network declares
    no 16 bits inside, or where no run leaves so little that it could not be by chance."""
    types = sampler.graph.types
    inside = {str(types[v].dtype) for v in sampler.region.hidden}
    short_types = [name for name in SHORT if name in inside]
    if len(short_types) != 1:
        return None
    elements = sum(a.size for a in actual.values())
    limit = min(st.CONFIRMED, st.most_left(elements, WAYS))
    runner = ProgramRunner(sampler)
    try:
        best = min(
            (
                _compared(sampler, actual, runner.run(p, 0.0), short_types[0])
                for p in _programs(short_types[0], runner)
            ),
            key=lambda r: r.left,
        )
    except VeraxError:
        return None
    return best if best.left <= limit else None


def _programs(name: str, runner: ProgramRunner) -> Iterator[SubjectProgram]:
    """Yield the ways in which PyTorch computes a network of a 16-bit type."""
    named = {a.name: a for a in ARITHMETICS}
    gates = {r.name: r for r in RECURRENT}
    short, fmt = SHORT_NAMES[name], FORMATS[name]
    recurrent = gates["fp16 gates" if short == "fp16" else TABLE]
    plain = SubjectProgram(
        f"{short} throughout",
        named[f"{short} throughout"],
        fmt,
        declared=True,
        recurrent=recurrent,
    )
    yield plain
    twice = {v: Exceptional.before_bias for v in runner.with_bias}
    if twice:
        yield plain.with_exceptions(twice)
    shown = {v: Exceptional.as_given for v in runner.between_values}
    if shown:
        yield plain.with_exceptions(shown)


def _compared(sampler: Sampler, actual: Values, run: Values, name: str) -> Reproduced:
    equal, left, elements = 0, 0.0, 0
    for value, shown in actual.items():
        own = run[value]
        if own.shape != shown.shape or not np.isfinite(own).all():
            return Reproduced(0, 0, np.inf)
        if on_grid(shown, FORMATS[name]):  # a norm hands its result on in the network's type
            own = round_to(own, FORMATS[name])
        equal += int((own == shown).sum())
        elements += shown.size
        error = st.root_mean_square(shown - sampler.expected[value])
        if error:
            left += (st.root_mean_square(shown - own) / error) ** 2 / len(actual)
    return Reproduced(equal, elements, left**0.5)
