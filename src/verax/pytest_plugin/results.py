"""What a run's judgements come to: terminal summary, HTML report, GitHub's annotations and step
summary. It runs in the one process that reports; workers of pytest-xdist send their rows to it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from verax.base.errors import VeraxError
from verax.pytest_plugin import github
from verax.pytest_plugin.judged_test import JudgedTest, badness
from verax.testing.judgement import Judgement

LISTED = 50
"""Accepted tests that the summary lists unless -v asks for all; others are always listed."""


class Results:
    """Collects the judgements that reports bring, and says what they come to."""

    def __init__(self, config: pytest.Config, folder: Path, report: Path | None) -> None:
        """folder: of the records. report: the HTML file to write, None for none."""
        self._config, self._folder, self._report = config, folder, report
        self._judgements: dict[str, list[Judgement]] = {}
        self._outcomes: dict[str, str] = {}
        self._problems: list[str] = []
        self._has_report = False

    def pytest_runtest_logreport(self, report: Any) -> None:
        rows: Sequence[Mapping[str, Any]] = getattr(report, "verax_judgements", ())
        if report.outcome == "rerun":  # pytest-rerunfailures: another try follows
            return
        self._judgements.setdefault(report.nodeid, []).extend(map(Judgement.from_dict, rows))
        outcome = "xfailed" if hasattr(report, "wasxfail") else report.outcome
        if report.when == "call" or outcome != "passed":
            self._outcomes[report.nodeid] = outcome

    @property
    def tests(self) -> list[JudgedTest]:
        """The judged tests, those that failed first, the worst of them first."""
        judged = [
            JudgedTest(min(rows, key=badness), len(rows), self._outcomes.get(test, "passed"))
            for test, rows in self._judgements.items()
            if rows
        ]
        return sorted(judged, key=lambda test: (test.outcome != "failed", badness(test.worst)))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        tests = self.tests
        if tests and github.is_on(os.environ):
            self._attempt(session, github.append_summary, os.environ, tests)
        rows = [row for judged in self._judgements.values() for row in judged if row.record]
        if rows and self._report is not None:
            module = import_module("verax.pytest_plugin.html_report")
            self._has_report = self._attempt(session, module.write, rows, self._report)

    def _attempt(self, session: pytest.Session, action: Any, *arguments: Any) -> bool:
        """Do something with files; True if that worked. What the system refuses is a line of the
        summary, and fails the run: whoever asked for a report expects one."""
        try:
            action(*arguments)
            return True
        except (OSError, VeraxError) as error:
            self._problems.append(" ".join(str(error).split()))
            if session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.USAGE_ERROR
            return False

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        tests, write = self.tests, terminalreporter.write_line
        if not tests:
            if self._report is not None:
                write("Verax: nothing was judged, so there is no report")
            return
        wrong = [test for test in tests if not test.worst.accepted]
        right = [test for test in tests if test.worst.accepted]
        quiet, verbose = self._config.option.verbose < 0, self._config.option.verbose > 0
        terminalreporter.write_sep("=", f"Verax: {len(right)} judged right, {len(wrong)} not")
        for test in wrong:
            write(test.line, red=test.outcome == "failed", yellow=test.outcome != "failed")
        listed = right if verbose else right[: 0 if quiet else LISTED]
        for test in listed:
            write(test.line)
        if right[len(listed) :]:
            write(f"and {len(right) - len(listed)} tests that were judged right (-v lists them)")
        for problem in self._problems:
            write(f"not written: {problem}", red=True)
        if any(row.record for rows in self._judgements.values() for row in rows):
            write(f"records: {_relative(self._folder, self._config.invocation_params.dir)}")
        if self._report is not None and self._has_report:
            write(f"report: {_relative(self._report, self._config.invocation_params.dir)}")
        if github.is_on(os.environ):
            for test in wrong:
                if test.outcome == "failed":
                    write(github.annotation(test.worst, os.environ, self._config.rootpath))


def _relative(path: Path, start: Path) -> str:
    """A path as the reader would type it."""
    return str(path.relative_to(start)) if path.is_relative_to(start) else str(path)
