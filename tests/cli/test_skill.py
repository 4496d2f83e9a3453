"""`verax skill`: instructions for agents are installed, and nothing of the user's is lost.

The commands within run as those of any page: tests/docs.
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cli.conftest import Cli
from verax.cli.app import COMMANDS
from verax.cli.work.skill import AGENTS, BEGIN, END, SKILL, perform

ROOT = Path(__file__).parents[2]
MAX_LINES = 150


def test_the_skill_is_short_and_names_commands_that_there_are() -> None:
    skill, agents = (ROOT / SKILL).read_text(), (ROOT / AGENTS).read_text()
    assert len(skill.splitlines()) < MAX_LINES
    assert re.match(r"---\nname: verify-numerics\ndescription: .{100,1024}\n---\n", skill)
    assert skill.count("not run:") == agents.count("```") == 0  # every block is run by tests/docs
    named = re.findall(r"\bverax ([a-z]+)\b(?! (?:judges|says))", skill + agents)
    assert {"check", "bisect", "convert", "evaluate", "ops"} <= set(named) <= set(COMMANDS)
    assert "examples/" not in skill  # whoever installs it has none


def test_a_wheel_has_what_the_command_reads() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    included = build["targets"]["wheel"]["force-include"]
    assert included[SKILL.parts[0]] == "verax/skills"
    assert included[str(AGENTS)] == "verax/skills/AGENTS.md"


def test_without_a_folder_it_is_printed(cli: Cli) -> None:
    assert cli("skill").out.strip() == (ROOT / SKILL).read_text().strip()


def test_installing_writes_both_files_and_again_changes_nothing(cli: Cli, tmp_path: Path) -> None:
    first = cli("skill", "--install", tmp_path)
    assert first.code == 0 and first.out.count("written: ") == 2
    assert (tmp_path / SKILL).read_text() == (ROOT / SKILL).read_text()
    agents = (tmp_path / AGENTS).read_text()
    assert "Numbers are judged" in agents and "Changing Verax itself" not in agents
    again = cli("skill", "--install", tmp_path, "--json", tmp_path / "r.json")
    assert again.code == 0 and again.out.count("unchanged: ") == 2
    states = json.loads((tmp_path / "r.json").read_text())["files"]
    assert states == {str(tmp_path / path): "unchanged" for path in (SKILL, AGENTS)}


def test_a_skill_that_differs_is_replaced_by_force_alone(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / SKILL).parent.mkdir(parents=True)
    (tmp_path / SKILL).write_text("mine\n")
    refused = cli("skill", "--install", tmp_path)
    assert refused.code == 2 and "SKILL.md" in refused.err and "--force" in refused.err
    assert (tmp_path / SKILL).read_text() == "mine\n" and not (tmp_path / AGENTS).exists()
    assert cli("skill", "--install", tmp_path, "--force").code == 0
    assert (tmp_path / SKILL).read_text() == (ROOT / SKILL).read_text()


def test_an_agents_file_without_our_section_is_touched_by_force_alone(
    cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / AGENTS).write_text("# Mine\n")
    refused = cli("skill", "--install", tmp_path)
    assert refused.code == 2 and "no section of Verax" in refused.err
    assert (tmp_path / AGENTS).read_text() == "# Mine\n" and not (tmp_path / "skills").exists()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r")),
    st.booleans(),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r")),
)
def test_force_leaves_every_line_that_is_not_ours(
    tmp_path: Path, before: str, sectioned: bool, after: str
) -> None:
    path = tmp_path / AGENTS
    old = f"{before}{BEGIN}\nan older section\n{END}{after}" if sectioned else before + after
    path.write_bytes(old.encode())
    perform(install=tmp_path, force=True, json=None)
    text = path.read_bytes().decode()
    outside = text.partition(BEGIN)[0] + text.partition(END)[2]
    expected = before + after
    if sectioned:
        assert outside == expected
    else:
        assert expected.strip() in outside
    assert "Numbers are judged" in text and text.count(BEGIN) == text.count(END) == 1
    perform(install=tmp_path, force=True, json=None)
    assert path.read_bytes().decode() == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BEGIN.encode() + b"\nno end\n", "has no end"),
        (f"{BEGIN}{END}{BEGIN}{END}".encode(), "several"),
        (b"\xff\xfe", "no UTF-8"),
    ],
)
def test_an_agents_file_that_is_unclear_is_left_alone(
    cli: Cli, tmp_path: Path, text: bytes, message: str
) -> None:
    (tmp_path / AGENTS).write_bytes(text)
    refused = cli("skill", "--install", tmp_path, "--force")
    assert refused.code == 2 and message in refused.err and "next:" in refused.err
    assert (tmp_path / AGENTS).read_bytes() == text


def test_bad_folders_are_refused_in_words(cli: Cli, tmp_path: Path) -> None:
    assert cli("skill", "--install", tmp_path / "missing").code == 2
    assert "--install" in cli("skill", "--force").err
    (tmp_path / "skills").write_text("a file")
    refused = cli("skill", "--install", tmp_path)
    assert refused.code == 2 and "next:" in refused.err
