"""`Profile`: where a program's time goes, step by step."""

from __future__ import annotations

import dataclasses
from typing import Any

from verax.base.printing import OneLine


@dataclasses.dataclass(frozen=True)
class StepTime:
    """One kernel call or reference step.

    microseconds: median over the runs. flops: arithmetic operations (a multiply-add is two), 0
    where nothing is computed or nobody counts. bytes: memory that is read and written, each element
    once. algorithm: what the kernel computes and how, or why there is none. schedule: tiles and
    order, empty where the kernel has one way only. threads: how many share the step.
    """

    label: str
    kernel: str
    microseconds: float
    flops: int
    bytes: int
    algorithm: str = ""
    schedule: str = ""
    threads: int = 1

    @property
    def gflops(self) -> float:
        """Billions of operations per second."""
        return self.flops / self.microseconds / 1e3 if self.microseconds else 0.0

    @property
    def gigabytes(self) -> float:
        """Billions of bytes per second."""
        return self.bytes / self.microseconds / 1e3 if self.microseconds else 0.0


@dataclasses.dataclass(frozen=True, repr=False)
class Profile(OneLine):
    """Steps in execution order, each timed by itself; their sum leaves out what is between them.

    peak: float32 multiply-adds of the machine on `threads` threads, measured in the same process,
    in GFLOP/s; 0 where it was not measured.
    """

    steps: tuple[StepTime, ...]
    runs: int
    threads: int
    peak: float = 0.0

    @property
    def microseconds(self) -> float:
        """Sum of the steps."""
        return sum(s.microseconds for s in self.steps)

    def share_of_peak(self, step: StepTime) -> float:
        """GFLOP/s of a step in percent of the peak; the peak is that of all threads."""
        return 100 * step.gflops / self.peak if self.peak else 0.0

    def to_json(self) -> dict[str, Any]:
        steps = [
            {
                **dataclasses.asdict(s),
                "gflops": s.gflops,
                "percent_of_peak": self.share_of_peak(s),
                "gigabytes_per_second": s.gigabytes,
            }
            for s in self.steps
        ]
        return {
            "runs": self.runs,
            "threads": self.threads,
            "peak_gflops": self.peak,
            "steps": steps,
        }

    def to_trace(self) -> dict[str, Any]:
        """The steps one after another as a trace that chrome://tracing and Perfetto open (Trace
        Event Format, complete events; times in microseconds)."""
        events: list[dict[str, Any]] = [
            {"name": "process_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": "verax"}}
        ]
        start = 0.0
        for index, (step, plain) in enumerate(zip(self.steps, self.to_json()["steps"])):
            events.append(
                {
                    "name": step.label,
                    "cat": step.kernel,
                    "ph": "X",
                    "ts": start,
                    "dur": step.microseconds,
                    "pid": 1,
                    "tid": 1,
                    "args": {"step": index, **plain},
                }
            )
            start += step.microseconds
        return {"traceEvents": events, "displayTimeUnit": "ms"}

    def _brief(self) -> str:
        return f"{self.microseconds / 1e3:.3f} ms in {len(self.steps)} steps"

    def __str__(self) -> str:
        total = self.microseconds or 1.0
        peak = f", peak {self.peak:.0f} GFLOP/s" if self.peak else ""
        lines = [
            f"{total / 1e3:.3f} ms in {len(self.steps)} steps, {self.threads} threads{peak}",
            f"{'us':>10} {'time':>7} {'GFLOP/s':>8} {'of peak':>7} {'MB':>8} {'GB/s':>7} "
            f"{'threads':>7}  {'kernel':<16} step: algorithm; schedule",
        ]
        for s in self.steps:
            method = f"{s.algorithm}; {s.schedule}" if s.schedule else s.algorithm
            lines.append(
                f"{s.microseconds:10.1f} {100 * s.microseconds / total:5.1f} % {s.gflops:8.1f}"
                f" {self.share_of_peak(s):5.1f} % {s.bytes / 1e6:8.3f} {s.gigabytes:7.1f}"
                f" {s.threads:7}  {s.kernel:<16} {s.label}{': ' if method else ''}{method}"
            )
        return "\n".join(lines)
