"""`Verdict`: what the judge found, with every number that it used.

A verdict says one of six things in words, never a boolean. The figures beside it are enough to
follow the decision by hand; the environment and the hashes of the inputs are enough to repeat it.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from verax.base.printing import Reported, first_few
from verax.records.codec import read_json, write_json
from verax.records.network import ErrorDistribution, NetworkOutline

SCHEMA = "verax.verdict/5"
WITHOUT_NETWORK = "verax.verdict/4"
"""The record of before, which held no network and no distribution of errors."""


class Kind(enum.StrEnum):
    """The six answers of the judge."""

    identical = "identical"
    """Every bit of every output is the meaning's value, rounded once."""
    rounding = "rounding"
    """Every difference is what honest float32 arithmetic gives."""
    precision = "precision"
    """Every difference is explained by a coarser arithmetic, which is named."""
    precision_lost = "precision lost"
    """So it is, but the network makes those errors much larger than that arithmetic's own."""
    mistake = "mistake"
    """Rounding cannot explain the difference."""
    undecided = "undecided"
    """The check cannot tell, and the reasons say why."""


@dataclass(frozen=True)
class WorstElement:
    """One element: its coordinates, the meaning's value and the subject's."""

    index: tuple[int, ...]
    expected: float
    given: float


@dataclass(frozen=True)
class ErrorMetrics:
    """The figures that people usually quote; they decide nothing.

    max_abs, max_rel: largest absolute and relative difference over finite elements; cosine:
    similarity of the two tensors as vectors; psnr: peak signal to noise ratio in dB;
    allclose: passes of the usual settings by name; differing: elements whose bits differ from the
    meaning rounded once; beyond: elements that differ by more than `beyond_rtol` relative, among
    those beyond_abs the largest absolute difference and beyond_size the largest expected magnitude,
    over the root mean square of all expected values.
    """

    max_abs: float
    max_rel: float
    cosine: float
    psnr: float
    allclose: Mapping[str, bool]
    differing: int
    beyond: int = 0
    beyond_rtol: float = 0.0
    beyond_abs: float = 0.0
    beyond_size: float = 0.0


@dataclass(frozen=True)
class Finding:
    """What was found on one value.

    node, operator: who produced it; region: all nodes judged together, the producer last;
    test: the deciding test; statistic: the worst group's root mean square of error / sigma, over
    the limit of that test: at most 1 when it accepts; group: that group; bound_ratio: largest error
    over its hard bound, None where no bound holds; sigma: root mean square of sigma; error: root
    mean square of the difference; precision: the coarser arithmetic that explains the difference;
    ratio: of nodes judged together, the worst group's error over what float32 rounding may do
    there, whatever test decided (`statistics.ratio`; honest rounding reaches 2). visible: smallest
    relative error, spread over the whole value, that would have shown in it where its node was
    judged alone; 0 where any would have.
    """

    value: str
    node: str
    operator: str
    kind: Kind
    reason: str
    test: str
    elements: int
    statistic: float
    group: str
    bound_ratio: float | None
    sigma: float
    error: float
    plain: ErrorMetrics
    worst: tuple[WorstElement, ...] = ()
    region: tuple[str, ...] = ()
    precision: Precision | None = None
    ratio: float = 0.0
    visible: float = 0.0


@dataclass(frozen=True)
class Explanation:
    """A rival meaning under which what the subject gave is within rounding.

    hypothesis: its standard name ("pads swapped"); words: a sentence for the reader; attributes:
    the attributes that the subject seems to have used, as far as they differ; statistic: worst
    group over its limit under this meaning (at most 1); refuted: it fitted the given input and
    failed on one that was made to tell the explanations apart.
    """

    hypothesis: str
    words: str
    attributes: Mapping[str, str] = field(default_factory=dict)
    statistic: float = 0.0
    refuted: bool = False


