"""torch.compile(backend="verax_judge") over honest backends: is anybody accused?

Each network (`benchmarks.honest`: tiny, random weights) runs under the judge with inductor, and
once more with eager PyTorch's operators (`aot_eager`, two draws of inputs), for inference. Nobody
makes a mistake here that we know of, so that every accusation is ours. Counted are graphs, runs
judged and their verdicts. Writes a table in Markdown; `docs/judged_graphs.md` is its last one.

    python -m benchmarks.judged_graphs                     # all, most of an hour
    python -m benchmarks.judged_graphs gpt2 resnet18       # some
    python -m benchmarks.judged_graphs --rows rows.json --seconds 1200
    python -m benchmarks.judged_graphs --rows rows.json --write docs/judged_graphs.md
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from benchmarks import rows
from benchmarks.honest.architectures import Architecture, module, registry, tensors
from benchmarks.honest.inputs import PLAIN

import verax.torch
from verax.records.verdict import Kind

SEED = 23
DRAWS = {"inductor": 1, "aot_eager": 2}
"""How many draws of inputs each backend is judged on."""
HEAD = ("architecture", "graphs", "runs judged", *(str(k) for k in Kind), "unread", "accused of")


@dataclass
class Row:
    """One architecture. graphs: that were judged, of all backends; verdicts: how many of each kind;
    unread: graphs that ran unjudged, as Verax cannot read them; wrong: what was accused, or failed.
    """

    name: str
    graphs: int = 0
    verdicts: dict[str, int] = field(default_factory=dict)
    unread: int = 0
    wrong: str = ""

    def cells(self) -> list[str]:
        kinds = [str(self.verdicts.get(str(k), 0)) for k in Kind]
        judged = sum(self.verdicts.values())
        return [self.name, str(self.graphs), str(judged), *kinds, str(self.unread), self.wrong]


def measure(architecture: Architecture) -> Row:
    """The row of one architecture."""
    row, found = Row(architecture.name), Counter[str]()
    net = module(architecture)
    for inner, draws in DRAWS.items():
        torch.compiler.reset()
        verax.torch.reset()
        judged = torch.compile(net, backend="verax_judge", options={"inner": inner})
        try:
            with torch.no_grad():
                for draw in range(draws):
                    judged(*tensors(architecture.inputs(PLAIN, SEED + draw)))
        except Exception as error:
            row.wrong = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:120]}"
        for graph in verax.torch.report():
            row.graphs += bool(graph.verdicts)
            row.unread += not graph.verdicts
            found.update(str(v.kind) for v in graph.verdicts)
            accused = [v for v in graph.verdicts if v.kind is Kind.mistake]
            row.wrong = row.wrong or "; ".join(f"{inner}: {v}" for v in accused)[:300]
    row.verdicts = dict(found)
    row.wrong = row.wrong.replace("\n", " ")
    return row


def page(found: Sequence[Row]) -> str:
    """The page."""
    total: Counter[str] = sum((Counter(r.verdicts) for r in found), Counter())
    listed = ", ".join(f"{n} {kind}" for kind, n in total.most_common())
    lines = [
        "# Honest backends under the judge",
        "",
        "Made by `python -m benchmarks.judged_graphs`: tiny networks of random weights through "
        '`torch.compile(backend="verax_judge")`, over inductor and over eager PyTorch\'s own '
        "operators. No mistake is known in these runs: an accusation would be false. *unread*: "
        "graphs that Verax cannot read, which ran unjudged.",
        "",
        f"**{len(found)} networks, {sum(r.graphs for r in found)} graphs, {total.total()} runs "
        f"judged: {listed}; {sum(r.unread for r in found)} graphs unread.**",
        "",
        f"PyTorch {torch.__version__}, {platform.machine()}.",
        "",
        *rows.table(HEAD, sorted(found, key=lambda r: r.name)),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    known: dict[str, Any] = registry()
    return rows.run(
        __doc__,
        Row,
        lambda asked: rows.among(known, asked) or list(known),
        lambda name: measure(known[name]),
        page,
    )


if __name__ == "__main__":
    raise SystemExit(main())
