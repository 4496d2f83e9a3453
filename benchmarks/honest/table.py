"""The campaign in Markdown: counts by family and runner, and every word that is not `rounding`."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.honest.outcomes import ACCUSED, FAILED, REFUSED, UNDECIDED, Outcome
from benchmarks.honest.planted import JUDGED, PlantedOutcome
from benchmarks.honest.runs import Run

PLANTED_COLUMNS = (
    *("subject", "planted", "detected", "located", "blamed, perhaps with others", "explained"),
    *("reach the outputs", "seen there"),
)
KNOWN = Path(__file__).with_name("known.toml")
MOST = 60
"""Runs that are listed one by one under each heading."""
REASON = 260
"""Characters of a reason in a list."""


def known_fault(outcome: Outcome, faults: Sequence[Mapping[str, str]]) -> str:
    """The kept argument that this accusation is true; "" where there is none."""
    node = str(outcome.worst.get("node", ""))
    for fault in faults:
        given = (outcome.key, node, outcome.restated)
        wanted = (fault["key"], fault.get("node", ".*"), fault.get("restated", ".*"))
        if all(map(re.fullmatch, wanted, given)):
            return fault["argument"]
    return ""


def document(runs: Iterable[Outcome], before: Iterable[Any], after: Iterable[Any]) -> str:
    """The whole page."""
    outcomes = list(runs)
    faults = tomllib.loads(KNOWN.read_text()).get("fault", [])
    judged = [o for o in outcomes if o.judged]
    accused = [o for o in judged if o.result == ACCUSED]
    argued = [o for o in accused if known_fault(o, faults)]
    undecided = [o for o in judged if o.result == UNDECIDED]
    networks = {o.key.partition("/")[0] for o in judged}
    parts = [
        "# The campaign of honest runs",
        "Made by `make honest` (`benchmarks/honest`). Real architectures, tiny and seeded, run by "
        "real runtimes that make no known mistake: whatever the judge says beside *identical*, "
        "*rounding* and *precision* is about the judge. Every number below comes from the record "
        "of the runs; `python -m benchmarks.honest show KEY` repeats one.",
        f"**{len(judged)} runs of {len(networks)} networks: {len(accused) - len(argued)} false "
        f"accusations, {len(argued)} accusations that are true (argued below), {len(undecided)} "
        f"undecided ({_percent(len(undecided), len(judged))}).**",
        "## By family and runner",
        "Runs that were judged; in brackets the accused and the undecided, where there are any.",
        _grid(judged, lambda o: o.family, _runner),
        "## By form, and by how it was watched",
        _grid(judged, _form, lambda o: Run.of(o.key).view),
        "## Accusations",
        _listed(accused, lambda o: known_fault(o, faults) or "not argued: false"),
        "## Undecided",
        _listed(undecided, lambda o: ""),
        "## No verdict",
        "Refused means that a runtime or an exporter cannot do this network in this form. A run "
        "that died, hung, or failed inside Verax is listed.",
        _unjudged([o for o in outcomes if not o.judged]),
        "## Planted mistakes in the same networks",
        _planted(list(before), list(after)),
        "## Versions",
        _versions(judged),
    ]
    return "\n\n".join(p for p in parts if p) + "\n"


def _percent(count: int, total: int) -> str:
    return f"{100 * count / total:.1f} %" if total else "none"


def _runner(outcome: Outcome) -> str:
    return Run.of(outcome.key).runner


def _form(outcome: Outcome) -> str:
    run = Run.of(outcome.key)
    return f"{run.dtype}, {'file' if run.form.startswith('case') else run.form}"


def _grid(
    outcomes: Sequence[Outcome], row: Callable[[Outcome], str], column: Callable[[Outcome], str]
) -> str:
    columns = sorted({column(o) for o in outcomes})
    lines = ["| |" + "|".join(columns) + "|all|", "|---" * (len(columns) + 2) + "|"]
    for name in [*sorted({row(o) for o in outcomes}), "all"]:
        mine = [o for o in outcomes if name in (row(o), "all")]
        cells = [_cell([o for o in mine if column(o) == c]) for c in columns]
        lines.append(f"|{name}|" + "|".join([*cells, _cell(mine)]) + "|")
    return "\n".join(lines)


def _cell(outcomes: Sequence[Outcome]) -> str:
    words = Counter(o.result for o in outcomes)
    said = {ACCUSED: "accused", UNDECIDED: "undecided"}
    odd = [f"{words[kind]} {word}" for kind, word in said.items() if words[kind]]
    return f"{len(outcomes) or ''}" + (f" ({', '.join(odd)})" if odd else "")


def _listed(outcomes: Sequence[Outcome], remark: Callable[[Outcome], str]) -> str:
    lines = []
    for o in sorted(outcomes, key=lambda o: o.key)[:MOST]:
        reason = _short((o.reasons or [""])[0])
        lines.append(f"- `{o.key}`, {o.worst.get('node', '')}: {reason} {remark(o)}".rstrip())
    if len(outcomes) > MOST:
        lines.append(f"- and {len(outcomes) - MOST} more")
    return "\n".join(lines) or "None."


def _short(text: str) -> str:
    """A reason on one line, without folders of the machine."""
    plain = re.sub(r"(/[\w.\-]+){2,}/", "", " ".join(text.split()))
    return plain[:REASON] + ("…" if len(plain) > REASON else "")


def _unjudged(outcomes: Sequence[Outcome]) -> str:
    refused = Counter((_runner(o), _form(o)) for o in outcomes if o.result == REFUSED)
    lines = ["| runner | form | refused |", "|---|---|---|"] if refused else []
    lines += [f"|{r}|{f}|{n}|" for (r, f), n in sorted(refused.items())]
    others = [o for o in outcomes if o.result != REFUSED]
    lines += [""] if others and lines else []
    for o in sorted(others, key=lambda o: (o.result != FAILED, o.key))[:MOST]:
        lines.append(f"- {o.result}: `{o.key}`: {_short((o.reasons or [''])[0])}")
    return "\n".join(lines)


def _planted(before: Sequence[PlantedOutcome], after: Sequence[PlantedOutcome]) -> str:
    """Rates by subject, on the mistakes that both judges were shown."""
    if not after:
        return ""
    old, new = ({o.key: o for o in given if o.result == JUDGED} for given in (before, after))
    shared = sorted(old.keys() & new.keys()) if old else sorted(new)
    lines = [
        "`numbers`: float32 NumPy makes the mistake; a runtime's name: it runs the changed file. "
        "Located: the guilty node is blamed and nobody else. Explained: of those blamed whose "
        "mistake the library can express.",
        f"|{'|'.join(PLANTED_COLUMNS)}|",
        "|---" * 8 + "|",
    ]
    for subject in [*sorted({k.split("/")[2] for k in shared}), "all"]:
        keys = [k for k in shared if subject in (k.split("/")[2], "all")]
        for word, source in (("before", old), ("now", new)):
            if source:
                lines.append(_rates(f"{subject}, {word}", [source[k] for k in keys]))
    text = "\n".join([lines[0], "", *lines[1:]])
    missed = [o for k, o in sorted(new.items()) if not o.detected]
    if missed:
        listed = [f"- `{o.key}`: {o.plant} at {o.node} ({o.operator}): {o.verdict}" for o in missed]
        text += "\n\nNot detected now:\n\n" + "\n".join(listed[:MOST])
    return text


def _rates(label: str, outcomes: Sequence[PlantedOutcome]) -> str:
    reaching = [o for o in outcomes if o.reaches]
    inside = [o for o in outcomes if o.among and not o.outside]
    figures = (
        len(outcomes),
        sum(o.detected for o in outcomes),
        sum(o.located for o in outcomes),
        sum(o.among for o in outcomes),
        f"{sum(o.explained for o in inside)}/{len(inside)}",
        len(reaching),
        sum(o.without == ACCUSED for o in reaching),
    )
    return f"|{label}|" + "|".join(map(str, figures)) + "|"


def _versions(outcomes: Sequence[Outcome]) -> str:
    from verax.base.optional import installed_version

    names = ("onnxruntime", "openvino", "torch", "torchvision", "transformers", "apache-tvm")
    found = {n: installed_version(n) for n in (*names, "onnxscript")}
    judges = ", ".join(sorted({o.judge for o in outcomes}))
    told = ", ".join(f"{n} {v}" for n, v in found.items() if v)
    return f"{told}. Judged by Verax at {judges}."
