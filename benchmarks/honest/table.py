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
from benchmarks.honest.runs import RECORDED_INSIDE, WATCHED, Run

from verax.records.verdict import Kind

PLANTED_COLUMNS = (
    *("subject", "planted", "detected", "located", "blamed, perhaps with others", "explained"),
    *("reach the outputs", "seen there"),
)
KINDS = (
    *(Kind.identical, Kind.rounding, Kind.precision, Kind.precision_lost),
    *(Kind.undecided, Kind.mistake),
)
COLUMNS = ("judged", *map(str, KINDS), "no verdict")
WORDS = """*identical*: every bit is what the meaning gives, rounded once. *rounding*: the
difference is what honest arithmetic in the declared types makes. *precision*: it is what a coarser
arithmetic makes, which is named and was confirmed by recomputing. *undecided*: the judge does not
know, and says why. *mistake*: something was computed wrongly.""".replace("\n", " ")
VIEWS = """watched: every value inside was shown while it ran; outputs: nothing else was; recorded
and recorded-inside: the same two, judged from arrays that were stored before. plain: a photo,
words, a melody; noise: random numbers or ids in the same shapes.""".replace("\n", " ")
COVERAGE = """A check at the outputs cannot see every error inside. Level: the relative error of a
value inside by which that is stated, 32 units of roundoff in the coarser types. Values that are
shown are judged on their own inputs, and so are always seen.""".replace("\n", " ")
RUNTIMES = (
    *("onnxruntime", "openvino", "torch", "torchvision", "transformers", "apache-tvm"),
    *("ai-edge-litert", "onnxscript"),
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
        WORDS,
        "## By runner",
        _counts(outcomes, _runner),
        "## By family",
        _counts(outcomes, lambda o: o.family),
        "## By element type and form",
        _counts(outcomes, _form),
        "## By what was shown, and on what input",
        VIEWS,
        _counts(outcomes, lambda o: f"{Run.of(o.key).view}, {Run.of(o.key).style}"),
        "## How much the checks could see",
        COVERAGE,
        _coverage(judged),
        "## Accusations",
        _listed(accused, lambda o: known_fault(o, faults) or "not argued: false"),
        "## Undecided",
        _why_undecided(undecided),
        _listed(undecided, lambda o: ""),
        "## No verdict",
        "Refused means that an exporter, a runtime or Verax cannot do this network in this form; "
        "here is why, and how often. A run that died, hung, or failed inside Verax is listed "
        "below.",
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
    name = Run.of(outcome.key).runner
    return "the framework's stored answers" if name.endswith(".npz") else name


def _form(outcome: Outcome) -> str:
    run = Run.of(outcome.key)
    return f"{run.dtype}, {'file' if run.form.startswith('case') else run.form}"


def _counts(outcomes: Sequence[Outcome], row: Callable[[Outcome], str]) -> str:
    """How the runs of every row ended."""
    lines = [f"| |networks|{'|'.join(COLUMNS)}|", "|---" * (len(COLUMNS) + 2) + "|"]
    for name in [*sorted({row(o) for o in outcomes}), "all"]:
        mine = [o for o in outcomes if name in (row(o), "all")]
        words = Counter(o.result for o in mine)
        given = [sum(o.judged for o in mine), *(words[w] for w in map(str, KINDS))]
        figures = [*given, len(mine) - given[0]]
        networks = len({o.key.partition("/")[0] for o in mine if o.judged})
        lines.append(f"|{name}|{networks}|" + "|".join(str(n or "") for n in figures) + "|")
    return "\n".join(lines)


def _coverage(judged: Sequence[Outcome]) -> str:
    """What share of the nodes an error of the level would have shown in."""
    told = [o for o in judged if o.tried]
    if not told:
        return ""
    lines = ["| |runs|level|nodes that were asked|of them seen|runs that saw every one|"]
    lines.append("|---" * 6 + "|")

    def row(o: Outcome) -> str:
        inside = "inside too" if Run.of(o.key).view in (WATCHED, RECORDED_INSIDE) else "outputs"
        return f"{Run.of(o.key).dtype}, {inside}"

    for name in sorted({row(o) for o in told}):
        mine = [o for o in told if row(o) == name]
        seen, tried = sum(o.seen for o in mine), sum(o.tried for o in mine)
        whole = sum(o.seen == o.tried for o in mine)
        levels = sorted({f"{o.level:.2g}" for o in mine}, key=float)
        lines.append(
            f"|{name}|{len(mine)}|{' to '.join(dict.fromkeys([levels[0], levels[-1]]))}|{tried}|"
            f"{_percent(seen, tried)}|{_percent(whole, len(mine))}|"
        )
    return "\n".join(lines)


def _listed(outcomes: Sequence[Outcome], remark: Callable[[Outcome], str]) -> str:
    lines = []
    for o in sorted(outcomes, key=lambda o: o.key)[:MOST]:
        reason = _short((o.reasons or [""])[0])
        lines.append(f"- `{o.key}`, {o.worst.get('node', '')}: {reason} {remark(o)}".rstrip())
    if len(outcomes) > MOST:
        lines.append(f"- and {len(outcomes) - MOST} more")
    return "\n".join(lines) or "None."


def _why_undecided(undecided: Sequence[Outcome]) -> str:
    """How many were blind as a whole, and in which element types."""
    blind = [o for o in undecided if o.worst.get("test") == "power"]
    if not blind:
        return ""
    types = Counter(Run.of(o.key).dtype for o in blind)
    told = ", ".join(f"{n} in {dtype}" for dtype, n in sorted(types.items()))
    return (
        f"{len(blind)} of {len(undecided)} because the check was blind as a whole ({told}): the "
        "answer is within rounding, but rounding in that type, layer after layer, would hide an "
        "error of the stated size in most values inside."
    )


def _short(text: str) -> str:
    """A reason on one line, without folders of the machine."""
    plain = re.sub(r"(/[\w.\-]+){2,}/", "", " ".join(text.split()))
    return plain[:REASON] + ("…" if len(plain) > REASON else "")


def _unjudged(outcomes: Sequence[Outcome]) -> str:
    refused = [o for o in outcomes if o.result == REFUSED]
    reasons = Counter(_short((o.reasons or [""])[0]) for o in refused)
    lines = ["| why | networks | runs |", "|---|---|---|"] if refused else []
    for reason, count in reasons.most_common(MOST):
        mine = {
            o.key.partition("/")[0] for o in refused if _short((o.reasons or [""])[0]) == reason
        }
        plain = reason.replace("|", "/")
        lines.append(f"|{plain}|{', '.join(sorted(mine)[:4])}|{count}|")
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

    found = {n: installed_version(n) for n in RUNTIMES}
    told = ", ".join(f"{n} {v}" for n, v in found.items() if v)
    judges = Counter(o.judge for o in outcomes).most_common()
    by = ", ".join(f"{judge} ({count} runs)" for judge, count in judges)
    return f"{told}. Judged by Verax at {by}."
