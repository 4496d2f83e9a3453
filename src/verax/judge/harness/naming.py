"""Names that mean another value: found by what hangs together without them, and not used.

The names of a subject that is another program (a module's parts, another network's values, a dump)
may equal this network's by chance. A value that the subject went on with fits what was computed
from it, however wrong it is; another value fits neither what lies before it nor what lies behind
it. Such a value is left out, with a note. One of a wrong shape fits nothing either way: it is left
out only where the rest of the network is right without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from verax.ir.graph import Graph
from verax.judge.decide.local import conform
from verax.judge.protocol import Naming, Runner
from verax.judge.regions.network import Survey, fits
from verax.records.verdict import Finding, Kind

Arrays = Mapping[str, np.ndarray]
ROUNDS = 5
"""Leaving one value out may show that the name of the next is another's, too."""


def without_misnomers(
    graph: Graph,
    subject: Runner,
    checked: Survey,
    values: Arrays,
    judge: Callable[[Arrays], Survey],
) -> tuple[Survey, dict[str, np.ndarray], tuple[str, ...]]:
    """(survey of the values left, values left, notes on those dropped), where values of the subject
    whose names mean another value than the network's are dropped.

    checked: the survey of all `values`.

    judge: surveys some of the values. Outputs keep their names: their order and number are the
    network's contract.
    """
    naming = subject.capabilities.naming
    if naming is Naming.network or not _mistakes(checked):
        return checked, dict(values), ()
    misfits = {v for v, a in values.items() if not _fits(graph, v, a)} - {*graph.outputs}
    again, left = checked, dict(values)
    for _ in range(ROUNDS):
        doubted = {f.value for f in _mistakes(again)} - {*graph.outputs} | misfits & left.keys()
        if naming is Naming.given:
            doubted &= misfits
        doubted -= _correctly_used(graph, again, left)
        if not doubted or not left.keys() - doubted:
            break
        left = {v: a for v, a in left.items() if v not in doubted}
        again = judge(left)
    # What was computed from a value of a wrong shape cannot be judged: it may be the cause.
    still = misfits & _hidden_sources(graph, _mistakes(again), left)
    dropped = [v for v in values if v not in left and v not in still]
    if not dropped:
        return checked, dict(values), ()
    if still:
        left = {v: a for v, a in values.items() if v not in dropped}
        again = judge(left)
    return again, left, (_note(graph, subject, values, dropped, misfits),)


def _note(
    graph: Graph, subject: Runner, values: Arrays, dropped: Sequence[str], misfits: set[str]
) -> str:
    one = len(dropped) == 1
    reason = "neither what lies before nor what lies behind fits the content"
    unfit = next((v for v in dropped if v in misfits), None)
    if unfit is not None:
        type_text = f"{values[unfit].dtype}[{', '.join(map(str, values[unfit].shape))}]"
        reason = (
            f"{'it' if one else repr(unfit)} is {type_text}, the network's is {graph.types[unfit]}"
        )
    return (
        f"{names(dropped)} of {subject.name} {'is another value' if one else 'are other values'} "
        f"than the network's of {'this name' if one else 'these names'} and "
        f"{'was' if one else 'were'} not used: {reason}"
    )


def _mistakes(checked: Survey) -> list[Finding]:
    return [f for f in checked.findings if f.kind is Kind.mistake]


def _fits(graph: Graph, value: str, array: np.ndarray) -> bool:
    declared = graph.types[value]
    return fits(declared, conform(np.asarray(array), declared.dtype))


def _correctly_used(graph: Graph, checked: Survey, values: Arrays) -> set[str]:
    """Names of values from which another one was computed correctly."""
    right = (Kind.identical, Kind.rounding, Kind.precision)
    used: set[str] = set()
    for finding in checked.findings:
        if finding.kind in right:
            used |= _sources(graph, finding.value, values)[1]
    return used


def _hidden_sources(graph: Graph, mistakes: Sequence[Finding], values: Arrays) -> set[str]:
    """Values without a shown content that may have caused one of `mistakes`."""
    return {v for f in mistakes for v in _sources(graph, f.value, values)[0]}


def _sources(graph: Graph, value: str, values: Arrays) -> tuple[set[str], set[str]]:
    """(hidden values, shown values) that `value` was computed from; the hidden ones lie between."""
    hidden: set[str] = set()
    starts: set[str] = set()
    waiting = [value]
    while waiting:
        node = graph.producers.get(waiting.pop())
        for v in node.inputs if node is not None else ():
            if v is None or v not in graph.producers:
                continue
            if v in values:
                starts.add(v)
            elif v not in hidden:
                hidden.add(v)
                waiting.append(v)
    return hidden, starts


def names(names: Mapping[str, object] | Sequence[str]) -> str:
    """The first of these, and how many more there are."""
    listed = list(names)
    return ", ".join(listed[:8]) + (f" and {len(listed) - 8} more" if len(listed) > 8 else "")
