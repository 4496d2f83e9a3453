"""The steps of a subject's optimisation, searched for the first that is wrong.

This joins a subject, which can stop at steps or leave some out (`judge.protocol`), with the search
(`optimisations`), which knows of numbers and outputs only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from verax.ir.graph import Graph
from verax.judge.locate.optimisations import Chosen, Progress, guilty_optimisation
from verax.judge.protocol import Optimising, Runner, Selective
from verax.records.bisection import Optimisations, Step
from verax.records.verdict import Kind

Arrays = Mapping[str, np.ndarray]


def search_steps(
    graph: Graph,
    subject: Runner,
    inputs: Arrays,
    kind: Callable[[Arrays], Kind],
    progress: Progress | None = None,
    run: Callable[[Runner], Arrays] | None = None,
    words: Callable[[Arrays], str] | None = None,
) -> Optimisations | None:
    """The optimisation with which `kind` calls what the subject gives a mistake; None for a subject
    that has no steps.

    run: what a subject gives, by default its outputs for `inputs`. words: as of
    `guilty_optimisation`.
    """
    if not isinstance(subject, Optimising):
        return None
    steps: Sequence[tuple[str, Runner]] = subject.optimisations(graph, inputs)
    if len(steps) < 2:
        return None
    names = [name for name, _ in steps]

    def outputs(runner: Runner) -> Arrays:
        shown = runner.run(graph, inputs)
        return {v: np.asarray(shown[v]) for v in graph.outputs if v in shown}

    given = run or outputs
    chosen = _chosen(graph, subject, inputs, names, given) if _is_selective(subject) else None
    return guilty_optimisation(names, lambda i: given(steps[i][1]), kind, progress, chosen, words)


def _is_selective(subject: Runner) -> bool:
    return isinstance(subject, Selective)


def _chosen(
    graph: Graph,
    subject: Runner,
    inputs: Arrays,
    names: Sequence[str],
    given: Callable[[Runner], Arrays],
) -> Chosen:
    assert isinstance(subject, Selective)
    known: dict[tuple[int, ...], Selective] = {}

    def some(indices: tuple[int, ...]) -> Selective:
        if indices not in known:
            known.clear()  # each holds a compiled program
            known[indices] = subject.with_steps([names[i] for i in indices])
        return known[indices]

    def done(indices: tuple[int, ...]) -> Sequence[str]:
        return [name for name, _ in some(indices).optimisations(graph, inputs)]

    def told(number: int) -> Step:
        return subject.step(graph, inputs, number)

    def run(indices: tuple[int, ...]) -> Arrays:
        found = some(indices)
        assert isinstance(found, Runner)
        return given(found)

    return Chosen(run, done, told)
