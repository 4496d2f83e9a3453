"""The plan of a compiled program in words: its kernel calls, memory, the choices that these follow
from, and what was left exact."""

from __future__ import annotations

from dataclasses import dataclass

from verax.base.machine.memory import shown_bytes
from verax.base.notebooks import of_text
from verax.base.printing import OneLine


@dataclass(frozen=True, repr=False)
class Plan(OneLine):
    """What one specialized program does: a line per kernel call or reference step.

    tuning: what the history of measured schedules said of its kernels; "" where there is none.
    refused: which layers approximating passes left exact, and why. choices: for each group of
    nodes that run as one, in order, the kernel family with the layouts that it reads and writes, or
    why none computes it; empty for a program of Verax 0.1, which did not store them. copied_bytes:
    of a program on a GPU, what is copied from and to it in each call for nodes on the reference.
    """

    lines: tuple[str, ...]
    arena_bytes: int
    weight_bytes: int
    on_reference: tuple[str, ...]
    tuning: str = ""
    refused: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    copied_bytes: int = 0

    def _brief(self) -> str:
        return f"{len(self.lines)} steps, arena {self.arena_bytes / 1e6:.2f} MB"

    def __str__(self) -> str:
        head = f"arena {self.arena_bytes / 1e6:.2f} MB, weights {self.weight_bytes / 1e6:.2f} MB"
        if self.on_reference:
            head += f"; {len(self.on_reference)} nodes run on the reference (no kernel)"
        if self.copied_bytes:
            head += f", for which {shown_bytes(self.copied_bytes)} are copied in each call"
        if self.tuning:
            head += f"\nschedules: {self.tuning}"
        choices = ["choices:", *(f"  {line}" for line in self.choices)] if self.choices else []
        exact = (f"kept exact, {note}" for note in self.refused)
        return "\n".join([head, *self.lines, *exact, *choices])

    def _repr_html_(self) -> str:
        return of_text(f"plan of {len(self.lines)} steps", str(self))
