"""The README's commands work, and print what the README shows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```console\n\$ (verax .*)\n((?:.*\n)*?)```", README)
VARIES = re.compile(r"\d s\b|\d us\b|MB|note:|values were kept")
"""Lines that time and build may change."""


def printed(command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "verax.cli.main", *command.split()[1:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={"COLUMNS": "100", "PATH": "", "OMP_NUM_THREADS": "1", "TERM": "dumb"},
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_readme_shows_commands() -> None:
    assert len(BLOCKS) >= 5


@pytest.mark.parametrize(("command", "shown"), BLOCKS, ids=[b[0][6:40] for b in BLOCKS])
def test_a_command_prints_what_the_readme_shows(command: str, shown: str) -> None:
    if "onnxruntime" in command:
        pytest.importorskip("onnxruntime")
        wanted = [line for line in shown.splitlines() if "ROUNDING" in line]
    elif "out/" in command:
        (ROOT / "out").mkdir(exist_ok=True)
        wanted = [line for line in shown.splitlines() if "largest" in line]
        if " run " in command:
            printed(next(c for c, _ in BLOCKS if " compile " in c))
    else:
        wanted = [line for line in shown.splitlines() if not VARIES.search(line)]
    lines = {line.rstrip() for line in printed(command).splitlines()}
    assert [line for line in wanted if line.rstrip() not in lines] == []


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
