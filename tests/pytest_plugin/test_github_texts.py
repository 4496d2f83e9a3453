"""Workflow commands and the step's table hold whatever a test's name or message holds."""

from __future__ import annotations

from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from verax.pytest_plugin import github
from verax.pytest_plugin.judged_test import JudgedTest
from verax.testing.judgement import Judgement

ROOT = Path("/project")


def row(test: str = "t.py::test", message: str = "", cause: str = "", **more: object) -> Judgement:
    return Judgement(test, "mistake", False, 31.0, cause, message, "/project/t.py", 12, **more)


@given(st.text(), st.text())
@example("a,b:c::d", "100 % of it\r\nis: 1, 2\n%0A")
def test_an_annotation_is_one_line_with_three_fields(name: str, message: str) -> None:
    text = github.annotation(row(f"t.py::{name}", message), {}, ROOT)
    assert "\n" not in text and "\r" not in text
    head, _, remainder = text.removeprefix("::error ").partition("::")
    assert [field.partition("=")[0] for field in head.split(",")] == ["file", "line", "title"]
    for code, character in (("%0D", "\r"), ("%0A", "\n"), ("%25", "%")):
        remainder = remainder.replace(code, character)
    assert remainder == message


def test_paths_are_from_the_workspace_and_else_from_the_root() -> None:
    assert "file=project/t.py," in github.annotation(row(), {"GITHUB_WORKSPACE": "/"}, ROOT)
    assert "file=t.py," in github.annotation(row(), {"GITHUB_WORKSPACE": "/elsewhere"}, ROOT)
    assert "file=/project/t.py," in github.annotation(row(), {}, Path("/elsewhere"))


@given(st.text(), st.text())
def test_a_row_of_the_table_stays_one_row_of_four_cells_without_markup(
    name: str, cause: str
) -> None:
    judged = JudgedTest(row(f"t.py::{name}", cause=cause), 1, "failed")
    line = github.markdown([judged]).split("\n")[4]
    bare = line.replace("\\\\", "").replace("\\|", "")
    assert bare.count("|") == 5 and "<" not in line
    assert github.markdown([judged]).count("\n") == 6


def test_a_long_table_is_cut_and_says_so() -> None:
    tests = [JudgedTest(row(f"t.py::test_{i}"), 1, "failed") for i in range(github.ROWS + 3)]
    text = github.markdown(tests)
    assert text.count("| t.py") == github.ROWS and "and 3 tests more" in text


def test_a_step_without_a_summary_gets_none(tmp_path: Path) -> None:
    github.append_summary({}, [JudgedTest(row(), 1, "failed")])
    path = tmp_path / "step.md"
    for _ in range(2):  # other steps' words stay
        github.append_summary({"GITHUB_STEP_SUMMARY": str(path)}, [JudgedTest(row(), 1, "failed")])
    assert path.read_text(encoding="utf-8").count("### Verax") == 2
    assert not github.is_on({}) and not github.is_on({"GITHUB_ACTIONS": "false"})
