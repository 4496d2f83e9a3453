"""`Alignment`: what two networks have to do with each other, value by value.

"First" is the network that the reader named first, "second" the other. Nothing in it depends on
names in the two files: values are matched by the numbers that they hold.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from verax.base.printing import Reported, first_few
from verax.records.codec import read_json, write_json
from verax.records.network import NetworkOutline

SCHEMA = "verax.alignment/2"
WITHOUT_NETWORKS = "verax.alignment/1"
"""The record of before, which held no networks."""


class Relation(enum.StrEnum):
    """What two networks are to each other."""

    same = "same"
    """One function: outputs agree as far as float64, or the rounding of the weights, allows, and
    operator by operator one does to any numbers what the other does."""
    different = "different"
    """Two functions."""
    no_difference = "no difference on these inputs"
    """Outputs agree on all inputs tried, but operators differ in what they would do to others."""
    undecided = "undecided"
    """These inputs cannot tell."""


@dataclass(frozen=True)
class InputMatch:
    """How an input of the second network is made from one of the first.

    axes: second = first transposed by these; channels: then reordered so along `axis` (empty: as
    they are); scale, offset: then scale * x + offset, one number or one per channel; words: all
    of that in a phrase.
    """

    first: str
    second: str
    axes: tuple[int, ...] = ()
    axis: int = -1
    channels: tuple[int, ...] = ()
    scale: tuple[float, ...] = ()
    offset: tuple[float, ...] = ()
    words: str = "as it is"


@dataclass(frozen=True)
class Match:
    """A value of the first network and one of the second that hold the same numbers.

    how: what must be done to the second to read it as the first, in words; exact: equal as far as
    float64 can tell, not only as far as rounded weights allow.
    """

    first: str
    second: str
    first_operator: str
    second_operator: str
    how: str
    exact: bool


@dataclass(frozen=True)
class OutputMatch:
    """An output of the first network and its counterpart.

    second: "" when none was found; axes: first = second transposed by these; channels: then its
    slices in this order along `axis` (empty: as they are); statistic: worst group of the
    difference over what rounding of the weights may do (at most 1 for the same numbers; 0 when
    equal in float64); max_abs: largest difference; reason: why the two differ, or "".
    """

    first: str
    second: str
    how: str
    axes: tuple[int, ...] = ()
    axis: int = -1
    channels: tuple[int, ...] = ()
    statistic: float = 0.0
    max_abs: float = 0.0
    reason: str = ""


@dataclass(frozen=True)
class AlignedNode:
    """A node as a reader sees it: its attributes and small constant inputs as text, the value it
    makes and that value's type."""

    node: str
    operator: str
    attributes: Mapping[str, str]
    value: str
    type: str


@dataclass(frozen=True)
class AttributeDifference:
    """One attribute that the two sides do not share."""

    operator: str
    attribute: str
    first: str
    second: str


@dataclass(frozen=True)
class WeightDifference:
    """Two constants that should be equal and are not.

    differing, elements: how many of how many differ; index, first_value, second_value: the worst.
    """

    first: str
    second: str
    differing: int
    elements: int
    index: tuple[int, ...]
    first_value: float
    second_value: float


@dataclass(frozen=True)
class Divergence:
    """A place where the networks part although everything that it is computed from agrees.

    first, second: the nodes on either side, in order; attributes, weights: how they differ;
    reason: the cause in words; proved: the cause alone explains the numbers (the first network's
    node gives the second's value when it is changed so); bridged: whether the rest of the network
    was compared as if this place agreed; relative: root mean square of the difference of the
    values over that of the first, infinite when they cannot be compared; where: the part of the
    value that differs, "" for all of it.
    """

    first: tuple[AlignedNode, ...]
    second: tuple[AlignedNode, ...]
    reason: str
    attributes: tuple[AttributeDifference, ...] = ()
    weights: tuple[WeightDifference, ...] = ()
    proved: bool = False
    bridged: bool = False
    relative: float = 0.0
    where: str = ""


@dataclass(frozen=True, repr=False)
class Alignment(Reported):
    """The answer to "are these two files the same network, and where do they part?".

    reasons: the answer in sentences; matches: values that agree, in the first network's order;
    first_values, second_values: values with numbers in each network; divergences: in order, the
    first is the cause most worth reading; notes: what the reader should know besides; drawn: how
    the inputs were made; networks: the two, without their weights (() in older records).
    """

    relation: Relation
    reasons: tuple[str, ...]
    first: str
    second: str
    inputs: tuple[InputMatch, ...]
    outputs: tuple[OutputMatch, ...]
    matches: tuple[Match, ...] = ()
    first_values: int = 0
    second_values: int = 0
    divergences: tuple[Divergence, ...] = ()
    notes: tuple[str, ...] = ()
    drawn: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0
    replay: Mapping[str, str] = field(default_factory=dict)
    networks: tuple[NetworkOutline, ...] = ()

    def _brief(self) -> str:
        text = (
            f"{self.relation}, {self.first} and {self.second}; {len(self.matches)} of "
            f"{self.first_values} values found"
        )
        layers = [divergence.first or divergence.second for divergence in self.divergences]
        parted = first_few(side[-1].node for side in layers if side)
        return f"{text}; they part at {parted}" if parted else text

    @property
    def exit_code(self) -> int:
        """0 the same function, 1 different ones, 3 when neither is shown."""
        return {Relation.same: 0, Relation.different: 1}.get(self.relation, 3)

    def to_json(self) -> str:
        """The whole record as JSON text; `from_json` gives an equal record."""
        return write_json(self, SCHEMA)

    @staticmethod
    def from_json(text: str) -> Alignment:
        """Read `to_json`'s text, or that of version 1. Raises `UsageError` for anything else."""
        older = {WITHOUT_NETWORKS: lambda data: {**data, "networks": []}}
        return read_json(Alignment, text, SCHEMA, older)
