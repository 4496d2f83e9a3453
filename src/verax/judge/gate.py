"""`gate`: what changed on one model from an old subject to a new one, and whether it matters.

Each is run on the same inputs and judged against the float64 reference. Bits that differ matter
where the new subject's answer is worse than the old one's: a mistake, a lower precision or a
failure that the old one had not. That the two differ says nothing by itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from verax.base.errors import MissingPackageError, VeraxError
from verax.base.option_groups.options import CHECKED_AS_USUAL, CheckOptions
from verax.base.process.helpers import helper_scope
from verax.base.process.processes import SubjectDiedError, SubjectLateError
from verax.ir.graph import Graph, same_bits
from verax.ir.pixels import Pixels
from verax.judge.check import check
from verax.judge.decide import possible
from verax.judge.inputs import draw_inputs
from verax.judge.locate.consecutive import Inputs, in_steps
from verax.judge.observation import Arrays, answer_of
from verax.judge.protocol import Runner, stored_for
from verax.judge.regions.network import Progress
from verax.records.environment import array_hash
from verax.records.gate import GateChange, ModelChange, OutputDifference, RunOutcome, SubjectResult
from verax.records.verdict import Blame, InputRecord, Kind, Verdict, is_allowed

FAILURES = (RunOutcome.ran, RunOutcome.refused, RunOutcome.timed_out, RunOutcome.crashed)
"""From good to bad."""
ONLY_OLD, ONLY_NEW = "only the old subject gives it", "only the new subject gives it"
SEVERITY: Mapping[Kind, int] = {
    Kind.identical: 0,
    Kind.rounding: 0,
    Kind.precision: 1,
    Kind.precision_lost: 2,
    Kind.mistake: 3,
}
"""How bad a verdict is; *undecided* has no place among them."""


@helper_scope()
def gate(
    graph: Graph,
    old: Runner,
    new: Runner,
    inputs: Inputs = None,
    *,
    model: str = "",
    sizes: Mapping[str, int] | None = None,
    pixels: Mapping[str, Pixels] | None = None,
    progress: Progress | None = None,
    options: CheckOptions = CHECKED_AS_USUAL,
) -> ModelChange:
    """What changed on `graph` from `old` to `new`.

    inputs: as of `check`; those stored with a subject, or drawn, when not given. model: how the
    record calls it. The rest as of `check`. Raises what `check` raises for the inputs, and
    `MissingPackageError` where a subject's runtime is not there; that a subject fails is a result.
    """
    new = in_steps(graph, new, inputs, options.steps)[1]
    graph, old, arrays = in_steps(graph, old, inputs, options.steps)
    options = dataclasses.replace(options, steps=None)  # unrolled already
    stated = arrays
    arrays, origins = _inputs(graph, (old, new), stated, options.seed, sizes, pixels)
    # Drawn ones are drawn again by each check, so that its record says how.
    is_drawn = stated is None and old.stored_inputs is None and new.stored_inputs is None
    judged_inputs = None if is_drawn else arrays
    answers, results = [], []
    for subject in (old, new):
        answer, failure = _ran(graph, subject, arrays)
        answers.append(answer)
        results.append(failure)
    differences: tuple[OutputDifference, ...] = ()
    first, second = answers
    if first is not None and second is not None:
        differences = _differences(graph, first, second)
    verdicts: list[Verdict | None] = [None, None]
    for i, (subject, reference) in enumerate(
        ((old, None), (new, old if first is not None else None))
    ):
        if results[i] is not None:
            continue
        judge = partial(
            check,
            graph,
            subject,
            judged_inputs,
            other=reference,
            sizes=sizes,
            pixels=pixels,
            progress=progress,
            options=options,
        )
        results[i], verdicts[i] = _judged(subject, judge)
    differences = _with_errors(differences, verdicts[1])
    before, after = results
    assert before is not None and after is not None
    change, reasons = compare(before, after, differences, options.allow)
    records = tuple(
        InputRecord(v, str(graph.types[v]), array_hash(arrays[v]), origins.get(v, "given"))
        for v in graph.inputs
        if v in arrays
    )
    reasons = (*reasons, *_by_chance(before, after))
    return ModelChange(model or graph.name, change, reasons, before, after, differences, records)


def _inputs(
    graph: Graph,
    subjects: tuple[Runner, Runner],
    inputs: Arrays | None,
    seed: int,
    sizes: Mapping[str, int] | None,
    pixels: Mapping[str, Pixels] | None,
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Inputs by name, and where each is from: given, stored with a subject, or drawn."""
    if inputs is not None:
        return dict(inputs), {}
    for subject in subjects:
        if subject.stored_inputs:
            stored = stored_for(graph, subject.stored_inputs)[0]
            return stored, dict.fromkeys(stored, f"stored with {subject.name}")
    return draw_inputs(graph, seed, sizes, pixels)


