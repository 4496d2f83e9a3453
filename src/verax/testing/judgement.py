"""`Judgement`: a judgement in a test as summaries show it. Importing this loads nothing else."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

BLIND = "blind"
"""In the place of a verdict: the numbers are right, on inputs that could not show a mistake."""
NOT_JUDGED = "not judged"
"""In the place of a verdict: the assertion failed before there was one."""


@dataclass(frozen=True)
class Judgement:
    """One judgement in a test: texts and numbers alone, so that it goes from process to process.

    test: the test's name; verdict: the judge's word, BLIND or NOT_JUDGED; accepted: whether the
    assertion held; used: the largest error over what rounding may do, None where nothing was
    measured; cause: what a mistake looks like, "" for none; message: of the failure; file, line: of
    the call; record: path of the record, "" for none.
    """

    test: str
    verdict: str
    accepted: bool
    used: float | None
    cause: str = ""
    message: str = ""
    file: str = ""
    line: int = 0
    record: str = ""

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Judgement:
        return Judgement(**values)
