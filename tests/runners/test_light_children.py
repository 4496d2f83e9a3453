"""A child of a subject starts quickly: it imports what its own task needs, and never the judge."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from tests.test_every_registration import CHILDREN

HEAVY = ("verax.judge.check", "verax.compiler.compile", "verax.ops", "verax.cli")
START = """
import json, sys
from verax.runners.children import worker
worker._module(sys.argv[1])
print(json.dumps(sorted(sys.modules)))
"""


@pytest.mark.parametrize("task", CHILDREN.split())
def test_a_child_imports_what_its_task_needs(task: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", START, task], capture_output=True, text=True, timeout=60, check=True
    )
    loaded = set(json.loads(done.stdout))
    modules = {name: f"verax.runners.{name}" for name in CHILDREN.split()}
    assert modules[task] in loaded
    assert not loaded.intersection(HEAVY)
    assert not loaded.intersection(home for name, home in modules.items() if name != task)


def test_the_judge_as_a_package_gives_its_function_though_the_module_has_its_name() -> None:
    script = (
        "import verax.judge.check, verax.judge as judge, types\n"
        "assert isinstance(judge.check, types.FunctionType), judge.check\n"
        "from verax.judge import Runner, check, draw_inputs\n"
        "assert check is judge.check and not hasattr(judge, 'nothing')\n"
    )
    subprocess.run([sys.executable, "-c", script], timeout=60, check=True)
