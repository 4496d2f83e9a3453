"""How well a coarser arithmetic fits a region's numbers, and what that makes of a finding."""

from __future__ import annotations

from dataclasses import dataclass, replace

from verax.numerics import statistics as st
from verax.records.verdict import Finding, Kind, Precision


@dataclass(frozen=True)
class ArithmeticMatch:
    """The program that fits best; statistic: at most 1 when what was given is one of its runs;
    left: part of the error that it leaves, limit: how much it may leave where so many programs were
    tried on so few numbers; unit: the unit roundoff that the errors have; by_size: the errors are
    no larger than the program's, and too few numbers are shown to tell its runs from others;
    is_stored: what is shown has the bits of the format wherever the program stores it.
    size_counts: whether errors of the program's size alone leave a verdict undecided. Not so where
    nothing that is shown has the bits of the format that the program stores in: then only its
    numbers speak for it."""

    name: str
    statistic: float
    left: float
    unit: float
    limit: float = st.CONFIRMED
    words: str = ""
    by_size: bool = False
    is_stored: bool = True
    size_counts: bool = True

    @property
    def confirmed(self) -> bool:
        """Whether recomputing in that arithmetic gave the subject's numbers."""
        fits = self.statistic <= st.ROUNDING_T or self.left <= st.EXPLAINED_BEST
        return fits and self.left <= self.limit and self.is_stored

    @property
    def explains_most(self) -> bool:
        """Whether so little of the error is left that it is no other arithmetic's by chance."""
        return self.left <= min(st.PROMISING, self.limit)

    def explain(self, finding: Finding) -> Finding:
        """`finding` changed to `precision` if this match is confirmed, to undecided if only the
        size of the errors fits, or if it explains most of them; else unchanged."""
        is_of_size = self.size_counts and self.statistic <= st.ROUNDING_T
        if not (self.confirmed or self.by_size or is_of_size or self.explains_most):
            return finding
        precision = Precision(finding.value, finding.node, self.name, self.unit, self.confirmed)
        if self.confirmed:
            reason = (
                f"computing these nodes with {self.name}{self.words}, which is coarser than "
                f"float32, gives the same numbers: it explains all but {self.left:.1g} of the "
                "error, and two such runs differ by as much"
            )
            kind, test = Kind.precision, self.name
        elif self.by_size:
            reason = (
                f"the errors are no larger than {self.name} makes them, which is coarser than "
                f"float32; {finding.elements} numbers are too few to show which nodes use it"
            )
            kind, test = Kind.precision, self.name
        elif not is_of_size:
            reason = (
                f"computing these nodes with {self.name}{self.words} explains all but "
                f"{self.left:.1g} of the error, and what is left is more than two such runs differ "
                f"by; {finding.reason}"
            )
            kind, test = Kind.undecided, finding.test
        else:
            reason = (
                f"the errors have the size that {self.name} would give, but computing the nodes so "
                f"does not give the same numbers; {finding.reason}"
            )
            kind, test = Kind.undecided, finding.test
        statistic = self.statistic if kind is Kind.precision else finding.statistic
        return replace(
            finding, kind=kind, reason=reason, test=test, statistic=statistic, precision=precision
        )
