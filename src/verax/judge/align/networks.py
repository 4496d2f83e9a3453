"""`align`: are two networks the same function, and where do they part?

Names in the two files mean nothing here. Inputs are matched by type and by trying, outputs and
inner values by the numbers that they hold, both networks evaluated in float64.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from verax.base.deadline import clock, limited_in_time
from verax.base.errors import InputError, VeraxError
from verax.base.figures import times
from verax.ir.graph import Graph, same_bits, specialize
from verax.ir.outline import outline
from verax.judge.align.divergence import Divergences, find_divergences, match_all
from verax.judge.align.inputs import (
    InputConversions,
    choose_first_sizes,
    match_inputs,
    pair_names,
    second_inputs,
    untelling,
)
from verax.judge.align.invisible_differences import invisible_differences
from verax.judge.align.permutations import Arrangement, arrange, likeliest
from verax.judge.align.proof import graph_open
from verax.judge.align.quantized_weights import quantization_in_words
from verax.judge.align.values import (
    Side,
    comparable,
    compare,
    difference,
    evaluate_all,
    with_spread,
)
from verax.judge.align.verdict import OperatorJudgement, evidence_notes, judge_operators
from verax.judge.align.wording import reasons_of
from verax.judge.inputs import draw_inputs
from verax.numerics import statistics as st
from verax.records.alignment import Alignment, Match, OutputMatch, Relation
from verax.records.environment import array_hash, environment
from verax.reference.evaluate import bind_symbols, to_work

COMPARING = 600.0
"""Seconds that a comparison may take where `timeout` is not given."""
CONFIRMING = 2
"""Samples of jittered weights for the inputs that only confirm."""
Progress = Callable[[str, float], None]
"""Called with (what is being done, share done)."""


@limited_in_time(COMPARING)
def align(
    first: Graph,
    second: Graph,
    inputs: Mapping[str, np.ndarray] | None = None,
    *,
    seed: int = 0,
    sizes: Mapping[str, int] | None = None,
    names: tuple[str, str] = ("first", "second"),
    timeout: float | None = None,
    progress: Progress | None = None,
) -> Alignment:
    """Compare two networks by what they compute, whatever their values are called.

    inputs: by the first network's names, in its declared types; drawn (seeded) when not given.
    sizes: of the first's symbols, for drawn inputs. names: of the networks, for the record.
    timeout: seconds, COMPARING when not given, after which no more operators are compared and no
    more inputs tried; what is open then is said to be so.
    Raises `InputError` when the networks take inputs that cannot be made of each other, and
    whatever `VeraxError` the evaluation of either meets.
    """
    clock().start()
    return _compared(first, second, inputs, seed, sizes, names, progress)


def _compared(
    first: Graph,
    second: Graph,
    inputs: Mapping[str, np.ndarray] | None,
    seed: int,
    sizes: Mapping[str, int] | None,
    names: tuple[str, str],
    progress: Progress | None,
    swapped: bool = False,
) -> Alignment:
    """As `align`, within its time. swapped: True for the comparison with the networks exchanged."""
    say = progress or (lambda description, done: None)
    try:
        paired_names = pair_names(first, second)
    except InputError as error:
        sentences = quantization_in_words(first, second)
        sentences = sentences or quantization_in_words(second, first, second_is="first")
        if not sentences:
            raise
        raise InputError(
            f"{error.cause}; {sentences[0]}", place=error.place, next_step=error.next_step
        ) from error
    first_sizes = {**choose_first_sizes(first, second, paired_names), **(sizes or {})}
    arrays, drawn = draw_inputs(first, seed, first_sizes)
    if inputs is not None:
        arrays, drawn = (
            {k: np.asarray(v) for k, v in inputs.items()},
            dict.fromkeys(inputs, "given"),
        )
    sizes_open, declared = graph_open(first, second), first
    first = specialize(first, bind_symbols(first, arrays))
    say("evaluating the first network", 0.05)
    sides_first = Side(first, evaluate_all(first, _work(first, arrays)))
    say("matching inputs", 0.2)
    conversions = match_inputs(sides_first, second, paired_names)
    say("evaluating the second network", 0.35)
    a, b = sides_first, _second_side(second, sides_first, conversions)

    def evaluate_both(work: Mapping[str, np.ndarray]) -> tuple[Side, Side]:
        one = Side(a.graph, evaluate_all(a.graph, work))
        return one, _second_side(second, one, conversions)

    outputs = match_outputs(a, b)
    if not all(o.statistic == 0.0 and not o.reason for o in outputs):
        say("measuring what rounded weights do", 0.45)
        a, b = with_spread(a, seed), with_spread(b, seed + 1)
        outputs = match_outputs(a, b)
    say("aligning values", 0.6)
    agree = all(not o.reason for o in outputs)
    divergences = Divergences(match_all(a, b)) if agree else find_divergences(a, b)
    outputs = _restated(outputs, divergences)
    notes = untelling(sides_first, second, conversions)
    if agree:
        say("confirming on other inputs", 0.9)
        outputs = _confirmed(a, b, conversions, outputs, seed + 2)
        outputs = _at_other_sizes(declared, second, conversions, outputs, bool(a.spread), seed + 2)
    relation = _relation(a, b, outputs, notes)
    explanations: list[str] = []
    if not agree:
        explanations = quantization_in_words(a.graph, b.graph, (a.values, b.values))
    blind = relation is Relation.undecided and all(not o.reason for o in outputs)
    if (relation is Relation.same or blind) and not written_alike(a.graph, b.graph):
        say("comparing operators", 0.95)
        judged = judge_operators(
            a,
            b,
            conversions,
            outputs,
            evaluate_both,
            hidden=invisible_differences(a, b, divergences.matches, seed + 3),
            sizes_open=sizes_open,
            seed=seed + 4,
            searches=not swapped,  # the first way round has searched
        )
        if judged.same or judged.search.sides is not None or not blind:
            relation, explanations = _by_operators(judged, divergences)
        if relation is Relation.no_difference and not swapped and _is_open(divergences):
            say("comparing operators the other way round", 0.97)
            fed = {v: b.values[v].astype(second.types[v].dtype.numpy) for v in second.inputs}
            reverse = _compared(second, declared, fed, seed, None, names[::-1], None, swapped=True)
            if reverse.relation is Relation.same:
                relation, explanations, divergences.locations = Relation.same, [], []
        notes += [] if relation is Relation.undecided else evidence_notes(judged)
    if clock().is_up and relation is not Relation.same:
        notes.append(f"{clock().reason}: what else differs was not looked for")
    return Alignment(
        relation,
        (*explanations, *reasons_of(names, relation, outputs, divergences, a, b)),
        *names,
        tuple(conversion.record(own, name) for name, (own, conversion) in conversions.items()),
        outputs,
        _matches(a, b, divergences),
        len(a.names),
        len(b.names),
        tuple(divergences.locations),
        tuple(notes),
        {v: f"{drawn[v]}; SHA-256 {array_hash(arrays[v])[:12]}" for v in first.inputs},
        environment(),
        seed,
        networks=(outline(first), outline(second)),
    )


def _work(graph: Graph, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {
        v: to_work(np.asarray(arrays[v]), graph.types[v].dtype, np.dtype(np.float64))
        for v in graph.inputs
    }


def _second_side(second: Graph, first: Side, conversions: InputConversions) -> Side:
    arrays = second_inputs(second, first.values, conversions)
    return Side(second, evaluate_all(second, arrays))


def match_outputs(first: Side, second: Side) -> tuple[OutputMatch, ...]:
    """Every output of the first network with its counterpart: the one of the same name, else the
    one that holds the same numbers, else the one of the same size."""
    free = list(second.graph.outputs)
    results: dict[str, OutputMatch] = {}
    for test in (_same_name, _any_name, _same_size):
        for value in first.graph.outputs:
            if value in results:
                continue
            match = next((m for w in free if (m := test(first, second, value, w))), None)
            if match is not None:
                results[value] = match
                free.remove(match.second)
    for value in first.graph.outputs:
        results.setdefault(
            value, OutputMatch(value, "", "none", reason="the second network has no such output")
        )
    extra = [
        OutputMatch("", w, "none", reason="the first network has no such output") for w in free
    ]
    return (*(results[v] for v in first.graph.outputs), *extra)


def _same_name(first: Side, second: Side, value: str, partner: str) -> OutputMatch | None:
    return _any_name(first, second, value, partner) if value == partner else None


def _any_name(first: Side, second: Side, value: str, partner: str) -> OutputMatch | None:
    """The record of two outputs that hold the same numbers, else None."""
    a, b = first.values[value], second.values[partner]
    if not (comparable(a) and comparable(b)):
        same = a.size == b.size and arrange(_wide(b), _wide(a), 0.0)
        return _record(value, partner, same, 0.0, 0.0) if same else None
    match = compare(first, value, second, partner)
    if match is None or match.arrangement.shuffled:
        return None
    return _record(
        value, partner, match.arrangement, match.statistic, _gap(a, match.arrangement.apply(b))
    )


def _same_size(first: Side, second: Side, value: str, partner: str) -> OutputMatch | None:
    a, b = _wide(first.values[value]), _wide(second.values[partner])
    named = partner == value or (value not in second.graph.outputs and a.size == b.size)
    if not named:
        return None
    arrangement = likeliest(b, a)
    if arrangement is None:
        shapes = f"the shapes are {list(a.shape)} and {list(b.shape)}"
        return OutputMatch(value, partner, "none", reason=shapes)
    statistic = np.inf
    if comparable(first.values[value]) and comparable(second.values[partner]):
        statistic = difference(first, value, second, partner, arrangement)
    record = _record(value, partner, arrangement, statistic, _gap(a, arrangement.apply(b)))
    return dataclasses.replace(record, reason=_apart(record))


def _apart(record: OutputMatch) -> str:
    factor = f"{times(record.statistic)} times what rounding of the weights can do"
    return f"they differ by up to {record.max_abs:.3g}" + (
        f", {factor}" if np.isfinite(record.statistic) else ""
    )


def _record(
    value: str, partner: str, arrangement: Arrangement, statistic: float, gap: float
) -> OutputMatch:
    a = arrangement
    return OutputMatch(value, partner, str(a), a.axes, a.axis, a.channels, float(statistic), gap)


def _wide(array: np.ndarray) -> np.ndarray:
    return np.nan_to_num(np.asarray(array).astype(np.float64))


def _gap(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.abs(_wide(a) - _wide(b)).max(initial=0.0))


def _restated(
    outputs: tuple[OutputMatch, ...], divergences: Divergences
) -> tuple[OutputMatch, ...]:
    """`outputs`, those that the second network has as an inner value with that reason."""
    results = []
    for o in outputs:
        match = divergences.matches.get(o.first)
        if o.reason and match is not None and not match.arrangement.shuffled:
            reason = f"the second has it inside, as {match.second!r}, and goes on from there"
            o = dataclasses.replace(o, reason=reason)
        results.append(o)
    return tuple(results)


def _confirmed(
    first: Side,
    second: Side,
    conversions: InputConversions,
    outputs: tuple[OutputMatch, ...],
    seed: int,
) -> tuple[OutputMatch, ...]:
    """`outputs` compared again on fresh inputs, which excludes accidental matches."""
    fresh, _ = draw_inputs(first.graph, seed)
    a = Side(first.graph, evaluate_all(first.graph, _work(first.graph, fresh)))
    b = _second_side(second.graph, a, conversions)
    if first.spread:
        a, b = (with_spread(s, seed, s.graph.outputs, CONFIRMING) for s in (a, b))
    again = {(o.first, o.second): o for o in match_outputs(a, b)}
    results = []
    for o in outputs:
        repeat = again.get((o.first, o.second))
        same = repeat is not None and repeat.statistic <= st.SUSPICIOUS_T
        if same and repeat is not None and (o.axis, o.channels) != (repeat.axis, repeat.channels):
            same = _tied(first, o)
        reason = "" if same else "they agree on one input and differ on another"
        worst = max(o, repeat or o, key=lambda m: m.statistic)
        results.append(
            dataclasses.replace(
                o, statistic=worst.statistic, max_abs=worst.max_abs, reason=o.reason or reason
            )
        )
    return tuple(results)


def _at_other_sizes(
    first: Graph,
    second: Graph,
    conversions: InputConversions,
    outputs: tuple[OutputMatch, ...],
    rounded: bool,
    seed: int,
) -> tuple[OutputMatch, ...]:
    """`outputs` compared again with every symbolic size one larger; unchanged if a network takes no
    such sizes."""
    if not all(any(g.types[v].symbols() for v in g.inputs) for g in (first, second)):
        return outputs
    sizes = {s: n + 1 for s, n in choose_first_sizes(first, second, _names(conversions)).items()}
    try:
        arrays, _ = draw_inputs(first, seed, sizes)
        graph = specialize(first, bind_symbols(first, arrays))
        a = Side(graph, evaluate_all(graph, _work(graph, arrays)))
        b = _second_side(
            second, a, {v: (own, w.resized(arrays[own])) for v, (own, w) in conversions.items()}
        )
        if rounded:
            a, b = (with_spread(s, seed, s.graph.outputs, CONFIRMING) for s in (a, b))
        again = {(o.first, o.second): o for o in match_outputs(a, b)}
    except (VeraxError, ValueError, IndexError):
        return outputs
    sizes_text = ", ".join(f"{s} = {n}" for s, n in sizes.items())
    results = []
    for o in outputs:
        repeat = again.get((o.first, o.second))
        lost = repeat is None or repeat.how == "none"
        if not o.reason and (lost or (repeat and repeat.statistic > st.SUSPICIOUS_T)):
            reason = f"they agree at these sizes and differ at others ({sizes_text})"
            o = dataclasses.replace(o, statistic=np.inf, reason=reason)
        results.append(o)
    return tuple(results)


def _names(conversions: InputConversions) -> dict[str, str]:
    return {name: own for name, (own, _) in conversions.items()}


def _tied(first: Side, output: OutputMatch) -> bool:
    """True if equal slices make the order along an axis ambiguous."""
    y = first.values[output.first]
    rows = np.moveaxis(y, output.axis, 0).reshape(y.shape[output.axis], -1)
    return len(np.unique(rows, axis=0)) < len(rows)


def _relation(
    first: Side, second: Side, outputs: tuple[OutputMatch, ...], notes: list[str]
) -> Relation:
    if written_alike(first.graph, second.graph):
        notes.append("the two are written alike: every node and every weight is the same")
        return Relation.same
    blind = [
        o.first
        for o in outputs
        if o.first
        and not comparable(first.values[o.first])
        and first.values[o.first].dtype.kind == "f"
    ]
    differing = [o for o in outputs if o.reason]
    if any(not st.ROUNDING_T < o.statistic <= st.SUSPICIOUS_T for o in differing):
        return Relation.different
    if differing:
        notes.append("the difference is hardly more than rounding of the weights makes")
        return Relation.undecided
    if blind:
        notes.append(
            f"{', '.join(blind)} is one number everywhere, or not finite, on these inputs: "
            "agreement proves nothing"
        )
        return Relation.undecided
    return Relation.same


def _by_operators(
    judged: OperatorJudgement, divergences: Divergences
) -> tuple[Relation, list[str]]:
    """Relation of two networks that agree, by the comparison of their operators, and the
    reasons."""
    if judged.same:
        return Relation.same, []
    result = judged.search
    if result.sides is not None:
        fresh = find_divergences(*result.sides)
        divergences.locations = list(judged.hidden or fresh.locations or judged.divergences)
        if divergences.locations == fresh.locations:
            divergences.complete, divergences.everywhere = (fresh.complete, fresh.everywhere)
        words = f"they agree on these inputs and part on others, found by search: {result.words}"
        return Relation.different, [words]
    divergences.locations = list(judged.hidden or judged.divergences)
    return Relation.no_difference, [
        f"no difference on these inputs, nor on {result.tried_count} others that were tried; but "
        "not every operator of one has its counterpart in the other"
    ]


def _is_open(divergences: Divergences) -> bool:
    """True if no divergence names an attribute: equal values may have been paired in one order
    only, so that the comparison with the networks exchanged can succeed."""
    return not clock().is_up and not any(p.attributes for p in divergences.locations)


def written_alike(first: Graph, second: Graph) -> bool:
    """Whether two networks differ in names only: nodes in one order, with the same attributes,
    weights bit for bit, and wires."""
    if len(first.nodes) != len(second.nodes) or len(first.inputs) != len(second.inputs):
        return False
    names: dict[str | None, str | None] = {None: None, **dict(zip(first.inputs, second.inputs))}
    for a, b in zip(first.nodes, second.nodes):
        if a.op != b.op or len(a.inputs) != len(b.inputs):
            return False
        for v, w in zip(a.inputs, b.inputs):
            own, partner = first.constants.get(v or ""), second.constants.get(w or "")
            if own is not None and partner is not None and same_bits(own, partner):
                names.setdefault(v, w)
            if v not in names or names[v] != w:
                return False
        names.update(zip(a.outputs, b.outputs))
    return [names.get(v) for v in first.outputs] == list(second.outputs)


def _matches(first: Side, second: Side, divergences: Divergences) -> tuple[Match, ...]:
    return tuple(
        Match(
            value,
            match.second,
            first.operator(value),
            second.operator(match.second),
            str(match.arrangement),
            match.exact,
        )
        for value, match in divergences.matches.items()
    )
