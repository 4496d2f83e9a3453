"""The code blocks of README and docs, and the comments that say how to run them.

A page is a story: its blocks run one after the other in one folder, its Python in one namespace.

- ```python blocks run. A comment `<!-- python` before one holds lines that run, too, and are not
  shown.
- ```console and ```sh blocks run line by line, those that begin with `$ ` (console) or all (sh).
  What a console block shows must be what is printed, whole, or up to lines that are or end
  with `...`; seconds and sizes of memory may differ. `$ echo $?` shows the exit code of the command
  before; without it, 0 is wanted.
- `<!-- printed -->`: the next ```text block shows what the Python since the last one printed; the
  same rules hold.
- `<!-- compare only: WORD, WORD; why -->`: only lines with one of these words are compared.
- `<!-- numbers vary: why -->`: numbers in the next block are not compared.
- `<!-- needs: PACKAGE, PACKAGE -->`: from here on the page needs these packages.
- `<!-- not run: why -->`: the next block does not run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
RUN = ("python", "console", "sh")
SHOWN = ("text", "json", "yaml", "dockerfile")
"""Languages of blocks that are no code: what something prints, what a file holds."""
MARK = re.compile(
    r"^<!-- *(?P<word>python|printed|numbers vary:|compare only:|needs:|not run:)(?P<rest>.*?)-->"
    r"|^ *```(?P<language>\w*)[^\n]*\n(?P<body>.*?)^ *```$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """One thing to run. line: of its first line in the page, from 1."""

    language: str
    body: str
    line: int
    needs: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    skipped: str = ""
    vary: bool = False


def pages() -> list[Path]:
    """Every page that people read."""
    folders = [ROOT / "docs", ROOT / "skills"]
    return [*sorted(ROOT.glob("*.md")), *(p for f in folders for p in sorted(f.rglob("*.md")))]


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of a page in their order."""
    text = page.read_text()
    only: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    skipped, printed, vary = "", False, False
    for match in MARK.finditer(text):
        word, rest = match["word"], match["rest"]
        begin = match.start("rest") if word else match.start("body")
        line = text.count("\n", 0, begin) + 1
        if word == "python":
            yield Block("python", rest, line, needs)
        elif word == "needs:":
            needs = (*needs, *(name.strip() for name in rest.split(",")))
        elif word == "compare only:":
            only = tuple(name.strip() for name in rest.partition(";")[0].split(","))
        elif word == "not run:":
            skipped = rest.strip()
        elif word == "numbers vary:":
            vary = True
        elif word == "printed":
            printed = True
        else:
            indent = re.match(" *", match["body"])
            body = re.sub(f"^{indent[0] if indent else ''}", "", match["body"], flags=re.MULTILINE)
            language = "printed" if printed else match["language"]
            yield Block(language, body, line, needs, only, skipped, vary)
            only, skipped, printed, vary = (), "", False, False
