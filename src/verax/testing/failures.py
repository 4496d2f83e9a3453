"""What a failed assertion raises: an `AssertionError` that carries the verdict."""

from __future__ import annotations

from verax.records.verdict import Verdict


class IncorrectError(AssertionError):
    """The answer is not what rounding makes of the meaning, or not reproducible.

    verdict: the record, with every figure that was used.
    """

    def __init__(self, message: str, verdict: Verdict) -> None:
        super().__init__(message)
        self.verdict = verdict


class BlindCheckError(IncorrectError):
    """The inputs could not have shown a mistake, so that agreement proves nothing."""
