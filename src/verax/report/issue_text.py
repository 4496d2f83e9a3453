"""A record as the text that one pastes into somebody's issue tracker, in Markdown.

It answers what maintainers ask first: what is claimed, why it is not rounding, how to see it, and
with which versions. Names come from files of strangers: in the text they are code, which mentions
nobody and links to nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from verax.base.errors import UsageError
from verax.base.figures import times
from verax.records.agreement import Agreement
from verax.records.alignment import Alignment
from verax.records.bisection import Bisection, RecordedCase
from verax.records.codec import read_plain
from verax.records.gate import GateChange, GateRecord, ModelChange
from verax.records.network import ALLOWED_BIN, ErrorDistribution
from verax.records.verdict import Blame, Finding, InputRecord, Kind, Verdict
from verax.report.alignment import HEADLINES as RELATIONS
from verax.report.faulty_node import explanation_line
from verax.report.gate import answer, difference
from verax.report.verdict import HEADLINES

LISTED = 5
"""Faulty nodes, places and reasons in the text."""
SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~@])")
TESTS: Mapping[str, str] = {
    "hard bound": "A bound that holds for every order of summation (Higham, Accuracy and Stability "
    "of Numerical Algorithms, chapters 3 and 4; evaluated for each element) is exceeded, so no "
    "arithmetic of this precision gives these numbers.",
    "sigma": "The error of each element was divided by the standard deviation of its rounding, and "
    "tested over all elements, channels, rows and single elements. Correct implementations, in "
    "whatever order they sum, stay below 1 in each of these groups.",
    "quantum": "An integer may be off only where the real number lies at the edge between two, "
    "within the rounding of what it was computed from.",
    "exact": "This operation moves or selects numbers and does not round: nothing may differ.",
    "non-finite": "Rounding of ordinary numbers gives neither NaN nor infinity.",
    "shape": "The shape of the result does not depend on rounding.",
    "type": "The type of the result does not depend on rounding.",
}
"""Why rounding cannot explain a mistake, by the deciding test; its begin is enough."""
BY_SAMPLES = (
    "The network's own rounding was sampled around the same inputs (Monte Carlo arithmetic); the "
    "errors are larger than its spread by the factor below."
)
DEFAULTS = ("", "()", "None", "False", "0")
"""Settings of a subject that say nothing."""


def issue_text(record: Any) -> str:
    """The record as Markdown. Raises `UsageError` for records that judge nothing."""
    if isinstance(record, Bisection):
        return _verdict_text(record.verdict, record.cases)
    if isinstance(record, Agreement):
        return _verdict_text(record.verdict, ())
    if isinstance(record, Verdict):
        return _verdict_text(record, ())
    if isinstance(record, Alignment):
        return _alignment_text(record)
    if isinstance(record, GateRecord):
        return _gate_text(record)
    raise UsageError(
        f"a {type(record).__name__} claims nothing about anybody's numbers",
        next_step="give a record of verax check, verax bisect or verax gate",
    )


def code(text: str) -> str:
    """A name as inline code, whatever is in it."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    ticks = max((len(run) for run in re.findall("`+", line)), default=0) + 1
    fence = "`" * ticks
    space = " " if line.startswith("`") or line.endswith("`") or not line else ""
    return f"{fence}{space}{line}{space}{fence}"


