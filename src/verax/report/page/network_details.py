"""A judged network as drawings: the kind of each node, and what a click on it tells."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from verax.base.figures import times
from verax.records.network import (
    ALLOWED_BIN,
    MAX_NODES,
    ErrorDistribution,
    NetworkOutline,
)
from verax.records.verdict import Finding, Kind, Verdict
from verax.report.faulty_node import faulty_lines, judged_together
from verax.report.page.model import ErrorView, GraphView, LegendEntry, Picture
from verax.report.page.pictures import bars_of, png_of
from verax.report.page.views import NetworkView, views_of
from verax.report.verdict import SEVERITY

UNJUDGED = "unjudged"
LABELS: Mapping[str, str] = {
    "mistake": "mistake",
    "precision-lost": "precision lost",
    "undecided": "undecided",
    "precision": "precision",
    "rounding": "rounding",
    "identical": "identical",
    "same": "the same in both",
    "parted": "where they part",
    "unmatched": "not found in the other",
    UNJUDGED: "not judged",
}
"""Kinds of nodes, worst first, and what a reader calls them."""
WORST_SHOWN = 8
PICTURES, SUSPECTS = 6, 12
"""Places and pictures of one value; nodes that are listed beside the drawing."""


def style_of(kind: Kind) -> str:
    """The name of a kind in style sheets."""
    return kind.value.replace(" ", "-")


def error_view(distribution: ErrorDistribution) -> ErrorView:
    """Histogram and pictures of the errors of a value."""
    pictures = []
    for channel in distribution.channels[:PICTURES]:
        address = png_of(channel)
        if address:
            index = ", ".join(map(str, channel.index))
            name = f"[{index}]" if channel.index else "largest of all"
            text = f"{name}: up to {times(channel.worst)} of allowed"
            pictures.append(Picture(address, channel.columns, channel.rows, text))
    total = sum(distribution.histogram)
    over = sum(distribution.histogram[ALLOWED_BIN:])
    return ErrorView(
        distribution.value,
        "x".join(map(str, distribution.shape)),
        bars_of(distribution.histogram),
        f"{over:,} of {total:,} elements are beyond what rounding of one element shows",
        tuple(pictures),
        distribution.axes,
    )


def verdict_graph(verdict: Verdict, cases: Mapping[str, Sequence[str]]) -> GraphView | None:
    """The network of a verdict; None for records that hold none. cases: lines on minimal cases, by
    node."""
    network = verdict.network
    if network is None or not network.nodes:
        return None
    findings: dict[str, list[Finding]] = {}
    for f in verdict.nodes:
        findings.setdefault(f.node, []).append(f)
    together = judged_together(verdict.nodes)
    errors = {e.value: e for e in verdict.errors}
    texts: dict[str, list[str]] = {}
    for blame in verdict.blame:
        searched = bool(blame.explanations or blame.structure)
        lines = [t.plain.strip() for t in faulty_lines(blame, searched=searched)]
        for name in dict.fromkeys((blame.node, *blame.region)):
            texts.setdefault(name, []).extend(lines)
    blamed = {b.node for b in verdict.blame}
    kinds, details = [], []
    for node in network.nodes[:MAX_NODES]:
        own = findings.get(node.name, [])
        region = together.get(node.name)
        kind = _node_kind(own, region, node.name in blamed)
        kinds.append(kind)
        extra = [*texts.get(node.name, ()), *cases.get(node.name, ())]
        if not own and region is not None:
            extra.append(f"judged together with {len(region.region)} nodes, up to {region.node}")
        if node.name in verdict.unchecked:
            extra.append(f"not judged: {verdict.unchecked[node.name]}")
        values = [f.value for f in own] or ([region.value] if region is not None else [])
        details.append(
            {
                **node_details(network, len(kinds) - 1, kind),
                "text": extra,
                "findings": [_finding_details(f) for f in own or ([region] if region else [])],
                "errors": [error_details(error_view(errors[v])) for v in values if v in errors],
            }
        )
    indices = {node.name: i for i, node in reversed(list(enumerate(network.nodes[:MAX_NODES])))}
    ranked = sorted(verdict.nodes, key=lambda f: (SEVERITY.index(f.kind), -f.statistic))
    names = dict.fromkeys((*(b.node for b in verdict.blame), *(f.node for f in ranked)))
    suspects = [indices[name] for name in names if name in indices][:SUSPECTS]
    graph = graph_view("Network", network, kinds, details)
    return dataclasses.replace(graph, suspects=tuple(suspects), is_faulty=bool(verdict.blame))


def _node_kind(own: Sequence[Finding], region: Finding | None, is_blamed: bool) -> str:
    kinds = [style_of(f.kind) for f in own] or ([style_of(region.kind)] if region else [])
    if is_blamed:
        kinds.append("mistake")
    return min(kinds, key=list(LABELS).index, default=UNJUDGED)


def graph_view(
    title: str, network: NetworkOutline, kinds: Sequence[str], details: Sequence[dict[str, Any]]
) -> GraphView:
    """A network whose nodes have these kinds and details, by index."""
    views = views_of(network)
    counts = {kind: [i for i, k in enumerate(kinds) if k == kind] for kind in LABELS}
    legend = [
        LegendEntry(kind, LABELS[kind], len(nodes), tuple(nodes))
        for kind, nodes in counts.items()
        if nodes
    ]
    return GraphView(
        title,
        views,
        tuple(_box_kinds(view, kinds) for view in views),
        tuple(legend),
        tuple(details),
        network.omitted,
    )


def _box_kinds(view: NetworkView, kinds: Sequence[str]) -> tuple[str, ...]:
    order = list(LABELS)
    return tuple(
        min((kinds[i] for i in box.nodes), key=order.index) if box.nodes else "end"
        for box in view.boxes
    )


def node_details(network: NetworkOutline, index: int, kind: str) -> dict[str, Any]:
    """What there is to say of a node without any judgement."""
    node = network.nodes[index]
    types = network.types
    return {
        "name": node.name,
        "operator": node.operator,
        "kind": kind,
        "label": LABELS[kind],
        "inputs": [[v or "(none)", types.get(v, "")] for v in node.inputs],
        "outputs": [[v, types.get(v, "")] for v in node.outputs if v],
        "attributes": [[k, v] for k, v in node.attributes.items()],
        "text": [],
        "findings": [],
        "errors": [],
    }


def _finding_details(f: Finding) -> dict[str, Any]:
    bound = "" if f.bound_ratio is None else times(f.bound_ratio)
    figures = [
        ["decided by", f.test],
        ["worst group", f.group],
        ["error over allowed", times(f.statistic)],
        ["largest error over hard bound", bound],
        ["largest difference", f"{f.plain.max_abs:.3g}"],
        ["elements", f"{f.elements:,}"],
    ]
    return {
        "value": f.value,
        "kind": style_of(f.kind),
        "label": f.kind.value,
        "reason": f.reason,
        "figures": [row for row in figures if row[1]],
        "worst": [
            [
                "[" + ", ".join(map(str, w.index)) + "]",
                f"{w.expected:.8g}",
                f"{w.given:.8g}",
                f"{w.given - w.expected:.3g}",
            ]
            for w in f.worst[:WORST_SHOWN]
        ],
        "region": list(f.region),
    }


def error_details(view: ErrorView) -> dict[str, Any]:
    """An `ErrorView` as the page's script reads it."""
    return {
        "value": view.value,
        "shape": view.shape,
        "axes": view.axes,
        "beyond": view.beyond,
        "bars": [[b.column, round(b.height, 3), b.is_beyond, b.text] for b in view.bars],
        "pictures": [[p.address, p.columns, p.rows, p.text] for p in view.pictures],
    }
