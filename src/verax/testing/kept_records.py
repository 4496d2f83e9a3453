"""What is kept of every judgement in a test: its record as a file, and a row for summaries.

A file is named after its test, so that running the test again replaces what it left, and no two
tests, processes or machines that share a folder write the same one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verax.base.errors import UsageError
from verax.base.storage.files import atomic_write
from verax.records.verdict import Verdict
from verax.report.faulty_node import explanation_line
from verax.report.verdict import over_allowed
from verax.testing.failures import BlindCheckError
from verax.testing.judgement import BLIND, NOT_JUDGED, Judgement

LONGEST_STEM = 80
"""Characters of a file's name that come from the test's."""


def judgement_of(
    verdict: Any, test: str, location: tuple[str, int], failure: AssertionError | None
) -> Judgement:
    """The row on a verdict. failure: of the assertion; verdict: None where it brought none."""
    message = "" if failure is None else str(failure)
    if not isinstance(verdict, Verdict):
        return Judgement(test, NOT_JUDGED, failure is None, None, "", message, *location)
    word = BLIND if isinstance(failure, BlindCheckError) else verdict.kind.value
    return Judgement(
        test,
        word,
        failure is None,
        error_over_allowed(verdict),
        _cause(verdict),
        message,
        *location,
    )


def error_over_allowed(verdict: Verdict) -> float | None:
    """The largest error over what is allowed, of every judged value; None if nothing was."""
    ratios = [over_allowed(f) for f in (*verdict.nodes, *verdict.outputs)]
    ratios = [r for r in ratios if not math.isnan(r)]
    return max(ratios, default=None)


def _cause(verdict: Verdict) -> str:
    """What the error looks like, in a line: the first cause that stands, or its structure."""
    explanations = [*verdict.causes, *(e for b in verdict.blame for e in b.explanations)]
    standing = [e for e in explanations if not e.refuted]
    if standing:
        return explanation_line(standing[0])
    return next((s for b in verdict.blame for s in b.structure), "")


def keep(folder: Path, verdict: Verdict, test: str, index: int, facts: Mapping[str, str]) -> Path:
    """Write the record of the judgement `index` (from 1) of a test, and return the file's path.

    The first one removes what an earlier run of the same test left. facts: added to the record's
    subject. A folder that is made gets a .gitignore, as it holds what can be made again.
    Raises `UsageError` when the folder cannot be written.
    """
    try:
        if not folder.exists():
            folder.mkdir(parents=True)
            with atomic_write(folder / ".gitignore") as stream:
                stream.write(b"*\n")
    except OSError as error:
        raise UsageError(
            f"the folder for records cannot be made ({error.strerror})",
            place=str(folder),
            next_step="name another one with --verax-records",
        ) from error
    stem = stem_of(test)
    if index == 1:
        for path in folder.glob(f"{stem}-*.json"):
            path.unlink(missing_ok=True)
    path = folder / f"{stem}-{index}.json"
    record = dataclasses.replace(verdict, subject={**verdict.subject, **facts})
    with atomic_write(path, durable=False) as stream:
        stream.write(record.to_json().encode())
    return path


def stem_of(test: str) -> str:
    """The beginning of the file names of a test: readable, and different for different tests."""
    readable = re.sub(r"[^A-Za-z0-9._]+", "-", test).strip("-.")[-LONGEST_STEM:].lstrip("-.")
    return f"{readable}-{hashlib.sha256(test.encode()).hexdigest()[:8]}"
