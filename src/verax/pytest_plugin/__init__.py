"""The pytest plugin: fixture `judge`, marker `verax`, records, summaries, an HTML report.

pytest imports this module at every start, so it imports nothing but pytest: the judge, NumPy and
all else come with the first test that has `judge`. `-p no:verax` leaves the plugin out.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from verax.pytest_plugin.marker import MarkedCase, MarkerError, cases_of

FOLDER = ".verax"
"""Where records are kept, beside pytest's root directory, when nothing else is said."""
MARKER = (
    "verax(seeds=[...], shapes={...}): run a test that has the fixture `judge` once for each seed "
    "and each set of shapes; `judge.inputs()` draws by them."
)
RECORDS = pytest.StashKey[Path]()
JUDGEMENTS = pytest.StashKey[list[dict[str, Any]]]()
"""Of a test: what was judged since its last report, as plain values."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("verax", "numbers judged against their float64 meaning (Verax)")
    group.addoption(
        "--verax-records",
        metavar="DIR",
        help=f"Keep the record of every verdict in this folder; without, in {FOLDER} of the root "
        "directory, or where the ini option verax_records says.",
    )
    group.addoption(
        "--verax-report",
        metavar="FILE",
        help="Write one HTML file on every verdict of this run.",
    )
    parser.addini("verax_records", "Folder of the records, from the root directory.", default="")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
    config.stash[RECORDS] = _records_folder(config)
    if is_worker(config):
        return
    report = config.getoption("--verax-report")
    path = Path(config.invocation_params.dir, report) if report else None
    if path is not None and (path.is_dir() or not path.parent.is_dir()):
        raise pytest.UsageError(f"--verax-report: {path} cannot be written; name a file elsewhere")
    results = import_module("verax.pytest_plugin.results")
    config.pluginmanager.register(
        results.Results(config, config.stash[RECORDS], path), "verax-results"
    )


def is_worker(config: pytest.Config) -> bool:
    """True in a process that pytest-xdist started to run tests."""
    return hasattr(config, "workerinput")


def _records_folder(config: pytest.Config) -> Path:
    """The folder of the records; a worker is told the controller's."""
    if is_worker(config):
        return Path(getattr(config, "workerinput")["verax_records"])  # noqa: B009  (mypy)
    option = config.getoption("--verax-records")
    if option:
        return Path(config.invocation_params.dir, option)
    return Path(config.rootpath, config.getini("verax_records") or FOLDER)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """pytest-xdist asks before it starts a worker."""
    node.workerinput["verax_records"] = str(node.config.stash[RECORDS])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marks = list(metafunc.definition.iter_markers("verax"))
    if not marks:
        return
    if "_verax_case" not in metafunc.fixturenames:
        if any(mark.name == "verax" for mark in metafunc.definition.own_markers):
            pytest.fail(
                f"{metafunc.definition.nodeid} is marked `verax` and has no fixture `judge`: add "
                "it to the test's arguments, or take the marker away",
                pytrace=False,
            )
        return  # the marker of a module or a class, whose other tests have the fixture
    problem, cases = "", {}
    try:
        cases = cases_of([mark.kwargs for mark in marks], [mark.args for mark in marks])
    except MarkerError as error:
        problem = str(error)
    if problem:  # outside of the handler, so that pytest shows one error and not two
        pytest.fail(f"{metafunc.definition.nodeid}: {problem}", pytrace=False)
    metafunc.parametrize("_verax_case", cases.values(), ids=cases.keys())


@pytest.fixture
def _verax_case() -> MarkedCase:
    """What the marker `verax` says of a test that it does not parametrize."""
    return MarkedCase()


@pytest.fixture
def judge(request: pytest.FixtureRequest, _verax_case: MarkedCase) -> Any:
    """Judge numbers against what they mean, evaluated in float64; fails the test when they are
    wrong.

    judge(actual, meaning, inputs) returns the verdict; judge.gradients(function, meaning, inputs)
    judges vector-Jacobian products; judge.inputs(a=(3, 5)) draws inputs by the test's seed, and
    judge.inputs() by the shapes of @pytest.mark.verax.
    """
    item = request.node
    rows = item.stash.setdefault(JUDGEMENTS, [])
    fixture = import_module("verax.pytest_plugin.fixture")
    return fixture.Judge(item, _verax_case, item.config.stash[RECORDS], rows)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Any:
    """Send what was judged along with the report, which pytest-xdist carries to its controller."""
    report = yield
    rows = item.stash.get(JUDGEMENTS, None)
    if rows:
        report.verax_judgements = list(rows)
        rows.clear()
    return report
