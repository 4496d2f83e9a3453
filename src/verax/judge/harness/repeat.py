"""Does the subject give the same answer twice, also when its memory was filled with rubbish?

The second run goes, where the runner can, into memory whose every byte was set beforehand. Answers
that differ by no more than rounding come from another order of summation (threads). A larger
difference is followed up: an answer that the same bytes bring about again, or that shows them, was
computed from uninitialized memory; any other came by chance (Dropout left on, random numbers, a
race).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from verax.base.errors import VeraxError
from verax.ir.graph import Graph, same_bits, specialize
from verax.judge.protocol import Poisonable, Runner, renamed_answers
from verax.judge.regions.network import survey
from verax.numerics import statistics as st
from verax.records.verdict import Finding, Repeat
from verax.reference.evaluate import bind_symbols

FILL = 0x7F
"""Every byte of poisoned memory: as float32 or float64, numbers near the largest there is. (0xFF
would be NaN, which glibc cannot put into fresh memory.)"""
UNINITIALISED = "uninitialized memory"
ORDER = "order of summation"
CHANCE = "chance inside the subject"

Arrays = Mapping[str, np.ndarray]


def repeat(
    subject: Runner,
    graph: Graph,
    inputs: Arrays,
    first: Arrays,
    *,
    keep: Sequence[str] | None = None,
    findings: Sequence[Finding] = (),
) -> Repeat | None:
    """Run `subject` once more as it ran for `first`, into poisoned memory where it can.

    first: what it gave, with the same `keep`, under the network's names. findings: those of the
    check, which know how far rounding may move each value; without them that is worked out when
    something changed. One more run, and a third only when something changed by more than rounding.
    None for recorded answers.
    """
    if subject.stored_inputs is not None:
        return None
    memory = subject.capabilities.poison if isinstance(subject, Poisonable) else ""
    poisoned = f"bytes {FILL:#x} ({memory})" if memory else ""
    try:
        second = _run(subject, graph, inputs, keep, poisoned)
    except VeraxError as error:
        mode = f"with memory filled with {poisoned}" if poisoned else "a second time"
        return Repeat(2, False, poisoned, {}, f"it failed {mode}: {error.cause}")
    differing = _differing(first, second)
    if not differing:
        return Repeat(2, True, poisoned)
    if _within_rounding(graph, inputs, first, second, differing, findings):
        return Repeat(2, False, poisoned, differing, ORDER)
    if not poisoned:
        return Repeat(2, False, poisoned, differing, CHANCE)
    try:
        third = _run(subject, graph, inputs, keep, poisoned)
    except VeraxError as error:
        return Repeat(3, False, poisoned, differing, f"it failed the third time: {error.cause}")
    shows = not _differing(second, third) or _rubbish(first, second)
    return Repeat(3, False, poisoned, differing, UNINITIALISED if shows else CHANCE)


def _rubbish(first: Arrays, second: Arrays) -> bool:
    """Whether elements show the bytes of the poison that were ordinary before."""
    for name in first.keys() & second.keys():
        a, b = first[name], second[name]
        if a.shape != b.shape or a.dtype != b.dtype or not a.size:
            continue
        poison = np.frombuffer(bytes([FILL]) * a.dtype.itemsize, a.dtype)[0]
        if bool(((b == poison) & (a != poison)).any()):
            return True
    return False


def _run(
    subject: Runner, graph: Graph, inputs: Arrays, keep: Sequence[str] | None, poisoned: str
) -> dict[str, np.ndarray]:
    if poisoned and isinstance(subject, Poisonable):
        values = subject.run_poisoned(graph, inputs, keep, fill=FILL)
    else:
        values = subject.run(graph, inputs, keep)
    return renamed_answers(graph, {k: np.asarray(v) for k, v in values.items()})[0]


def _differing(first: Arrays, second: Arrays) -> dict[str, float]:
    """Values of other bits and the largest difference (infinite where one is no number)."""
    gaps = {}
    for name in sorted({*first, *second}):
        a, b = first.get(name), second.get(name)
        if a is not None and b is not None and a.dtype == b.dtype and same_bits(a, b):
            continue
        gaps[name] = np.inf
        if a is not None and b is not None and a.shape == b.shape:
            with np.errstate(all="ignore"):
                gap = np.abs(a.astype(np.float64) - b.astype(np.float64))
            both_nan = np.isnan(a.astype(np.float64)) & np.isnan(b.astype(np.float64))
            gap = np.where(both_nan, 0.0, gap)
            gaps[name] = float(np.nan_to_num(gap, nan=np.inf).max(initial=0.0))
    return gaps


def _within_rounding(
    graph: Graph,
    inputs: Arrays,
    first: Arrays,
    second: Arrays,
    differing: Mapping[str, float],
    findings: Sequence[Finding],
) -> bool:
    """Whether two answers are as near to each other as two honest ones are."""
    sigmas = {f.value: f.sigma for f in findings}
    outputs = {v: first[v] for v in graph.outputs if v in first}
    if not sigmas.keys() >= differing.keys() & outputs.keys():
        fixed = specialize(graph, bind_symbols(graph, inputs))
        findings_of_first = survey(fixed, inputs, outputs, measure_power=False).findings
        sigmas |= {f.value: f.sigma for f in findings_of_first}
    for name, largest in differing.items():
        sigma = sigmas.get(name)
        if sigma is None:
            continue
        if not np.isfinite(largest):
            return False
        gap = first[name].astype(np.float64) - second[name].astype(np.float64)
        z = st.standardised(gap, np.full(gap.shape, np.sqrt(2) * sigma))
        if st.root_mean_square(z) > st.group_limit(gap.size):
            return False
    return True
