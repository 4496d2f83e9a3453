"""What a page of measurements says about where it comes from: the commit and the day."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIGITS = 8


def commit() -> str:
    """The commit that the files are of, with "+" behind it if some differ from it; "unknown"
    outside of a repository."""
    found = _git("rev-parse", f"--short={DIGITS}", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", "src", "benchmarks")
    return f"{found}{'+' if changed else ''}" if found else "unknown"


def today() -> str:
    return datetime.now(UTC).date().isoformat()


def stamped(text: str, made_on: str = "", date: str = "") -> str:
    """A page of Markdown with the line that says on what it was made, under its title."""
    title, _, rest = text.partition("\n")
    line = f"Measured on commit `{made_on or commit()}` ({date or today()})."
    return f"{title}\n\n{line}\n\n{rest.lstrip()}"


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()
