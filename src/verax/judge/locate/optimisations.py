"""Which optimisation brings a mistake: a search over the steps that a subject can stop at.

A step is the subject with some of its optimisations: our compiler after N rewrites, a runtime at
one of its levels. Steps stand in order, the plain subject first. Halving finds the first wrong one
in about log2(n) runs; outputs of equal bits are judged once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from verax.base.errors import VeraxError
from verax.ir.graph import same_bits
from verax.records.bisection import Optimisations, Tried
from verax.records.verdict import Kind

Arrays = Mapping[str, np.ndarray]


def guilty_optimisation(
    names: Sequence[str],
    run: Callable[[int], Arrays],
    kind: Callable[[Arrays], Kind],
    progress: Callable[[int, int, str], None] | None = None,
) -> Optimisations:
    """The first of the steps in `names` whose outputs are a mistake.

    run: outputs of the step with that number; kind: the verdict on outputs. When the last step is
    no mistake, the first step that changes any bit is named instead, without blame. A step that
    the subject refuses (`VeraxError`) counts as the one before it.
    """
    return _Search(names, run, kind, progress).answer()


class _Search:
    def __init__(
        self,
        names: Sequence[str],
        run: Callable[[int], Arrays],
        kind: Callable[[Arrays], Kind],
        progress: Callable[[int, int, str], None] | None,
    ) -> None:
        self.names, self.run, self.kind_of, self.progress = names, run, kind, progress
        self.outputs: dict[int, Arrays] = {}
        self.kinds: dict[int, Kind] = {}

    def answer(self) -> Optimisations:
        last = len(self.names) - 1
        if self.kind(0) is Kind.mistake:
            plain = self.names[0]
            return self._told(f"it is wrong already at {plain!r}: no optimisation is guilty", "")
        if self.kind(last) is Kind.mistake:
            guilty = self.names[self._first(lambda i: self.kind(i) is Kind.mistake)]
            return self._told(f"the mistake appears with {guilty!r}", guilty)
        if not self._changed(last):
            return self._told(
                "no optimisation is guilty: the result is the same, bit for bit, with all of them "
                "as with none",
                "",
            )
        first = self.names[self._first(self._changed)]
        return self._told(
            f"no optimisation is guilty: the result changes first with {first!r}, within rounding",
            "",
        )

    def _first(self, wrong: Callable[[int], bool]) -> int:
        """A step that is wrong while the one before it is not; step 0 is right, the last wrong."""
        low, high = 0, len(self.names) - 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if wrong(middle) else (middle, high)
        return high

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
        """The verdict on a step; equal bits have equal verdicts."""
        if step not in self.kinds:
            found = self.at(step)
            twins = [k for other, k in self.kinds.items() if _same(self.outputs[other], found)]
            self.kinds[step] = twins[0] if twins else self.kind_of(found)
        return self.kinds[step]

    def _changed(self, step: int) -> bool:
        return not _same(self.at(0), self.at(step))

    def _told(self, words: str, guilty: str) -> Optimisations:
        tried = tuple(
            Tried(self.names[i], self.kind(i), not self._changed(i)) for i in sorted(self.outputs)
        )
        return Optimisations(words, guilty, len(self.names), tried)


def _same(a: Arrays, b: Arrays) -> bool:
    return a.keys() == b.keys() and all(same_bits(a[k], b[k]) for k in a)
