"""What mkdocs does besides: constants filled in, the drawing made, pages that lie at the top of the
repository (CHANGELOG and the like) taken in, API reference of the public names.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

from docs.site.commands import page as page_of_commands
from docs.site.constants import without_comments
from docs.site.drawing import svg
from docs.site.rooms import page as page_of_rooms

ROOT = Path(__file__).parents[2]
TOP_PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
"""Files at the top of the repository, and the pages that they become."""
DRAWING, ROOMS, COMMANDS = "rooms.svg", "rooms.md", "commands.md"


def on_files(files: Any, config: Any) -> Any:
    """Add the pages and pictures that no file of `docs` holds."""
    for source, target in TOP_PAGES.items():
        text = (ROOT / source).read_text()
        files.append(File.generated(config, target, content=moved_links(text)))
    source = ROOT / "src" / "verax"
    files.append(File.generated(config, DRAWING, content=svg(source)))
    files.append(File.generated(config, ROOMS, content=page_of_rooms(source)))
    files.append(File.generated(config, COMMANDS, content=page_of_commands()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Fill in constants; comments, which are for the tests that run the page, go."""
    up = "../" * page.file.src_uri.count("/")
    for source, target in TOP_PAGES.items():
        markdown = re.sub(rf"\]\((?:\.\./)+{source}", f"]({up}{target}", markdown)
    return without_comments(markdown)


def moved_links(text: str) -> str:
    """Links of a file at the top of the repository, as a page among those of `docs` needs them."""
    text = re.sub(r"\]\(docs/", "](", text)
    for source, target in TOP_PAGES.items():
        text = text.replace(f"]({source}", f"]({target}")
    return text
