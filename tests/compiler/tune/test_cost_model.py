"""A model of cost puts what is fast first, on kernels that it has not seen."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from tests.compiler.tune.test_tuning_lookup import HERE, SPEC, TARGET
from tests.compiler.tune.test_tuning_search import RULE, Fake

from verax.compiler.kernels import registry
from verax.compiler.tune import cost_model as module
from verax.compiler.tune.combinations import combinations
from verax.compiler.tune.cost_model import (
    ENGINES,
    LEAST_EXAMPLES,
    CostModel,
    cost_model,
    examples_of,
)
from verax.compiler.tune.history import History
from verax.compiler.tune.host import LineOrigin
from verax.compiler.tune.measurements import measured_lines, numbers_of, workload_line
from verax.compiler.tune.racing import BenchRacer, Trial
from verax.compiler.tune.search import search_on

SEEN = [dataclasses.replace(SPEC, batch=b, channels=c) for b, c in ((3, 33), (2, 66), (5, 49))]


def price(schedule: Any) -> float:
    """What only a combination brings about: 16 steps written out and nothing fetched ahead."""
    return 0.5 if (schedule.unroll, schedule.near) == (16, 0) else 1.1 - 0.01 * schedule.unroll


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "COMBINED", 600)  # few have the two steps that gain
    path = tmp_path / "tuning.jsonl"
    for spec in SEEN:
        origin = LineOrigin(network=f"net of {spec.batch}", spec=str(spec))
        rule = registry.schedules(spec, TARGET)[0]
        several = [s for s in [*registry.candidates(spec, TARGET), *combinations(spec, TARGET)]
                   if s != rule]  # fmt: skip
        trials = [Trial(s, True, (1e-3,), ratio=price(s) / price(rule)) for s in several]
        History(path).append([workload_line(spec, TARGET, HERE, origin)])
        History(path).append(measured_lines(spec, HERE, origin, trials))
    return path


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_fast_comes_first(history: Path, engine: str) -> None:
    pytest.importorskip(engine, reason=f"{engine} is not installed")
    examples = examples_of(history, HERE)
    assert {e.network for e in examples} == {"net of 3", "net of 2", "net of 5"}
    model = CostModel(examples, engine)
    several = list(combinations(SPEC, TARGET))
    ranked: list[Any] = model.rank(SPEC, TARGET, several)
    fast = sum(price(s) == 0.5 for s in ranked)
    assert fast >= 3
    assert sum(price(s) == 0.5 for s in ranked[: fast + 1]) >= fast - 1
    assert sorted(map(str, ranked)) == sorted(map(str, several))
    assert price(model.proposals(SPEC, TARGET)[0]) == 0.5


def test_a_search_with_it_needs_fewer_candidates(history: Path) -> None:
    model = cost_model(history, HERE)
    if model is None:
        pytest.skip("neither LightGBM nor scikit-learn is installed")

    def tried(first: Any) -> int:
        bench = Fake(price)
        found = search_on(SPEC, TARGET, BenchRacer(bench, RULE, lambda: False), first=first)
        order = [price(t.schedule) for t in found.trials]
        return order.index(0.5) if 0.5 in order else len(order) + 100

    assert tried(model.proposals(SPEC, TARGET)) < 4 < tried(())


def test_without_a_package_or_with_too_little_there_is_none(
    history: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = tmp_path / "few.jsonl"
    lines = history.read_bytes().splitlines(keepends=True)
    few.write_bytes(b"".join(lines[: LEAST_EXAMPLES - 1]))
    assert cost_model(few, HERE) is None
    assert cost_model(tmp_path / "nowhere", HERE) is None
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    assert cost_model(history, HERE) is None


def test_other_families_and_damaged_lines_teach_nothing(history: Path) -> None:
    count = len(examples_of(history, HERE))
    assert examples_of(history, dataclasses.replace(HERE, family="Another 6")) == []
    threads = dataclasses.replace(HERE, threads=HERE.threads + 1)
    assert len(examples_of(history, threads)) == count, "the same family is near enough"
    first = json.loads(history.read_text().splitlines()[1])
    with history.open("a") as stream:
        for damage in ({"ratio": -1}, {"ratio": "fast"}, {"schedule": 3}, {"kernel": "unknown"}):
            stream.write(json.dumps({**first, **damage}) + "\n")
    assert len(examples_of(history, HERE)) == count


def test_numbers_are_those_of_the_spec() -> None:
    numbers = dict(numbers_of(SPEC))
    assert (numbers["channels"], numbers["filters"], numbers["batch"]) == (33, 50, 2)
    assert (numbers["kernel.1"], numbers["kernel.2"], numbers["bias"]) == (3, 2, 1)
