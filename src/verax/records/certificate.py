"""`Certificate`: what was found when a compiled network was judged before it was handed over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from verax.base.figures import times
from verax.base.printing import OneLine
from verax.records.codec import read_json, write_json
from verax.records.verdict import InputRecord, Kind

SCHEMA = "verax.certificate/2"
UNIT = 2.0**-24
"""Unit roundoff of float32."""
ILL_CONDITIONED = 1e-3
"""An output that float32 rounding alone may move by this part of its size, or more."""
UNCHANGED = "as in the first input"
"""The origin of an input that a stressed draw leaves as it was."""


@dataclass(frozen=True)
class CertifiedLayer:
    """A node that is computed by a fast algorithm.

    share: the largest error over what direct summation in the worst order may err in the tiles
    around it, of products in bfloat16 over what rounding both factors may move them by; a layer is
    certified up to 1. kind: the judge's word on the node by itself. cost: the root mean square of
    the error over that of the value.
    """

    node: str
    algorithm: str
    share: float
    kind: Kind
    cost: float = 0.0


@dataclass(frozen=True)
class Output:
    """One output against the float64 meaning of the whole network.

    largest: the largest error; size: root mean square of the output; rounding: that of what float32
    arithmetic may do anyway (Monte Carlo); units: the largest error over `rounding` there; share:
    the judge's statistic over its limit, at most 1 for rounding; ratio: the worst group's error
    from the inputs on, over what O1's rounding does there (see `statistics.LOST`).
    """

    value: str
    type: str
    kind: Kind
    reason: str
    largest: float
    size: float
    rounding: float
    units: float
    share: float
    ratio: float = 0.0

    @property
    def condition(self) -> float:
        """How many units of roundoff float32 may lose in this output, relative to its size."""
        return self.rounding / self.size / UNIT if self.size else 0.0


@dataclass(frozen=True)
class Draw:
    """What was judged on one set of inputs: `nodes` counts the nodes' verdicts by kind."""

    inputs: tuple[InputRecord, ...]
    nodes: Mapping[str, int]
    layers: tuple[CertifiedLayer, ...]
    outputs: tuple[Output, ...]
    unchecked: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class Certificate(OneLine):
    """Whether a compiled network computes what it means, on the inputs that were tried.

    draws: sets of inputs on which every node was judged; stressed: those on which the outputs were
    (borders and padding of zeros, constants, one-hot, saturated), where layers are approximated.
    recipe: SHA-256 of its recipe; network: of the network. fallbacks: nodes put back to direct
    summation, with the reason. power: the smallest relative error, spread over a whole value, that
    would have been called a mistake in every node. problems: why it does not hold, or nothing.
    """

    recipe: str
    network: str
    opt_level: int
    draws: tuple[Draw, ...]
    stressed: tuple[Draw, ...] = ()
    fallbacks: Mapping[str, str] = field(default_factory=dict)
    power: float = 0.0
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether nothing speaks against the program."""
        return not self.problems

    def _brief(self) -> str:
        summary = "it holds" if self.holds else f"it does not hold: {self.problems[0]}"
        return f"O{self.opt_level}, recipe {self.recipe[:16]}; {summary}"

    def __str__(self) -> str:
        return "\n".join(line for line in self._lines() if line)

    def _lines(self) -> list[str]:
        noun = "input" if len(self.draws) == 1 else "inputs"
        lines = [
            f"certificate {'holds' if self.holds else 'does NOT hold'}: O{self.opt_level}, judged "
            f"against float64 on {len(self.draws)} {noun} in {self.seconds:.1f} s",
            f"recipe {self.recipe}",
            f"network {self.network}",
            *(f"problem: {p}" for p in self.problems),
        ]
        for i, draw in enumerate(self.draws, 1):
            lines += [
                f"input {i}: {entry.name} {entry.type}, {entry.origin}, sha256 {entry.sha256[:16]}"
                for entry in draw.inputs
            ]
            counted = ", ".join(f"{n} {kind}" for kind, n in draw.nodes.items())
            lines.append(f"  nodes: {counted}")
            lines += [
                f"  {out.value}: {out.kind}; largest error {out.largest:.2g} = {out.units:.2f} of "
                f"what float32 rounding may do there; {out.share:.2f} of the limit; "
                f"{_times(out.ratio)} times O1's rounding"
                for out in draw.outputs
            ]
            lines += [
                f"  {out.value} is ill-conditioned in itself: float32 rounding alone may move it "
                f"by {out.condition * UNIT:.1g} of its size"
                for out in draw.outputs
                if out.condition * UNIT > ILL_CONDITIONED
            ]
        lines += [line for draw in self.stressed for line in _stressed_lines(draw)]
        layers = [layer for draw in self.draws for layer in draw.layers]
        if layers:
            worst = max(layers, key=lambda layer: layer.share)
            lines.append(
                f"{len({layer.node for layer in layers})} layers by fast algorithms; the worst, "
                f"{worst.node} ({worst.algorithm}), errs by {worst.share:.2g} of its bound"
            )
            lines += [
                f"  {layer.node} ({layer.algorithm}): costs {layer.cost:.1e} of its size"
                for layer in layers
            ]
        lines += [
            f"put back to direct summation: {n}: {reason}" for n, reason in self.fallbacks.items()
        ]
        seen = "would have shown in every node"
        lines.append(f"power: relative errors from {self.power:.1g} on {seen}")
        return [*lines, *(f"note: {n}" for n in self.notes)]

    def to_markdown(self) -> str:
        """A table for an issue or a page, and the rest as text."""
        rows = [
            f"| {i} | `{o.value}` | {o.kind} | {o.largest:.2g} | {o.units:.2f} | {o.share:.2f} "
            f"| {o.condition:.0f} |"
            for i, draw in enumerate(self.draws, 1)
            for o in draw.outputs
        ]
        rows += [
            f"| {_title(draw)} | `{o.value}` | {o.kind} | {o.largest:.2g} | {o.units:.2f} "
            f"| {o.share:.2f} | {o.condition:.0f} |"
            for draw in self.stressed
            for o in draw.outputs
        ]
        head = (
            "| draw | output | verdict | largest error | of float32 rounding | of the limit | "
            "condition (units) |\n|---|---|---|---|---|---|---|"
        )
        text = "\n".join(["```text", str(self), "```"])
        title = "### Verax: the certificate " + ("holds" if self.holds else "does not hold")
        return "\n".join([title, "", head, *rows, "", text, ""])

    def to_json(self) -> str:
        """The whole record as JSON text; `from_json` gives an equal record."""
        return write_json(self, SCHEMA)

    @staticmethod
    def from_json(text: str) -> Certificate:
        """Read `to_json`'s text. Raises `UsageError` when it is something else."""
        return read_json(Certificate, text, SCHEMA)


def _title(draw: Draw) -> str:
    """What the inputs of a draw are made of."""
    words = dict.fromkeys(input_.origin for input_ in draw.inputs)
    return "; ".join(w for w in words if w != UNCHANGED) or UNCHANGED


def _times(ratio: float) -> str:
    """A ratio to two digits, in words where digits say nothing."""
    return times(float(f"{ratio:.2g}"))


def _stressed_lines(draw: Draw) -> list[str]:
    """The outputs of a draw of which only these were judged."""
    return [
        f"  {out.value} on {_title(draw)}: {_times(out.ratio)} times O1's rounding"
        for out in draw.outputs
    ]
