"""A network that is tuned keeps its bits, keeps what gains in it, and is compiled with that."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.compiler.tune.test_tuning_search import Fake

import verax
from verax.base.errors import InputError, UnsupportedError, UsageError
from verax.base.option_groups.settings import Settings
from verax.compiler import network_bench, specialize, tuner
from verax.compiler.artifacts.cache import ProgramCache
from verax.compiler.compile import compile as compile_graph
from verax.compiler.kernels.target import Target
from verax.compiler.tune.history import History
from verax.compiler.tune.host import Host
from verax.compiler.tune.kernel_bench import KernelBench, Workload
from verax.compiler.tune.lookup import Tuned, read_history
from verax.compiler.tune.successive_halving import Duel
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.records.tuning import BY_RULE, NOT_REACHED, ROLLED_BACK, TUNED, TuningRecord

SETTINGS = Settings(opt_level=1, threads=1)


@pytest.fixture
def graph() -> Graph:
    rng = np.random.default_rng(4107)
    b = Builder("small")
    x = b.input("x", TensorType.of(np.zeros((2, 5, 12, 11), np.float32)))
    for filters, channels, kernel in ((36, 5, (3, 2)), (20, 36, (1, 1))):
        w = rng.standard_normal((filters, channels, *kernel), np.float32)
        x = b.add(REGISTRY["Relu"](), [b.add(REGISTRY["Conv"](), [x, b.constant(w)])])
    return b.graph([x])


FEEDS = {"x": np.random.default_rng(4108).standard_normal((2, 5, 12, 11)).astype(np.float32)}


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path / "tuning.jsonl")


def fake(*arguments: object) -> Fake:
    """A machine that likes an unrolling of 8."""
    return Fake(lambda s: 1e-3 if s.unroll == 8 else 2e-3)


def tuned(
    graph: Graph,
    history: History,
    monkeypatch: pytest.MonkeyPatch,
    *,
    in_network: Callable[[int], float] = lambda i: 0.8,
    whole: float = 0.9,
    bench: Any = fake,
    **options: Any,
) -> TuningRecord:
    """Tune with a clock of its own. in_network: the ratio of the i-th winner; whole: the
    network's."""

    def confirmed(self: Any, winners: Any) -> dict[Any, float]:
        return {spec: in_network(i) for i, spec in enumerate(winners)}

    monkeypatch.setattr(network_bench.NetworkBench, "_in_network", confirmed)
    monkeypatch.setattr(
        network_bench.NetworkBench,
        "_compared",
        lambda self, a, b: Duel(whole, 0.001, (0.2,), (0.2 * whole,)),
    )
    searching = tuner.Searching(**{"clock": lambda: 0.0, "learns": False, **options})
    return tuner.tune(graph, SETTINGS, FEEDS, history, searching, bench=bench)


def lines(history: History, kind: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in history.path.read_text().splitlines()]
    return [line for line in found if line["kind"] == kind]


def lookup(history: History) -> Tuned:
    return Tuned(read_history(history.path, named=True), Target.host(), 1)


