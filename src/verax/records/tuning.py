"""`TuningRecord`: what measuring found about a network's schedules, and what it was worth."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field

from verax.base.option_groups.compile_options import TuneOptions
from verax.base.printing import OneLine
from verax.records.codec import read_json, write_json

SCHEMA = "verax.tuning-record/3"
WITHOUT_DEVICE = "verax.tuning-record/2"
WITHOUT_OPTIONS = "verax.tuning-record/1"
"""The records of before, which named no device, and had no options."""
TUNED, BY_RULE, ROLLED_BACK, NOT_REACHED = "tuned", "by rule", "rolled back", "not reached"
"""Outcomes: another schedule is faster; none is; one is by itself, but not in the network; there
was no time, or too little to gain, to look."""


@dataclass(frozen=True)
class TunedKernel:
    """One kernel of the network.

    kernel: digest of its spec; spec: that in words; calls: in the network; share: of the network's
    time, 0 to 1. rule_us, best_us: microseconds in the network for all calls, by rule and with the
    schedule found. alone, in_network: time with that schedule by the time by rule, of the kernel by
    itself and where it stands; noise: of the former. rule, schedule: in words. trials: candidates,
    each with bits compared.
    """

    kernel: str
    spec: str
    calls: int
    share: float
    rule_us: float
    best_us: float
    rule: str
    schedule: str
    outcome: str
    alone: float = 1.0
    in_network: float = 1.0
    noise: float = 0.0
    trials: int = 0

    @property
    def finding(self) -> str:
        """What is taken, in words: the schedule found, with what the rule has in the place of what
        differs, or why there is none."""
        return beside_rule(self.schedule, self.rule) if self.outcome == TUNED else self.outcome


def beside_rule(schedule: str, rule: str) -> str:
    """Words of a schedule, and those of the rule's that are not among them; parted by commas."""
    words = schedule.split(", ")
    remaining = [word for word in rule.split(", ") if word not in words]
    return f"{schedule}; {BY_RULE} {', '.join(remaining)}" if remaining else schedule


@dataclass(frozen=True, repr=False)
class TuningRecord(OneLine):
    """A network that was tuned.

    before, after: milliseconds of its runs, taken in turns, by rule and with what was found; kept:
    whether that is kept: not when the network as a whole did not gain. noise: standard error of the
    median of their ratios. equal_bits: whether all outputs are the same before and after. faults:
    candidates with other bits, in words; there should be none. seconds: what it took; budget: what
    it was given. history: the file. host: what it holds for, as text by name.
    options: of `tune`. device: label of the device that measured, "" for this machine as it is.
    notes: what one should know of how it was measured, in words: that the machine was noisy, what
    was not measured again.
    """

    model: str
    opt_level: int
    threads: int
    kernels: tuple[TunedKernel, ...]
    before: tuple[float, ...]
    after: tuple[float, ...]
    ratio: float
    noise: float
    kept: bool
    equal_bits: bool
    seconds: float
    budget: float
    history: str
    faults: tuple[str, ...] = ()
    host: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    options: TuneOptions | None = None
    device: str = ""
    notes: tuple[str, ...] = ()

    @property
    def is_right(self) -> bool:
        """True if no bit differed, of any candidate or of the network."""
        return self.equal_bits and not self.faults

    @property
    def speedup(self) -> float:
        """Time before by time after, the median of neighboring turns; 1 if nothing is kept."""
        return 1 / self.ratio if self.kept else 1.0

    def _brief(self) -> str:
        tuned = sum(k.outcome == TUNED for k in self.kernels)
        return (
            f"{self.model}; {tuned} of {len(self.kernels)} kernels tuned, {self.speedup:.3f} times "
            "as fast"
        )

    def __str__(self) -> str:
        tuned = [k for k in self.kernels if k.outcome == TUNED]
        back = sum(k.outcome == ROLLED_BACK for k in self.kernels)
        missed = sum(k.outcome == NOT_REACHED for k in self.kernels)
        trials = sum(k.trials for k in self.kernels)
        lines = [
            f"{len(tuned)} of {len(self.kernels)} kernels tuned with {trials} candidates in "
            f"{self.seconds:.0f} s"
            + (f"; {back} rolled back" if back else "")
            + (f"; {missed} not reached" if missed else "")
        ]
        if self.before and self.after:
            mine, theirs = statistics.median(self.before), statistics.median(self.after)
            lines.append(
                f"before {mine:.3f} ms (fastest {min(self.before):.3f}), after {theirs:.3f} ms "
                f"(fastest {min(self.after):.3f}); {1 / self.ratio:.3f} times as fast, noise "
                f"{100 * self.noise:.1f} %" + ("" if self.kept else "; nothing is kept")
            )
        same = "the same bits" if self.equal_bits else "OTHER BITS"
        lines.append(f"all outputs have {same} before and after")
        lines += [f"fault: {fault}" for fault in self.faults]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)

    def to_json(self) -> str:
        """The whole record as JSON text; `from_json` gives an equal record."""
        return write_json(self, SCHEMA)

    @staticmethod
    def from_json(text: str) -> TuningRecord:
        """Read `to_json`'s text. Raises `UsageError` when it is something else."""
        here: dict[str, object] = {"device": "", "notes": []}
        older = {
            WITHOUT_OPTIONS: lambda d: {**d, "options": None, **here},
            WITHOUT_DEVICE: lambda d: {**d, **here},
        }
        return read_json(TuningRecord, text, SCHEMA, older)
