"""`Profile`: where a program's time goes, step by step."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class StepTime:
    """One kernel call or reference step. microseconds: median over the runs."""

    label: str
    kernel: str
    microseconds: float
    flops: int
    bytes: int

    @property
    def gflops(self) -> float:
        """Billions of operations per second."""
        return self.flops / self.microseconds / 1e3 if self.microseconds else 0.0


@dataclasses.dataclass(frozen=True)
class Profile:
    """Steps in execution order, each timed by itself; their sum leaves out what is between them."""

    steps: tuple[StepTime, ...]
    runs: int
    threads: int

    @property
    def microseconds(self) -> float:
        """Sum of the steps."""
        return sum(s.microseconds for s in self.steps)

    def to_json(self) -> dict[str, Any]:
        return {
            "version": 1,
            "runs": self.runs,
            "threads": self.threads,
            "steps": [{**dataclasses.asdict(s), "gflops": s.gflops} for s in self.steps],
        }

    def __str__(self) -> str:
        total = self.microseconds or 1.0
        lines = [f"{total / 1e3:.3f} ms in {len(self.steps)} steps, {self.threads} threads"]
        lines += [
            f"{s.microseconds:9.1f} us {100 * s.microseconds / total:5.1f} %"
            f" {s.gflops:7.1f} GFLOP/s  {s.kernel:<16} {s.label}"
            for s in self.steps
        ]
        return "\n".join(lines)
