"""What an operator makes of an error in one of its inputs: the vocabulary of the table of gains.

Every operator states a `Gain` for each input that holds floats, and over which axes it adds up or
normalizes. Who reads that: passes that approximate, before they give accuracy away
(`ir.amplification`), and the judge, which names the operator that made a small error large.

The size of an error is meant relative to the largest numbers of the tensor it is in.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

LARGEST_GAIN = 1e3
"""A bounded gain is at most that. Rounding in float32 then stays below a ten thousandth."""


class Gain(enum.StrEnum):
    """What becomes of a small error of an input.

    none: nothing. The result does not depend on these numbers, or the operator's own rounding is
    larger (quantization: a step of its grid is the error that it makes anyway, and one number that
    falls on the other side of an edge moves by one step).
    bounded: an error of the output, at most `LARGEST_GAIN` times as large.
    proportional: the same, and numbers grow and shrink with their errors: nothing large is cut off
    that an error was small beside.
    added: the same; but the input is added to others, so that its error is beside their own
    rounding, unless they err with it (x minus the mean of x).
    summed: the same; but many numbers times factors are added up, and rounding of such sums is as
    large anyway.
    normalized: the same, relative to the norm over the axes: numbers that are small beside others
    there lose digits, and a group that is small as a whole keeps them.
    unbounded: an error of any size: the derivative is not bounded (a quotient, a root at 0, a
    logarithm), or the result jumps (comparisons, rounding, an index, NaN on one side).
    """

    none = "none"
    bounded = "bounded"
    proportional = "proportional"
    added = "added"
    summed = "summed"
    normalized = "normalized"
    unbounded = "unbounded"


@dataclass(frozen=True)
class InputGain:
    """The gain of one input. axes: of that input, those over which numbers are added up or
    normalized; from 0, in any order. guarded: of a normalization, whether it is bounded also where
    all numbers that it divides together are errors (by its epsilon)."""

    gain: Gain
    axes: tuple[int, ...] = ()
    guarded: bool = False


def is_guard(epsilon: float) -> bool:
    """Whether an epsilon under the root bounds the gain of dividing by it."""
    # an epsilon of 1e-6 in float32 lies a little below 1e-6
    return epsilon > 0 and epsilon**-0.5 <= LARGEST_GAIN * (1 + 1e-6)


def normalization(axes: tuple[int, ...], epsilon: float) -> InputGain:
    """The gain of dividing what is left of numbers without their mean by sqrt(variance + epsilon).

    Numbers that are all the same have no variance, and their errors are all that is left: they
    become 1 / sqrt(epsilon) times as large.
    """
    guarded = is_guard(epsilon)
    return InputGain(Gain.normalized if guarded else Gain.unbounded, axes, guarded)