@dataclass(frozen=True)
class Blame:
    """A guilty node; `region` lists the nodes when several had to be judged together.

    explanations: rival meanings that fit, best first, several when this input cannot tell them
    apart; empty when nothing in the library explains the numbers. structure: what the error looks
    like ("only the last row", "one affine relation per channel"), in words. told_apart: how the
    explanations were told apart by a further input, or why they were not; "" for at most one.
    guilty_pass: the compiler pass and rewrite that brought the mistake, when it was searched for.
    """

    node: str
    operator: str
    attributes: Mapping[str, str]
    value: str
    kind: Kind
    reason: str
    region: tuple[str, ...] = ()
    explanations: tuple[Explanation, ...] = ()
    structure: tuple[str, ...] = ()
    told_apart: str = ""
    guilty_pass: str = ""


@dataclass(frozen=True)
class Precision:
    """Which arithmetic a value was computed in.

    format: its name ("bf16 inputs", "Winograd F(4x4, 3x3)"); unit_roundoff: the estimate from the
    size of the errors, in units of 1 (float32: 2**-24); confirmed: recomputing in that format gave
    the subject's numbers within rounding; lost_digits: decimal digits, of float32's 7.2, that an
    unstable algorithm lost in the worst place; needs_leave: it lost more than may pass unless
    somebody allows it by name.
    """

    value: str
    node: str
    format: str
    unit_roundoff: float
    confirmed: bool
    lost_digits: float = 0.0
    needs_leave: bool = False


@dataclass(frozen=True)
class Loss:
    """An output whose error from start to end is too large for the arithmetics that were found.

    formats: their names; ratio: the worst group's error over what float32 rounding may do there
    (or, if that is more, one roundoff of the coarsest format of the output's own size), at most
    `statistics.LOST` for *precision*; error: root mean square of the error over that of the output.
    amplifier, operator: the node with the largest gain on the way, gain: how many times larger the
    relative error of its result is than that of what it reads; "" and 0 where no single node does
    it. source, source_operator: the first node before it whose arithmetic it amplifies. allowed:
    the formats that were allowed cover it.
    """

    value: str
    formats: tuple[str, ...]
    ratio: float
    error: float
    amplifier: str = ""
    operator: str = ""
    gain: float = 0.0
    source: str = ""
    source_operator: str = ""
    allowed: bool = False


@dataclass(frozen=True)
class Repeat:
    """What a second run of the subject on the same inputs gave.

    same_bits: whether every value agreed bit for bit; poisoned: how memory was pre-filled between
    the runs ("" when the runner cannot); differing: values that changed, with the largest
    difference; cause: "uninitialized memory", "order of summation", "chance inside the subject" or
    how the second run failed; "" when nothing changed.
    """

    runs: int
    same_bits: bool
    poisoned: str = ""
    differing: Mapping[str, float] = field(default_factory=dict)
    cause: str = ""


@dataclass(frozen=True)
class Power:
    """Smallest relative error, spread over a whole value, that the check would have called a
    mistake. A smaller place (a dead channel) can hide more.

    rounding_share: part of the rounding expected at the outputs that this node makes; 0 where it
    was not measured. step: a step of the quantization around the value, in the same measure; 0
    where there is none. Smaller errors need not show in a quantized network. smallest_factor: the
    same for one error of all elements, which a norm behind the value takes away (`smallest_visible`
    is of errors that differ from element to element); None where it is the same.
    """

    value: str
    node: str
    smallest_visible: float
    rounding_share: float = 0.0
    step: float = 0.0
    smallest_factor: float | None = None


@dataclass(frozen=True)
class Coverage:
    """In how many nodes a relative error would have shown.

    level: that error (0.001 for float32, more for coarser formats); seen, tried: nodes in which it
    would have shown, of those that were tried; blind: names of the others; weakest: the smallest
    relative error that would have shown in the least visible of them; nodes: of the network;
    hidden_factors: names of nodes that are not blind, in which it would not have shown were it one
    factor of the whole value (a norm behind them takes it away).
    """

    level: float
    seen: int
    tried: int
    blind: tuple[str, ...] = ()
    weakest: float = 0.0
    nodes: int = 0
    hidden_factors: tuple[str, ...] = ()


