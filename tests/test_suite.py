"""What the suite asks of itself: `make test` on a bare machine is all there is.

Every package that tests import is installed by the extra `test`, pins stand there and nowhere else,
continuous integration runs the README's command, and no test draws from a generator that the tests
before it have moved on.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import measure, sample

pytest_plugins = ["pytester"]
ROOT = Path(__file__).parents[1]
TESTS = sorted((ROOT / "tests").rglob("*.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
DISTRIBUTION = {
    **{"PIL": "pillow", "markdown_it": "markdown-it-py"},
    **{"google": "protobuf", "sklearn": "scikit-learn", "grpc": "grpcio"},
}
"""Packages that are not imported by their distribution's name."""
NOT_INSTALLED = {
    "tensorflow": "campaigns write new files with it; what it answered is stored in the tests",
    "keras": "comes with tensorflow",
    "matplotlib": "draws plots of pages, from their tables",
    "tvm": "one test of a runner",
    "sklearn": "trains the example network again, in the extra `examples`",
}
"""Packages that tests may ask for with `importorskip` and `make test` does not install, and why."""
CORE = {re.match(r"[\w.-]+", requirement).group() for requirement in PROJECT["dependencies"]}
GENERATORS = {"default_rng", "RandomState", "Generator", "Random", "manual_seed"}
GLOBAL_DRAWS = re.compile(r"(np|numpy)\.random\.(?!default_rng|Generator|SeedSequence)[a-z]\w*$")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def distributions(extra: str) -> set[str]:
    """Names of the packages that an extra installs beside the core, extras within it resolved."""
    found = set()
    for requirement in EXTRAS[extra]:
        name, more = re.match(r"([\w.-]+)(?:\[([\w,-]+)\])?", requirement).groups()
        if name == PROJECT["name"]:
            found.update(*(distributions(x) for x in more.split(",")))
        else:
            found.add(name)
    return found


def installed(package: str) -> bool:
    name = DISTRIBUTION.get(package, package).replace("_", "-")
    return name in {n.replace("_", "-") for n in CORE | distributions("test")}


