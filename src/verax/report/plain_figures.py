"""The figures that people quote, and a sentence where they mislead.

Fixed tolerances, relative errors and cosines do not know how much rounding a network makes. Where
they would have answered otherwise than the verdict, a reader who trusts them deserves to be told.
"""

from __future__ import annotations

from collections.abc import Iterator

from verax.records.verdict import Finding, Kind

HONEST = (Kind.identical, Kind.rounding)
FULL_COSINE = "0.9999"
"""A cosine that is printed with these digits looks perfect."""


def figures_line(f: Finding) -> str:
    """All plain figures of one output."""
    plain = f.plain
    tests = ", ".join(f"{k}: {'passes' if v else 'fails'}" for k, v in plain.allclose.items())
    return (
        f"{f.value}: {plain.differing:,} of {f.elements:,} elements are not the meaning rounded "
        f"once; largest difference {plain.max_abs:.3g}, relative {plain.max_rel:.3g}, cosine "
        f"{plain.cosine:.9f}, PSNR {plain.psnr:.1f} dB; allclose with {tests}"
    )


def misleading(f: Finding) -> Iterator[str]:
    """Sentences on where the usual figures of one output would have answered otherwise."""
    failed = [name for name, passes in f.plain.allclose.items() if not passes]
    passed = [name for name, passes in f.plain.allclose.items() if passes]
    if f.kind in HONEST:
        if f.plain.beyond:
            yield _cancelled(f)
        if failed:
            yield (
                f"{f.value}: allclose with {failed[0]} would call this wrong; a fixed tolerance "
                "does not know how much rounding this network makes"
            )
    if f.kind is Kind.mistake:
        if passed:
            yield (
                f"{f.value}: allclose with {passed[0]} would let this pass; the error is small "
                "beside the tolerance and still far beyond rounding"
            )
        if f"{f.plain.cosine:.9f}".startswith(FULL_COSINE):
            yield (
                f"{f.value}: a cosine of {f.plain.cosine:.7f} looks perfect; it is an average that "
                "a few wrong elements, or a small error everywhere, hardly move"
            )


def _cancelled(f: Finding) -> str:
    """Why relative differences are large where nothing is wrong."""
    plain = f.plain
    share = (
        f"{f.value}: {plain.beyond:,} of {f.elements:,} elements differ by more than "
        f"{plain.beyond_rtol:g} relative"
    )
    if not plain.beyond_size < 1:
        return f"{share}; that is what rounding does in this network, not a sign of a mistake"
    return (
        f"{share}. They are numbers near zero, at most {100 * plain.beyond_size:.2g} % of the "
        f"typical one: sums in which large terms cancel. What rounding leaves is as small there as "
        f"elsewhere (at most {plain.beyond_abs:.2g}; anywhere: {plain.max_abs:.2g}), only the "
        "number it is divided by is small"
    )
