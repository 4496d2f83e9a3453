"""Searches the optimization that causes a mistake, over the steps that a subject can stop at.

A step is the subject with some of its optimizations: our compiler after N rewrites, a runtime at
one of its levels. Steps are in order, the plain subject first. Bisection finds the first wrong one
in about log2(n) runs; outputs of equal bits are judged once. Where single steps can be left out,
the faulty one is tried alone; if it is right then, delta debugging finds those that it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from verax.base.errors import VeraxError
from verax.ir.graph import same_bits
from verax.judge.locate.delta_debugging import minimal_failing_subset
from verax.records.bisection import Optimizations, Step, Tried
from verax.records.verdict import Kind

Arrays = Mapping[str, np.ndarray]
Progress = Callable[[int, int, str], None]
LISTED = 3
"""Steps that a sentence names."""


@dataclass(frozen=True)
class StepSelection:
    """A subject that can leave out single steps.

    run: its outputs with the steps of these indices only; done: the names of the steps that it does
    then, some may need others; step: the record of the step at an index.
    """

    run: Callable[[tuple[int, ...]], Arrays]
    done: Callable[[tuple[int, ...]], Sequence[str]]
    step: Callable[[int], Step]


def faulty_optimization(
    names: Sequence[str],
    run: Callable[[int], Arrays],
    kind: Callable[[Arrays], Kind],
    progress: Progress | None = None,
    selection: StepSelection | None = None,
    words: Callable[[Arrays], str] | None = None,
) -> Optimizations:
    """The first of the steps in `names` whose outputs are a mistake.

    run: outputs of the step with that index; kind: the verdict on outputs. When the last step is
    no mistake, the first step that changes any bit is named instead, without being reported as
    faulty. A step that the subject refuses (`VeraxError`) counts as the one before it. selection:
    for the steps that the faulty one needs, None where none can be left out. words: text on outputs
    for the record, besides the verdict.
    """
    return _StepSearch(
        names, run, kind, progress, selection, words or (lambda outputs: "")
    ).answer()


class _StepSearch:
    def __init__(
        self,
        names: Sequence[str],
        run: Callable[[int], Arrays],
        kind: Callable[[Arrays], Kind],
        progress: Progress | None,
        selection: StepSelection | None,
        words: Callable[[Arrays], str],
    ) -> None:
        self.names, self.run, self.kind_of, self.progress = names, run, kind, progress
        self.selection, self.words = selection, words
        self.outputs: dict[int, Arrays] = {}
        self.kinds: dict[int, Kind] = {}
        self.judged: list[tuple[Arrays, Kind]] = []
        self.subsets = 0

    def answer(self) -> Optimizations:
        last = len(self.names) - 1
        if self.kind(0) is Kind.mistake:
            plain = self.names[0]
            if self.kind(last) not in (Kind.mistake, Kind.undecided):
                mends = self.names[self._first(lambda i: self.kind(i) is not Kind.mistake)]
                return self._record(
                    f"no optimization is guilty: it is wrong at {plain!r}, and right from "
                    f"{mends!r} on"
                )
            return self._record(
                f"it is wrong already at {plain!r}: no optimization behind that is guilty"
            )
        if self.kind(last) is Kind.mistake:
            return self._blamed(self._first(lambda i: self.kind(i) is Kind.mistake))
        if not self._changed(last):
            return self._record(
                "no optimization is guilty: the result is the same, bit for bit, with all of them "
                "as with none"
            )
        first = self._first(self._changed)
        words = f"the result changes first with {self.names[first]!r}, within rounding"
        if self.selection is not None and self.selection.step(first).exact:
            return self._record(f"{words}; but that promises to change no bit", first)
        return self._record(f"no optimization is guilty: {words}")

    def _first(self, wrong: Callable[[int], bool]) -> int:
        """A step that is `wrong` while the one before it is not; step 0 is not, the last is."""
        low, high = 0, len(self.names) - 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if wrong(middle) else (middle, high)
        return high

    def _blamed(self, faulty: int) -> Optimizations:
        """The record when this step is the first that is wrong."""
        name = self.names[faulty]
        words = f"the mistake appears with {name!r}"
        if self.selection is None:
            return self._record(words, faulty)
        partners = self._partners(faulty)
        if partners is None:
            return self._record(f"{words}; which earlier steps it needs cannot be told", faulty)
        if not partners:
            return self._record(words, faulty)
        listed = ", ".join(repr(self.names[p]) for p in partners[:LISTED])
        if len(partners) > LISTED:
            listed += f" and {len(partners) - LISTED} more"
        if self._is_possible_without(faulty, partners):
            words = f"{words} together with {listed}: without one of them it is right"
        else:
            words = f"{words}, which is possible behind {listed} only"
        return self._record(words, faulty, partners)

    def _partners(self, faulty: int) -> tuple[int, ...] | None:
        """The fewest earlier steps with which the faulty one is wrong; None when that cannot be
        determined, as the earlier steps and itself, selected one by one, are not wrong."""
        earlier = tuple(range(1, faulty))

        def wrong(subset: tuple[int, ...]) -> bool:
            return self._subset((*subset, faulty)) is Kind.mistake

        if wrong(()):
            return ()
        return minimal_failing_subset(earlier, wrong) if earlier and wrong(earlier) else None

    def _subset(self, indices: tuple[int, ...]) -> Kind:
        assert self.selection is not None
        self.subsets += 1
        if self.progress is not None:
            self.progress(self.subsets, self.subsets + 8, f"{len(indices)} steps alone")
        try:
            return self._judged(self.selection.run(indices))
        except VeraxError:
            return Kind.undecided

    def _is_possible_without(self, faulty: int, partners: tuple[int, ...]) -> bool:
        """True if the faulty step is done, and right, without any one of its partners."""
        assert self.selection is not None
        for left_out in partners:
            indices = (*(p for p in partners if p != left_out), faulty)
            try:
                if self.names[faulty] not in self.selection.done(indices):
                    return False
            except VeraxError:
                return False
        return True

    def _is_cured_without(self, pass_name: str) -> bool:
        """True if the last step is right when no step of this pass is done before it."""
        own = f"{pass_name}: ", f"{pass_name} ("
        remaining = (
            i for i, n in enumerate(self.names) if i and n != pass_name and not n.startswith(own)
        )
        return self._subset(tuple(remaining)) not in (Kind.mistake, Kind.undecided)

    def at(self, step: int) -> Arrays:
        """Outputs of a step."""
        if step not in self.outputs:
            if self.progress is not None:
                self.progress(len(self.outputs), len(self.names), self.names[step])
            try:
                self.outputs[step] = self.run(step)
            except VeraxError:
                if step == 0:
                    raise
                self.outputs[step] = self.at(step - 1)
        return self.outputs[step]

    def kind(self, step: int) -> Kind:
        """The verdict on a step."""
        if step not in self.kinds:
            self.kinds[step] = self._judged(self.at(step))
        return self.kinds[step]

    def _judged(self, outputs: Arrays) -> Kind:
        """The verdict on outputs; equal bits have equal verdicts."""
        kind = next((k for earlier, k in self.judged if _same(earlier, outputs)), None)
        if kind is None:
            kind = self.kind_of(outputs)
            self.judged.append((outputs, kind))
        return kind

    def _changed(self, step: int) -> bool:
        return not _same(self.at(0), self.at(step))

    def _record(
        self, words: str, faulty: int | None = None, partners: tuple[int, ...] = ()
    ) -> Optimizations:
        entries = tuple(
            Tried(self.names[i], self.kind(i), not self._changed(i), self.words(self.outputs[i]))
            for i in sorted(self.outputs)
        )
        steps: tuple[Step, ...] = ()
        cured = None
        if faulty is not None and self.selection is not None:
            steps = tuple(self.selection.step(i) for i in (faulty, *partners))
            wrong = self.kind(faulty) is Kind.mistake
            cured = self._is_cured_without(steps[0].part) if wrong else None
            if cured:
                words += f"; without {steps[0].part!r} it is right"
        return Optimizations(
            words,
            "" if faulty is None else self.names[faulty],
            len(self.names),
            entries,
            tuple(self.names[p] for p in partners),
            steps,
            cured,
            len(self.outputs) + self.subsets,
        )


def _same(a: Arrays, b: Arrays) -> bool:
    return a.keys() == b.keys() and all(same_bits(a[k], b[k]) for k in a)