def _ran(
    graph: Graph, subject: Runner, inputs: Arrays
) -> tuple[dict[str, np.ndarray] | None, SubjectResult | None]:
    """The subject's outputs, or how it failed."""
    try:
        values = answer_of(subject, graph, inputs)[0]
    except MissingPackageError:
        raise
    except VeraxError as error:
        outcome = RunOutcome.refused
        if isinstance(error, SubjectDiedError):
            outcome = RunOutcome.crashed
        elif isinstance(error, SubjectLateError):
            outcome = RunOutcome.timed_out
        return None, SubjectResult(outcome, _described(subject), error.cause)
    outputs = {v: values[v] for v in graph.outputs if v in values}
    if not outputs:
        listed = ", ".join(values) or "nothing"
        message = f"it gave none of the network's outputs (it gave {listed})"
        return None, SubjectResult(RunOutcome.refused, _described(subject), message)
    return outputs, None


def _described(subject: Runner) -> dict[str, str]:
    return {"name": subject.name, **subject.describe()}


def _judged(subject: Runner, judge: Callable[[], Verdict]) -> tuple[SubjectResult, Verdict | None]:
    """A subject that ran, with the verdict that `judge` gives of it."""
    try:
        verdict = judge()
    except VeraxError as error:
        message = f"it ran and could not be judged: {error.cause}"
        result = SubjectResult(
            RunOutcome.ran, _described(subject), message, Kind.undecided, (message,)
        )
        return result, None
    precisions = tuple(dict.fromkeys(p.format for p in verdict.precisions))
    is_clean = SEVERITY.get(verdict.kind) == 0
    return (
        SubjectResult(
            RunOutcome.ran,
            verdict.subject,
            "",
            verdict.kind,
            verdict.reasons,
            verdict.blame,
            precisions,
            verdict.repeat is None or verdict.repeat.same_bits,
            None if is_clean else verdict,
        ),
        verdict,
    )


def _differences(graph: Graph, old: Arrays, new: Arrays) -> tuple[OutputDifference, ...]:
    """Every output of the two, bit by bit."""
    listed = []
    for value in graph.outputs:
        if value not in old or value not in new:
            if value in old or value in new:
                reason = ONLY_OLD if value in old else ONLY_NEW
                listed.append(OutputDifference(value, False, 0, 0, 0.0, reason))
            continue
        first, second = np.asarray(old[value]), np.asarray(new[value])
        if first.dtype != second.dtype or first.shape != second.shape:
            reason = f"{first.dtype}{list(first.shape)} and {second.dtype}{list(second.shape)}"
            listed.append(OutputDifference(value, False, 0, 0, 0.0, reason))
            continue
        if same_bits(first, second):
            listed.append(OutputDifference(value, True, 0, first.size, 0.0))
            continue
        listed.append(
            OutputDifference(
                value, False, _differing(first, second), first.size, _max_abs(first, second)
            )
        )
    return tuple(listed)


def _differing(first: np.ndarray, second: np.ndarray) -> int:
    """Elements whose bits differ, of two arrays of one type and shape."""
    size = first.dtype.itemsize
    rows = [np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in (first, second)]
    return int((rows[0].reshape(-1, size) != rows[1].reshape(-1, size)).any(axis=1).sum())


def _max_abs(first: np.ndarray, second: np.ndarray) -> float:
    x, y = first.astype(np.float64), second.astype(np.float64)
    finite = np.isfinite(x) & np.isfinite(y)
    return float(np.abs(x - y)[finite].max(initial=0.0))


def _with_errors(
    differences: tuple[OutputDifference, ...], verdict: Verdict | None
) -> tuple[OutputDifference, ...]:
    """With the errors of both subjects, where the new one's verdict compares them."""
    compared = {c.value: c for c in verdict.comparisons} if verdict is not None else {}
    return tuple(
        dataclasses.replace(
            d,
            new_error=compared[d.value].first_error,
            old_error=compared[d.value].second_error,
            nearer=compared[d.value].nearer,
        )
        if d.value in compared
        else d
        for d in differences
    )


def compare(
    old: SubjectResult,
    new: SubjectResult,
    differences: tuple[OutputDifference, ...],
    allow: tuple[str, ...] = (),
) -> tuple[GateChange, tuple[str, ...]]:
    """Whether the change from one result to the other matters, and why, in sentences.

    differences: of the outputs, empty unless both ran. allow: arithmetics that the new subject may
    use though the old one did not.
    """
    if RunOutcome.ran not in (old.outcome, new.outcome) or new.outcome is not RunOutcome.ran:
        return _failed(old, new)
    if old.outcome is not RunOutcome.ran:
        news = f"the old subject {old.outcome} ({old.message}), the new one runs"
        change, reasons = _standing(new, allow)
        return change, (news, *reasons)
    changed = [d for d in differences if not d.same_bits]
    if not changed:
        worse = new.kind in (Kind.mistake, Kind.precision_lost)
        verdict = f"both are judged: {new.kind}" + ("; " + new.reasons[0] if new.reasons else "")
        return GateChange.unchanged, (
            "every output has the same bits",
            *((verdict,) if worse else ()),
        )
    change, reasons = _both_ran(old, new, allow)
    if any(d.reason == ONLY_OLD for d in changed):
        change, reasons = GateChange.matters, ("the new subject gives fewer outputs", *reasons)
    return change, (*reasons, *(_difference_text(d) for d in changed))


