"""A finding's script is run outside of Verax, and what that shows decides the confidence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from verax.hunt.alarm import CRASH, HANG, REFUSAL, Alarm, without_names
from verax.hunt.bare import is_same_failure, run_bare
from verax.hunt.case import Draft
from verax.hunt.opinions import (
    HIGH,
    LOW,
    MEDIUM,
    Opinion,
    confidence,
    confidence_of_failure,
    doubtful,
)
from verax.ir.graph import Builder
from verax.ir.operator import REGISTRY
from verax.reference.evaluate import evaluate

FRIEND = Opinion("openvino:f32", True, True, "agrees")
DOUBTER = Opinion("onnx.reference", False, True, "differs")
OURSELVES = Opinion("verax:O0", True, False, "agrees")
SILENT = Opinion("onnx.reference", None, True, "no answer")
REFUSED = Alarm(REFUSAL, "LRN", "", "", "the subject failed: Fail: LRN 'a' of size 2 is refused")


def script(folder: Path, text: str) -> Path:
    path = folder / "show.py"
    path.write_text("import numpy as np\n" + text)
    return path


def test_the_outputs_of_a_script_are_what_it_was_given(tmp_path: Path) -> None:
    run = run_bare(script(tmp_path, "given = {'y': np.arange(3)}\nraise KeyError"), seconds=30.0)
    assert run.outputs is not None and run.failure == ""
    np.testing.assert_array_equal(run.outputs["y"], [0, 1, 2])


def test_a_refusal_a_crash_and_a_hang_are_told_apart(tmp_path: Path) -> None:
    refused = run_bare(script(tmp_path, "raise ValueError('LRN: axis 3')"), seconds=30.0)
    assert (refused.failure, refused.message) == (REFUSAL, "ValueError: LRN: axis 3")
    died = run_bare(script(tmp_path, "import os\nos.kill(os.getpid(), 11)"), seconds=30.0)
    assert died.failure == CRASH
    late = run_bare(script(tmp_path, "while True: pass"), seconds=1.0)
    assert late.failure == HANG


def test_a_script_that_imports_verax_shows_nothing_of_another_runtime(tmp_path: Path) -> None:
    text = "import sys, types\nsys.modules['verax'] = types.ModuleType('verax')\n"
    path = script(tmp_path, text + "given = {'y': np.ones(2)}")
    assert run_bare(path, seconds=30.0).outputs is None
    assert run_bare(path, seconds=30.0, own=True).outputs is not None


def test_another_message_is_another_failure(tmp_path: Path) -> None:
    same = run_bare(script(tmp_path, "raise RuntimeError('Fail: LRN `b` of size 6 is refused')"),
                    seconds=30.0)  # fmt: skip
    other = run_bare(script(tmp_path, "raise KeyError('input_3')"), seconds=30.0)
    assert is_same_failure(same, REFUSED) and not is_same_failure(other, REFUSED)
    assert without_names(REFUSED.message) != without_names(same.message)


@pytest.mark.parametrize(
    ("seen", "is_bare", "doubt", "level"),
    [
        ((FRIEND,), True, "", HIGH),
        ((FRIEND, SILENT), True, "", HIGH),
        ((FRIEND,), False, "", LOW),
        ((FRIEND,), True, "no elements", MEDIUM),
        ((FRIEND, DOUBTER), True, "", MEDIUM),
        ((OURSELVES, SILENT), True, "", LOW),
        ((), True, "", LOW),
    ],
)
def test_a_refusal_counts_where_somebody_else_computes_the_model(
    seen, is_bare: bool, doubt: str, level: str
) -> None:
    assert confidence_of_failure(seen, is_bare=is_bare, doubt=doubt)[0] == level


def test_a_mistake_that_its_script_does_not_show_is_low_and_a_doubtful_one_is_not_high() -> None:
    assert confidence((FRIEND,), alone=True)[0] == HIGH
    assert confidence((FRIEND,), alone=True, is_bare=False)[0] == LOW
    level, argument = confidence((FRIEND,), alone=True, doubt="infinities")
    assert level == MEDIUM and "infinities" in argument


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.array([[1.5, -2.0, 4.0]], np.float32), ""),
        (np.array([[1.5, np.inf, 4.0]], np.float32), "infinities"),
        (np.array([[1.5, np.nan, 4.0]], np.float32), "infinities"),
        (np.zeros((2, 0), np.float32), "no elements"),
    ],
)
def test_what_the_standard_seldom_states_is_doubtful(array: np.ndarray, words: str) -> None:
    draft = Draft(Builder("doubt"), np.random.default_rng(3))
    graph = draft.builder.graph([draft.add(REGISTRY["Neg"](), draft.input(array))])
    found = doubtful(graph, draft.inputs, evaluate(graph, draft.inputs))
    assert words in found and bool(found) == bool(words)
