"""Schedules several steps away from the rule's: a search by respects ends where no single step
gains, though two of them may."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from verax.compiler.kernels.canonical import digest
from verax.compiler.kernels.registry import Schedule, Spec, admits, schedules, stages
from verax.compiler.kernels.target import Target

SEED = 4217
FAR, NEAR = 0.6, 0.3
"""Of the respects in which a combination leaves the schedule that it begins with: the rule's, and
another one."""
MOST_DRAWN = 600


def combinations(spec: Spec, target: Target, center: Schedule | None = None) -> Iterator[Schedule]:
    """Combinations of steps away from `center` (by default the rule's schedule), each once, drawn
    by a seed of the kernel's own; neither the rule's nor `center` is among them. They are drawn
    when they are asked for, which takes milliseconds each."""
    rule = schedules(spec, target)[0]
    begin, share = (rule, FAR) if center is None else (center, NEAR)
    rng = np.random.default_rng([SEED, int(digest(spec)[:8], 16)])
    drawn = {rule, begin}
    for _ in range(MOST_DRAWN):
        schedule = begin
        for stage in stages(spec, target):
            if rng.random() < share:
                steps = [s for s in stage(schedule) if admits(spec, target, s)]
                if steps:
                    schedule = steps[int(rng.integers(len(steps)))]
        if schedule not in drawn:
            drawn.add(schedule)
            yield schedule