def _failed(old: SubjectResult, new: SubjectResult) -> tuple[GateChange, tuple[str, ...]]:
    """The new subject does not run."""
    text = f"the new subject {new.outcome}: {new.message}"
    if old.outcome is new.outcome:
        return GateChange.unchanged, (f"both subjects {new.outcome}; the new one: {new.message}",)
    if FAILURES.index(new.outcome) > FAILURES.index(old.outcome):
        before = "ran" if old.outcome is RunOutcome.ran else f"{old.outcome} ({old.message})"
        return GateChange.matters, (f"{text}; the old one {before}",)
    return GateChange.harmless, (f"{text}; the old one {old.outcome}: {old.message}",)


def _standing(new: SubjectResult, allow: tuple[str, ...]) -> tuple[GateChange, tuple[str, ...]]:
    """Of a new subject that runs what the old one did not: it has to be right."""
    if new.kind is None or new.kind is Kind.undecided:
        return GateChange.undecided, ("the new one cannot be judged", *new.reasons[:1])
    if new.kind is Kind.mistake:
        return GateChange.matters, ("the new subject has a mistake", *_faulty(new.blame))
    lowered = _lowered(None, new, allow)
    if lowered or new.kind is Kind.precision_lost:
        return GateChange.matters, (_lowered_text(lowered or new.precisions), *new.reasons[:1])
    return GateChange.harmless, ("the new one's numbers are right",)


def _both_ran(
    old: SubjectResult, new: SubjectResult, allow: tuple[str, ...]
) -> tuple[GateChange, tuple[str, ...]]:
    """Both gave an answer, of other bits."""
    if new.kind is Kind.mistake:
        if old.kind is not Kind.mistake:
            reason = f"the new subject has a mistake (the old one: {old.kind})"
            return GateChange.matters, (reason, *_faulty(new.blame), *new.reasons[:1])
        fresh = [b for b in new.blame if _signature(b) not in map(_signature, old.blame)]
        if fresh or not new.blame:
            reason = "both subjects have a mistake, and the new one another"
            return GateChange.matters, (reason, *_faulty(tuple(fresh)), *new.reasons[:1])
        return GateChange.harmless, ("both subjects have the same mistake", *_faulty(new.blame))
    if new.kind is None or new.kind is Kind.undecided:
        return GateChange.undecided, ("the new subject's check cannot tell", *new.reasons[:1])
    if old.kind is Kind.mistake:
        return GateChange.harmless, ("the old subject had a mistake that the new one has not",)
    lowered = _lowered(old, new, allow)
    lost = new.kind is Kind.precision_lost and old.kind is not Kind.precision_lost
    if lowered or lost:
        names = lowered or new.precisions
        return GateChange.matters, (_lowered_text(names), *new.reasons[:1])
    if SEVERITY[new.kind] == 0:
        within = "both are right, and differ within rounding"
        if old.kind is None or SEVERITY.get(old.kind, 1):
            within = f"the new subject is within rounding (the old one: {old.kind})"
        return GateChange.harmless, (within,)
    arithmetics = ", ".join(new.precisions)
    return GateChange.harmless, (f"the differences are those of {arithmetics}, which may be used",)


def _lowered(
    old: SubjectResult | None, new: SubjectResult, allow: tuple[str, ...]
) -> tuple[str, ...]:
    """Arithmetics of fewer digits that the new subject uses, the old one did not, and nobody
    allows. Fast algorithms in the same format are not among them."""
    before = () if old is None else old.precisions
    return tuple(
        name
        for name in new.precisions
        if name not in before
        and not is_allowed(name, allow)
        and not name.startswith(tuple(possible.ALL))
    )


def _lowered_text(names: tuple[str, ...]) -> str:
    return f"the new subject computes with fewer digits: {', '.join(names)}"


def _signature(blame: Blame) -> tuple[str, str]:
    """What makes a mistake the same: the node, and its likeliest cause."""
    standing = [e.hypothesis for e in blame.explanations if not e.refuted]
    return blame.node, standing[0] if standing else ""


def _faulty(blame: tuple[Blame, ...]) -> tuple[str, ...]:
    """The faulty nodes with their causes, in sentences."""
    lines = []
    for one in blame:
        standing = [e for e in one.explanations if not e.refuted]
        cause = f": {standing[0].hypothesis}, {standing[0].words}" if standing else ""
        lines.append(f"node {one.node} ({one.operator}){cause}")
    return tuple(lines)


def _difference_text(d: OutputDifference) -> str:
    if d.reason:
        return f"output {d.value!r}: {d.reason}"
    share = f"{d.differing:,} of {d.elements:,} elements differ, by {d.max_abs:.3g} at most"
    return f"output {d.value!r}: {share}"


def _by_chance(old: SubjectResult, new: SubjectResult) -> tuple[str, ...]:
    """That a subject does not repeat itself, so that what changed may be chance."""
    names = [name for name, result in (("old", old), ("new", new)) if not result.repeats]
    if not names:
        return ()
    return (f"the {' and the '.join(names)} subject does not repeat itself: part may be chance",)
