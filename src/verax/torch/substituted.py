"""What is known of exchanged layers: a report on each, and the network before and after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from verax.base.notebooks import of_text
from verax.base.printing import OneLine
from verax.judge.gradients import GradientFinding
from verax.records.verdict import Kind, Verdict

WORST = (
    Kind.identical,
    Kind.rounding,
    Kind.precision,
    Kind.undecided,
    Kind.precision_lost,
    Kind.mistake,
)


@dataclass(frozen=True)
class Sides:
    """A figure of the network as it was, and with the layers exchanged."""

    before: float
    after: float

    def __str__(self) -> str:
        return f"{self.before:.6g} before, {self.after:.6g} after"


@dataclass
class LayerReport:
    """One layer. operator: what it is; replacement: what took its place; runs: how often; verdict:
    of the worst call that was judged, None for none; gradients: by argument, of the worst call;
    derived: how the float64 gradients were found; drift: root mean square difference from the same
    layer of the network as it was, over the size of that, in the worst call; None where that did
    not run."""

    name: str
    operator: str
    replacement: str
    runs: int = 0
    verdict: Verdict | None = None
    gradients: dict[str, GradientFinding] = field(default_factory=dict)
    derived: str = ""
    drift: float | None = None

    def judged(self, verdict: Verdict) -> None:
        """Keep the worse of this verdict and the earlier one."""
        if self.verdict is None or _rank(verdict.kind) > _rank(self.verdict.kind):
            self.verdict = verdict

    def judged_gradient(self, name: str, finding: GradientFinding) -> None:
        """Keep the worse of this finding and the earlier one on the gradient of an argument."""
        earlier = self.gradients.get(name)
        if earlier is None or _rank(finding.kind) > _rank(earlier.kind):
            self.gradients[name] = finding

    def drifts_from(self, before: Any, after: Any) -> None:
        """Record the distance of a result from the one of the original layer."""
        if not hasattr(before, "detach") or not hasattr(after, "detach"):
            return
        a, b = (t.detach().double().cpu().numpy() for t in (before, after))
        if a.shape != b.shape or not a.size:
            return
        size = float(np.sqrt(np.mean(np.square(a))))
        difference = float(np.sqrt(np.mean(np.square(a - b))))
        self.drift = max(self.drift or 0.0, difference / size if size else difference)

    def __str__(self) -> str:
        lines = [f"{self.name} ({self.operator}) by {self.replacement}: {self.runs} runs"]
        if self.drift is not None:
            lines[0] += f", {self.drift:.2g} from before"
        if self.verdict is not None:
            lines.append(f"  forward: {self.verdict.kind}: {self.verdict.reasons[0]}")
            for blame in self.verdict.blame:
                causes = [e.words for e in blame.explanations[:2]] or blame.structure[:2]
                lines += [f"    {cause}" for cause in causes]
        lines += [f"  gradient of {name}: {finding}" for name, finding in self.gradients.items()]
        return "\n".join(lines)


class SubstitutionReport(OneLine):
    """layers: reports by the layer's name, in the order in which they ran. losses, accuracies: what
    a loss of torch.nn.functional that was given the network's output said, before and after, call
    by call; empty where nothing was compared."""

    def __init__(self) -> None:
        self.layers: dict[str, LayerReport] = {}
        self.losses: list[Sides] = []
        self.accuracies: list[Sides] = []
        self._sites: dict[str, Any] = {}

    @property
    def verdicts(self) -> Mapping[str, Verdict]:
        """The verdict on each layer that was judged, forward."""
        return {n: one.verdict for n, one in self.layers.items() if one.verdict is not None}

    @property
    def gradients(self) -> Mapping[str, Mapping[str, GradientFinding]]:
        """What was found on gradients, by layer and argument."""
        return {n: one.gradients for n, one in self.layers.items() if one.gradients}

    @property
    def kind(self) -> Kind:
        """The worst of all."""
        kinds = [v.kind for v in self.verdicts.values()]
        kinds += [g.kind for by_argument in self.gradients.values() for g in by_argument.values()]
        return max(kinds, key=_rank, default=Kind.undecided)

    @property
    def loss(self) -> Sides | None:
        """Mean loss before and after; None when no loss was seen."""
        return _mean(self.losses)

    @property
    def accuracy(self) -> Sides | None:
        """Share of samples whose largest output is the target, before and after; None when no
        classes were compared."""
        return _mean(self.accuracies)

    def _brief(self) -> str:
        return f"{len(self.layers)} layers exchanged, {self.kind}"

    def __str__(self) -> str:
        lines = [str(one) for one in self.layers.values()]
        for words, sides in (("loss", self.loss), ("accuracy", self.accuracy)):
            lines += [] if sides is None else [f"{words}: {sides}"]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return of_text(f"{len(self.layers)} layers exchanged: {self.kind}", str(self))


def _mean(sides: list[Sides]) -> Sides | None:
    if not sides:
        return None
    before, after = np.mean([(s.before, s.after) for s in sides], axis=0)
    return Sides(float(before), float(after))


def _rank(kind: Kind) -> int:
    return WORST.index(kind)
