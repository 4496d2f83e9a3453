"""`Alarm`: what a case showed, before anybody else was asked about it, and its key.

Two cases show the same finding when classification, operator, cause and location are the same:
messages lose their numbers and names for that.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from verax.base.errors import VeraxError
from verax.base.process.processes import SubjectDiedError, SubjectLateError
from verax.ir.graph import Graph
from verax.records.verdict import Blame, Kind, Verdict

MISTAKE, REFUSAL, CRASH, HANG = "mistake", "refusal", "crash", "hang"
MEMORY, CHANCE, PRECISION = "memory", "nondeterminism", "precision lowered"
CLASSIFICATIONS = (MISTAKE, CRASH, HANG, MEMORY, CHANCE, PRECISION, REFUSAL)
MESSAGE_LENGTH = 160
"""Characters of a message that tell findings apart."""
BY_CHANCE = ("uninitialized memory", "chance inside the subject")
"""Causes of an answer that changes, beside the order of a sum, which is free."""


@dataclass(frozen=True)
class Alarm:
    """classification: one of CLASSIFICATIONS. operator: the faulty node's, or what the case aims
    at. cause: the judge's reading, or what the subject said. location: operators fused with it.
    message: in a sentence."""

    classification: str
    operator: str
    cause: str
    location: str
    message: str

    @property
    def key(self) -> str:
        fields = (self.classification, self.operator, self.cause, self.location)
        return hashlib.sha256("\0".join(fields).encode()).hexdigest()[:12]


def of_failure(error: VeraxError, graph: Graph, aim: str) -> Alarm:
    """A subject that gives no answer."""
    if isinstance(error, SubjectLateError):
        return Alarm(HANG, aim, "no answer in time", operators_of(graph), error.cause)
    kind = CRASH if isinstance(error, SubjectDiedError) else REFUSAL
    return Alarm(kind, aim, without_names(error.cause), "", error.cause)


def of_verdict(verdict: Verdict, graph: Graph) -> Alarm | None:
    """What a verdict complains of; None where nothing is wrong, or nothing can be said."""
    repeat = verdict.repeat
    if repeat is not None and not repeat.same_bits and repeat.cause in BY_CHANCE:
        aim = verdict.blame[0].operator if verdict.blame else operators_of(graph)
        return Alarm(CHANCE, aim, repeat.cause, operators_of(graph), verdict.reasons[0])
    if verdict.kind is Kind.mistake:
        if verdict.causes:
            cause = verdict.causes[0]
            return Alarm(MISTAKE, operators_of(graph), cause.hypothesis, "", cause.words)
        if not verdict.blame:
            return Alarm(MISTAKE, operators_of(graph), "no cause", "", verdict.reasons[0])
        blame = verdict.blame[0]
        location = " > ".join(_kinds(graph, blame.region))
        return Alarm(MISTAKE, blame.operator, _cause(blame, verdict), location, verdict.reasons[0])
    if verdict.exit_code == 1:  # precision lost, or one that needs leave
        formats = sorted({p.format for p in verdict.precisions})
        return Alarm(PRECISION, operators_of(graph), ", ".join(formats), "", verdict.reasons[0])
    return None


def _cause(blame: Blame, verdict: Verdict) -> str:
    """The first explanation, else the structure of the error, else the test that decided."""
    fitting = [e.hypothesis for e in blame.explanations if not e.refuted]
    if fitting:
        return fitting[0]
    if blame.structure:
        return without_names(blame.structure[0])
    tests = [f.test for f in (*verdict.nodes, *verdict.outputs) if f.value == blame.value]
    return tests[0] if tests else "no cause"


def _kinds(graph: Graph, region: Sequence[str]) -> list[str]:
    """Operators of a region, by the names of its nodes."""
    return [n.op.kind for n in graph.nodes if (n.name or n.outputs[0]) in set(region)]


def is_unsupported(message: str) -> bool:
    """True if a refusal says that a type or an operator is not implemented: a gap, no mistake."""
    return re.search(r"not.?(implemented|support)|unsupported", message, re.I) is not None


def operators_of(graph: Graph) -> str:
    """The operators of a graph in order, each once."""
    kinds = list(dict.fromkeys(n.op.kind for n in graph.nodes))
    return " > ".join(kinds[:6]) + (" > ..." if len(kinds) > 6 else "")


def without_names(message: str) -> str:
    """A message without numbers, names and paths, by which failures are seen to be the same."""
    text = re.sub(r"""(["'`]).*?\1""", "_", message)
    text = re.sub(r"\S*/\S*", "/", text)
    text = re.sub(r"\b\w*\d[\w.]*", "#", text)
    return " ".join(text.split())[:MESSAGE_LENGTH]
