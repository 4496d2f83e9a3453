"""What README and docs show is what happens: every code block runs, every link leads somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import SHARED
from tests.docs import run_page, warm
from tests.docs.pages import ROOT, RUN, SHOWN, Block, blocks, pages
from tests.test_suite import installed

PAGES = pages()
WITH_CODE = [p for p in PAGES if any(b.language in RUN and not b.skipped for b in blocks(p))]
FENCED = re.compile(r"^```.*?^```$|<!--.*?-->", re.DOTALL | re.MULTILINE)
GENERATED = {ROOT / "docs" / name for name in ("rooms.svg", "rooms.md")}
"""Pages that are made when the site is built."""
NOT_RUN = 13
"""Blocks that do not run, each for a reason beside it; four of them need a GPU or JAX, four more a
board or a cluster."""


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture(scope="module")
def forks(request: pytest.FixtureRequest) -> Iterator[warm.Forks | None]:
    if not warm.FORKS:
        yield None
        return
    process, asked = warm.start(request.config.stash[SHARED].folder)
    yield asked
    asked.close()
    assert process.wait(60) == 0


@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_a_page_does_what_it_shows(page: Path, forks: warm.Forks | None) -> None:
    if forks:
        code, printed = forks.run([str(page)], os.environ, 600)
    else:
        done = subprocess.run(
            [sys.executable, "-m", "tests.docs.run_page", str(page)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        code, printed = done.returncode, done.stdout + done.stderr
    if code == run_page.MISSING:
        pytest.skip(f"{printed.splitlines()[-1]} is not installed")
    assert code == 0, printed


def test_commands_in_forks_are_as_in_processes_of_their_own(
    tmp_path: Path, forks: warm.Forks | None
) -> None:
    """Output, exit code, folder and environment; and no command sees another one's."""
    if not forks:
        pytest.skip("commands are processes of their own here")
    script = (
        "import os, sys; from tests.docs import run_page, warm; forks = warm.commands(); "
        "os.chdir(sys.argv[1]); lines = open('commands').read().splitlines()\n"
        "for line in lines:\n"
        "    real, forked = run_page.execute(line), run_page.execute(line, forks)\n"
        "    assert real == forked, (line, real, forked)\n"
        "    print(real[0])\n"
    )
    (tmp_path / "commands").write_text(
        "verax inspect net.onnx\nverax --version\nverax compile nothing.onnx\nverax check --no\n"
        "verax inspect net.onnx\n"
    )
    (tmp_path / "net.onnx").write_bytes((ROOT / "examples/digits/digits.onnx").read_bytes())
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == ["0", "0", "2", "2", "0"]


def test_some_pages_start_every_command_as_users_do() -> None:
    real = [p for p in WITH_CODE if p.name in warm.REAL]
    shown = [c for p in real for b in blocks(p) if b.language == "console" and not b.skipped
             for c, _ in run_page.commands(b)]  # fmt: skip
    assert len(real) == len(warm.REAL) and sum(c.startswith("verax ") for c in shown) >= 4


def test_every_block_is_of_a_language_that_the_tests_know() -> None:
    strange = [
        f"{name_of(page)}:{block.line}: {block.language or 'no language'}"
        for page in PAGES
        for block in blocks(page)
        if block.language not in (*RUN, *SHOWN, "printed")
    ]
    assert not strange, "\n".join(strange)


def test_no_block_is_hidden_from_the_tests_by_indenting_it() -> None:
    hidden = [
        f"{name_of(page)}: {line}"
        for page in PAGES
        for line in re.findall(r"\n\n {4,}(\S.*)", FENCED.sub("", page.read_text()))
    ]
    assert not hidden, "\n".join(hidden)


def test_few_blocks_do_not_run_and_each_says_why() -> None:
    left = [(name_of(p), b.line, b.skipped) for p in PAGES for b in blocks(p) if b.skipped]
    assert len(left) <= NOT_RUN, left
    assert all(len(why) > 15 for _, _, why in left), left


def test_the_packages_that_pages_need_are_installed_by_make_test() -> None:
    needed = {package for page in PAGES for block in blocks(page) for package in block.needs}
    assert {"torch", "onnxruntime"} <= needed
    assert [package for package in needed if not installed(package)] == []


def test_links_lead_somewhere() -> None:
    broken = [
        f"{name_of(page)}: {target}"
        for page in PAGES
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
        if not (page.parent / target).exists() and (page.parent / target).resolve() not in GENERATED
    ]
    assert not broken, "\n".join(broken)


class TestTheComparison:
    """It must be able to fail."""

    @pytest.mark.parametrize(
        ("shown", "printed", "right"),
        [
            (["a 1.5 s"], ["a  2.25 s "], True),
            (["a 1.5 m"], ["a 2.25 m"], False),
            (["a", "c"], ["a", "b", "c"], False),
            (["a", "...", "c"], ["a", "b", "c"], True),
            (["a"], ["a", "b"], False),
            (["a", "..."], ["a", "b"], True),
            (["...", "b"], ["a", "b", "c"], False),
            (["b", "a"], ["a", "b"], False),
            (["│ 3   │"], ["│ 3 │"], True),
            (["a b ...", "c"], ["a b d", "c"], True),
            (["a b ...", "c"], ["a d", "c"], False),
        ],
    )
    def test_of_lines(self, shown: list[str], printed: list[str], right: bool) -> None:
        assert (run_page.compare(Block("console", "", 1), shown, printed) == "") is right

    def test_of_chosen_lines(self) -> None:
        block = Block("console", "", 1, only=("ROUNDING",))
        assert not run_page.compare(block, ["ROUNDING", "x"], ["ROUNDING", "y"])
        assert run_page.compare(block, ["ROUNDING", "x"], ["MISTAKE", "y"])
        assert run_page.compare(block, ["x"], ["y"])

    def test_of_lines_whose_numbers_vary(self) -> None:
        block = Block("console", "", 1, vary=True)
        assert not run_page.compare(block, ["2 of 30 (1e-5)"], ["17 of 30 (2.5e-06)"])
        assert run_page.compare(block, ["2 of 30"], ["2 in 30"])
        assert not run_page.compare(block, ["loss: 2.31308"], ["loss: 2.31312"])
        assert run_page.compare(block, ["loss: 2.46431"], ["loss: 2.31308"])

    def test_of_exit_codes(self) -> None:
        failing = "$ python -c 'raise SystemExit(3)'\n"
        run_page.run_commands(Block("console", f"{failing}$ echo $?\n3\n", 1))
        with pytest.raises(run_page.Differs, match="3"):
            run_page.run_commands(Block("console", failing, 1))
        with pytest.raises(run_page.Differs, match="3"):
            run_page.run_commands(Block("console", f"{failing}$ echo $?\n1\n", 1))

    def test_of_a_page_that_is_wrong(self, tmp_path: Path) -> None:
        page = tmp_path / "page.md"
        page.write_text("```python\nx = 1\n```\n\n```python\nassert x == 2\n```\n")
        (first, second) = blocks(page)
        assert (first.line, second.line, second.body) == (2, 6, "assert x == 2\n")
        done = subprocess.run(
            [sys.executable, "-c", "import sys; from pathlib import Path; from tests.docs import "
             "run_page; run_page.ROOT = Path(sys.argv[1]).parent; "
             "sys.exit(run_page.main(Path(sys.argv[1])))", str(page)],
            cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 1
        assert 'page.md", line 6' in done.stderr
