"""Searches the steps of a subject's optimization for the first that is wrong.

This connects a subject, which can stop at steps or leave some out (`judge.protocol`), with the
search (`optimization_search`), which knows only indices and outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from verax.ir.graph import Graph
from verax.judge.locate.optimization_search import Progress, StepSelection, faulty_optimization
from verax.judge.protocol import Optimizing, Runner, Selective
from verax.records.bisection import Optimizations, Step
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
) -> Optimizations | None:
    """The optimization with which `kind` calls the subject's outputs a mistake; None for a subject
    that has no steps.

    run: values of a subject to judge, by default its outputs for `inputs`. words: as of
    `faulty_optimization`.
    """
    if not isinstance(subject, Optimizing):
        return None
    steps: Sequence[tuple[str, Runner]] = subject.optimizations(graph, inputs)
    if len(steps) < 2:
        return None
    names = [name for name, _ in steps]

    def outputs(runner: Runner) -> Arrays:
        results = runner.run(graph, inputs)
        return {v: np.asarray(results[v]) for v in graph.outputs if v in results}

    outputs_of = run or outputs
    selection = (
        _selection_of(graph, subject, inputs, names, outputs_of) if _is_selective(subject) else None
    )
    return faulty_optimization(
        names, lambda i: outputs_of(steps[i][1]), kind, progress, selection, words
    )


def _is_selective(subject: Runner) -> bool:
    return isinstance(subject, Selective)


def _selection_of(
    graph: Graph,
    subject: Runner,
    inputs: Arrays,
    names: Sequence[str],
    outputs_of: Callable[[Runner], Arrays],
) -> StepSelection:
    assert isinstance(subject, Selective)
    cached: dict[tuple[int, ...], Selective] = {}

    def with_only(indices: tuple[int, ...]) -> Selective:
        if indices not in cached:
            cached.clear()  # each holds a compiled program
            cached[indices] = subject.with_steps([names[i] for i in indices])
        return cached[indices]

    def done(indices: tuple[int, ...]) -> Sequence[str]:
        return [name for name, _ in with_only(indices).optimizations(graph, inputs)]

    def step(index: int) -> Step:
        return subject.step(graph, inputs, index)

    def run(indices: tuple[int, ...]) -> Arrays:
        variant = with_only(indices)
        assert isinstance(variant, Runner)
        return outputs_of(variant)

    return StepSelection(run, done, step)
