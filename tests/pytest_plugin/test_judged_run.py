"""A run of pytest with the plugin, in processes of its own: what it says, keeps and writes.

One sample project is run once plainly, as on GitHub Actions, and once with pytest-xdist.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from verax.records.verdict import Kind, Verdict

SAMPLE = """
import sys

import numpy as np
import pytest


def tiled(a, b):  # forgets the last tile
    n = a.shape[1] // 64 * 64
    return a[:, :n] @ b[:n]


@pytest.mark.verax(
    seeds=[0, 3],
    shapes={"even": {"a": (3, 64), "b": (64, 7)}, "tail": {"a": (3, 70), "b": (70, 7)}},
)
def test_tiled(judge):
    judge(tiled, "MatMul", judge.inputs())


def test_right(judge):
    verdict = judge(np.matmul, "MatMul", judge.inputs(a=(3, 64), b=(64, 7)))
    assert verdict.kind == "rounding"
    judge(np.exp, "Exp", judge.inputs(x=(4, 5)))
    assert not {"torch", "onnx"} & set(sys.modules)  # the base of the package is enough


def test_blind(judge):
    judge(np.matmul, "MatMul", (np.full((3, 4), 2.5, "f4"), np.zeros((4, 2), "f4")))


def test_misspelled(judge):
    judge(np.matmul, "MatMull", judge.inputs(a=(3, 4), b=(4, 7)))


@pytest.mark.xfail(strict=True)
def test_expected(judge):
    judge(lambda a, b: a @ b * np.float32(1.001), "MatMul", judge.inputs(a=(3, 64), b=(64, 7)))


def test_caught(judge):
    with pytest.raises(AssertionError, match="(?i)mistake"):
        judge(lambda x: -x, "Relu", judge.inputs(x=(4, 5)))


def test_of_something_else():
    assert 1 + 1 == 2
"""


@dataclass(frozen=True)
class Run:
    """A finished run: its folder, exit code and what it printed."""

    folder: Path
    code: int
    text: str

    @property
    def summary(self) -> list[str]:
        """The lines of the plugin's section."""
        lines = self.text.splitlines()
        first = next(i for i, line in enumerate(lines) if re.match("=+ Verax: ", line))
        after = [i for i, line in enumerate(lines) if i > first and line.startswith("===")]
        return lines[first : after[0]]


def run(folder: Path, *arguments: str, **environment: str) -> Run:
    """Run pytest in a folder, as outside of GitHub unless `environment` says otherwise."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("GITHUB_", "PYTEST_"))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--color=no", *arguments],
        cwd=folder,
        env={**inherited, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    return Run(folder, done.returncode, done.stdout)


def sample(folder: Path) -> Path:
    (folder / "test_sample.py").write_text(SAMPLE)
    return folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The sample on GitHub Actions."""
    folder = sample(tmp_path_factory.mktemp("plain"))
    github = {
        "GITHUB_ACTIONS": "true",
        "GITHUB_WORKSPACE": str(folder.parent),
        "GITHUB_STEP_SUMMARY": str(folder / "step.md"),
    }
    return run(folder, "--junitxml=junit.xml", "--verax-report=report.html", **github)


