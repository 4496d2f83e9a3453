"""Which optimisation brings a mistake: a search over the steps that a subject can stop at.

A step is the subject with some of its optimisations: our compiler after N rewrites, a runtime at
one of its levels. Steps stand in order, the plain subject first. Halving finds the first wrong one
in about log2(n) runs; outputs of equal bits are judged once. Where single steps can be left out,
the guilty one is tried alone; if it is right then, delta debugging finds those that it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from verax.base.errors import VeraxError
from verax.ir.graph import same_bits
from verax.judge.locate.together import fewest
from verax.records.bisection import Optimisations, Step, Tried
from verax.records.verdict import Kind

Arrays = Mapping[str, np.ndarray]
Progress = Callable[[int, int, str], None]
LISTED = 3
"""Steps that a sentence names."""


@dataclass(frozen=True)
class Chosen:
    """A subject that can leave out single steps.

    run: its outputs with the steps of these indices only; done: the names of the steps that it does
    then, some may need others; told: what a step did.
    """

    run: Callable[[tuple[int, ...]], Arrays]
    done: Callable[[tuple[int, ...]], Sequence[str]]
    told: Callable[[int], Step]


def guilty_optimisation(
    names: Sequence[str],
    run: Callable[[int], Arrays],
    kind: Callable[[Arrays], Kind],
    progress: Progress | None = None,
    chosen: Chosen | None = None,
    words: Callable[[Arrays], str] | None = None,
) -> Optimisations:
    """The first of the steps in `names` whose outputs are a mistake.

    run: outputs of the step with that number; kind: the verdict on outputs. When the last step is
    no mistake, the first step that changes any bit is named instead, without blame. A step that
    the subject refuses (`VeraxError`) counts as the one before it. chosen: for the steps that the
    guilty one needs, None where none can be left out. words: of outputs, what the record shows
    besides the verdict.
    """
    return _Search(names, run, kind, progress, chosen, words or (lambda outputs: "")).answer()


class _Search:
    def __init__(
        self,
        names: Sequence[str],
        run: Callable[[int], Arrays],
        kind: Callable[[Arrays], Kind],
        progress: Progress | None,
        chosen: Chosen | None,
        words: Callable[[Arrays], str],
    ) -> None:
        self.names, self.run, self.kind_of, self.progress = names, run, kind, progress
        self.chosen, self.words = chosen, words
        self.outputs: dict[int, Arrays] = {}
        self.kinds: dict[int, Kind] = {}
        self.judged: list[tuple[Arrays, Kind]] = []
        self.subsets = 0

    def answer(self) -> Optimisations:
        last = len(self.names) - 1
        if self.kind(0) is Kind.mistake:
            plain = self.names[0]
            if self.kind(last) not in (Kind.mistake, Kind.undecided):
                mends = self.names[self._first(lambda i: self.kind(i) is not Kind.mistake)]
                return self._told(
                    f"no optimisation is guilty: it is wrong at {plain!r}, and right from "
                    f"{mends!r} on"
                )
            return self._told(
                f"it is wrong already at {plain!r}: no optimisation behind that is guilty"
            )
        if self.kind(last) is Kind.mistake:
            return self._blamed(self._first(lambda i: self.kind(i) is Kind.mistake))
        if not self._changed(last):
            return self._told(
                "no optimisation is guilty: the result is the same, bit for bit, with all of them "
                "as with none"
            )
        first = self._first(self._changed)
        words = f"the result changes first with {self.names[first]!r}, within rounding"
        if self.chosen is not None and self.chosen.told(first).exact:
            return self._told(f"{words}; but that promises to change no bit", first)
        return self._told(f"no optimisation is guilty: {words}")

    def _first(self, wrong: Callable[[int], bool]) -> int:
        """A step that is `wrong` while the one before it is not; step 0 is not, the last is."""
        low, high = 0, len(self.names) - 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if wrong(middle) else (middle, high)
        return high

    def _blamed(self, guilty: int) -> Optimisations:
        """The answer when this step is the first that is wrong."""
        name = self.names[guilty]
        words = f"the mistake appears with {name!r}"
        if self.chosen is None:
            return self._told(words, guilty)
        partners = self._partners(guilty)
        if partners is None:
            return self._told(f"{words}; which earlier steps it needs cannot be told", guilty)
        if not partners:
            return self._told(words, guilty)
        listed = ", ".join(repr(self.names[p]) for p in partners[:LISTED])
        if len(partners) > LISTED:
            listed += f" and {len(partners) - LISTED} more"
        if self._is_possible_without(guilty, partners):
            words = f"{words} together with {listed}: without one of them it is right"
        else:
            words = f"{words}, which is possible behind {listed} only"
        return self._told(words, guilty, partners)

    def _partners(self, guilty: int) -> tuple[int, ...] | None:
        """The fewest earlier steps with which the guilty one is wrong; None when that cannot be
        told, as those before it and itself, chosen one by one, are not wrong."""
        earlier = tuple(range(1, guilty))

        def wrong(some: tuple[int, ...]) -> bool:
            return self._subset((*some, guilty)) is Kind.mistake

        if wrong(()):
            return ()
        return fewest(earlier, wrong) if earlier and wrong(earlier) else None

    def _subset(self, some: tuple[int, ...]) -> Kind:
        assert self.chosen is not None
        self.subsets += 1
        if self.progress is not None:
            self.progress(self.subsets, self.subsets + 8, f"{len(some)} steps alone")
        try:
            return self._judged(self.chosen.run(some))
        except VeraxError:
            return Kind.undecided

    def _is_possible_without(self, guilty: int, partners: tuple[int, ...]) -> bool:
        """Whether the guilty step is done, and right, without any one of its partners."""
        assert self.chosen is not None
        for left_out in partners:
            some = (*(p for p in partners if p != left_out), guilty)
            try:
                if self.names[guilty] not in self.chosen.done(some):
                    return False
            except VeraxError:
                return False
        return True

    def _is_cured_without(self, part: str) -> bool:
        """Whether the last step is right when none of this part is done before it."""
        own = f"{part}: ", f"{part} ("
        others = (i for i, n in enumerate(self.names) if i and n != part and not n.startswith(own))
        return self._subset(tuple(others)) not in (Kind.mistake, Kind.undecided)

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
        known = next((k for other, k in self.judged if _same(other, outputs)), None)
        if known is None:
            known = self.kind_of(outputs)
            self.judged.append((outputs, known))
        return known

    def _changed(self, step: int) -> bool:
        return not _same(self.at(0), self.at(step))

    def _told(
        self, words: str, guilty: int | None = None, partners: tuple[int, ...] = ()
    ) -> Optimisations:
        tried = tuple(
            Tried(self.names[i], self.kind(i), not self._changed(i), self.words(self.outputs[i]))
            for i in sorted(self.outputs)
        )
        steps: tuple[Step, ...] = ()
        cured = None
        if guilty is not None and self.chosen is not None:
            steps = tuple(self.chosen.told(i) for i in (guilty, *partners))
            wrong = self.kind(guilty) is Kind.mistake
            cured = self._is_cured_without(steps[0].part) if wrong else None
            if cured:
                words += f"; without {steps[0].part!r} it is right"
        return Optimisations(
            words,
            "" if guilty is None else self.names[guilty],
            len(self.names),
            tried,
            tuple(self.names[p] for p in partners),
            steps,
            cured,
            len(self.outputs) + self.subsets,
        )


def _same(a: Arrays, b: Arrays) -> bool:
    return a.keys() == b.keys() and all(same_bits(a[k], b[k]) for k in a)
