"""Settings of the whole suite: the same cases on every machine, one thread for foreign libraries.

Hypothesis draws the same few cases every time; `make campaign` draws fresh ones for every test that
draws (the profile "fresh"): what they find becomes a test of its own. No test sees what another one
drew.

`--quick` (that is `make quick`) takes a sample of every room: `tests/sample.py`.
"""

from __future__ import annotations

import gc
import operator
import os
import random
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

import verax.ops  # noqa: F401  (registers the operators, of which tests build graphs by name)
from tests import sample
from verax.compiler.artifacts.cache import build_digest

# Tests run side by side: pools of foreign libraries would fight for the cores. How many threads
# Verax takes is tested as the machine has it, whatever a shell has exported.
os.environ.pop("OMP_NUM_THREADS", None)
os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}

# Where CI is set, pytest writes whole differences of what was compared: for arrays of bytes, with
# faults planted in them, that took 25 minutes of the suite.
for _name in ("CI", "BUILD_NUMBER"):
    os.environ.pop(_name, None)

# A test that breaks the compiler must not be given a program that was made before, nor leave its
# own to others; tests of the cache have folders of their own.
os.environ["VERAX_CACHE"] = "off"
build_digest()  # else the first cache of a test gets a record of it

# Hundreds of tests start Python: what it makes of Verax's files is kept beside them, whatever a
# shell has exported.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell starts jobs in the background deaf to Ctrl-C, and so are their children: tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadlines: a busy machine is not a fault. Nothing depends on Hypothesis noticing CI by itself.
calm = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("fresh", derandomize=False, **calm)
settings.register_profile("same", derandomize=True, database=None, max_examples=40, **calm)
settings.load_profile("same")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="a sample of every room")


SHARED = pytest.StashKey[Any]()
FOLDER = "shared code"
"""Name under which workers are told the folder of the run."""


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # until all is imported, of which little is garbage (`pytest_collection_finish`)
    told = getattr(config, "workerinput", {}).get(FOLDER)
    if told is None:
        made = tempfile.TemporaryDirectory(prefix="verax-tests-", ignore_cleanup_errors=True)
        config.add_cleanup(made.cleanup)
        told = made.name
    from tests.shared_code import share_code  # numpy with it: the environment is as it should be

    config.stash[SHARED] = share_code(Path(told))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """xdist asks before it starts a worker."""
    node.workerinput[FOLDER] = str(node.config.stash[SHARED].folder)


def is_dark(item: pytest.Item) -> bool:
    """True for every second combination of a test's parameters, as fields of a chessboard lie:
    each value of one stays with half of the values of every other."""
    values: dict[str, Any] = getattr(item, "callspec").params  # noqa: B009  (mypy: items have none)
    total = 0
    for mark in item.iter_markers("parametrize"):
        names = (
            mark.args[0].replace(",", " ").split()
            if isinstance(mark.args[0], str)
            else mark.args[0]
        )
        rows = [getattr(row, "values", row if len(names) > 1 else (row,)) for row in mark.args[1]]
        wanted = [values[name] for name in names]
        total += next(n for n, row in enumerate(rows) if all(map(operator.is_, row, wanted)))
    return total % 2 == 1


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out the slow ones
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("checkered") and is_dark(item):
            item.add_marker(pytest.mark.slow)
    if not config.getoption("--quick"):
        return
    seconds = sample.read()
    if not seconds:
        config.pluginmanager.register(sample.Clock())
    kept = sample.chosen(items, seconds)
    config.hook.pytest_deselected(items=[*{*items} - {*kept}])
    items[:] = kept


def pytest_collection_finish() -> None:
    """What was imported and collected stays: the collector need not go over it between tests."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def seeded() -> None:
    """What another test drew from the generators of `random` and torch changes nothing here.

    A test that loads torch itself may be the first: it seeds torch before it draws. torch keeps to
    one thread.
    """
    random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
        sys.modules["torch"].set_num_threads(1)


_broken = False


@pytest.fixture(autouse=True)
def own_kernels(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that may break the compiler is not given kernels made before, nor leaves its own."""
    global _broken
    may_break = "monkeypatch" in request.fixturenames
    if may_break or _broken:
        from verax.compiler.place.binary.assembly import COMPILED_KERNELS

        COMPILED_KERNELS.forget()
    _broken = may_break
    shared = request.config.stash[SHARED]
    shared.is_used = not may_break and "llvm_itself" not in request.fixturenames
    yield
    shared.is_used = True


@pytest.fixture
def llvm_itself() -> None:
    """For tests of how long compiling takes: no code that was made before (`own_kernels`)."""
