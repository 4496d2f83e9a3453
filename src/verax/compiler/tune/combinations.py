"""Schedules several steps away from the rule's: a search by respects ends where no single step
gains, though two of them may."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from verax.compiler.kernels.canonical import digest
from verax.compiler.kernels.registry import Schedule, Spec, admits, schedules, stages
from verax.compiler.kernels.target import Target

SEED = 4217
SHARE = 0.6
"""Of the respects in which a combination leaves the rule's schedule."""
MOST_DRAWN = 600


def combinations(spec: Spec, target: Target) -> Iterator[Schedule]:
    """Combinations of steps, each once, drawn by a seed of the kernel's own; the rule's schedule is
    none. They are drawn when they are asked for, which takes milliseconds each."""
    rule = schedules(spec, target)[0]
    rng = np.random.default_rng([SEED, int(digest(spec)[:8], 16)])
    drawn = {rule}
    for _ in range(MOST_DRAWN):
        schedule = rule
        for stage in stages(spec, target):
            if rng.random() < SHARE:
                steps = [s for s in stage(schedule) if admits(spec, target, s)]
                if steps:
                    schedule = steps[int(rng.integers(len(steps)))]
        if schedule not in drawn:
            drawn.add(schedule)
            yield schedule
