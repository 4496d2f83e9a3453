"""Runs the blocks of one page, in a process of its own: `python -m tests.docs.run_page PAGE`.

So whatever a page registers (operators, passes, runners) is gone with it. Leaves 0 when everything
ran and showed what the page shows, 3 when a package is missing (its name is the last line), 1 with
a traceback that names the line of the page.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import types
from pathlib import Path

from tests.docs.pages import ROOT, Block, blocks
from tests.docs.warm import Forks, environment

MISSING = 3
TIMEOUT = 300.0
"""Seconds of a command."""
VARYING = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(e[+-]\d+)? (?=(?:s|us|ms|kB|MB|GB)\b)")
"""Times and sizes."""
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
MANY, FIRST = 5, 3
LINES = re.compile(r"[\s\u2500-\u257f]+")
"""Space, and the lines of tables, which are as wide as the numbers in them."""


class Differs(AssertionError):
    """A page shows what is not printed."""


def plain(line: str, vary: bool) -> str:
    """A line without what may differ from run to run. Who shows a number to MANY digits shows one
    that differs in its last ones alone: its first FIRST stay, whatever varies."""
    line = VARYING.sub("# ", line)
    if vary:
        line = NUMBER.sub(_first_digits, line)
    return LINES.sub(" ", line).strip()


def _first_digits(number: re.Match[str]) -> str:
    mantissa = number[0].lower().partition("e")[0].lstrip("-0.").replace(".", "")
    return f"{float(number[0]):.{FIRST}g}" if len(mantissa) >= MANY else "#"


def compare(block: Block, shown: list[str], printed: list[str]) -> str:
    """What is wrong with a shown text; nothing when it is what was printed."""
    only = block.only
    wanted = [p for p in (plain(line, block.vary) for line in shown) if p]
    got = [p for p in (plain(line, block.vary) for line in printed) if p]
    if only:
        wanted, got = ([p for p in t if any(w in p for w in only)] for t in (wanted, got))
        if not wanted:
            return f"the page shows no line with {' or '.join(only)}"
    at, free = 0, False
    for line in wanted:
        if line == "...":
            free = True
            continue
        fits = [i for i in range(at, len(got)) if _fits(line, got[i])]
        found = fits[0] if fits else -1
        if found < 0 or (found > at and not free):
            return f"the page shows  {line!r}\nwhere there is  {got[at : at + 1]}"
        at, free = found + 1, False
    return "" if free or at == len(got) else f"the page lacks {got[at]!r}"


def _fits(shown: str, printed: str) -> bool:
    """Whether a line is shown as it is, or cut off at `...`."""
    return shown == printed or (shown.endswith("...") and printed.startswith(shown[:-3]))


def commands(block: Block) -> list[tuple[str, list[str]]]:
    """The commands of a block, and what it shows of each."""
    if block.language == "sh":
        joined = block.body.replace("\\\n", " ").splitlines()
        return [(line, ["..."]) for line in joined if line.strip() and line[0] != "#"]
    found: list[tuple[str, list[str]]] = []
    for line in block.body.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def run_commands(block: Block, forks: Forks | None = None) -> None:
    code, waiting = 0, False
    for command, shown in commands(block):
        if command == "echo $?":
            if [str(code)] != [line for line in shown if line]:
                raise Differs(f"line {block.line}: the exit code is {code}")
            waiting = False
            continue
        if waiting:
            raise Differs(f"line {block.line}: the exit code is {code}, which the page hides")
        code, output = execute(command, forks)
        waiting = code != 0
        wrong = compare(block, shown, output.splitlines())
        if wrong:
            raise Differs(f"line {block.line}: {command}\n{wrong}\n--- printed:\n{output}")
    if waiting:
        raise Differs(f"line {block.line}: the exit code is {code}, which the page hides\n{output}")


def execute(command: str, forks: Forks | None = None) -> tuple[int, str]:
    """Exit code and output of a command: verax and python are those of this process.

    forks: do `verax`; without them it is a process of its own, as `python` always is.
    """
    words = shlex.split(command, comments=True)
    if words[0] not in ("verax", "python"):
        raise Differs(f"a page may run verax and python, not {words[0]!r}")
    if forks and words[0] == "verax":
        return forks.run(words[1:], environment(), TIMEOUT)
    program = [sys.executable, *(["-m", "verax.cli.main"] if words[0] == "verax" else [])]
    done = subprocess.run(
        [*program, *words[1:]],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(),
        timeout=TIMEOUT,
        check=False,
    )
    return done.returncode, done.stdout


def main(page: Path, forks: Forks | None = None) -> int:
    module = sys.modules["page"] = types.ModuleType("page")
    names = vars(module)
    heard = io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "examples").symlink_to(ROOT / "examples")
        (Path(folder) / "out").mkdir()
        os.chdir(folder)
        try:
            for block in blocks(page):
                for package in block.needs:
                    if importlib.util.find_spec(package) is None:
                        print(package)
                        return MISSING
                if block.skipped:
                    continue
                if block.language == "python":
                    # As many empty lines as stand before it: tracebacks name the page's lines.
                    text = "\n" * (block.line - 1) + block.body
                    with contextlib.redirect_stdout(heard):
                        exec(compile(text, str(page.relative_to(ROOT)), "exec"), names)
                elif block.language == "printed":
                    shown, printed = block.body.splitlines(), heard.getvalue()
                    wrong = compare(block, shown, printed.splitlines())
                    if wrong:
                        raise Differs(f"line {block.line}:\n{wrong}\n--- printed:\n{printed}")
                    heard = io.StringIO()
                elif block.language in ("console", "sh"):
                    run_commands(block, forks)
        finally:
            os.chdir(ROOT)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