@pytest.fixture(scope="module")
def distributed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The sample by two workers on GitHub Actions, with records elsewhere."""
    folder = sample(tmp_path_factory.mktemp("distributed"))
    arguments = ("-n", "2", "-v", "--verax-records=kept/here", "--verax-report=report.html")
    github = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(folder / "step.md")}
    return run(folder, *arguments, **github)


def test_pytest_finds_the_plugin_by_itself() -> None:
    names = [(e.name, e.value) for e in entry_points(group="pytest11")]
    assert ("verax", "verax.pytest_plugin") in names, (
        "verax is installed without its entry point: pip install -e . --no-deps"
    )


def test_wrong_blind_and_misspelled_tests_fail_and_no_others(plain: Run) -> None:
    assert plain.code == 1
    failed = re.findall(r"^FAILED test_sample.py::(\S+)", plain.text, re.M)
    assert sorted(failed) == [
        *("test_blind", "test_misspelled", "test_tiled[tail-seed0]", "test_tiled[tail-seed3]")
    ]
    assert "4 failed, 5 passed, 1 xfailed" in plain.text


def test_a_failure_shows_the_call_and_the_verdict_and_nothing_of_the_judges_code(
    plain: Run,
) -> None:
    failures = plain.text.partition("= FAILURES =")[2].partition("= Verax: ")[0]
    assert "last 6 of 70 terms of each sum were left out" in failures
    assert "is 'MatMul' meant?" in failures
    files = set(re.findall(r"^(\S+\.py):\d+: ", failures, re.M))
    assert files == {"test_sample.py"}


def test_the_summary_has_a_line_for_each_judged_test_the_worst_first(plain: Run) -> None:
    lines = plain.summary
    assert "3 judged right, 5 not" in lines[0]
    words = [line.split()[0] for line in lines[1:9]]
    assert words == [*("mistake",) * 2, "blind", *("mistake",) * 2, *("rounding",) * 3]
    assert any(re.search(r"^mistake .* times the allowed error +test_sample", x) for x in lines)
    ends = {line.split("::")[1].split(":")[0].split()[0]: line for line in lines[1:9]}
    assert ends["test_expected"].endswith("; expected to fail")
    assert ends["test_caught"].endswith("; the test passed all the same")
    assert ends["test_right"].endswith("(the worst of 2)")
    assert "records: .verax" in lines and "report: report.html" in lines
    assert "test_of_something_else" not in "\n".join(lines)


def test_every_verdict_is_kept_and_says_whose_it_is(plain: Run) -> None:
    records = [Verdict.from_json(p.read_text()) for p in (plain.folder / ".verax").glob("*.json")]
    tests = sorted(r.subject["test"].partition("::")[2] for r in records)
    assert tests == sorted(
        [f"test_tiled[{shape}-seed{seed}]" for shape in ("even", "tail") for seed in (0, 3)]
        + ["test_right", "test_right", "test_blind", "test_expected", "test_caught"]
    )
    wrong = {r.subject["test"] for r in records if r.kind is Kind.mistake}
    assert len(wrong) == 4
    assert (plain.folder / ".verax" / ".gitignore").read_text() == "*\n"
    seeds = {r.subject["test"][-2]: r.seed for r in records if "seed" in r.subject["test"]}
    assert seeds == {"0": 0, "3": 3}
    drawn = {i.sha256 for r in records if "[even" in r.subject["test"] for i in r.inputs}
    assert len(drawn) == 4  # two inputs by two seeds


def test_github_shows_failures_at_their_lines(plain: Run) -> None:
    shown = re.findall(r"^::error file=([^,]+),line=(\d+),title=([^:]+)::(.*)$", plain.text, re.M)
    assert {file for file, *_ in shown} == {f"{plain.folder.name}/test_sample.py"}
    lines = [SAMPLE.splitlines()[int(line) - 1].strip() for _, line, *_ in shown]
    assert [line[:11] for line in lines] == ["judge(tiled", "judge(tiled", "judge(np.ma"]
    assert "np.full" in lines[2]
    assert shown[0][2].startswith("mistake%3A test_tiled[tail-seed")
    assert "left out" in shown[0][3] and "%0A" in shown[0][3]


def test_github_gets_a_table_for_its_step(plain: Run) -> None:
    text = (plain.folder / "step.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| test\\_sample.py")]
    assert len(rows) == 8
    assert "### Verax: 3 judged right, 5 not" in text
    assert "❌ mistake" in rows[0] and "✅ rounding" in rows[-1]


def test_junit_properties_hold_verdict_error_and_record(plain: Run) -> None:
    cases = {
        case.get("name"): [(p.get("name"), p.get("value")) for p in case.iter("property")]
        for case in ElementTree.parse(plain.folder / "junit.xml").iter("testcase")
    }
    tail = dict(cases["test_tiled[tail-seed3]"])
    assert tail["verax.verdict"] == "mistake" and float(tail["verax.error_over_allowed"]) > 1
    assert Verdict.from_json((plain.folder / tail["verax.record"]).read_text()).blame
    assert [v for n, v in cases["test_right"] if n == "verax.verdict"] == ["rounding"] * 2
    assert cases["test_of_something_else"] == cases["test_misspelled"] == []


def test_the_report_is_one_page_with_every_verdict(plain: Run) -> None:
    page = (plain.folder / "report.html").read_text()
    assert "test_tiled[tail-seed3]" in page and "test_expected" in page
    assert not re.search(r"(?:src|href)=[\"']?http", page)


def test_workers_bring_the_same_verdicts_and_names(plain: Run, distributed: Run) -> None:
    assert distributed.code == 1
    assert "4 failed, 5 passed, 1 xfailed" in distributed.text

    def rows(finished: Run) -> list[str]:
        return sorted(line for line in finished.summary if "::" in line and "::error" not in line)

    assert rows(distributed) == rows(plain)
    assert "records: kept/here" in distributed.summary
    assert len(re.findall(r"^::error ", distributed.text, re.M)) == 3
    assert (distributed.folder / "step.md").read_text().count("### Verax") == 1
    assert "test_tiled[tail-seed3]" in (distributed.folder / "report.html").read_text()
    assert not (distributed.folder / ".verax").exists()
    names = [sorted(p.name for p in (r.folder / f).glob("*.json"))
             for r, f in ((plain, ".verax"), (distributed, "kept/here"))]  # fmt: skip
    assert names[0] == names[1] and len(names[0]) == 9


def collected(text: str, folder: Path, *arguments: str) -> Run:
    (folder / "test_one.py").write_text(text)
    return run(folder, *arguments)


def test_without_the_plugin_nothing_is_left_of_it(tmp_path: Path) -> None:
    ended = collected("def test_it(judge): pass\ndef test_b(): pass\n", tmp_path, "-p", "no:verax")
    assert "fixture 'judge' not found" in ended.text and "Verax" not in ended.text
    assert "1 passed, 1 error" in ended.text and not (tmp_path / ".verax").exists()


def test_a_run_that_judges_nothing_imports_nothing_and_says_nothing(tmp_path: Path) -> None:
    text = """
