"""What a worker does in the campaign: judges a few runs of one architecture, one by one."""

from __future__ import annotations

import dataclasses
import os
import resource
import sys
import time
import traceback
from pathlib import Path
from typing import Any

MEMORY = 8 << 30
"""Bytes of address space that a child may take."""
QUIET = {
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}
"""Environment of libraries, which read it when they are imported."""
_forms: list[Any] = []
"""Of the last architecture."""


def judge_keys(task: dict[str, Any]) -> list[dict[str, Any]]:
    """Outcomes of the runs of a task's keys, as data. folder: for exported models."""
    for name, setting in QUIET.items():
        os.environ.setdefault(name, setting)
    if "ray" not in sys.modules:  # whose processes map the whole store of objects
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    from benchmarks.honest.networks import Forms
    from benchmarks.honest.runs import Run

    outcomes = []
    for key in task["keys"]:
        name = key.partition("/")[0]
        if not _forms or _forms[0].name != name:
            _forms[:] = [Forms(name, Path(task["folder"]))]
        began = time.perf_counter()
        if key.split("/")[1] == "planted":
            from benchmarks.honest.planted import run_planted

            outcome: Any = run_planted(key, _forms[0])
        else:
            outcome = honest(Run.of(key), _forms[0])
        outcome.seconds = round(time.perf_counter() - began, 2)
        outcomes.append(dataclasses.asdict(outcome))
    return outcomes


def honest(run: Any, forms: Any) -> Any:
    """The outcome of one honest run."""
    from benchmarks.honest.outcomes import ACCUSED, FAILED, REFUSED, Outcome, from_verax, of_verdict

    family, origin = forms.family, forms.origin
    try:
        verdict = judged(run, forms)
    except MemoryError:
        return Outcome(run.key, family, origin, FAILED, reasons=["out of memory"])
    except Exception as error:
        ours = from_verax(error)
        reason = f"{type(error).__name__}: {error}"[:300]
        where = traceback.format_exc()[-1500:] if ours else ""
        result = FAILED if ours else REFUSED
        return Outcome(run.key, family, origin, result, reasons=[reason], notes=[where])
    outcome = of_verdict(run.key, family, origin, verdict)
    if outcome.result == ACCUSED and run.form.startswith("case"):
        outcome.restated = right_in_other_words(run, forms)
    return outcome


def right_in_other_words(run: Any, forms: Any) -> str:
    """The restatement of the run's quantised network on which its runtime is not accused; "" when
    it is, or fails, on all of them."""
    import numpy as np
    import onnx
    from benchmarks.honest.networks import Network, subject, watched
    from benchmarks.honest.restated import FLOAT, restatements

    import verax
    from verax.judge import check
    from verax.judge.regions.coverage import ACCEPTED
    from verax.reference.evaluate import evaluate

    given = forms.network(run.dtype, run.form)
    inputs = given.inputs[run.style]
    meaning = list(evaluate(given.graph, inputs).values())
    for words, model in restatements(onnx.load_from_string(given.source)):
        graph = verax.load(model).graph
        same = all(map(np.array_equal, meaning, evaluate(graph, inputs).values()))
        if words != FLOAT and not same:  # a scale that is combined first may tip an integer
            continue
        other = Network(graph, model.SerializeToString(), given.inputs)
        try:
            verdict = check(
                graph, subject(other, run), inputs, watch=watched(run), explain=False, twice=False
            )
        except Exception:  # a foreign runtime may raise anything
            continue
        if verdict.kind in ACCEPTED:
            return words
    return ""


def judged(run: Any, forms: Any, explain: bool = False) -> Any:
    """The verdict on one honest run."""
    from benchmarks.honest.networks import subject, watched

    from verax.judge import check

    network = forms.network(run.dtype, run.form)
    inputs = None if run.view.startswith("recorded") else network.inputs[run.style]
    return check(
        network.graph,
        subject(network, run),
        inputs,
        watch=watched(run),
        explain=explain,
    )
