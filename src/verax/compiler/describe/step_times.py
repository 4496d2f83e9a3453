"""From the measured times of a program's steps to a `Profile`: what each is, and what it moves."""

from __future__ import annotations

from collections.abc import Sequence

from verax.base.option_groups.settings import Settings
from verax.compiler.describe.machine_peak import peak_gflops
from verax.compiler.kernels.sizes import static_size
from verax.compiler.kernels.target import Target
from verax.compiler.place.binary.segment import runs_alone
from verax.compiler.place.calls import BranchCall, KernelCall, LoopCall, ReferenceCall
from verax.compiler.place.program import LoweredProgram
from verax.compiler.place.schedule_words import schedule_words
from verax.records.profile import Profile, StepTime


def profile_of(
    lowered: LoweredProgram,
    microseconds: Sequence[float],
    runs: int,
    settings: Settings,
    target: Target,
) -> Profile:
    """microseconds: of every step of `lowered`, in order. The machine's peak is measured here."""
    threads = settings.thread_count
    steps = []
    for i, (step, duration) in enumerate(zip(lowered.steps, microseconds, strict=True)):
        if isinstance(step, BranchCall | LoopCall):
            name = "branch" if isinstance(step, BranchCall) else "loop"
            steps.append(StepTime(step.label, name, float(duration), 0, 0, "kernels inside"))
            continue
        if not isinstance(step, KernelCall):
            name = "reference" if isinstance(step, ReferenceCall) else "counted"
            reason = step.reason if isinstance(step, ReferenceCall) else "rows that kernels counted"
            steps.append(StepTime(step.label, name, float(duration), 0, 0, reason))
            continue
        kernel = lowered.kernels[i]
        busy = 1 if runs_alone(kernel) else min(threads, static_size(kernel.items))
        steps.append(
            StepTime(
                step.label,
                kernel.name,
                float(duration),
                static_size(kernel.flops) * lowered.chunk_count,
                static_size(kernel.bytes) * lowered.chunk_count,
                str(step.spec),
                "" if step.schedule is None else schedule_words(step.schedule),
                busy,
            )
        )
    return Profile(tuple(steps), runs, threads, peak_gflops(target, threads))
