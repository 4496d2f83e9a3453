"""The message of a failed assertion: a verdict in at most eight lines.

What failed; where; by how much of what is allowed; what it looks like; how sure that is; and the
next command.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from verax.base.figures import times
from verax.judge.explain.hypotheses.base import axis_name
from verax.judge.explain.structure import structure
from verax.numerics import statistics as st
from verax.records.verdict import Finding, Kind, Verdict

MOST_LINES, WIDTH = 8, 160
TILES = (256, 128, 64, 32, 16, 8)
"""Sizes of tiles that a region is named by."""
LOOKS_LIKE = 2
"""Readings that are listed."""


@dataclass
class FailureEvidence:
    """What a message needs beside the verdict.

    meaning: what was expected, in words. actual, expected, sigma: by output, as far as they are at
    hand. causes: readings that are more telling than the verdict's. sure: how sure the bound is.
    next_step: the next command.
    """

    meaning: str
    actual: Mapping[str, np.ndarray] = field(default_factory=dict)
    expected: Mapping[str, np.ndarray] = field(default_factory=dict)
    sigma: Mapping[str, np.ndarray | None] = field(default_factory=dict)
    causes: Sequence[str] = ()
    sure: str = ""
    next_step: str = ""


def failure_message(verdict: Verdict, evidence: FailureEvidence, headline: str = "") -> str:
    """The message for a verdict that fails an assertion. headline: what failed, if it is not the
    verdict's kind."""
    name = verdict.subject.get("name", "the answer")
    worst = worst_finding(verdict)
    lines = [f"{name} is not {evidence.meaning}: {headline or _kind(verdict)}"]
    if worst is not None:
        if location := _location(verdict, worst, evidence):
            lines.append(f"  where: {location}")
        if amount := _amount(worst, evidence):
            lines.append(f"  error: {amount}")
    elif verdict.reasons:
        lines.append(f"  why: {verdict.reasons[0]}")
    looks = list(dict.fromkeys(readings(verdict, evidence)))
    lines += [f"  looks like: {text}" for text in looks[:LOOKS_LIKE]]
    if not looks and worst is not None:
        lines.append(f"  why: {worst.reason}")
    if evidence.sure:
        lines.append(f"  sure: {evidence.sure}")
    step = evidence.next_step or "print(error.verdict) has every figure; .to_json() keeps them"
    lines = [*lines[: MOST_LINES - 1], f"  next: {step}"]
    return "\n".join(_short(line) for line in lines)


def _short(line: str) -> str:
    line = " ".join(line.split()) if not line.startswith("  ") else "  " + " ".join(line.split())
    return line if len(line) <= WIDTH else line[: WIDTH - 3].rstrip() + "..."


def _kind(verdict: Verdict) -> str:
    if verdict.kind is Kind.precision:
        names = ", ".join(dict.fromkeys(p.format for p in verdict.precisions))
        return f"computed in a coarser arithmetic ({names})" if names else "coarser arithmetic"
    return str(verdict.kind.value)


def worst_finding(verdict: Verdict) -> Finding | None:
    """The finding that failed: a guilty node's, else the worst output's."""
    order = [Kind.mistake, Kind.precision_lost, Kind.undecided, Kind.precision, Kind.rounding]
    faulty_values = {b.value for b in verdict.blame}
    findings = [f for f in verdict.nodes if f.value in faulty_values] or list(verdict.outputs)
    findings = findings or list(verdict.nodes)
    ranked = [f for f in findings if f.kind in order]
    return min(ranked, key=lambda f: (order.index(f.kind), -_ratio(f)), default=None)


def _ratio(judged: Finding) -> float:
    """How many times what is allowed an error is."""
    return max(judged.statistic, judged.bound_ratio or 0.0)


def _location(verdict: Verdict, worst: Finding, evidence: FailureEvidence) -> str:
    value = worst.value
    words = []
    if len(verdict.nodes) > 1 or len(worst.region) > 1:
        words.append(f"node {worst.node} ({worst.operator})")
    words.append(f"value {value!r}" if value not in evidence.expected else f"output {value!r}")
    wrong = wrong_elements(value, evidence)
    if wrong is not None and wrong.any():
        words.append(f"{region(wrong)} ({int(wrong.sum())} of {wrong.size} elements)")
    elif worst.group not in ("", "all", "element"):
        words.append(_group(worst.group, evidence.expected.get(value)))
    return ", ".join(words)


def _group(name: str, array: np.ndarray | None) -> str:
    """A group of elements by the names of the axes of its array."""
    if array is not None and array.ndim == 2:
        return name.replace("image", "row").replace("channel", "column")
    return name


def wrong_elements(value: str, evidence: FailureEvidence) -> np.ndarray | None:
    """Mask of an output's elements that rounding does not explain; None where they are unknown."""
    actual, expected = evidence.actual.get(value), evidence.expected.get(value)
    if actual is None or expected is None or actual.shape != expected.shape:
        return None
    wide = actual.astype(np.float64)
    sigma = evidence.sigma.get(value)
    with np.errstate(all="ignore"):
        error = np.abs(wide - expected)
        same = (wide == expected) | (np.isnan(wide) & np.isnan(expected))
        if sigma is None:
            limit = np.abs(expected - expected.astype(actual.dtype).astype(np.float64))
            return np.asarray(~(error <= limit) & ~same)
        for multiple in (st.group_limit(1), st.LOCATED):
            wrong = np.asarray(~(error <= multiple * sigma) & ~same)
            if wrong.any():
                break
        return wrong


