"""Pages of measurements and those that a stranger reads first say what the code and records say."""

from __future__ import annotations

import json
import re
from html import unescape

import pytest
from benchmarks import hashes_page as hashes

from tests.docs.pages import ROOT, blocks
from tests.test_suite import EXTRAS
from verax.formats import FORMATS, VX

DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text()
NAVIGATION = (ROOT / "mkdocs.yml").read_text()
RECORD = json.loads((DOCS / "hashes.json").read_text())
RUNS = [hashes.Run(**run) for run in RECORD["runs"]]


def results() -> list[str]:
    """The pages under the heading "Results" of the site."""
    part = re.search(r"^  - Results:\n((?:      .*\n)+)", NAVIGATION, re.MULTILINE)
    assert part
    return re.findall(r": ([\w/-]+\.md)$", part[1], re.MULTILINE)


@pytest.mark.parametrize("page", results())
def test_a_page_of_results_says_on_which_commit_it_was_measured(page: str) -> None:
    lines = (DOCS / page).read_text().splitlines()
    said = r"Measured on commit `[0-9a-f]{8}\+?` \(\d{4}-\d\d-\d\d\)\."
    assert lines[0].startswith("# ") and re.fullmatch(said, lines[2])


class TestTheHashes:
    def test_the_page_is_made_of_the_record(self) -> None:
        assert (DOCS / "hashes.md").read_text() == hashes.page(RECORD)

    def test_the_picture_shows_the_record_and_the_panel(self) -> None:
        drawn = (DOCS / "hashes.svg").read_text()
        words = [unescape(w) for w in re.findall(r"<text[^>]*>([^<]*)</text>", drawn)]
        counted = hashes.counted(RUNS)
        for network in counted:
            assert network in words
        cells = [cell for own in counted.values() for cell in own.values()]
        wanted = sorted(f"in {ran}" for _, ran in cells)
        assert sorted(w for w in words if w.startswith("in ")) == wanted
        numbers = sorted(int(w) for w in words if w.isdigit())
        assert numbers == sorted(number for number, _ in cells)
        ratios = hashes.ratios((DOCS / "panel-avx2.md").read_text())
        for network in counted:
            assert f"{ratios[network]:.2f}x" in words

    def test_we_have_one_hash_a_level_on_several_instruction_sets(self) -> None:
        assert hashes.broken(RUNS) == []
        for network in hashes.counts(RUNS):
            for engine in hashes.OURS:
                own = [r for r in RUNS if (r.network, r.engine) == (network, engine) and r.digest]
                assert {r.threads for r in own} >= set(hashes.THREADS)
                assert len({r.instructions for r in own}) >= 2


class TestTheReadme:
    def test_it_is_short_and_python_comes_early(self) -> None:
        assert len(README.encode()) <= 6144
        (first, *_) = [b for b in blocks(ROOT / "README.md") if b.language == "python"]
        assert len([x for x in first.body.splitlines() if x]) <= 8
        assert README.index("```python") < len(README) // 2

    def test_it_names_every_format_and_what_it_needs(self) -> None:
        table = README[README.index("| format |") :].partition("\n\n")[0]
        for one in FORMATS:
            if one is not VX:
                (row,) = re.findall(rf"^\| {one.name} \| (.*)", table, re.MULTILINE)
                assert one.suffixes[0].removeprefix(".") in row
        needed = re.findall(r"verax\[(\w+)\]", table)
        assert len(needed) >= 4 and set(needed) <= set(EXTRAS)

    def test_its_extras_exist(self) -> None:
        named = {x for part in re.findall(r"'\.\[([\w,]+)\]'", README) for x in part.split(",")}
        assert named and named <= set(EXTRAS)


def test_the_afternoon_has_twelve_files_that_exist() -> None:
    text = (DOCS / "core_in_an_afternoon.md").read_text()
    files = re.findall(r"^\| (\d+) \| `([\w/]+\.py)` \|", text, re.MULTILINE)
    assert [int(number) for number, _ in files] == [*range(1, 13)]
    missing = [name for _, name in files if not (ROOT / "src" / "verax" / name).is_file()]
    assert not missing
