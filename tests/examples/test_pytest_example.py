"""examples/pytest_plugin: a repository of its own, run as its workflow runs it, and as unittest."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "pytest_plugin"
MISTAKES = ("test_a_forgotten_tail", "test_eps_outside_of_the_root")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A copy, in which runs may leave what they will."""
    ignored = shutil.ignore_patterns("__pycache__", ".verax", ".pytest_cache", "verdicts.html")
    return Path(shutil.copytree(EXAMPLE, tmp_path / "example", ignore=ignored))


def run(folder: Path, *words: str, **environment: str) -> tuple[int, str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("GITHUB_", "PYTEST_"))}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**inherited, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout


def test_its_workflows_command_passes_and_shows_what_was_found(repository: Path) -> None:
    workflow = (repository / ".github" / "workflows" / "numerics.yml").read_text()
    (command,) = re.findall(r"- run: python (-m pytest .*)", workflow)
    github = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(repository / "step.md")}
    words = command.replace("-n auto", "-n 2").split()
    code, text = run(repository, *words, "--color=no", **github)
    assert code == 0 and "3 xfailed" in text and "::error" not in text, text
    lines = {m[1]: m[0] for m in re.findall(r"^((?:mistake|blind) .*::(test_\w+).*)$", text, re.M)}
    assert set(lines) == {*MISTAKES, "test_inputs_that_show_nothing"}
    assert "last 6 of 70 terms" in lines[MISTAKES[0]]
    assert "epsilon" in lines[MISTAKES[1]]
    assert all(line.endswith("expected to fail") for line in lines.values())
    assert (repository / "verdicts.html").exists() and list((repository / ".verax").iterdir())
    assert "9 judged right, 3 not" in (repository / "step.md").read_text()


def test_its_mistakes_fail_where_nobody_expects_them(repository: Path) -> None:
    code, text = run(repository, "-m", "pytest", "--runxfail", "tests/test_mistakes_found.py")
    assert code == 1 and "3 failed" in text


def test_its_kernels_are_judged_by_plain_unittest(repository: Path) -> None:
    words = ("-m", "unittest", "discover", "tests")
    code, text = run(repository, *words, VERAX_RECORDS="records")
    assert code == 0 and "Ran 2 tests" in text and "OK" in text, text
    assert len(list((repository / "records").glob("*.json"))) == 3


def test_it_names_no_host_and_holds_what_its_readme_lists(repository: Path) -> None:
    files = [p for p in repository.rglob("*") if p.is_file()]
    assert not [p for p in files if re.search(r"https?://", p.read_text())]
    listed = re.findall(r"^\| `(.*?)` \|", (repository / "README.md").read_text(), re.M)
    assert len(listed) == 5 and all((repository / name).is_file() for name in listed)
