"""The page about quantised networks: how each was quantised, against which runtime ran it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence

from benchmarks.honest.files import QUANTISED
from benchmarks.honest.lite import LITE
from benchmarks.honest.outcomes import ACCUSED, UNDECIDED, Outcome
from benchmarks.honest.planted import JUDGED, PlantedOutcome
from benchmarks.honest.runs import Run
from benchmarks.honest.table import KNOWN, known_fault

Planted = Mapping[str, PlantedOutcome]


def quantised_document(
    runs: Iterable[Outcome], before: Iterable[PlantedOutcome], planted: Iterable[PlantedOutcome]
) -> str:
    """The whole page."""
    after = list(planted)
    faults = tomllib.loads(KNOWN.read_text())["fault"]
    judged = [o for o in runs if o.key.startswith(QUANTISED) and o.judged]
    accused = [o for o in judged if o.result == ACCUSED]
    argued = [o for o in accused if known_fault(o, faults)]
    false = [o for o in accused if o not in argued]
    undecided = [o for o in judged if o.result == UNDECIDED]
    share = 100 * len(undecided) / max(1, len(judged))
    parts = [
        "# Honest runs of quantized networks",
        "Made by `python -m benchmarks.honest table --quantised` from the record of the runs. "
        "Small seeded networks, quantized by ONNX Runtime's own tools, and files of TensorFlow's "
        "converter. A cell says: judged, of these accused with an argument (A), accused falsely "
        "(F), undecided (U).",
        f"**{len(judged)} runs: {len(argued)} accusations that are argued, {len(false)} false, "
        f"{len(undecided)} undecided ({share:.1f} %).**",
        _grid(judged, {o.key for o in argued}),
        "## Why the argued ones are true",
        "Each was repeated on the same network in other words; the runtime was right there. The "
        "arguments are in `benchmarks/honest/known.toml`.",
        _argued(argued),
        "## False accusations",
        "\n".join(f"- `{o.key}`: {(o.reasons or [''])[0][:200]}" for o in false) or "None.",
        "## Undecided",
        "\n".join(f"- `{o.key}`" for o in undecided) or "None.",
        "## Mistakes planted in quantised networks",
        _found([o for o in after if o.result == JUDGED]),
        _planted(
            {o.key: o for o in before if o.result == JUDGED},
            {o.key: o for o in after if o.result == JUDGED},
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _way(outcome: Outcome) -> str:
    """How the network of a run was quantised."""
    run = Run.of(outcome.key)
    if run.architecture.startswith(LITE):
        sort, _, name = run.architecture.removeprefix(LITE).partition("-")
        kind = re.search(r"u?int(8|16)|dynamic", name)
        return f"TFLite {sort} {kind.group() if kind else ''}".strip()
    kind, _, rest = run.form.partition("-")[2].partition("-")
    return f"{kind} {rest.partition('-')[0]}"


def _grid(judged: Sequence[Outcome], argued: set[str]) -> str:
    columns = sorted({_way(o) for o in judged})
    lines = ["| |" + "|".join(columns) + "|all|", "|---" * (len(columns) + 2) + "|"]
    for name in [*sorted({Run.of(o.key).runner for o in judged}), "all"]:
        mine = [o for o in judged if name in (Run.of(o.key).runner, "all")]
        cells = [[o for o in mine if _way(o) == c] for c in columns]
        lines.append(f"|{name}|" + "|".join(_cell(c, argued) for c in [*cells, mine]) + "|")
    return "\n".join(lines)


def _cell(outcomes: Sequence[Outcome], argued: set[str]) -> str:
    accused = [o for o in outcomes if o.result == ACCUSED]
    true = sum(o.key in argued for o in accused)
    open_ = sum(o.result == UNDECIDED for o in outcomes)
    counts = ((true, "A"), (len(accused) - true, "F"), (open_, "U"))
    return " ".join([str(len(outcomes) or ""), *(f"{n}{mark}" for n, mark in counts if n)])


OTHERWISE = "argued without: LiteRT's reference SUM against its optimized one"


def _found(planted: Sequence[PlantedOutcome]) -> str:
    detected, located = (sum(getattr(o, w) for o in planted) for w in ("detected", "located"))
    return (
        f"{len(planted)} planted: {detected} detected, {located} located. Those that the judge "
        "from before this work was shown too:"
    )


def _argued(argued: Sequence[Outcome]) -> str:
    words = sorted({o.restated for o in argued})
    lines = ["| right in these words | runs |", "|---|---|"]
    for w in words:
        lines.append(f"|{w or OTHERWISE}|{sum(o.restated == w for o in argued)}|")
    return "\n".join(lines)


def _planted(before: Planted, after: Planted) -> str:
    """Rates by kind of mistake, where both judges were shown the same one."""
    keys = sorted(k for k in after if k in before and _same(before[k], after[k]))
    lines = [
        "| mistake | planted | detected before | now | located before | now |",
        "|---|---|---|---|---|---|",
    ]
    for plant in [*sorted({after[k].plant for k in keys}), "all"]:
        mine = [k for k in keys if plant in (after[k].plant, "all")]
        counts = [
            sum(getattr(source[k], word) for k in mine)
            for word in ("detected", "located")
            for source in (before, after)
        ]
        lines.append(f"|{plant}|{len(mine)}|" + "|".join(map(str, counts)) + "|")
    return "\n".join(lines)


def _same(one: PlantedOutcome, other: PlantedOutcome) -> bool:
    return (one.plant, one.node) == (other.plant, other.node)
