"""`check`: runs a subject, watches it if it can be watched, and assembles the Verdict."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from verax.base.deadline import OutOfTime, clock, limited_in_time, require_time
from verax.base.errors import InputError, UsageError, VeraxError
from verax.base.kept import keeping
from verax.ir.graph import Graph, Node, same_bits, specialise
from verax.ir.pixels import Pixels
from verax.judge.decide.local import places, plain
from verax.judge.decide.possible import knowing_the_subject
from verax.judge.explain.causes import diagnose
from verax.judge.harness.faults import harness_causes
from verax.judge.harness.naming import names, without_misnomers
from verax.judge.harness.repeat import CHANCE, UNINITIALISED, repeat
from verax.judge.inputs import INITIAL, draw_inputs, require_seed, untelling
from verax.judge.locate.consecutive import Inputs, StepRunner, in_steps, state_causes, written_notes
from verax.judge.locate.widen import widen, without_fused_shapes
from verax.judge.protocol import Runner, is_number, renamed_answers, stored_for
from verax.judge.regions.budget import held_to_memory, in_context, require_room_for_meaning
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
from verax.ops.pointwise.identity import Identity
from verax.records.environment import array_hash, environment
from verax.records.verdict import (
    Blame,
    Comparison,
    Explanation,
    Finding,
    Input,
    Kind,
    Loss,
    Repeat,
    Verdict,
)
from verax.reference.evaluate import bind_symbols, evaluate

Arrays = Mapping[str, np.ndarray]
JUDGING = 600.0
"""Seconds that judging may take when nobody says otherwise."""
BY_CHANCE = {UNINITIALISED: Kind.mistake, CHANCE: Kind.undecided}
"""What an answer is worth that comes out otherwise the next time."""
EXPLAINED = 8
"""Guilty nodes whose causes are sought."""


@keeping()
@held_to_memory
@knowing_the_subject
@limited_in_time(JUDGING)
def check(
    graph: Graph,
    subject: Runner,
    inputs: Inputs = None,
    *,
    other: Runner | None = None,
    sizes: Mapping[str, int] | None = None,
    seed: int = 0,
    watch: bool = True,
    winograd: bool = True,
    explain: bool = True,
    twice: bool = True,
    require_power: float | None = None,
    allow: Collection[str] = (),
    timeout: float | None = None,
    steps: int | None = None,
    progress: Progress | None = None,
    memory: int | str | None = None,
    pixels: Mapping[str, Pixels] | None = None,
) -> Verdict:
    """Judge what `subject` makes of `graph` on `inputs`.

    inputs: by name, in the declared types; those stored with the subject, or drawn (seeded), when
    not given. other: a second implementation, to say which is nearer to the float64 meaning.
    sizes: of symbols, for drawn inputs. watch: whether to ask for values inside the network.
    winograd: whether the subject may use Winograd's algorithm; False makes the check sharper.
    explain: whether to find out what the guilty nodes did, or what is wrong around the network.
    twice: whether to run the subject again, in poisoned memory where it allows that. require_power:
    relative error that must have shown in every node; a check that misses it is `undecided`. allow:
    arithmetics ("bf16", "TF32", "Strassen", ...) whose errors the network may make large without
    the verdict being *precision lost*, and unstable algorithms that may lose digits. timeout:
    seconds that judging may take, beside the subject's first runs, JUDGING when not given; what it
    does not get to is unchecked or undecided, and the record says so. steps: how many consecutive
    runs of a network that remembers are judged, by default two; `inputs` may then be a list of
    those of every run. memory: bytes, or "8G", that judging may take, half of what is free when not
    given; what does not fit is unchecked, the record says why. pixels: of drawn images.

    Raises `InputError` when inputs do not fit, `UsageError` when the subject's answer has none of
    the network's outputs, and whatever `VeraxError` the subject fails with.
    """
    require_seed(seed)
    allow = require_known(allow)
    notes = written_notes(graph)
    if other is not None:
        other = in_steps(graph, other, inputs, steps)[1]
    graph, subject, inputs = in_steps(graph, subject, inputs, steps)
    if isinstance(subject, StepRunner):
        notes += subject.notes()
        twice = twice and subject.repeatable
    arrays, origins = _inputs(graph, subject, inputs, seed, sizes, notes, pixels)
    notes += untelling({v: a for v, a in arrays.items() if origins.get(v) != INITIAL})
    fixed = _with_computed_outputs(specialise(graph, bind_symbols(graph, arrays)))
    first = shown = _run(subject, graph, arrays, None, notes)
    outputs = {v: shown[v] for v in graph.outputs if v in shown}
    watched_apart = False
    if watch and subject.capabilities.watches:
        shown, watched_apart = _watched(fixed, subject, arrays, outputs, notes)
    known = {v: a for v, a in shown.items() if v in fixed.producers}
    known = without_fused_shapes(fixed, subject, arrays, known, notes)
    _note_strangers(fixed, shown, notes)
    if not known:
        raise UsageError(
            f"the subject gave no value of this network (it gave {names(shown)})",
            place=subject.name,
            next_step=f"name its answers as the network does: {names(graph.outputs)}",
        )
    missing = [v for v in graph.outputs if v not in outputs and v not in graph.inputs]
    if missing:
        notes.append(f"the subject gave no {', '.join(missing)}")
    clock().start()
    # What does not need each other goes side by side; the subject itself runs once at a time.
    with ThreadPoolExecutor(2) as pool:
        again = pool.submit(in_context(repeat), subject, graph, arrays, first) if twice else None
        apart = None
        if watched_apart:
            apart = pool.submit(
                in_context(survey),
                fixed,
                arrays,
                outputs,
                seed=seed,
                winograd=winograd,
                measure_power=False,
            )
        judge = partial(survey, fixed, arrays, seed=seed, winograd=winograd, progress=progress)
        found, known = without_misnomers(fixed, subject, judge(known), known, judge, notes)
        repeated = None if again is None else again.result()
        widen(
            fixed,
            found,
            {**arrays, **known},
            subject,
            seed=seed,
            winograd=winograd,
            progress=progress,
        )
        unwatched = [] if apart is None else _beyond(found.findings, apart.result().findings)
        found.findings += unwatched
    settled = settle(fixed, arrays, outputs, found, seed=seed, winograd=winograd, notes=notes)
    judged_whole = all(v in outputs for v in known) and not _feeds_itself(fixed, outputs)
    meaning = {} if judged_whole and other is None else _whole_meaning(fixed, arrays, notes)
    kind = _overall(found.findings, repeated)
    weak = "" if require_power is None else lacking(fixed, found, require_power)
    if weak and kind in ACCEPTED:
        kind = Kind.undecided
    lost: tuple[Loss, ...] = ()
    if kind is Kind.precision:
        lost, open_ = losses(fixed, arrays, outputs, known, found.findings, seed=seed, allow=allow)
        notes += [open_] if open_ else []
        kind = Kind.precision_lost if any(not x.allowed for x in lost) else kind
    causes: tuple[Explanation, ...] = ()
    blame = found.blame(fixed)
    if explain and blame:
        try:
            require_time()
            causes = state_causes(fixed, subject, arrays, known, seed=seed)
            causes = causes or _harness(fixed, subject, arrays, known, seed)
            if not causes:
                values = {**arrays, **known}
                # What watching mended is not among the values that were watched.
                mended = {(f.value, f.region): {**arrays, **outputs} for f in unwatched}
                blame = _explained(blame, fixed, values, mended, subject, seed, notes, progress)
        except OutOfTime as error:
            notes.append(f"the causes were not sought to the end: {error}")
    described = dict(subject.describe())
    notes += [described.pop("note")] if "note" in described else []
    verdict = Verdict(
        kind=kind,
        reasons=(),
        subject={"name": subject.name, **described},
        method=_method(fixed, known, found),
        outputs=with_losses(_outputs(fixed, found, settled, outputs, meaning), lost),
        nodes=tuple(found.findings),
        blame=blame,
        power=tuple(found.power),
        comparisons=_compare(graph, arrays, subject, outputs, other, meaning),
        inputs=tuple(
            Input(v, str(fixed.types[v]), array_hash(arrays[v]), origins[v]) for v in graph.inputs
        ),
        environment=environment(),
        seed=seed,
        unchecked=found.unchecked,
        notes=tuple(notes),
        causes=causes,
        precisions=tuple(f.precision for f in found.findings if f.precision is not None),
        losses=lost,
        repeat=repeated,
        coverage=coverage(fixed, found),
        allowed=allow,
    )
    return dataclasses.replace(verdict, reasons=tuple(reasons_of(verdict, weak)))


def _with_computed_outputs(graph: Graph) -> Graph:
    """The same graph, whose constant outputs pass through an Identity: what a subject gives for
    them is judged like any value."""
    fixed = [v for v in dict.fromkeys(graph.outputs) if v in graph.constants]
    if not fixed:
        return graph
    sources = {v: f"{v}/constant" for v in fixed}
    while not graph.types.keys().isdisjoint(sources.values()):
        sources = {v: f"{name}'" for v, name in sources.items()}
    copies = [Node(Identity(), (sources[v],), (v,), v) for v in fixed]
    others = [
        dataclasses.replace(n, inputs=tuple(v and sources.get(v, v) for v in n.inputs))
        for n in graph.nodes
    ]
    return dataclasses.replace(
        graph,
        nodes=(*copies, *others),
        constants={sources.get(v, v): array for v, array in graph.constants.items()},
        types={**graph.types, **{sources[v]: graph.types[v] for v in fixed}},
    )


def _beyond(watched: Sequence[Finding], apart: Sequence[Finding]) -> list[Finding]:
    """What the unwatched outputs add: no rounding, and no consequence of a node found guilty."""
    guilty = {f.node for f in watched if f.kind is Kind.mistake}
    return [
        f
        for f in apart
        if f.kind is not Kind.rounding
        and not (f.kind is Kind.mistake and guilty.intersection(f.region))
    ]


def _harness(
    graph: Graph, subject: Runner, inputs: Arrays, known: Arrays, seed: int
) -> tuple[Explanation, ...]:
    """Faults around the network that explain the difference."""

    def rerun(other: Arrays) -> dict[str, np.ndarray]:
        return _run(subject, graph, other, None, [])

    again = rerun if subject.stored_inputs is None else None
    return harness_causes(graph, inputs, known, again, seed=seed)


def _explained(
    blame: tuple[Blame, ...],
    graph: Graph,
    values: Arrays,
    others: Mapping[tuple[str, tuple[str, ...]], Arrays],
    subject: Runner,
    seed: int,
    notes: list[str],
    progress: Progress | None,
) -> tuple[Blame, ...]:
    """What each guilty node did instead, for the first of them.

    others: the subject's values where they are not `values`, by blamed value and region.
    """
    first, rest = blame[:EXPLAINED], blame[EXPLAINED:]
    if rest:
        notes.append(
            f"{len(blame)} nodes are guilty; the causes of the first {EXPLAINED} were sought"
        )
    found = []
    for i, one in enumerate(first):
        if progress is not None:
            progress(i, len(first), f"explaining {one.node}")
        if clock().is_up:
            notes.append(f"the causes of {one.node} were not sought: {clock().reason}")
            found.append(one)
            continue
        given = others.get((one.value, one.region), values)
        found.append(diagnose(one, graph, given, subject, seed=seed))
    return (*found, *rest)


def _inputs(
    graph: Graph,
    subject: Runner,
    given: Arrays | None,
    seed: int,
    sizes: Mapping[str, int] | None,
    notes: list[str],
    pixels: Mapping[str, Pixels] | None,
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    stored, said = stored_for(graph, subject.stored_inputs or {})
    notes += said
    if given is not None:
        arrays = {k: np.asarray(v) for k, v in given.items()}
        for name in sorted(arrays.keys() & stored.keys()):
            if not same_bits(arrays[name], stored[name]):
                raise InputError(
                    "the recorded answers belong to another input",
                    place=f"input {name!r} of {subject.name}",
                    next_step="leave the inputs out to use the recorded ones",
                )
        return _with_state(graph, arrays, dict.fromkeys(given, "given"))
    if subject.stored_inputs is None:
        return draw_inputs(graph, seed, sizes, pixels)
    absent = [v for v in graph.arguments if v not in stored]
    if absent:
        raise InputError(
            f"the recorded answers come without the input {names(absent)}",
            place=subject.name,
            next_step="give the inputs that the answers belong to, or store them as in:NAME",
        )
    return _with_state(graph, stored, dict.fromkeys(stored, f"stored with {subject.name}"))


def _with_state(
    graph: Graph, arrays: dict[str, np.ndarray], origins: dict[str, str]
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """With the initial value of state that was not given."""
    begin = {v: a for v, a in graph.initial.items() if v not in arrays}
    return {**arrays, **begin}, {**origins, **dict.fromkeys(begin, INITIAL)}


def _run(
    subject: Runner,
    graph: Graph,
    inputs: Arrays,
    keep: Sequence[str] | None,
    notes: list[str],
) -> dict[str, np.ndarray]:
    """The subject's values under the network's names; `notes` tells what was assumed.

    Raises `UsageError` when one does not hold numbers.
    """
    values = {k: np.asarray(v) for k, v in subject.run(graph, inputs, keep).items()}
    for name, array in values.items():
        if array.dtype.kind not in "biuf" and not is_number(array):
            raise UsageError(
                f"the subject gave {array.dtype} elements, which are no real numbers",
                place=f"value {name!r} of {subject.name}",
                next_step="give arrays of integers, booleans or floats",
            )
    values, said = renamed_answers(graph, values)
    notes += [note for note in said if note not in notes]
    return values


def _watched(
    graph: Graph, subject: Runner, inputs: Arrays, outputs: Arrays, notes: list[str]
) -> tuple[dict[str, np.ndarray], bool]:
    """Values inside, and whether watching changed the outputs (then a note says so)."""
    inner = [v for node in graph.nodes for v in node.outputs]
    try:
        shown = _run(subject, graph, inputs, inner, notes)
    except VeraxError as error:
        notes.append(f"the subject could not be watched inside: {error.cause}")
        return dict(outputs), False
    changed = [v for v, a in outputs.items() if v in shown and not same_bits(a, shown[v])]
    if changed:
        notes.append(
            f"watching changes the subject: {', '.join(changed)} came out with other bits when "
            "inner values were kept (many runtimes fuse nodes otherwise); the unwatched outputs "
            "were judged as well"
        )
    return shown, bool(changed)


def _note_strangers(graph: Graph, shown: Arrays, notes: list[str]) -> None:
    strangers = [v for v in shown if v not in graph.types]
    if strangers:
        notes.append(f"the subject also gave {names(strangers)}, which this network has not")


def _whole_meaning(graph: Graph, inputs: Arrays, notes: list[str]) -> dict[str, np.ndarray]:
    """Float64 outputs of the whole network; empty, with a note, when that cannot be evaluated."""
    if clock().is_up:
        notes.append(f"the whole network's float64 meaning was not evaluated: {clock().reason}")
        return {}
    try:
        require_room_for_meaning(graph)
        return evaluate(graph, inputs)
    except VeraxError as error:
        notes.append(f"the whole network's float64 meaning could not be evaluated: {error.cause}")
        return {}


def _overall(findings: Sequence[Finding], repeated: Repeat | None) -> Kind:
    """The worst kind; identical only if every judged value is.

    An answer from uninitialised memory is a mistake, however near it came this time.
    """
    kind = worst(findings)
    if repeated is not None and repeated.cause in BY_CHANCE:
        kind = max(kind, BY_CHANCE[repeated.cause], key=SEVERITY.index)
    return kind


def _method(graph: Graph, known: Arrays, found: Survey) -> str:
    if not (count := found.regions):
        return "every node on its own inputs"
    if all(v in graph.outputs for v in known):
        return "outputs only"
    return f"nodes on their own inputs, and {count} region{'s' * (count > 1)} of several nodes"


def _outputs(
    graph: Graph,
    found: Survey,
    settled: Sequence[Finding],
    outputs: Arrays,
    meaning: Arrays,
) -> tuple[Finding, ...]:
    """Findings on the outputs, with figures and places against the whole network's meaning.

    settled: findings on the outputs as the whole network's, where they decided. An output that is
    right for what it was given, and was given the fruit of a mistake, is wrong.
    """
    by_value = {f.value: f for f in (*found.findings, *settled)}
    results = []
    for value in graph.outputs:
        if value not in by_value or value not in outputs:
            continue
        before = [by_value[v] for v in sorted(_ancestors(graph, value)) if v in by_value]
        own = carried(by_value[value], before)
        if value in meaning:
            given, expected = outputs[value], meaning[value]
            own = dataclasses.replace(
                own, plain=plain(given, expected), worst=places(given, expected)
            )
        results.append(own)
    return tuple(results)


def _feeds_itself(graph: Graph, outputs: Arrays) -> bool:
    """Whether one output is computed from another: judged on it, not on the inputs."""
    return any(not _ancestors(graph, v).isdisjoint(outputs) for v in outputs)


def _ancestors(graph: Graph, value: str) -> set[str]:
    """Values that `value` is computed from."""
    found: set[str] = set()
    waiting = [value]
    while waiting:
        node = graph.producers.get(waiting.pop())
        for v in node.inputs if node is not None else ():
            if v is not None and v not in found:
                found.add(v)
                waiting.append(v)
    return found


def _compare(
    graph: Graph,
    inputs: Arrays,
    subject: Runner,
    outputs: Arrays,
    other: Runner | None,
    meaning: Arrays,
) -> tuple[Comparison, ...]:
    """Which side is nearer to the meaning, output by output."""
    if other is None:
        return ()
    second = _run(other, graph, inputs, None, [])
    results = []
    for value in graph.outputs:
        if value not in outputs or value not in second or value not in meaning:
            continue
        a, b, expected = outputs[value], second[value], meaning[value]
        if not a.shape == b.shape == expected.shape:
            continue
        first, last = (root_mean_square(x.astype(np.float64) - expected) for x in (a, b))
        nearer = subject.name if first < last else other.name
        results.append(
            Comparison(
                value,
                subject.name,
                other.name,
                first,
                last,
                "neither" if first == last else nearer,
                same_bits(a, b),
            )
        )
    return tuple(results)