import sys

def test_imports():
    heavy = {"numpy", "onnx", "torch", "rich", "typer"} & set(sys.modules)
    ours = sorted(name for name in sys.modules if name.startswith("verax"))
    assert not heavy, heavy
    assert "verax.pytest_plugin" in ours and not [n for n in ours if "api" in n or "judge." in n]
"""
    ended = collected(text, tmp_path, "-W", "error")
    assert ended.code == 0, ended.text
    assert "Verax" not in ended.text and not (tmp_path / ".verax").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("@pytest.mark.verax(seeds=[-1])\ndef test_it(judge): pass", "-1 is no seed"),
        ("@pytest.mark.verax(seed=[1])\ndef test_it(judge): pass", "has no 'seed'"),
        ("@pytest.mark.verax([1])\ndef test_it(judge): pass", "takes keywords alone"),
        ("@pytest.mark.verax(seeds=[1])\ndef test_it(): pass", "has no fixture `judge`"),
    ],
)
def test_a_wrong_marker_is_one_error_at_collection(text: str, message: str, tmp_path: Path) -> None:
    ended = collected(f"import pytest\n\n{text}\n", tmp_path, "--strict-markers")
    assert ended.code == 2 and message in ended.text
    assert "Traceback" not in ended.text and "During handling" not in ended.text


def test_a_marker_of_a_module_leaves_tests_without_the_fixture_alone(tmp_path: Path) -> None:
    text = """
import pytest
pytestmark = pytest.mark.verax(seeds=[5, 6])
def test_a(): pass
def test_b(judge): assert judge.seed in (5, 6)
@pytest.mark.verax(seeds=[7])
def test_c(judge): assert judge.seed == 7
def test_d(judge, request): assert request.node.name in ("test_d[seed5]", "test_d[seed6]")
"""
    ended = collected(text, tmp_path, "--strict-markers")
    assert ended.code == 0 and "6 passed" in ended.text, ended.text


def test_gradients_and_drawn_inputs_of_models_and_functions_are_judged(tmp_path: Path) -> None:
    text = """
import numpy as np
import pytest
from verax.ir.graph import Builder
from verax.ir.types import TensorType
from verax.ops.pointwise.transcendental import Tanh

def right(a, b, gradient):
    return gradient @ b.T, a.T @ gradient

def wrong(a, b, gradient):
    return gradient @ b.T, a.T @ gradient * np.float32(1.01)

@pytest.mark.parametrize("vjp", [right, wrong])
def test_gradients(judge, vjp):
    judge.gradients((np.matmul, vjp), "MatMul", judge.inputs(a=(4, 50), b=(50, 7)))

@pytest.mark.verax(seeds=[4], shapes={"n": 3})
def test_model(judge):
    builder = Builder()
    x = builder.input("x", TensorType.parse("float32[n, 5]"))
    model = builder.graph([builder.add(Tanh(), [x])])
    assert judge(np.tanh, model).inputs[0].type == "float32[3, 5]"

@pytest.mark.verax(seeds=[4], shapes={"x": (3, 5)})
def test_function(judge):
    judge(lambda x: np.exp(np.sin(x)), lambda x: np.exp(np.sin(x)))
"""
    ended = collected(text, tmp_path, "-v")
    assert "1 failed, 3 passed" in ended.text, ended.text
    assert "FAILED test_one.py::test_gradients[wrong]" in ended.text
    assert len(list((tmp_path / ".verax").iterdir())) == 5  # four and the .gitignore


def test_a_report_that_cannot_be_written_is_refused_before_anything_runs(tmp_path: Path) -> None:
    text = "def test_it(): open('ran', 'w')\n"
    ended = collected(text, tmp_path, "--verax-report=missing/report.html")
    assert ended.code == pytest.ExitCode.USAGE_ERROR
    assert "cannot be written" in ended.text and not (tmp_path / "ran").exists()


def test_a_run_that_judges_nothing_has_no_report_and_says_so(tmp_path: Path) -> None:
    ended = collected("def test_it(): pass\n", tmp_path, "--verax-report=report.html")
    assert ended.code == 0 and "nothing was judged, so there is no report" in ended.text
    assert not (tmp_path / "report.html").exists()


def test_a_step_summary_that_cannot_be_written_is_said_and_fails_the_run(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text(
        "import numpy as np\n\n"
        "def test_it(judge):\n    judge(np.exp, 'Exp', judge.inputs(x=(3, 5)))\n"
    )
    ended = run(tmp_path, GITHUB_ACTIONS="true", GITHUB_STEP_SUMMARY=str(tmp_path))
    assert ended.code == pytest.ExitCode.USAGE_ERROR, ended.text
    assert "not written: " in ended.text and "Traceback" not in ended.text