def prose(text: str) -> str:
    """A sentence in which nothing is markup."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return SPECIAL.sub(r"\\\1", line)


def _verdict_text(verdict: Verdict, cases: Iterable[RecordedCase]) -> str:
    return "\n".join(
        [
            f"## {_title(verdict)}",
            "",
            *_claim(verdict),
            "",
            *_argument_lines(verdict),
            "",
            "### Steps to see it",
            "",
            *_steps(verdict, tuple(cases)),
            "",
            *_versions(verdict.environment, verdict.subject),
            "",
        ]
    )


def _title(verdict: Verdict) -> str:
    name = code(verdict.subject.get("name", "?"))
    if verdict.kind is Kind.mistake and verdict.blame:
        blame = verdict.blame[0]
        more = f" and {len(verdict.blame) - 1} more" if verdict.blame[1:] else ""
        return f"{name}: wrong numbers from {code(blame.operator)} {code(blame.node)}{more}"
    return f"{name}: {HEADLINES[verdict.kind][0].lower()}"


def _claim(verdict: Verdict) -> Iterator[str]:
    """What is claimed: sentences, the causes, and a table of places."""
    yield "### What is claimed"
    yield ""
    yield prose(HEADLINES[verdict.kind][2])
    yield ""
    for cause in verdict.causes[:LISTED]:
        yield f"- outside of the network: {prose(explanation_line(cause))}"
    for blame in verdict.blame[:LISTED] if not verdict.causes else ():
        yield from _blame_lines(blame)
    if not verdict.blame:
        yield from (f"- {prose(reason)}" for reason in verdict.reasons[:LISTED])
    blamed = {b.value for b in verdict.blame}
    findings = [f for f in verdict.nodes if f.value in blamed and f.worst] or [
        f for f in verdict.outputs if f.worst
    ]
    if findings:
        f = findings[0]
        yield ""
        yield f"Largest differences in {code(f.value)} ({f.elements:,} elements) from float64:"
        yield ""
        yield "| index | expected | given | difference |"
        yield "|---|---:|---:|---:|"
        for w in f.worst[:LISTED]:
            index = ", ".join(map(str, w.index))
            yield (
                f"| {code(f'[{index}]')} | {w.expected:.8g} | {w.given:.8g} "
                f"| {w.given - w.expected:.3g} |"
            )


def _blame_lines(blame: Blame) -> Iterator[str]:
    location = f"{code(blame.node)} ({code(blame.operator)})"
    if blame.region:
        location = f"one of {len(blame.region)} nodes up to {location}"
    yield f"- {location}: {prose(blame.reason)}"
    if blame.attributes and not blame.region:
        attributes = ", ".join(f"{k}={v}" for k, v in blame.attributes.items())
        yield f"  - it should compute {code(f'{blame.operator}({attributes})')}"
    for explanation in [e for e in blame.explanations if not e.refuted][:2]:
        yield f"  - what gives these numbers: {prose(explanation_line(explanation))}"
    for line in blame.structure[:LISTED]:
        yield f"  - the error: {prose(line)}"
    if blame.guilty_pass:
        yield f"  - brought by {code(blame.guilty_pass)}"


def _argument_lines(verdict: Verdict) -> Iterator[str]:
    """Why rounding cannot explain it, or why it can."""
    blamed = {b.value for b in verdict.blame}
    findings = [f for f in verdict.nodes if f.value in blamed]
    if verdict.kind is not Kind.mistake or not findings:
        yield "### How it was judged"
        yield ""
        yield from (f"- {prose(reason)}" for reason in verdict.reasons[:LISTED])
        yield f"- seen: {prose(verdict.method)}"
        return
    yield "### Why rounding cannot explain it"
    yield ""
    f = findings[0]
    yield _argument(f)
    yield ""
    yield (
        f"Error over what rounding may do: {times(f.statistic)} (by {prose(f.test)}; worst in "
        f"{prose(f.group or 'one element')})."
    )
    if f.bound_ratio is not None:
        yield f"Largest error over the hard bound of its element: {times(f.bound_ratio)}."
    errors = next((e for e in verdict.errors if e.value == f.value), None)
    if errors is not None:
        yield _beyond(errors)
    yield (
        "The node was computed in float64 from the inputs that the subject itself gave it, so that "
        "nothing before it can be the cause."
        if not f.region
        else f"The {len(f.region)} nodes were judged together, from the inputs that they read."
    )


def _argument(f: Finding) -> str:
    for test, argument in TESTS.items():
        if f.test.startswith(test):
            return argument
    return BY_SAMPLES


def _beyond(errors: ErrorDistribution) -> str:
    total, over = sum(errors.histogram), sum(errors.histogram[ALLOWED_BIN:])
    return f"{over:,} of {total:,} elements are beyond what rounding of a single element shows."


def _steps(verdict: Verdict, cases: tuple[RecordedCase, ...]) -> Iterator[str]:
    """Ten lines that show it: a minimal case where there is one, else the check itself."""
    for case in cases[:1]:
        script = next((f for f in case.files if f.endswith(".py")), "")
        yield f"The folder {code(case.folder)} holds the smallest case: {prose(case.words)}."
        if script:
            yield ""
            yield "    python " + _shell(f"{case.folder}/{script.rpartition('/')[2]}")
        yield ""
    yield "```python"
    yield from script_lines(verdict)
    yield "```"
    yield ""
    for i in verdict.inputs[:LISTED]:
        yield f"Input {_input_text(i)}."


def _input_text(i: InputRecord) -> str:
    return f"{code(i.name)}: {prose(i.type)}, {prose(i.origin)}; SHA-256 {code(i.sha256[:16])}"


def script_lines(verdict: Verdict) -> list[str]:
    """A script that judges the same again and prints the numbers of the first faulty node."""
    model, subject = _recorded_command(verdict)
    value = verdict.blame[0].value if verdict.blame else ""
    value = value or (verdict.outputs[0].value if verdict.outputs else "")
    return [
        "import verax  # pip install verax",
        "",
        f"model = verax.load({_literal(model)})",
        f"verdict = verax.check(model, {_literal(subject)}, seed={verdict.seed})",
        "print(verdict.kind, *verdict.reasons, sep='\\n')",
        f"finding = next(f for f in verdict.nodes if f.value == {_literal(value)})",
        "print(finding.reason)",
        "for place in finding.worst:",
        "    print(place.index, 'expected', place.expected, 'given', place.given)",
    ]


def _recorded_command(verdict: Verdict) -> tuple[str, str]:
    """Model and subject as they were named, as far as the record tells."""
    subject = verdict.subject.get("name", "?")
    try:
        options = read_plain(verdict.replay.get("options", "{}"))
    except UsageError:
        options = {}
    if not isinstance(options, dict):
        options = {}
    model = options.get("model")
    named = options.get("subject")
    return (
        model.rpartition("/")[2] if isinstance(model, str) else "model.onnx",
        named if isinstance(named, str) else subject,
    )


def _literal(text: str) -> str:
    """A text as Python reads it, in one line of ASCII."""
    return json.dumps(text)


def _shell(text: str) -> str:
    return "'" + text.replace("'", "'\\''").replace("\n", " ") + "'"


def _versions(environment: Mapping[str, str], subject: Mapping[str, str]) -> Iterator[str]:
    yield "### Versions"
    yield ""
    yield from (f"- {prose(key)}: {code(text)}" for key, text in environment.items())
    settings = {k: v for k, v in subject.items() if v not in DEFAULTS}
    if settings:
        yield "- subject: " + ", ".join(f"{prose(k)} {code(v)}" for k, v in settings.items())


def _alignment_text(record: Alignment) -> str:
    word, _, sentence = RELATIONS[record.relation]
    lines = [
        f"## {code(record.first)} and {code(record.second)}: {word.lower()}",
        "",
        "### What is claimed",
        "",
        prose(sentence),
        "",
        *(f"- {prose(reason)}" for reason in record.reasons[:LISTED]),
    ]
    for d in record.divergences[:LISTED]:
        sides = [
            ", ".join(f"{code(n.node)} ({code(n.operator)})" for n in side) or "nothing"
            for side in (d.first, d.second)
        ]
        lines.append(f"- {sides[0]} against {sides[1]}: {prose(d.reason)}")
        for a in d.attributes:
            lines.append(f"  - {code(a.attribute)}: {code(a.first)} against {code(a.second)}")
    lines += [
        "",
        "### How it was judged",
        "",
        f"Both networks were evaluated in float64 on the same inputs; {len(record.matches)} of "
        f"{record.first_values} values were found in the other, whatever their names and layouts.",
        "",
        "### Steps to see it",
        "",
        "```python",
        "import verax  # pip install verax",
        "",
        f"print(verax.align({_literal(record.first)}, {_literal(record.second)}))",
        "```",
        "",
        *_versions(record.environment, {}),
        "",
    ]
    return "\n".join(lines)


def _gate_text(record: GateRecord) -> str:
    lines = [
        f"## From {code(record.old)} to {code(record.new)}: {record.change}",
        "",
        "| model | old | new | elements that differ | verdict |",
        "|---|---|---|---|---|",
    ]
    for m in record.models:
        cells = (
            code(m.model).replace("|", "\\|"),
            prose(answer(m.old)),
            prose(answer(m.new)),
            prose(difference(m)),
        )
        lines.append(f"| {' | '.join(cells)} | {m.change} |")
    lines.append("")
    for m in record.models:
        if m.change is not GateChange.unchanged:
            lines += [*_change_lines(m), ""]
    lines += [
        "Each subject was judged against the float64 reference on the same inputs; a difference "
        "between the two alone says nothing. Speed was not compared.",
        "",
        *_versions(record.environment, {}),
        "",
    ]
    return "\n".join(lines)


def _change_lines(model: ModelChange) -> Iterator[str]:
    """Why one model's change matters or does not, and the new subject's verdict where it does."""
    yield f"### {code(model.model)}: {model.change}"
    yield ""
    yield from (f"- {prose(reason)}" for reason in model.reasons[: 2 * LISTED])
    if model.change is GateChange.matters and model.new.verdict is not None:
        yield ""
        yield (
            _verdict_text(model.new.verdict, ())
            .replace("\n###", "\n####")
            .replace("## ", "#### ", 1)
        )
