"""A page that says what every file of `src/verax` is for: the first sentence of its own docstring.

A room is introduced by the docstring of its package. Nothing of it is written by hand.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

HEAD = """# Every file in a sentence

Made from the docstrings of the files: a room is introduced by its package, a file by its first sentence. [Architecture](architecture.md) says how the rooms hang together.
"""  # noqa: E501  (a line of Markdown is a paragraph)


def page(source: Path) -> str:
    """The page as Markdown, for the files below `source` (src/verax)."""
    rooms: dict[Path, list[Path]] = defaultdict(list)
    for path in sorted(source.rglob("*.py")):
        rooms[path.parent.relative_to(source)].append(path)
    parts = [HEAD]
    for room, files in sorted(rooms.items()):
        name = "verax" if room == Path(".") else str(room)
        intro = [said(path) for path in files if path.name == "__init__.py"]
        rows = [
            f"| `{path.name}` | {sentence(said(path))} |"
            for path in files
            if path.name != "__init__.py"
        ]
        first = intro[0].split("\n\n")[0] if intro else ""
        table = "\n".join(["| file | what it is for |", "|---|---|", *rows]) if rows else ""
        parts += [f"## {name}", " ".join(first.split()), table]
    return "\n\n".join(part for part in parts if part) + "\n"


def said(path: Path) -> str:
    """The docstring of a file."""
    return ast.get_docstring(ast.parse(path.read_text())) or ""


def sentence(text: str) -> str:
    """The first sentence of a text, as a cell of a table."""
    first = re.split(r"(?<=[^.][.!?])\s+(?=[A-Z`])", " ".join(text.split("\n\n")[0].split()))[0]
    return first.replace("|", r"\|").replace("<", "&lt;").replace("*", r"\*")