def at_module_level(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node that runs when the module is imported."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield node
            yield from at_module_level(node)


def imported_packages(tree: ast.AST) -> Iterator[str]:
    for node in at_module_level(tree):
        if isinstance(node, ast.Import):
            yield from (a.name.partition(".")[0] for a in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield str(node.module).partition(".")[0]


def test_make_test_installs_every_package_that_tests_import() -> None:
    ours = {"tests", "verax", *(p.stem for r in ("tests", "benchmarks", "examples")
                                for p in (ROOT / r).rglob("*.py"))}  # fmt: skip
    ours |= {"benchmarks", "docs", *(p.name for p in (ROOT / "benchmarks").iterdir() if p.is_dir())}
    for path in TESTS:
        if path.name.startswith("make_"):  # run by hand to write stored files
            continue
        packages = set(imported_packages(tree_of(path)))
        foreign = packages - ours - set(sys.stdlib_module_names)
        missing = sorted(p for p in foreign if not installed(p))
        assert not missing, f"{path.name} imports {missing}, which the extra `test` lacks"


def test_every_package_that_a_test_may_skip_for_is_installed_or_argued() -> None:
    asked = set()
    for path in TESTS:
        for node in ast.walk(tree_of(path)):
            match node:
                case ast.Call(ast.Attribute(attr="importorskip"), [ast.Constant(str(name)), *_]):
                    asked.add(name.partition(".")[0])
    assert {"torch", "openvino"} <= asked
    assert {p for p in asked - {"verax"} if not installed(p)} <= set(NOT_INSTALLED)
    assert not [p for p in NOT_INSTALLED if installed(p)]


def test_users_extras_are_unpinned_and_all_holds_them() -> None:
    users = set(EXTRAS) - {"test", "suite", "newest", "docs", "examples"}
    slim = {"compile", "onnx", "tensorflow", "images"}
    assert users == {
        *slim,
        "torch",
        "coreml",
        "runners",
        "cuda",
        "tune",
        "ray",
        "parquet",
        "sign",
        "pytest",
        "all",
    }
    for extra in users:
        for requirement in EXTRAS[extra]:
            assert not re.search(r"[<~!]|==", requirement.partition(";")[0]), (extra, requirement)
    assert distributions("all") == set.union(*(distributions(x) for x in users))
    assert distributions("all") < distributions("test")


def test_continuous_integration_runs_the_readmes_command() -> None:
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    commands = [x for x in lines if x and not x.startswith("#")]
    # Nothing but a browser is added, which users may have or not.
    browser = [x for x in commands if "chromium" in x]
    assert [x for x in commands if x not in (*browser, "fi")] == [
        "set -eu", 'cd "$(dirname "$0")/.."', "exec make test",
    ]  # fmt: skip
    assert len(browser) == 2 and "apt-get install" in browser[1]
    assert re.search(r"^make test\b", (ROOT / "README.md").read_text(), re.M)
    makefile = (ROOT / "Makefile").read_text()
    recipe = re.search(r"^test:.*\n(?:\t.*\n)+", makefile, re.M).group()
    variables = set(re.findall(r"\$\((\w+)\)", recipe))
    assert variables == {"VENV", "PYTEST", "MAKE"}, "what is tested hangs on a variable"
    assert set(re.findall(r"^(\w+) \?=", makefile, re.M)) == {"PYTHON", "JOBS", "ARGS"}


def named(*nodeids: str) -> list[Any]:
    """Items as far as a sample looks at them."""
    fixtures = SimpleNamespace(name2fixturedefs={})
    return [SimpleNamespace(nodeid=n, path=ROOT / n.partition("::")[0], _fixtureinfo=fixtures)
            for n in nodeids]  # fmt: skip


SOME = (
    *("tests/a/test_p.py::test_1[x]", "tests/a/test_p.py::test_1[y]", "tests/a/test_p.py::test_2"),
    *("tests/a/test_q.py::test_3", "tests/b/test_r.py::test_4[x]", "tests/b/test_r.py::test_4[y]"),
)


def test_the_quick_sample_goes_by_the_seconds_of_functions() -> None:
    seconds = {"tests/a/test_p.py::test_1": 0.1, "tests/a/test_p.py::test_2": sample.LONG + 0.01}
    kept = [item.nodeid for item in sample.chosen(named(*SOME), seconds)]
    assert kept == [SOME[0], SOME[3], SOME[4], SOME[5]]  # one of what takes time, none of what long


def test_without_seconds_the_quick_sample_takes_the_rooms_in_turn() -> None:
    kept = [item.nodeid for item in sample.chosen(named(*SOME), {})]
    assert kept == [SOME[0], SOME[2], SOME[4], SOME[3]]


@pytest.mark.parametrize(("clock", "ran"), [((9.5, 1.5), "aabb"), ((2.5, 9.5), "aaa")])
def test_without_seconds_the_clock_ends_the_sample(
    clock: tuple[float, float], ran: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_second = SimpleNamespace(monotonic=count().__next__)  # every test takes that
    monkeypatch.setattr(sample, "time", one_second)
    text = "import pytest\n@pytest.mark.parametrize('n', range(4))\ndef test_it(n):\n    pass\n"
    pytester.makepyfile(test_a=text, test_b=text)
    passed, skipped, failed = pytester.inline_run(plugins=[sample.Clock(*clock)]).listoutcomes()
    assert "".join(report.nodeid[5] for report in passed) == ran
    assert len(skipped) == 8 - len(ran) and not failed


def test_seconds_are_read_where_they_were_written(tmp_path: Path) -> None:
    file = tmp_path / "durations.txt"
    assert sample.read(file) == {}
    file.write_text("   0.25 tests/a/test_p.py::test_1\n   1.50 tests/b/test_r.py::test_4\n")
    assert sample.read(file) == {
        "tests/a/test_p.py::test_1": 0.25, "tests/b/test_r.py::test_4": 1.5
    }  # fmt: skip
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    assert f"{sample.DURATIONS.parent.relative_to(ROOT)}/" in ignored


def test_seconds_are_taken_from_reports_of_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    case = '<testcase classname="tests.a.test_p" name="{}" time="{}"/>'
    skipped = '<testcase classname="tests.a.test_p" name="test_3" time="9"><skipped/></testcase>'
    (tmp_path / "out").mkdir()
    monkeypatch.setattr(measure, "ROOT", tmp_path)
    monkeypatch.setattr(measure, "DURATIONS", tmp_path / "out" / "durations.txt")
    for name, seconds in {"tests": "0.5", "quick": "0.75"}.items():
        cases = [case.format("test_1[x]", seconds), case.format("test_2", "0.001"), skipped]
        (tmp_path / "out" / f"{name}.xml").write_text(f"<testsuite>{''.join(cases)}</testsuite>")
    measure.main()
    assert sample.read(measure.DURATIONS) == {"tests/a/test_p.py::test_1": 0.75}
    assert "out/durations.txt: 1 functions" in capsys.readouterr().out


def kept_generators(tree: ast.Module) -> list[str]:
    """Lines of a module that keep a generator for all tests, or draw from a hidden global one."""
    found = []
    for node in at_module_level(tree):
        value = getattr(node, "value", None)
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr):
            parts = value.elts if isinstance(value, ast.Tuple | ast.List) else [value]
            calls = [p.func for p in parts if isinstance(p, ast.Call)]
            if any(ast.unparse(c).rpartition(".")[2] in GENERATORS for c in calls):
                found.append(f"line {node.lineno} keeps a generator: {ast.unparse(node)}")
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            drawn = re.fullmatch(r"torch\.rand\w*", name) and "generator" not in {
                k.arg for k in node.keywords
            }
            if drawn:
                found.append(f"line {node.lineno} draws from torch's global generator: {name}")
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and GLOBAL_DRAWS.match(ast.unparse(node.func)):
            found.append(f"line {node.lineno} draws from a global generator: {ast.unparse(node)}")
    return found


@pytest.mark.parametrize(
    "source",
    [
        "RNG = np.random.default_rng(5)",
        "X, RNG = 3, random.Random(7)",
        "if True:\n    G = torch.Generator().manual_seed(3)",
        "class Net:\n    rng: Any = numpy.random.RandomState(1)",
        "X, Y = torch.randn(2, 3), 4",
        "def draw():\n    return np.random.standard_normal(3)",
    ],
)
def test_a_kept_generator_is_noticed(source: str) -> None:
    assert kept_generators(ast.parse(source))


def test_no_test_draws_from_a_generator_that_others_have_moved_on() -> None:
    wrong = {
        path.name: found
        for path in TESTS
        if not path.name.startswith("make_") and (found := kept_generators(tree_of(path)))
    }
    assert not wrong


def test_the_tests_that_hold_the_defects_exist() -> None:
    rows = (ROOT / "docs" / "defects.md").read_text().splitlines()
    named = [m[1] for row in rows if (m := re.search(r"`(tests/[^`]+)` \|$", row))]
    assert len(named) > 40
    for name in named:
        file, _, function = name.partition("::")
        assert (ROOT / file).is_file(), name
        assert not function or f"\ndef {function}(" in (ROOT / file).read_text(), name


def test_no_two_test_files_are_the_same_module() -> None:
    """Below a folder without `__init__.py` a file is called by its name alone, and pytest refuses
    the second."""
    modules: dict[str, list[Path]] = {}
    for path in (p for p in TESTS if p.name.startswith("test_")):
        parts, folder = [path.stem], path.parent
        while (folder / "__init__.py").is_file():
            parts.insert(0, folder.name)
            folder = folder.parent
        modules.setdefault(".".join(parts), []).append(path)
    assert {name: paths for name, paths in modules.items() if len(paths) > 1} == {}