def region(wrong: np.ndarray) -> str:
    """The smallest ranges of single axes that hold all wrong elements, in words."""
    if wrong.all():
        return "every element"
    phrases = []
    for axis, n in enumerate(wrong.shape):
        hit = np.flatnonzero(wrong.any(axis=tuple(a for a in range(wrong.ndim) if a != axis)))
        if 0 < len(hit) < n:
            phrases.append(_range(_axis(axis, wrong.ndim), hit, n))
    return ", ".join(phrases) if phrases else "spread over the whole tensor"


def _axis(axis: int, rank: int) -> str:
    if rank == 2:
        return ("row", "column")[axis]
    return "element" if rank == 1 else axis_name(axis, rank).replace("axis ", "index of axis ")


def _range(name: str, hit: np.ndarray, n: int) -> str:
    first, last = int(hit[0]), int(hit[-1])
    plural = name.replace("index", "indices") if name.startswith("index") else f"{name}s"
    if name == "batch":
        plural = "batches"
    if len(hit) == 1:
        end = {0: "the first ", n - 1: "the last "}.get(first, "")
        return f"{end}{name} {first}"
    if len(hit) == last - first + 1:
        tile = next((t for t in TILES if first % t == 0 and n > t), 0)
        if last == n - 1 and first and tile and last - first + 1 <= tile:
            return f"the last {name} tile ({plural} {first} to {last})"
        exact = next((t for t in TILES if len(hit) == t and first % t == 0), 0)
        if exact:
            return f"the {name} tile of {plural} {first} to {last}"
        return f"{plural} {first} to {last}"
    steps = np.unique(np.diff(hit))
    if len(steps) == 1 and len(hit) > 2:
        return f"every {_ordinal(int(steps[0]))} {name} from {first}"
    listed = ", ".join(str(int(i)) for i in hit[:6])
    return f"{plural} {listed}" + (f" and {len(hit) - 6} more" if len(hit) > 6 else "")


def _ordinal(n: int) -> str:
    return {2: "second", 3: "third"}.get(n, f"{n}th")


def _amount(worst: Finding, evidence: FailureEvidence) -> str:
    shapes = [
        m[worst.value].shape for m in (evidence.actual, evidence.expected) if worst.value in m
    ]
    if len(shapes) == 2 and shapes[0] != shapes[1]:
        return f"the shape is {shapes[0]}, it should be {shapes[1]}"
    ratio = _ratio(worst)
    if worst.kind is Kind.undecided:
        return ""
    words = "nothing may differ here" if math.isinf(ratio) else f"{times(ratio)} times the allowed"
    if worst.kind is Kind.precision:
        words = ""
    if worst.test == "shape":
        return worst.reason
    if worst.worst:
        one = worst.worst[0]
        element = f"at {list(one.index)} {one.given:.7g} is given, {one.expected:.7g} is right"
        words = f"{words}; {element}" if words else element
    return words


def readings(verdict: Verdict, evidence: FailureEvidence) -> Iterator[str]:
    """What the error looks like, the most telling first."""
    plain = list(_plain_readings(evidence))
    yield from plain
    yield from evidence.causes
    if plain:
        return
    for cause in verdict.causes:
        yield cause.words
    for blame in verdict.blame[:2]:
        for explanation in blame.explanations:
            if not explanation.refuted:
                yield explanation.words
    for blame in verdict.blame[:1]:
        yield from (s for s in blame.structure if not _is_extent(s))
    worst = worst_finding(verdict)
    if worst is not None and not verdict.blame and verdict.kind is Kind.mistake:
        actual, expected = (m.get(worst.value) for m in (evidence.actual, evidence.expected))
        if actual is not None and expected is not None:
            sentences = structure(actual, expected, evidence.sigma.get(worst.value))
            yield from (s for s in sentences if not _is_extent(s) and _is_likely(s, worst))
    if verdict.repeat is not None and verdict.repeat.cause:
        yield f"two calls differ: {verdict.repeat.cause}"


def _plain_readings(evidence: FailureEvidence) -> Iterator[str]:
    for value, actual in evidence.actual.items():
        expected = evidence.expected.get(value)
        if expected is None or not actual.size or not np.any(expected):
            continue
        wide = actual.astype(np.float64)
        if not wide.any():
            yield "all zeros"
        elif np.isnan(wide).all():
            yield "all NaN"
        elif actual.size > 1 and (wide == wide.flat[0]).all() and np.ptp(expected) > 0:
            yield f"{wide.flat[0]:g} everywhere"


def _is_likely(sentence: str, worst: Finding) -> bool:
    """False for "another order" of an error that is far smaller than the numbers are."""
    small = worst.error <= st.HARNESS_EXPLAINS * max(
        (abs(w.expected) for w in worst.worst), default=0
    )
    return not (small and sentence.endswith("in another order"))


def _is_extent(sentence: str) -> bool:
    return "elements are wrong" in sentence or sentence == "every element is wrong"
