"""State that is dropped, stale or not written: the judge must see it, and name it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

import verax
from verax.ir.graph import Graph
from verax.ir.text import parse_graph
from verax.judge import check
from verax.records.verdict import Kind, Verdict
from verax.runners.own import ReferenceRunner

TEXT = """graph "average and count"
input %x: float32[5, 3]
state %count: float32[] = [2.0]
state %mean: float32[3] = [0.5, -1.0, 2.0]
const %one: float32[] = [1.0]
const %share: float32[] = [0.25]
const %axis: int64[1] = [0]
%count.next: float32[] = Add()(%count, %one) @ "count"
%batch: float32[3] = ReduceMean(keepdims=False)(%x, %axis) @ "batch"
%apart: float32[3] = Sub()(%batch, %mean) @ "apart"
%moved: float32[3] = Mul()(%apart, %share) @ "moved"
%mean.next: float32[3] = Add()(%mean, %moved) @ "average"
%centred: float32[5, 3] = Sub()(%x, %mean.next) @ "centre"
%y: float32[5, 3] = Mul()(%centred, %count.next) @ "scale"
output %y
output %count.next -> %count
output %mean.next -> %mean
"""
Arrays = Mapping[str, np.ndarray]


def network() -> Graph:
    return parse_graph(TEXT)


def inputs(count: int) -> list[dict[str, np.ndarray]]:
    random = np.random.default_rng(51)
    return [{"x": random.standard_normal((5, 3)).astype(np.float32)} for _ in range(count)]


class Losing(ReferenceRunner):
    """Honest float32, but for what a run begins with: `lost(history of states, run)`.

    shows: whether new state is shown, and as what.
    """

    def __init__(
        self,
        lost: Callable[[Sequence[Arrays], int], Arrays],
        shows: str = "all",
        watches: bool = True,
    ) -> None:
        super().__init__()
        self.name, self.lost, self.shows = "losing", lost, shows
        self.capabilities = dataclasses.replace(ReferenceRunner.capabilities, watches=watches)

    def run_steps(
        self,
        graph: Graph,
        steps: Sequence[Arrays],
        state: Arrays,
        keep: Sequence[str] | None = None,
        *,
        fill: int | None = None,
    ) -> list[dict[str, np.ndarray]]:
        history, found = [dict(state)], []
        for run, arrays in enumerate(steps):
            begin = {**history[-1], **self.lost(history, run)}
            values = self.run(graph, {**arrays, **begin}, keep)
            history.append({v: values[new] for v, new in graph.state.items()})
            if self.shows == "none":
                values = {v: a for v, a in values.items() if v not in graph.state.values()}
            elif self.shows == "old":
                values |= {new: begin[v] for v, new in graph.state.items()}
            found.append(values)
        return found


def dropped(history: Sequence[Arrays], run: int) -> Arrays:
    return history[0]


def mean_dropped(history: Sequence[Arrays], run: int) -> Arrays:
    return {"mean": history[0]["mean"]}


def stale(history: Sequence[Arrays], run: int) -> Arrays:
    return history[max(0, run - 1)]


def honest(history: Sequence[Arrays], run: int) -> Arrays:
    return {}


def accused(verdict: Verdict, hypothesis: str, words: str) -> None:
    assert verdict.kind is Kind.mistake
    assert [c.hypothesis for c in verdict.causes] == [hypothesis]
    assert words in verdict.causes[0].words
    assert words in verdict.reasons[0]


@pytest.mark.parametrize("watch", [True, False])
@pytest.mark.parametrize("shows", ["all", "none", "old"])
def test_dropped_state_is_named(shows: str, watch: bool) -> None:
    """Also by a subject that shows no state, and by one whose shown state never moves."""
    subject = Losing(dropped, shows, watches=watch)
    verdict = check(network(), subject, inputs(2), twice=False)
    accused(verdict, "state dropped", "'count', 'mean' was dropped")


def test_drawn_inputs_show_it_too_and_two_runs_are_judged_unasked() -> None:
    verdict = check(network(), Losing(dropped), twice=False)
    accused(verdict, "state dropped", "was dropped")
    assert [i.name for i in verdict.inputs] == ["x", "count", "mean", "x@2"]
    assert "y@2" in [o.value for o in verdict.outputs]


def test_the_one_value_of_the_state_that_is_dropped_is_named() -> None:
    verdict = check(network(), Losing(mean_dropped), inputs(2), twice=False)
    accused(verdict, "state dropped", "the new state 'mean' was dropped")


def test_stale_state_is_named() -> None:
    verdict = check(network(), Losing(stale), inputs(4), twice=False)
    accused(verdict, "stale state", "was stale")


def test_one_run_alone_shows_nothing() -> None:
    """Why two runs are judged at least."""
    verdict = check(network(), Losing(dropped), inputs(1), twice=False)
    assert verdict.kind in (Kind.identical, Kind.rounding)


@pytest.mark.parametrize("shows", ["all", "none"])
def test_honest_state_is_not_accused(shows: str) -> None:
    verdict = check(network(), Losing(honest, shows), inputs(4))
    assert verdict.kind in (Kind.identical, Kind.rounding)
    assert verdict.causes == ()


def test_a_mistake_inside_the_second_run_is_that_of_its_node() -> None:
    class Wrong(Losing):
        """One node is wrong, in every run; the state is handed on."""

        def run(
            self, graph: Graph, inputs: Arrays, keep: Sequence[str] | None = None
        ) -> dict[str, np.ndarray]:
            values = super().run(graph, inputs, keep)
            return {**values, "y": values["y"] * np.float32(1.01)} if "y" in values else values

    verdict = check(network(), Wrong(honest), inputs(2), twice=False)
    assert verdict.kind is Kind.mistake
    assert [b.node for b in verdict.blame] == ["scale", "scale@2"]


def counting(start: float) -> Callable[[np.ndarray], np.ndarray]:
    """A Python function that keeps its state to itself."""
    memory = {v: np.array(a) for v, a in network().initial.items()}
    memory["count"] = np.float32(start)

    def call(x: np.ndarray) -> np.ndarray:
        memory["count"] = np.float32(memory["count"] + 1)
        moved = (x.mean(0, dtype=np.float32) - memory["mean"]) * np.float32(0.25)
        memory["mean"] = (memory["mean"] + moved).astype(np.float32)
        return ((x - memory["mean"]) * memory["count"]).astype(np.float32)

    return call


def test_a_function_that_keeps_its_own_state_is_judged_by_its_answers() -> None:
    verdict = verax.check(network(), counting(2.0), inputs(3))
    assert verdict.kind is Kind.rounding
    assert {o.value for o in verdict.outputs} == {"y", "y@2", "y@3"}
    assert verax.check(network(), counting(2.5), inputs(3)).kind is Kind.mistake


def test_a_function_without_state_is_a_mistake() -> None:
    def forgetful(x: np.ndarray) -> np.ndarray:
        return counting(2.0)(x)

    verdict = verax.check(network(), forgetful, inputs(2))
    accused(verdict, "state dropped", "was dropped")


@pytest.mark.parametrize("subject", ["verax:O0", "verax:O1", "reference", "reference:promised"])
def test_our_own_subjects_hand_their_state_on(subject: str) -> None:
    verdict = verax.check(network(), subject, inputs(3))
    assert verdict.kind in (Kind.identical, Kind.rounding), verdict.reasons
    assert {o.value for o in verdict.outputs} == {
        f"{v}{run}" for v in ("y", "count.next", "mean.next") for run in ("", "@2", "@3")
    }


def test_an_executable_keeps_its_own_state_while_it_is_judged() -> None:
    exe = verax.compile(network(), threads=1)
    exe(inputs(1)[0]["x"])
    before = exe.state
    assert verax.check(network(), exe, inputs(2)).kind in (Kind.identical, Kind.rounding)
    assert {v: a.tobytes() for v, a in exe.state.items()} == {
        v: a.tobytes() for v, a in before.items()
    }


def test_an_executable_that_drops_its_state_is_named() -> None:
    exe = verax.compile(network(), threads=1)
    exe._run_in_place = lambda given, state: None  # type: ignore[method-assign]
    exe._stepped = lambda given, state: type(exe)._stepped(exe, given, exe._initial)  # type: ignore[method-assign]
    accused(verax.check(network(), exe, inputs(2)), "state dropped", "was dropped")


def test_recorded_answers_of_one_run_may_bring_their_state() -> None:
    (one,) = inputs(1)
    begin = {"count": np.array(7, np.float32), "mean": np.array([1, 2, 3], np.float32)}
    exe = verax.compile(network(), threads=1)
    outputs, state = exe.step(one, begin)
    recorded = {"in:x": one["x"], **{f"in:{v}": a for v, a in begin.items()}, **outputs}
    recorded |= {f"{v}.next": a for v, a in state.items()}
    verdict = verax.check(network(), recorded)
    assert verdict.kind in (Kind.identical, Kind.rounding)
    assert len(verdict.outputs) == 3
    wrong = {**recorded, "count.next": np.array(7, np.float32)}
    assert verax.check(network(), wrong).kind is Kind.mistake


def test_bisect_locates_a_mistake_inside_a_network_that_remembers() -> None:
    class Wrong(ReferenceRunner):
        """Runs parts, hides what is inside, and is wrong in one node."""

        capabilities = dataclasses.replace(ReferenceRunner.capabilities, watches=False)

        def run(
            self, graph: Graph, inputs: Arrays, keep: Sequence[str] | None = None
        ) -> dict[str, np.ndarray]:
            wrong = {v: a * 2 if v == "share" else a for v, a in graph.constants.items()}
            return super().run(dataclasses.replace(graph, constants=wrong), inputs, keep)

    found = verax.bisect(network(), Wrong(), inputs(2)[0])
    assert found.verdict.kind is Kind.mistake
    assert "moved" in {b.node for b in found.verdict.blame}
