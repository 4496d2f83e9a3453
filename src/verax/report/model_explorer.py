"""A verdict as node data for Model Explorer, so that people see it in the viewer they have.

Model Explorer colors the nodes of a model's file by such data; its keys are names of output
tensors. The values are error over allowed: below 1 is rounding.
"""

from __future__ import annotations

import json
import math
from typing import Any

from verax.base.errors import UsageError
from verax.records.agreement import Agreement
from verax.records.bisection import Bisection
from verax.records.verdict import Finding, Kind, Verdict
from verax.report.faulty_node import judged_together

COLORS = {
    Kind.identical: "#9fd8e3",
    Kind.rounding: "#a9dfbf",
    Kind.precision: "#f7d08a",
    Kind.precision_lost: "#ffb088",
    Kind.mistake: "#f2929e",
    Kind.undecided: "#c9bdf2",
}
TEXT = "#1b2430"
MAX_VALUE = 1e30
"""Stands for infinity, which JSON lacks."""


def verdict_of(record: Any) -> Verdict:
    """The verdict that a record is or holds. Raises `UsageError` for other records."""
    if isinstance(record, Bisection | Agreement):
        return record.verdict
    if isinstance(record, Verdict):
        return record
    raise UsageError(
        f"a {type(record).__name__} says nothing about single nodes",
        next_step="give a record of verax check or verax bisect",
    )


def _result(finding: Finding) -> dict[str, Any]:
    finite = finding.statistic if math.isfinite(finding.statistic) else MAX_VALUE
    return {"value": finite, "bgColor": COLORS[finding.kind], "textColor": TEXT}


def node_data(record: Any) -> str:
    """JSON text of a graph's node data; nodes that were judged together have the same.

    Raises `UsageError` for records without a verdict.
    """
    verdict = verdict_of(record)
    results: dict[str, dict[str, Any]] = {}
    together = judged_together(verdict.nodes)
    for node in verdict.network.nodes if verdict.network is not None else ():
        if node.name in together:
            results |= {value: _result(together[node.name]) for value in node.outputs}
    results |= {f.value: _result(f) for f in verdict.nodes}
    for blame in verdict.blame:
        result = results.setdefault(blame.value, {"value": MAX_VALUE, "textColor": TEXT})
        result["bgColor"] = COLORS[Kind.mistake]
    name = f"verax: error over allowed, {verdict.subject.get('name', '?')}"
    return json.dumps({"name": name, "results": results}, indent=1) + "\n"
