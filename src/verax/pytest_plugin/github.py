"""GitHub Actions: an annotation at the line of a failed judgement, and a table for the step's page.

Both are texts of the workflow commands that GitHub's documentation describes; nothing is sent.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path

from verax.base.figures import times
from verax.pytest_plugin.judged_test import JudgedTest
from verax.testing.judgement import Judgement

ACTIONS, SUMMARY, WORKSPACE = "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE"
"""Environment variables of a step."""
ROWS = 200
"""Tests in the table: a step's summary may have 1 MiB."""


def is_on(environment: Mapping[str, str]) -> bool:
    return environment.get(ACTIONS, "").lower() == "true"


def annotation(row: Judgement, environment: Mapping[str, str], root: Path) -> str:
    """The workflow command that shows a failed judgement at its line, in one line of text."""
    path = Path(row.file)
    for base in (environment.get(WORKSPACE), root):
        if base and path.is_relative_to(base):
            path = path.relative_to(base)
            break
    title = f"{row.verdict}: {row.test.rpartition('::')[2]}"
    fields = {"file": path.as_posix(), "line": str(row.line), "title": title}
    text = ",".join(f"{name}={_escaped(value, ':,')}" for name, value in fields.items())
    return f"::error {text}::{_escaped(row.message)}"


def _escaped(text: str, more: str = "") -> str:
    for character in f"%\r\n{more}":
        text = text.replace(character, f"%{ord(character):02X}")
    return text


def append_summary(environment: Mapping[str, str], tests: Sequence[JudgedTest]) -> None:
    """Append the table of judged tests, the worst first, to the step's summary, if it has one."""
    path = environment.get(SUMMARY)
    if path:
        with open(path, "a", encoding="utf-8") as stream:
            stream.write(markdown(tests))


def markdown(tests: Sequence[JudgedTest]) -> str:
    """A heading and a table, at most ROWS tests."""
    wrong = sum(not test.worst.accepted for test in tests)
    lines = [
        f"### Verax: {len(tests) - wrong} judged right, {wrong} not",
        "",
        "| test | verdict | error / allowed | what it looks like |",
        "| --- | --- | ---: | --- |",
    ]
    for test in tests[:ROWS]:
        row = test.worst
        used = "" if row.used is None else times(row.used)
        mark = "✅" if row.accepted else ("❌" if test.outcome == "failed" else "⚠️")
        cells = (row.test, f"{mark} {row.verdict}", used, row.cause)
        lines.append("| " + " | ".join(map(_cell, cells)) + " |")
    if tests[ROWS:]:
        lines.append(f"\nand {len(tests) - ROWS} tests more, no worse than these")
    return "\n".join(lines) + "\n\n"


def _cell(text: str) -> str:
    """A text within a table: no markup, no line breaks."""
    text = html.escape(" ".join(text.split()), quote=False)
    for character in "\\|`*_[]":
        text = text.replace(character, f"\\{character}")
    return text