def test_what_wins_is_kept_and_compiled_with_from_then_on(
    graph: Graph, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = compile_graph(graph, SETTINGS)
    wanted = before.run(FEEDS)
    record = tuned(graph, history, monkeypatch)
    assert [k.outcome for k in record.kernels] == [TUNED, TUNED]
    assert record.kept
    assert record.equal_bits
    assert not record.faults
    assert record.speedup == pytest.approx(1 / 0.9)
    assert 0.2 < sum(k.share for k in record.kernels) <= 1
    after = compile_graph(graph, SETTINGS, tuned=lookup(history))
    assert "unrolled by 8" not in str(before.plan)
    assert str(after.plan).count("unrolled by 8") == 2
    assert "schedules: 2 of 2 kernels tuned exactly here" in str(after.plan)
    assert before.plan.tuning == ""
    got = after.run(FEEDS)
    assert {v: a.tobytes() for v, a in got.items()} == {v: a.tobytes() for v, a in wanted.items()}
    assert after.recipe == before.recipe, "a schedule is no part of what decides numbers"
    assert len(after.profile(FEEDS, runs=1).steps) == len(after.plan.lines)


def test_every_candidate_is_in_the_history_with_its_samples(
    graph: Graph, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tuned(graph, history, monkeypatch)
    measured = lines(history, "measured")
    assert len(measured) == sum(k.trials for k in record.kernels) > 20
    assert all(line["bits"] == "equal" and line["microseconds"] for line in measured)
    chosen = lines(history, "chosen")
    assert [c["in_network"] for c in chosen] == [0.8, 0.8]
    assert all(c["rule"] != c["schedule"] for c in chosen)


def test_what_does_not_gain_in_the_network_goes_back(
    graph: Graph, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tuned(graph, history, monkeypatch, in_network=lambda i: 1.01 if i else 0.7)
    assert sorted(k.outcome for k in record.kernels) == sorted([TUNED, ROLLED_BACK])
    assert len(lines(history, "chosen")) == 1
    back = next(k for k in record.kernels if k.outcome == ROLLED_BACK)
    assert back.best_us == back.rule_us


def test_a_network_that_does_not_gain_as_a_whole_keeps_nothing(
    graph: Graph, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tuned(graph, history, monkeypatch, whole=1.02)
    assert not record.kept
    assert {k.outcome for k in record.kernels} == {ROLLED_BACK}
    assert lines(history, "chosen") == []
    assert record.speedup == 1
    assert "nothing is kept" in str(record)


def test_an_earlier_choice_that_lost_is_taken_back(
    graph: Graph, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned(graph, history, monkeypatch)
    slower = lambda *a: Fake(lambda s: 5e-3 if s.unroll == 8 else 2e-3)  # noqa: E731
    record = tuned(graph, history, monkeypatch, bench=slower)
    assert {k.outcome for k in record.kernels} == {BY_RULE}
    assert "unrolled by 8" not in str(compile_graph(graph, SETTINGS, tuned=lookup(history)).plan)
    assert len(lines(history, "chosen")) == 4, "nothing is rewritten"


def test_an_interruption_leaves_what_was_won(
    graph: Graph, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Fake] = []

    def bench(*arguments: object) -> Fake:
        if made:
            raise KeyboardInterrupt
        made.append(fake())
        return made[0]

    with pytest.raises(KeyboardInterrupt):
        tuned(graph, history, monkeypatch, bench=bench)
    assert lines(history, "measured")
    assert len(lines(history, "chosen")) == 1
    plan = str(compile_graph(graph, SETTINGS, tuned=lookup(history)).plan)
    assert "1 of 2 kernels tuned exactly here; 1 none" in plan


def test_the_budget_is_for_all_kernels(
    graph: Graph, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]

    def bench(*arguments: object) -> Fake:
        made = fake()
        turn = made.turn

        def timed(schedule: Any) -> float:
            now[0] += 0.01
            return turn(schedule)

        made.turn = timed  # type: ignore[method-assign]
        return made

    short = tuned(graph, history, monkeypatch, bench=bench, clock=lambda: now[0], budget=2.0)
    assert all(k.trials for k in short.kernels)
    assert now[0] < 5
    none = tuned(graph, history, monkeypatch, bench=bench, clock=iter(range(99)).__next__, budget=1)
    assert NOT_REACHED in {k.outcome for k in none.kernels}


def test_outputs_that_differ_are_a_fault_and_nothing_is_kept(
    graph: Graph, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = iter([[b"one"], [b"another"]])
    monkeypatch.setattr(network_bench, "_bits", lambda arrays: next(seen))
    record = tuned(graph, history, monkeypatch)
    assert not record.equal_bits
    assert not record.kept
    assert record.faults
    assert lines(history, "chosen") == []
    assert "OTHER BITS" in str(record)


@pytest.mark.parametrize("threads", [1, 2])
def test_real_kernels_on_the_real_machine(graph: Graph, history: History, threads: int) -> None:
    record = tuner.tune(
        graph,
        Settings(opt_level=3, threads=threads),
        FEEDS,
        history,
        tuner.Searching(trials=3, clock=lambda: 0.0, model="small.onnx"),
    )
    assert record.equal_bits
    assert not record.faults
    assert [k.trials for k in record.kernels] == [3, 3]
    assert len(lines(history, "measured")) == 6
    assert TuningRecord.from_json(record.to_json()) == record
    assert record.threads == threads
    again = compile_graph(graph, Settings(opt_level=3, threads=threads), tuned=lookup(history))
    assert again.run(FEEDS).keys() == {graph.outputs[0]}


def test_a_kept_program_is_one_with_the_schedules_that_hold_now(
    graph: Graph, history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = ProgramCache(tmp_path / "programs")
    compile_graph(graph, SETTINGS, cache=cache)
    tuned(graph, history, monkeypatch)
    first = compile_graph(graph, SETTINGS, cache=cache, tuned=lookup(history))
    assert first.specialized.cached_notes is None, "the program without them is another one"
    assert "unrolled by 8" in str(first.plan)

    def never(*arguments: object, **named: object) -> object:
        raise AssertionError("it was compiled again")

    monkeypatch.setattr(specialize, "lower", never)
    again = compile_graph(graph, SETTINGS, cache=cache, tuned=lookup(history))
    assert again.plan == first.plan
    assert "tuned exactly" in again.plan.tuning
    assert "unrolled by 8" not in str(compile_graph(graph, SETTINGS, cache=cache).plan)


def test_the_search_for_faults_takes_no_measured_schedules(
    graph: Graph, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned(graph, history, monkeypatch)
    settings = dataclasses.replace(SETTINGS, stop_after=0)
    assert "unrolled by 8" not in str(compile_graph(graph, settings, tuned=lookup(history)).plan)


def test_what_cannot_be_is_told_of_before_the_work(graph: Graph, tmp_path: Path) -> None:
    foreign = next(t for t in ("aarch64", "avx512", "avx2") if not Target.named(t).runs_here())
    with pytest.raises(UnsupportedError, match="does not run the target"):
        tuner.tune(graph, Settings(target=foreign), FEEDS, History(tmp_path / "h"))
    (tmp_path / "net.onnx").write_bytes(b"a network")
    with pytest.raises(UsageError, match="tuning history"):
        tuner.tune(graph, SETTINGS, FEEDS, History(tmp_path / "net.onnx"))
    with pytest.raises(InputError):
        tuner.tune(graph, SETTINGS, {}, History(tmp_path / "h"))


def test_the_interface(graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history = tmp_path / "mine.jsonl"
    with pytest.raises(UsageError, match="no place for a history"):
        verax.tune(graph)
    with pytest.raises(UsageError, match="budget"):
        verax.tune(graph, time_budget=0, history=history)
    with pytest.raises(UsageError, match="trials"):
        verax.tune(graph, trials=0, history=history)
    with pytest.raises(UsageError, match="no such tuning history"):
        verax.compile(graph, tuned=history)
    shown: list[str] = []
    record = verax.tune(
        graph, time_budget=3.0, trials=1, threads=1, opt_level=1, history=history,
        progress=lambda what, share: shown.append(f"{share:.2f} {what}"),
    )  # fmt: skip
    assert record.opt_level == 1
    assert shown[0].startswith("0.00")
    assert shown[-1] == "1.00 done"
    exe = verax.compile(graph, threads=1, opt_level=1, tuned=history)
    assert "kernels tuned exactly here" in exe.plan.tuning
    assert verax.compile(graph, threads=1, opt_level=1, tuned=False).plan.tuning == ""
    monkeypatch.setenv("VERAX_CACHE", str(tmp_path / "programs"))
    assert verax.compile(graph, threads=1, opt_level=1, cache=False).plan.tuning == ""
    record = verax.tune(graph, time_budget=3.0, trials=1, threads=1, opt_level=1)
    assert record.history == str(tmp_path / "programs" / "tuning.jsonl")


def test_weights_are_read_from_as_far_as_in_the_network(graph: Graph) -> None:
    exe = compile_graph(graph, SETTINGS)
    call = next(s for s in exe.specialized.lowered.steps if "20" in str(getattr(s, "spec", "")))
    workload = Workload.of(call, 10**7)  # type: ignore[arg-type]
    host = dataclasses.replace(Host.here(Target.host(), 1), caches=(1 << 15, 1 << 20))
    stand = KernelBench(workload, Target.host(), host)
    copies = copies_of(stand)
    assert copies * 36 * 32 * 4 >= 1 << 20
    assert len(stand.result(workload.schedule)) >= 2 * 20 * 12 * 11 * 4
    warm = KernelBench(dataclasses.replace(workload, cold=False), Target.host(), host)
    assert copies_of(warm) == 1
    assert warm.result(workload.schedule) == stand.result(workload.schedule)
    for one in (stand, warm):
        one.turn(workload.schedule)
        one.close()


def copies_of(stand: KernelBench) -> int:
    pools: Sequence[Any] = list(stand._pools(stand.workload.schedule).values())
    return min(pool.count for pool in pools)


def test_a_resumed_run_measures_nothing_again(
    graph: Graph, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Fake] = []

    def bench(*arguments: object) -> Fake:
        made.append(fake())
        if len(made) == 2:
            raise KeyboardInterrupt
        return made[-1]

    with pytest.raises(KeyboardInterrupt):
        tuned(graph, history, monkeypatch, bench=bench)
    before = lines(history, "measured")
    record = tuned(graph, history, monkeypatch, bench=bench, resume=True)
    after = lines(history, "measured")
    assert after[: len(before)] == before
    keys = [(m["kernel"], json.dumps(m["schedule"])) for m in after]
    assert len(set(keys)) == len(keys) > len(before)
    (note,) = record.notes
    assert 0 < int(note.split()[1]) <= len(before), "another kernel may come first this time"
    assert "not measured again" in note
    assert [k.outcome for k in record.kernels] == [TUNED, TUNED]


def test_times_of_another_device_are_not_taken_by_a_resumed_run(
    graph: Graph, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned(graph, history, monkeypatch, device="a")
    once = len(lines(history, "measured"))
    record = tuned(graph, history, monkeypatch, device="b", resume=True)
    assert not any("in the history" in note for note in record.notes)
    devices = [m["device"] for m in lines(history, "measured")]
    assert devices[:once] == ["a"] * once
    assert set(devices[once:]) == {"b"} and len(devices) > 1.5 * once


def test_a_model_is_fitted_while_a_network_is_tuned(
    graph: Graph, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From an empty history: as soon as this run has measured enough."""
    fitted: list[int] = []

    class Likes:
        engine = "a stand-in"

        def __init__(self, count: int) -> None:
            self.count = count

        def rank(self, spec: Any, target: Any, several: Sequence[Any]) -> Sequence[Any]:
            return several

        def proposals(self, spec: Any, target: Any) -> list[Any]:
            return []

    def model(path: Path, host: Host) -> Likes | None:
        fitted.append(len(lines(history, "measured")) if history.path.exists() else 0)
        return Likes(fitted[-1]) if fitted[-1] > 5 else None

    monkeypatch.setattr(tuner, "cost_model", model)
    monkeypatch.setattr(tuner, "LEAST_EXAMPLES", 5)
    record = tuned(graph, history, monkeypatch, learns=True)
    assert fitted[0] == 0
    assert len(fitted) == 2
    assert fitted[1] == record.kernels[0].trials > 5
    assert any(f"from {fitted[1]} measured ones" in note for note in record.notes)
