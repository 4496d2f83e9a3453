"""`Trace`: where each value of a graph went in a rewrite. Never found by matching names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from verax.base.printing import OneLine


@dataclass(frozen=True, repr=False)
class Trace(OneLine):
    """Maps a value of the old graph to the value of the new graph that holds the same tensor.

    A value missing from `values` no longer exists (it was fused away or was dead). `rewrites`
    counts the single rewrites done, `notes` says what they were, in order. `refused` says which
    rewrites would have saved time but were left out for accuracy, and why.
    """

    values: Mapping[str, str]
    rewrites: int = 0
    notes: tuple[str, ...] = field(default=())
    refused: tuple[str, ...] = field(default=())

    def _brief(self) -> str:
        kept = f", {len(self.refused)} left exact" if self.refused else ""
        return f"{self.rewrites} rewrites{kept}"

    def __str__(self) -> str:
        left = [f"kept exact, {note}" for note in self.refused]
        return "\n".join([f"{self.rewrites} rewrites", *self.notes, *left])

    def then(self, later: Trace) -> Trace:
        """This trace followed by `later`."""
        values = {a: later.values[b] for a, b in self.values.items() if b in later.values}
        return Trace(
            values,
            self.rewrites + later.rewrites,
            self.notes + later.notes,
            self.refused + later.refused,
        )
