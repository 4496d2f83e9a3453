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
    found: Survey,
    values: Arrays,
    judge: Callable[[Arrays], Survey],
) -> tuple[Survey, dict[str, np.ndarray], tuple[str, ...]]:
    """What `found` says of `values` once names that mean another value are not used any more, the
    values left, and notes that tell which went.

    judge: surveys some of the values. Outputs keep their names: their order and number are the
    network's contract.
    """
    naming = subject.capabilities.naming
    if naming is Naming.network or not _guilty(found):
        return found, dict(values), ()
    misfits = {v for v, a in values.items() if not _fits(graph, v, a)} - {*graph.outputs}
    again, left = found, dict(values)
    for _ in range(ROUNDS):
        doubted = {f.value for f in _guilty(again)} - {*graph.outputs} | misfits & left.keys()
        if naming is Naming.given:
            doubted &= misfits
        doubted -= _went_on_with(graph, again, left)
        if not doubted or not left.keys() - doubted:
            break
        left = {v: a for v, a in left.items() if v not in doubted}
        again = judge(left)
    # What was computed from a value of a wrong shape cannot be judged: it may be the cause.
    still = misfits & _behind(graph, _guilty(again), left)
    dropped = [v for v in values if v not in left and v not in still]
    if not dropped:
        return found, dict(values), ()
    if still:
        left = {v: a for v, a in values.items() if v not in dropped}
        again = judge(left)
    return again, left, (_note(graph, subject, values, dropped, misfits),)


def _note(
    graph: Graph, subject: Runner, values: Arrays, dropped: Sequence[str], misfits: set[str]
) -> str:
    one = len(dropped) == 1
    why = "neither what lies before nor what lies behind fits the content"
    unfit = next((v for v in dropped if v in misfits), None)
    if unfit is not None:
        given = f"{values[unfit].dtype}[{', '.join(map(str, values[unfit].shape))}]"
        why = f"{'it' if one else repr(unfit)} is {given}, the network's is {graph.types[unfit]}"
    return (
        f"{names(dropped)} of {subject.name} {'is another value' if one else 'are other values'} "
        f"than the network's of {'this name' if one else 'these names'} and "
        f"{'was' if one else 'were'} not used: {why}"
    )


def _guilty(found: Survey) -> list[Finding]:
    return [f for f in found.findings if f.kind is Kind.mistake]


def _fits(graph: Graph, value: str, array: np.ndarray) -> bool:
    declared = graph.types[value]
    return fits(declared, conform(np.asarray(array), declared.dtype))


def _went_on_with(graph: Graph, found: Survey, shown: Arrays) -> set[str]:
    """Shown values from which another one was computed as it should be."""
    right = (Kind.identical, Kind.rounding, Kind.precision)
    used: set[str] = set()
    for finding in found.findings:
        if finding.kind in right:
            used |= _before(graph, finding.value, shown)[1]
    return used


def _behind(graph: Graph, guilty: Sequence[Finding], shown: Arrays) -> set[str]:
    """Values that are not shown and may be what is wrong with a guilty one."""
    return {v for f in guilty for v in _before(graph, f.value, shown)[0]}


def _before(graph: Graph, value: str, shown: Arrays) -> tuple[set[str], set[str]]:
    """What `value` was computed from: hidden values, and the shown ones where these begin."""
    hidden: set[str] = set()
    starts: set[str] = set()
    waiting = [value]
    while waiting:
        node = graph.producers.get(waiting.pop())
        for v in node.inputs if node is not None else ():
            if v is None or v not in graph.producers:
                continue
            if v in shown:
                starts.add(v)
            elif v not in hidden:
                hidden.add(v)
                waiting.append(v)
    return hidden, starts


def names(names: Mapping[str, object] | Sequence[str]) -> str:
    """The first of these, and how many more there are."""
    listed = list(names)
    return ", ".join(listed[:8]) + (f" and {len(listed) - 8} more" if len(listed) > 8 else "")