@dataclass(frozen=True)
class InputRecord:
    """One input: its type, SHA-256 of its bytes, and where it came from, in words."""

    name: str
    type: str
    sha256: str
    origin: str


@dataclass(frozen=True)
class Comparison:
    """Which of two implementations is nearer to the float64 meaning, for one output."""

    value: str
    first: str
    second: str
    first_error: float
    second_error: float
    nearer: str
    same_bits: bool


@dataclass(frozen=True, repr=False)
class Verdict(Reported):
    """The judge's answer on one subject and one set of inputs.

    reasons: the answer in sentences, most important first; outputs: findings on the network's
    outputs; nodes: findings on every value that could be checked, in order; method: how much of
    the subject was seen ("every node", "regions", "outputs only"); unchecked: values that could
    not be judged, each with the reason; notes: what the reader should know besides; causes:
    faults of the harness, not of the network (layout, channel order, scaling), that explain the
    difference; coverage: how much of the network the check could see; precisions: arithmetics
    found; losses: outputs where the network makes their errors too large; repeat: whether the
    subject repeats itself; replay: what is needed to judge the same again (paths, hashes and
    options as text); allowed: arithmetics that the caller allows by name though they lose digits;
    network: what was judged, without its weights (None in older records); errors: how the errors of
    judged values are spread, in the order of `nodes`, with pictures of the most suspicious ones.
    """

    kind: Kind
    reasons: tuple[str, ...]
    subject: Mapping[str, str]
    method: str
    outputs: tuple[Finding, ...]
    nodes: tuple[Finding, ...]
    blame: tuple[Blame, ...]
    power: tuple[Power, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    inputs: tuple[InputRecord, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0
    unchecked: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    causes: tuple[Explanation, ...] = ()
    precisions: tuple[Precision, ...] = ()
    losses: tuple[Loss, ...] = ()
    repeat: Repeat | None = None
    replay: Mapping[str, str] = field(default_factory=dict)
    coverage: Coverage | None = None
    allowed: tuple[str, ...] = ()
    network: NetworkOutline | None = None
    errors: tuple[ErrorDistribution, ...] = ()

    def _brief(self) -> str:
        name = self.subject.get("name", "?")
        if self.blame:
            nodes = first_few(f"{b.node} ({b.operator})" for b in self.blame)
            return f"{self.kind}, {name}; by {nodes}"
        count = len(self.nodes)
        return f"{self.kind}, {name}; {count} value{'s' * (count != 1)} judged"

    @property
    def exit_code(self) -> int:
        """0 identical, rounding or an allowed precision; 1 mistake, precision lost, or digits lost
        by an unstable algorithm that nobody allowed; 3 undecided."""
        if self.kind is Kind.precision and disallowed(self.precisions, self.allowed):
            return 1
        return {Kind.mistake: 1, Kind.precision_lost: 1, Kind.undecided: 3}.get(self.kind, 0)

    def to_json(self) -> str:
        """The whole record as JSON text; `from_json` gives an equal record."""
        return write_json(self, SCHEMA)

    @staticmethod
    def from_json(text: str) -> Verdict:
        """Read `to_json`'s text, or that of version 4. Raises `UsageError` for anything else."""
        return read_json(Verdict, text, SCHEMA, {WITHOUT_NETWORK: with_no_network})


def with_no_network(data: Any) -> Any:
    """The plain form of a verdict of version 4 in that of this one."""
    return {**data, "network": None, "errors": []} if isinstance(data, dict) else data


def disallowed(precisions: Iterable[Precision], allowed: Collection[str]) -> tuple[str, ...]:
    """Names of the arithmetics among those found that need leave and are not allowed, each once."""
    needed = dict.fromkeys(p.format for p in precisions if p.needs_leave)
    return tuple(name for name in needed if not is_allowed(name, allowed))


def is_allowed(name: str, allowed: Collection[str]) -> bool:
    """Whether an arithmetic begins with one of the texts that allow some, in upper or lower case:
    "strassen" allows Strassen, "TF32" also "TF32 inputs, truncated"."""
    return any(a and name.casefold().startswith(a.casefold()) for a in allowed)
