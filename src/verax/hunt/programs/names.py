"""Subjects that are hunted with programs of PyTorch: `torch.compile`, `torch.compile:BACKEND`."""

from __future__ import annotations

from verax.hunt.programs.templates import GROUPS

SUBJECT, INDUCTOR = "torch.compile", "inductor"
FAMILIES = tuple(f"torch_{group}" for group in GROUPS)
"""Families of programs: most statements of one come from the group."""


def is_program_subject(text: str) -> bool:
    """True if a subject's text is `torch.compile` or `torch.compile:BACKEND`."""
    return text.partition(":")[0] == SUBJECT


def backend_of(text: str) -> str:
    """The backend that a subject's text names."""
    return text.partition(":")[2] or INDUCTOR


def groups_of(families: tuple[str, ...]) -> tuple[str, ...]:
    """Groups of templates by their families."""
    return tuple(family.removeprefix("torch_") for family in families)
