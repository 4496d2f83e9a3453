"""A `Blame` in sentences: the node, what it should compute, what it seems to compute instead.

Shared by the reports of verdicts and of bisections.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.text import Text

from verax.records.verdict import Blame, Explanation, Finding

MOST = 6
"""Names and explanations listed before "and N more"."""


def judged_together(findings: Iterable[Finding]) -> dict[str, Finding]:
    """The finding on the region that a node was judged in, by the node's name; the first of it."""
    together: dict[str, Finding] = {}
    for finding in findings:
        for name in finding.region:
            together.setdefault(name, finding)
    return together


def faulty_lines(blame: Blame, *, searched: bool) -> Iterator[Text]:
    """The lines on one faulty node or region.

    searched: whether explanations were looked for, so that having none says something.
    """
    location = f"node {blame.node} ({blame.operator})"
    if blame.region:
        listed = list_names(blame.region)
        location = f"one of {len(blame.region)} nodes together, up to {blame.node}: {listed}"
    yield Text.assemble(("guilty: ", "bold red"), (location, "bold"), f", value {blame.value!r}")
    yield Text(f"  {blame.reason}")
    attributes = ", ".join(f"{k}={v}" for k, v in blame.attributes.items())
    if attributes and not blame.region:
        yield Text(f"  it should compute {blame.operator}({attributes})")
    yield from _explained(blame, searched)
    yield from (Text(f"  the error: {line}") for line in blame.structure)
    if blame.guilty_pass:
        yield Text.assemble(("  brought by: ", "bold red"), blame.guilty_pass)


def _explained(blame: Blame, searched: bool) -> Iterator[Text]:
    standing = [e for e in blame.explanations if not e.refuted]
    refuted = [e for e in blame.explanations if e.refuted]
    for i, explanation in enumerate(standing[:MOST]):
        yield Text.assemble(
            ("  cause: " if i == 0 else "     or: ", "bold"), explanation_line(explanation)
        )
    if len(standing) > MOST:
        yield Text(f"     and {len(standing) - MOST} more")
    if len(standing) > 1 and not blame.told_apart:
        yield Text("  these cannot be told apart on this input")
    if blame.told_apart:
        yield Text(f"  {blame.told_apart}")
    if refuted:
        names = list_names([e.hypothesis for e in refuted])
        yield Text(f"  fitted this input only, refuted by a further one: {names}")
    if searched and not standing and not blame.region:
        yield Text("  cause: none of the known mistakes gives these numbers")


def explanation_line(explanation: Explanation) -> str:
    """An explanation in one line, with the attributes that the subject seems to have used."""
    used = ", ".join(f"{k}={v}" for k, v in explanation.attributes.items())
    return f"{explanation.hypothesis}: {explanation.words}" + (f" [{used}]" if used else "")


def list_names(names: Iterable[str]) -> str:
    """The first few names, and how many more there are."""
    listed = list(names)
    more = f" and {len(listed) - MOST} more" if len(listed) > MOST else ""
    return ", ".join(listed[:MOST]) + more
