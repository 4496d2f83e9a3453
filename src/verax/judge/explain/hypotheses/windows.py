"""Where windows begin and what lies around the input: shared by convolutions and pools."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from verax.judge.explain.hypotheses.base import Edit, Prior, edited
from verax.ops.windows.windows import Ints, Windows

Begin = tuple[str, str, Prior, Ints]
MODES = {
    "edge": "by repeating the border instead of zeros",
    "reflect": "by mirroring at the border instead of zeros",
    "symmetric": "by mirroring, border included, instead of zeros",
    "wrap": "by the opposite side instead of zeros",
}
"""Modes of `np.pad` and what they do, in words."""


MOST_SIZES = 64
"""Sizes, as far as they matter to SAME, that are tried."""


def begins(windows: Windows) -> Iterator[Begin]:
    """Begin pads of rules that people confuse, each that differs: (name, words, prior, begin)."""
    totals = [begin + end for begin, end in windows.pads]
    rules: tuple[tuple[str, str, Prior, list[int]], ...] = (
        (
            "pads swapped",
            "begin and end of the pads were exchanged",
            Prior.usual,
            [end for _, end in windows.pads],
        ),
        (
            "SAME upper",
            "the odd pad was put at the end (SAME upper)",
            Prior.usual,
            [t // 2 for t in totals],
        ),
        (
            "SAME lower",
            "the odd pad was put at the begin (SAME lower)",
            Prior.usual,
            [t - t // 2 for t in totals],
        ),
        (
            "pads symmetric",
            "both ends were padded by half the kernel",
            Prior.usual,
            [(e - 1) // 2 for e in windows.extent],
        ),
        (
            "pads of the axes exchanged",
            "the pads of height and width were exchanged",
            Prior.common,
            [begin for begin, _ in windows.pads[::-1]],
        ),
        (
            "no pads at the begin",
            "nothing was padded at the begin, all of it at the end",
            Prior.common,
            [0] * windows.rank,
        ),
        (
            "all pads at the begin",
            "everything was padded at the begin, nothing at the end",
            Prior.uncommon,
            totals,
        ),
        (
            "one pad too many at the begin",
            "one more was padded at every begin",
            Prior.uncommon,
            [begin + 1 for begin, _ in windows.pads],
        ),
        (
            "one pad too few at the begin",
            "one less was padded at every begin",
            Prior.uncommon,
            [max(0, begin - 1) for begin, _ in windows.pads],
        ),
    )
    actual = tuple(begin for begin, _ in windows.pads)
    alike: dict[Ints, list[tuple[str, str, Prior]]] = {}
    for name, words, prior, wrong in rules:
        if tuple(wrong) != actual:
            alike.setdefault(tuple(wrong), []).append((name, words, prior))
    for name, words, prior, same in same_of_other_sizes(windows):
        if same not in alike:
            alike[same] = [(name, words, prior)]
    for begin, meant in alike.items():
        name, words, prior = meant[0]
        equal_rules = ", ".join(rule for rule, _, _ in meant[1:])
        yield (
            name,
            words + (f"; here the same as: {equal_rules}" if equal_rules else ""),
            prior,
            begin,
        )


def same_of_other_sizes(windows: Windows) -> Iterator[Begin]:
    """Begin pads of the rule SAME for inputs of other sizes, where these pads are those of SAME: a
    rule that is resolved before sizes are known."""
    spatial = list(zip(windows.pads, windows.input, windows.strides, windows.extent))
    totals = [max(0, (-(-n // s) - 1) * s + e - n) for _, n, s, e in spatial]
    for rule, upper in (("SAME upper", True), ("SAME lower", False)):
        if windows.pads != tuple(
            (t // 2, t - t // 2) if upper else (t - t // 2, t // 2) for t in totals
        ):
            continue
        residues = [
            range(max(0, e - s), e) if s > 1 else (t,) for (_, _, s, e), t in zip(spatial, totals)
        ]
        for candidate in itertools.islice(itertools.product(*residues), MOST_SIZES):
            begin = tuple(t // 2 if upper else t - t // 2 for t in candidate)
            if begin != tuple(first for first, _ in windows.pads):
                yield (
                    f"{rule} of another size, {begin}",
                    f"the pads were those that {rule} gives for another input size (as where sizes "
                    f"were not known): {begin} at the begin",
                    Prior.usual,
                    begin,
                )


def mixed_begins(windows: Windows) -> Iterator[Begin]:
    """Begin pads that are wrong along one axis, or by one along several."""
    if windows.rank < 2:
        return
    actual = tuple(begin for begin, _ in windows.pads)
    seen = {actual, *(begin for _, _, _, begin in begins(windows))}
    mixed: list[Ints] = []
    for a, (begin, end) in enumerate(windows.pads):
        for wrong in (end, (windows.extent[a] - 1) // 2, 0, begin + 1, begin - 1):
            mixed.append((*actual[:a], wrong, *actual[a + 1 :]))
    if windows.rank == 2:
        mixed += itertools.product(*((b - 1, b, b + 1) for b in actual))
    for wrongs in mixed:
        if min(wrongs) >= 0 and wrongs not in seen:
            seen.add(wrongs)
            yield (
                f"begin pads {wrongs}",
                f"{wrongs} instead of {actual} were padded at the begin of the axes",
                Prior.uncommon,
                wrongs,
            )


def padded_by_modes(windows: Windows, x: np.ndarray) -> Iterator[tuple[str, str, Edit]]:
    """Inputs padded other than by zeros, to be used with pads of 0: (name, words, edit)."""
    if not any(map(any, windows.pads)) or not windows.can_store_pads(x):
        return
    widths = ((0, 0),) * (x.ndim - windows.rank) + windows.pads
    for mode, words in MODES.items():
        if mode in ("reflect", "symmetric") and any(
            max(pair) >= n for pair, n in zip(windows.pads, windows.input)
        ):
            continue
        yield (
            f"padded by {mode}",
            f"the input was padded {words}",
            edited(0, lambda x, mode=mode: np.pad(x, widths, mode=mode)),
        )
