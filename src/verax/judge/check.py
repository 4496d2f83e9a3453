"""`check`: observes a subject, judges what it gave stage by stage, and assembles the Verdict.

Each stage takes the Observation and what the stages before it found, and returns what it finds.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Unpack

import numpy as np

from verax.base.deadline import OutOfTime, clock, clocked, require_time
from verax.base.errors import VeraxError
from verax.base.option_groups.keywords import with_options
from verax.base.option_groups.options import CHECKED_AS_USUAL, CheckKeywords, CheckOptions, changed
from verax.base.process.helpers import helper_scope
from verax.ir.graph import Graph, same_bits
from verax.ir.outline import outline
from verax.ir.pixels import Pixels
from verax.judge.decide.error_distribution import Distributions, bounded, collected
from verax.judge.decide.local import plain, worst_elements
from verax.judge.decide.possible import using
from verax.judge.explain.below_rounding import found_below_rounding
from verax.judge.explain.causes import diagnose
from verax.judge.harness.faults import harness_causes
from verax.judge.harness.naming import without_misnomers
from verax.judge.harness.repeat import CHANCE, UNINITIALISED, repeat
from verax.judge.locate.consecutive import Inputs, StepRunner, in_steps, state_causes
from verax.judge.locate.enlarge import enlarge_regions
from verax.judge.observation import Arrays, Observation, answer_of, observe
from verax.judge.protocol import Runner, described_apart
from verax.judge.regions.ahead import DrawnAhead
from verax.judge.regions.budget import in_context, keeping_to_memory, require_room_for_meaning
from verax.judge.regions.coverage import (
    ACCEPTED,
    SEVERITY,
    carried,
    coverage,
    lacking,
    settle,
    worst,
)
from verax.judge.regions.end_to_end import losses, require_known
from verax.judge.regions.network import Progress, Survey, survey
from verax.judge.wording import reasons_of, with_losses
from verax.numerics.statistics import root_mean_square
from verax.records.environment import array_hash, environment
from verax.records.network import ErrorDistribution
from verax.records.verdict import (
    Blame,
    Comparison,
    Explanation,
    Finding,
    InputRecord,
    Kind,
    Loss,
    Repeat,
    Verdict,
)
from verax.reference.evaluate import evaluate

JUDGING = 600.0
"""Seconds that judging may take when nobody says otherwise."""
BY_CHANCE = {UNINITIALISED: Kind.mistake, CHANCE: Kind.undecided}
"""What an answer is worth that comes out otherwise the next time."""
EXPLAINED = 8
"""Guilty nodes whose causes are sought."""


@dataclass(frozen=True)
class JudgedValues:
    """What the numbers say.

    seen: what was judged; its values are those whose names hold. survey: findings on every value.
    unwatched: those that only the unwatched outputs show. on_outputs: where the outputs decided
    what was ambiguous inside. repeated: how a second run came out. notes: in sentences. errors: how
    the errors of judged values are spread.
    """

    seen: Observation
    survey: Survey
    unwatched: tuple[Finding, ...] = ()
    on_outputs: tuple[Finding, ...] = ()
    repeated: Repeat | None = None
    notes: tuple[str, ...] = ()
    errors: tuple[ErrorDistribution, ...] = ()


@dataclass(frozen=True)
class Weighed:
    """The verdict in a word, and what made it. weak: why the check is too weak, or empty."""

    kind: Kind
    weak: str = ""
    lost: tuple[Loss, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ExplainedBlame:
    """Guilty nodes with their causes, or causes around the network."""

    blame: tuple[Blame, ...]
    causes: tuple[Explanation, ...] = ()
    notes: tuple[str, ...] = ()


@with_options(CheckOptions)
def check(
    graph: Graph,
    subject: Runner,
    inputs: Inputs = None,
    *,
    other: Runner | None = None,
    sizes: Mapping[str, int] | None = None,
    pixels: Mapping[str, Pixels] | None = None,
    progress: Progress | None = None,
    options: CheckOptions = CHECKED_AS_USUAL,
    **keywords: Unpack[CheckKeywords],
) -> Verdict:
    """Judge what `subject` makes of `graph` on `inputs`.

    inputs: by name, in the declared types; those stored with the subject, or drawn (seeded), when
    not given; a list of those of every run of a network that remembers. other: a second
    implementation, to say which is nearer to the float64 meaning. sizes: of symbols, for drawn
    inputs. pixels: of drawn images. options: how it is judged; keywords: fields of `CheckOptions`
    (`winograd=False`, `allow=("bf16",)`, ...), which come before `options`.

    Raises `InputError` when inputs do not fit, `UsageError` when the subject's answer has none of
    the network's outputs, and whatever `VeraxError` the subject fails with.
    """
    options = changed(options, keywords)
    options = dataclasses.replace(options, allow=require_known(options.allow))
    with (
        judging(subject, options),
        clocked(options.timeout or JUDGING) as time_left,
        DrawnAhead(time_left, options.seed) as ahead,
    ):
        if other is not None:
            other = in_steps(graph, other, inputs, options.steps)[1]
        graph, subject, arrays = in_steps(graph, subject, inputs, options.steps)
        seen = observe(
            graph,
            subject,
            arrays,
            watch=options.watch,
            seed=options.seed,
            sizes=sizes,
            pixels=pixels,
            begun=ahead.begin if _is_waited_for(subject, options) else None,
        )
        time_left.start()
        judged = _resolved(_judged(seen, ahead, options, progress), options)
        meaning, unevaluated = _meaning(judged, other)
        weighed = _weighed(judged, options)
        explained = _explained(judged, options, progress)
        notes = (*judged.notes, *unevaluated, *weighed.notes, *explained.notes)
        verdict = _verdict(judged, weighed, explained, meaning, notes, options)
        comparisons = _compare(judged.seen, other, meaning)
        verdict = dataclasses.replace(verdict, comparisons=comparisons)
        return dataclasses.replace(verdict, reasons=tuple(reasons_of(verdict, weighed.weak)))


@contextlib.contextmanager
def judging(subject: Runner, options: CheckOptions) -> Iterator[None]:
    """Inside, helpers are kept, memory is held to, and the judge knows which fast algorithms the
    subject may have used."""
    algorithms = subject.capabilities.fast_algorithms if options.winograd else frozenset()
    own = subject.capabilities
    possible = using(algorithms, own.any_device, own.stores_in)
    with helper_scope(), keeping_to_memory(options.memory), possible:
        yield


def _is_waited_for(subject: Runner, options: CheckOptions) -> bool:
    """Whether another process computes the outputs, and they are all that will be judged."""
    watched = options.watch and subject.capabilities.watches
    return subject.capabilities.own_process and not watched


def _judged(
    seen: Observation, ahead: DrawnAhead, options: CheckOptions, progress: Progress | None
) -> JudgedValues:
    """Every value on its actual inputs, and what a second run gives."""
    fixed, subject, seed = seen.fixed, seen.subject, options.seed
    twice = options.twice and not (isinstance(subject, StepRunner) and not subject.repeatable)
    # What does not need each other goes side by side; the subject itself runs once at a time.
    distributions: Distributions = {}
    with ThreadPoolExecutor(2) as pool, collected(distributions):
        again, apart = None, None
        if twice:
            again = pool.submit(in_context(repeat), subject, seen.graph, seen.inputs, seen.first)
        if seen.watching_changed:
            outputs = partial(survey, seed=seed, measure_power=False)
            with collected(None):
                apart = pool.submit(in_context(outputs), fixed, seen.inputs, seen.outputs)
        begin = ahead.take()
        judge = partial(survey, fixed, seen.inputs, seed=seed, progress=progress, ahead=begin)
        result, values, notes = without_misnomers(
            fixed, subject, judge(seen.values), seen.values, judge
        )
        seen = dataclasses.replace(seen, values=values)
        repeated = None if again is None else again.result()
        result = enlarge_regions(fixed, result, seen.known, subject, seed=seed, progress=progress)
        unwatched = [] if apart is None else _beyond(result.findings, apart.result().findings)
    everything = [*result.findings, *unwatched]
    known = {**seen.inputs, **seen.values, **seen.outputs}
    result = dataclasses.replace(
        result, findings=found_below_rounding(fixed, known, everything, seed)
    )
    all_notes = (*seen.notes, *notes)
    errors = bounded(distributions, result.findings, fixed.outputs)
    return JudgedValues(
        seen, result, tuple(unwatched), repeated=repeated, notes=all_notes, errors=errors
    )


def _beyond(watched: Sequence[Finding], apart: Sequence[Finding]) -> list[Finding]:
    """What the unwatched outputs add: no rounding, and no consequence of a node found guilty."""
    faulty = {f.node for f in watched if f.kind is Kind.mistake}
    return [
        f
        for f in apart
        if f.kind is not Kind.rounding
        and not (f.kind is Kind.mistake and faulty.intersection(f.region))
    ]


def _resolved(judged: JudgedValues, options: CheckOptions) -> JudgedValues:
    """The outputs decide what is ambiguous inside."""
    seen = judged.seen
    result, on_outputs, notes = settle(
        seen.fixed, seen.inputs, seen.outputs, judged.survey, seed=options.seed
    )
    return dataclasses.replace(
        judged, survey=result, on_outputs=on_outputs, notes=(*judged.notes, *notes)
    )


def _weighed(judged: JudgedValues, options: CheckOptions) -> Weighed:
    """The worst that was found, held against what was required and what is allowed."""
    seen, result = judged.seen, judged.survey
    kind = _overall(result.findings, judged.repeated)
    required = options.require_power
    weak = "" if required is None else lacking(seen.fixed, result, required)
    if weak and kind in ACCEPTED:
        kind = Kind.undecided
    if kind is not Kind.precision:
        return Weighed(kind, weak)
    lost, open_ = losses(
        seen.fixed,
        seen.inputs,
        seen.outputs,
        seen.values,
        result.findings,
        seed=options.seed,
        allow=options.allow,
    )
    kind = Kind.precision_lost if any(not x.allowed for x in lost) else kind
    return Weighed(kind, weak, lost, (open_,) if open_ else ())


def _explained(
    judged: JudgedValues, options: CheckOptions, progress: Progress | None
) -> ExplainedBlame:
    """What is wrong around the network, or else what the guilty nodes did."""
    seen, seed = judged.seen, options.seed
    fixed, subject = seen.fixed, seen.subject
    blame = judged.survey.blame(fixed)
    if not options.explain or not blame:
        return ExplainedBlame(blame)
    try:
        require_time()
        causes = state_causes(fixed, subject, seen.inputs, seen.values, seed=seed)
        if not causes:
            again = seen.run if subject.stored_inputs is None else None
            causes = harness_causes(fixed, seen.inputs, seen.values, again, seed=seed)
        if causes:
            return ExplainedBlame(blame, causes)
        return _diagnosed(blame, judged, seed, progress)
    except OutOfTime as error:
        return ExplainedBlame(blame, (), (f"the causes were not sought to the end: {error}",))


def _diagnosed(
    blame: tuple[Blame, ...], judged: JudgedValues, seed: int, progress: Progress | None
) -> ExplainedBlame:
    """What each guilty node did instead, for the first of them."""
    seen = judged.seen
    notes: list[str] = []
    diagnosed: list[Blame] = []
    # What watching mended is not among the values that were watched.
    mended = {(f.value, f.region) for f in judged.unwatched}
    first, remainder = blame[:EXPLAINED], blame[EXPLAINED:]
    if remainder:
        notes.append(
            f"{len(blame)} nodes are guilty; the causes of the first {EXPLAINED} were sought"
        )
    for i, one in enumerate(first):
        if progress is not None:
            progress(i, len(first), f"explaining {one.node}")
        if clock().is_up:
            notes.append(f"the causes of {one.node} were not sought: {clock().reason}")
            diagnosed.append(one)
            continue
        by_outputs = (one.value, one.region) in mended
        values = {**seen.inputs, **seen.outputs} if by_outputs else seen.known
        diagnosed.append(diagnose(one, seen.fixed, values, seen.subject, seed=seed))
    return ExplainedBlame((*diagnosed, *remainder), (), tuple(notes))


def _meaning(
    judged: JudgedValues, other: Runner | None
) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    """Float64 outputs of the whole network, where they say more than what was judged: not if all
    that was judged are the outputs. Empty, with a note, when they cannot be evaluated."""
    seen = judged.seen
    outputs_alone = all(v in seen.outputs for v in seen.values)
    if other is None and outputs_alone and not _feeds_itself(seen.fixed, seen.outputs):
        return {}, ()
    label = "the whole network's float64 meaning"
    if clock().is_up:
        return {}, (f"{label} was not evaluated: {clock().reason}",)
    try:
        require_room_for_meaning(seen.fixed)
        return evaluate(seen.fixed, seen.inputs), ()
    except VeraxError as error:
        return {}, (f"{label} could not be evaluated: {error.cause}",)


def _verdict(
    judged: JudgedValues,
    weighed: Weighed,
    explained: ExplainedBlame,
    meaning: Arrays,
    notes: tuple[str, ...],
    options: CheckOptions,
) -> Verdict:
    """What the stages found, as a record without reasons and comparisons."""
    seen, result = judged.seen, judged.survey
    graph = seen.fixed
    described, machine = described_apart(seen.subject)
    subject_notes = (described.pop("note"),) if "note" in described else ()
    outputs = _outputs(graph, result, judged.on_outputs, seen.outputs, meaning)
    return Verdict(
        kind=weighed.kind,
        reasons=(),
        subject={"name": seen.subject.name, **described},
        method=_method(graph, seen.values, result),
        outputs=with_losses(outputs, weighed.lost),
        nodes=tuple(result.findings),
        blame=explained.blame,
        power=tuple(result.power),
        inputs=tuple(
            InputRecord(v, str(graph.types[v]), array_hash(seen.inputs[v]), seen.origins[v])
            for v in seen.graph.inputs
        ),
        environment={**environment(), **machine},
        seed=options.seed,
        unchecked=result.unchecked,
        notes=(*notes, *subject_notes),
        causes=explained.causes,
        precisions=tuple(f.precision for f in result.findings if f.precision is not None),
        losses=weighed.lost,
        repeat=judged.repeated,
        coverage=coverage(graph, result),
        allowed=options.allow,
        network=outline(graph),
        errors=judged.errors,
    )


def _overall(findings: Sequence[Finding], repeated: Repeat | None) -> Kind:
    """The worst kind; identical only if every judged value is.

    An answer from uninitialized memory is a mistake, however near it came this time.
    """
    kind = worst(findings)
    if repeated is not None and repeated.cause in BY_CHANCE:
        kind = max(kind, BY_CHANCE[repeated.cause], key=SEVERITY.index)
    return kind


def _method(graph: Graph, values: Arrays, result: Survey) -> str:
    if not (count := result.regions):
        return "every node on its own inputs"
    if all(v in graph.outputs for v in values):
        return "outputs only"
    return f"nodes on their own inputs, and {count} region{'s' * (count > 1)} of several nodes"


def _outputs(
    graph: Graph,
    result: Survey,
    on_outputs: Sequence[Finding],
    outputs: Arrays,
    meaning: Arrays,
) -> tuple[Finding, ...]:
    """Findings on the outputs, with figures and places against the whole network's meaning.

    settled: findings on the outputs as the whole network's, where they decided. An output that is
    right for what it was given, and was given the fruit of a mistake, is wrong.
    """
    by_value = {f.value: f for f in (*result.findings, *on_outputs)}
    results = []
    for value in graph.outputs:
        if value not in by_value or value not in outputs:
            continue
        before = [by_value[v] for v in sorted(_ancestors(graph, value)) if v in by_value]
        own = carried(by_value[value], before)
        if value in meaning:
            actual, expected = outputs[value], meaning[value]
            own = dataclasses.replace(
                own, plain=plain(actual, expected), worst=worst_elements(actual, expected)
            )
        results.append(own)
    return tuple(results)


def _feeds_itself(graph: Graph, outputs: Arrays) -> bool:
    """Whether one output is computed from another: judged on it, not on the inputs."""
    return any(not _ancestors(graph, v).isdisjoint(outputs) for v in outputs)


def _ancestors(graph: Graph, value: str) -> set[str]:
    """Values that `value` is computed from."""
    ancestors: set[str] = set()
    waiting = [value]
    while waiting:
        node = graph.producers.get(waiting.pop())
        for v in node.inputs if node is not None else ():
            if v is not None and v not in ancestors:
                ancestors.add(v)
                waiting.append(v)
    return ancestors


def _compare(seen: Observation, other: Runner | None, meaning: Arrays) -> tuple[Comparison, ...]:
    """Which side is nearer to the meaning, output by output."""
    if other is None:
        return ()
    first_name, second_name = seen.subject.name, other.name
    second, _ = answer_of(other, seen.graph, seen.inputs)
    results = []
    for value in seen.graph.outputs:
        if value not in seen.outputs or value not in second or value not in meaning:
            continue
        a, b, expected = seen.outputs[value], second[value], meaning[value]
        if not a.shape == b.shape == expected.shape:
            continue
        first, last = (root_mean_square(x.astype(np.float64) - expected) for x in (a, b))
        nearer = first_name if first < last else second_name
        results.append(
            Comparison(
                value,
                first_name,
                second_name,
                first,
                last,
                "neither" if first == last else nearer,
                same_bits(a, b),
            )
        )
    return tuple(results)
