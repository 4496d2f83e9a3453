"""`EvaluationRecord`: how often a network is right on labeled samples, and where others differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from verax.base.printing import Reported
from verax.records.codec import read_json, write_json

SCHEMA = "verax.evaluation/1"


@dataclass(frozen=True)
class Share:
    """`right` of `of` samples; low, high: the 95 % interval of the share (Wilson), 0 to 1."""

    right: int
    of: int
    low: float
    high: float

    @property
    def value(self) -> float:
        """The share, 0 to 1."""
        return self.right / self.of


@dataclass(frozen=True)
class Accuracy:
    """What one implementation reaches.

    top1: its largest score is the label's; topk: the label's is among the `k` largest; no_number:
    samples for which a score was NaN; metrics: what the user's function returned, by name.
    """

    top1: Share
    topk: Share
    k: int
    no_number: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Flip:
    """One sample on which the choices differ.

    label, model, subject: classes: the right one, and what model and subject chose; meaning: what
    the float64 meaning chooses, None where it was not evaluated. margin: how much higher float64
    scores its own choice than the one of the two that it scores lower (without float64: how much
    higher the model scores its choice than the subject's). sigma: how far honest rounding moves
    that margin (standard deviation). near: whether rounding may decide; None where it cannot be
    told, and why.
    """

    sample: str
    label: int
    model: int
    subject: int
    meaning: int | None
    margin: float
    sigma: float
    near: bool | None
    why: str = ""


@dataclass(frozen=True)
class Confusion:
    """How many samples went from the model's class to the subject's."""

    model: int
    subject: int
    count: int


@dataclass(frozen=True)
class ComparedImplementation:
    """A second implementation on the same samples.

    subject: its description by name; agreeing: samples with the same choice; flips: the others,
    those beyond rounding first; largest: difference of two scores, and of which sample (`where`);
    only_model, only_subject: samples that only one of the two has right; p_value: of McNemar's
    exact test on those two numbers, the probability of a split that uneven if chance decided.
    """

    subject: Mapping[str, str]
    accuracy: Accuracy
    agreeing: int
    flips: tuple[Flip, ...]
    confusion: tuple[Confusion, ...]
    largest: float
    where: str
    only_model: int
    only_subject: int
    p_value: float

    @property
    def near_ties(self) -> int:
        """Flips that rounding may decide."""
        return sum(f.near is True for f in self.flips)

    @property
    def unexplained(self) -> int:
        """Flips that rounding does not explain."""
        return sum(f.near is False for f in self.flips)

    @property
    def undecided(self) -> int:
        """Flips of which neither can be told."""
        return sum(f.near is None for f in self.flips)


@dataclass(frozen=True, repr=False)
class EvaluationRecord(Reported):
    """The answer on a set of labeled samples.

    model: who ran it, by name; output: the value whose largest element along the last axis is the
    choice; classes: their names, () when none are known; steps: how samples became inputs, and what
    was assumed, in words; hashes: SHA-256 of the network, the data and the labels.
    """

    model: Mapping[str, str]
    output: str
    samples: int
    accuracy: Accuracy
    comparison: ComparedImplementation | None
    reasons: tuple[str, ...]
    classes: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    hashes: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0

    def _brief(self) -> str:
        top1 = self.accuracy.top1
        text = f"{self.model.get('name', '?')} is right on {top1.right} of {top1.of} samples"
        if self.comparison is None:
            return text
        name = self.comparison.subject.get("name", "?")
        return f"{text}; {name} chooses differently on {len(self.comparison.flips)}"

    @property
    def exit_code(self) -> int:
        """0; 1 when a flip is not explained by rounding; 3 when that cannot be told."""
        if self.comparison is None:
            return 0
        return 1 if self.comparison.unexplained else 3 if self.comparison.undecided else 0

    def to_json(self) -> str:
        """The whole record as JSON text; `from_json` gives an equal record."""
        return write_json(self, SCHEMA)

    @staticmethod
    def from_json(text: str) -> EvaluationRecord:
        """Read `to_json`'s text. Raises `UsageError` when it is something else."""
        return read_json(EvaluationRecord, text, SCHEMA)
