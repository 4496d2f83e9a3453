"""The site builds without a warning, loads nothing from elsewhere, and tells no stale number."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import verax
from docs.site import commands, constants, drawing, rooms
from tests.docs.pages import ROOT, pages
from verax.numerics import statistics

FOLDER = ROOT / "docs"
CONFIG = (ROOT / "mkdocs.yml").read_text()
TOP = ("changelog.md", "contributing.md", "security.md", "rooms.md", "commands.md")
"""Pages of the site that are no files of `docs`: from the top of the repository, and a made one."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed")
    pytest.importorskip("mkdocstrings", reason="mkdocstrings is not installed")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        timeout=600,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert not re.search(r"WARNING|ERROR", said), said
    return folder


class Assets(HTMLParser):
    """What a page makes a browser load."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in ("script", "img", "iframe", "source") and given.get("src"):
            self.found.append(str(given["src"]))
        if tag == "link" and given.get("rel") != "canonical" and given.get("href"):
            self.found.append(str(given["href"]))


def test_every_page_is_built_and_loads_nothing_from_elsewhere(site: Path) -> None:
    built = {str(p.relative_to(site)) for p in site.rglob("*.html")}
    wanted = {str(p.relative_to(FOLDER).with_suffix(".html")) for p in FOLDER.rglob("*.md")}
    assert wanted | {name.replace(".md", ".html") for name in TOP} <= built
    foreign = []
    for page in site.rglob("*.html"):
        reader = Assets()
        reader.feed(page.read_text())
        # The page of missing pages may be shown at any depth: a server has to be its root.
        base = site if page.name == "404.html" else page.parent
        for asset in reader.found:
            path = re.split(r"[?#]", asset)[0].removeprefix("/")
            if re.match(r"(\w+:)?//", asset) or not (base / path).exists():
                foreign.append(f"{page.name}: {asset}")
    for style in site.rglob("*.css"):
        foreign += re.findall(r"url\([\"']?(?:https?:)?//[^)]*", style.read_text())
    assert not foreign, "\n".join(foreign)


def test_no_mark_of_ours_is_left_in_a_page(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert not re.search(r"\{\{ *\w+\.[A-Z]|<!-- (?:printed|needs|not run|python)", text), page


def test_the_reference_has_every_public_name(site: Path) -> None:
    text = (site / "reference.html").read_text()
    names = [n for n in verax.__all__ if not n.startswith("__")]
    assert [n for n in names if not re.search(rf'id="verax\.[\w.]*\b{n}"', text)] == []
    # What a docstring says of its parameters is a list, "Raises" a paragraph.
    assert "<li><strong>shapes</strong>: sizes for what" in text
    assert "<p>Raises <code>ModelError</code>" in text
    # Headings are the names that people type, and a long signature has a line for each parameter.
    words = re.sub(r"<[^>]*>", "", text)
    assert [n for n in names if not re.search(rf"^\s*verax\.{n}$", words, re.MULTILINE)] == []
    assert re.search(r"^load\(\n    source: Any,\n    \*,\n    shapes: ", words, re.MULTILINE)


def test_the_navigation_lists_every_page_once() -> None:
    listed = re.findall(r": ([\w/-]+\.md)$", CONFIG, re.MULTILINE)
    there = [str(p.relative_to(FOLDER)) for p in FOLDER.rglob("*.md")]
    assert sorted(listed) == sorted([*there, *TOP])


@pytest.mark.parametrize("page", [p for p in pages() if FOLDER in p.parents], ids=lambda p: p.stem)
def test_a_page_tells_the_values_of_today(page: Path) -> None:
    """On a forge, too (`python -m docs.site.constants` writes them)."""
    text = page.read_text()
    assert text == constants.updated(text)
    assert "{{" not in re.sub(constants.FENCE, "", constants.without_comments(text))


def held(text: str, value: str = "") -> str:
    return f"<!--= {text} -->{value}<!--/-->"


class TestConstants:
    def test_values_are_those_of_the_code(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(statistics, "ROUNDING_T", 1.25)
        text = f"T of {held('{{ statistics.ROUNDING_T }}', '1')}."
        assert constants.updated(text) == f"T of {held('{{ statistics.ROUNDING_T }}', '1.25')}."
        assert constants.without_comments(text) == "T of 1.25."
        (row,) = constants.as_table("statistics", ["ROUNDING_T"]).splitlines()[2:]
        assert row == "| `ROUNDING_T` | 1.25 | T at or below this is rounding. |"

    def test_a_table_stands_apart(self) -> None:
        text = held("{{ table statistics.ROUNDING_T }}")
        table = constants.as_table("statistics", ["ROUNDING_T"])
        once = constants.updated(text)
        assert once == held("{{ table statistics.ROUNDING_T }}", f"\n\n{table}\n\n")
        assert constants.updated(once) == once

    def test_a_name_that_is_none_ends_the_build(self) -> None:
        with pytest.raises(AttributeError):
            constants.updated(held("{{ statistics.NO_SUCH_LIMIT }}"))
        with pytest.raises(ValueError, match="not understood"):
            constants.updated(held("{{ statistics.rounding_t }}"))

    def test_code_blocks_and_comments(self) -> None:
        code = "```python\nf'{{x}}'  # <!-- stays -->\n```"
        assert constants.without_comments(f"a<!-- goes\n-->\n{code}\n") == f"a{code}\n"

    def test_powers_of_two_are_written_as_such(self) -> None:
        assert constants.shown(2.0**-24) == "2^-24"
        assert constants.shown(0.25) == "0.25"
        assert constants.shown(4096) == "4096"
        assert constants.shown(b"VERAX\0VX") == r"VERAX\0VX"

    def test_every_limit_is_on_the_page_of_the_verdict(self) -> None:
        found = (FOLDER / "verdict.md").read_text()
        limits = constants.documented("statistics")
        assert len(limits) > 40
        assert [name for name in limits if f"| `{name}` |" not in found] == []
        assert [name for name, words in limits.items() if not words] == []


def test_every_command_and_option_is_on_the_page_of_commands() -> None:
    text = commands.page()
    found = commands.commands()
    assert {"check", "bisect", "compile", "doctor"} <= set(found)
    for name, command in found.items():
        (part,) = re.findall(
            rf"^## `verax {name}`$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL
        )
        options = [o for p in command.params if p.param_type_name == "option" for o in p.opts]
        assert [o for o in options if o not in part] == []
        assert f"* [`{name}`](#verax-{name}): " in text
    assert not re.search(r"^\*.*\.\.\.$", text, re.MULTILINE)  # no sentence is cut short


def test_every_file_has_its_sentence() -> None:
    source = ROOT / "src" / "verax"
    made = rooms.page(source)
    found = re.findall(r"^\| `(\w+\.py)` \| (.*) \|$", made, re.MULTILINE)
    there = [p.name for p in source.rglob("*.py") if p.name != "__init__.py"]
    assert sorted(there) == sorted(name for name, _ in found)
    assert [name for name, words in found if not words.strip()] == []
    assert ("criterion.py", "The criterion: numbers in, a decision out.") in found
    assert "{{" not in made


class TestTheDrawing:
    def test_it_shows_every_room_and_no_circle(self) -> None:
        edges = drawing.imported(ROOT / "src" / "verax")
        rooms = {p.name for p in (ROOT / "src" / "verax").iterdir() if (p / "__init__.py").exists()}
        assert rooms <= edges.keys()
        drawn = drawing.svg(ROOT / "src" / "verax")
        assert all(f">{room}</text>" in drawn for room in edges)
        assert "compiler.place" in edges["compiler"]
        assert "compiler" not in {t.partition(".")[0] for t in edges["judge"]}

    def test_it_is_made_from_imports(self, tmp_path: Path) -> None:
        for name, text in {
            "__init__": "",
            "api": "from verax.judge import check\nimport verax.base.errors\n",
            "judge/__init__": "from verax.base.errors import VeraxError\n",
            "base/__init__": "",
            "base/errors": "import numpy\n",
        }.items():
            path = tmp_path / f"{name}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        edges = drawing.imported(tmp_path)
        assert edges == {"verax": set(), "api": {"judge", "base"}, "judge": {"base"}, "base": set()}
        assert drawing.reduced(edges)["api"] == {"judge"}
        drawn = drawing.svg(tmp_path)
        assert re.findall(r"<title>(\w+) imports (\w+)</title></path>", drawn) == [
            *(("Doors", "Judge"), ("Judge", "Ground"))
        ]
        assert drawing.layers(edges) == [["base", "verax"], ["judge"], ["api"]]

    def test_it_can_be_read_on_a_page(self) -> None:
        drawn = drawing.svg(ROOT / "src" / "verax")
        assert f'width="{drawing.WIDTH}"' in drawn and drawing.WIDTH <= 800
        assert all(int(size) >= 13 for size in re.findall(r'font-size="(\d+)"', drawn))
        assert drawn.count("<path") < 12  # arrows between blocks, and the tip of one
        rooms = re.findall(r'<g><rect x="(\d+)" y="(\d+)" width="(\d+)" height="(\d+)"', drawn)
        boxes = [tuple(map(int, room)) for room in rooms]
        for n, (x, y, wide, high) in enumerate(boxes):
            assert x + wide <= drawing.WIDTH - drawing.MARGIN
            for u, v, wide_too, high_too in boxes[:n]:
                assert x >= u + wide_too or u >= x + wide or y >= v + high_too or v >= y + high
        between = drawing.reduced(drawing.between_blocks(drawing.imported(ROOT / "src" / "verax")))
        assert "Machine" not in between["Judge"] and "Judge" not in between["Machine"]

    def test_a_room_of_no_block_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="attic"):
            drawing.blocks_of({"base": set(), "attic": {"base"}})

    def test_a_circle_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="a -> b -> a"):
            drawing.layers({"a": {"b"}, "b": {"a"}})
