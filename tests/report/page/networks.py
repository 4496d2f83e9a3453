"""Networks and verdicts on them for tests of pages, made without judging anything."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np

from verax.judge.decide.error_distribution import distribution
from verax.records.network import NetworkOutline, OutlinedNode
from verax.records.verdict import (
    Blame,
    ErrorMetrics,
    Explanation,
    Finding,
    InputRecord,
    Kind,
    Verdict,
    WorstElement,
)

KINDS = (Kind.rounding, Kind.rounding, Kind.identical, Kind.precision, Kind.undecided)


def residual_network(blocks: int, layers: int = 3) -> NetworkOutline:
    """Blocks of a few nodes with a branch around each, named as exporters do."""
    nodes, last = [], "x"
    for block in range(blocks):
        begin = last
        for layer in range(layers):
            name = f"/stage{block // 8}/block{block}/layer{layer}/Conv"
            value = f"{name}_output_0"
            attributes = {"kernel_shape": "(3, 5)", "strides": f"(1, {layer + 1})"}
            nodes.append(
                OutlinedNode(name, "Conv", (last, f"w{block}.{layer}"), (value,), attributes)
            )
            last = value
        name = f"/stage{block // 8}/block{block}/Add"
        nodes.append(OutlinedNode(name, "Add", (last, begin), (f"{name}_output_0",)))
        last = f"{name}_output_0"
    types = {v: "float32[2, 12, 7, 9]" for node in nodes for v in node.outputs}
    return NetworkOutline(
        "resnet", ("x",), (last,), tuple(nodes), {"x": "float32[2, 3, 7, 9]", **types}
    )


def finding(node: OutlinedNode, kind: Kind, statistic: float) -> Finding:
    """A finding on the first value of a node."""
    plain = ErrorMetrics(0.25, 0.5, 0.75, 40.0, {"numpy (rtol 1e-05)": False}, 3)
    return Finding(
        value=node.outputs[0],
        node=node.name,
        operator=node.operator,
        kind=kind,
        reason=f"the errors are {statistic:g} times the largest that rounding shows",
        test="hard bound" if kind is Kind.mistake else "sigma",
        elements=1512,
        statistic=statistic,
        group="channel 5",
        bound_ratio=statistic / 2,
        sigma=1e-7,
        error=1e-6,
        plain=plain,
        worst=(WorstElement((1, 5, 6, 8), 0.75, 1.0),),
    )


def judged(network: NetworkOutline, faulty: int = -1, pictured: int = 12) -> Verdict:
    """A verdict on every node, one of them faulty: its last column is wrong."""
    rng = np.random.default_rng(41)
    nodes = [
        finding(node, Kind.mistake, 812.5)
        if i == faulty
        else finding(node, KINDS[i % 5], 0.5 + i % 7 / 20)
        for i, node in enumerate(network.nodes)
    ]
    errors = []
    for i, node in enumerate(network.nodes):
        if i < pictured or i == faulty:
            ratio = np.abs(rng.standard_normal((2, 12, 7, 9))) / 5
            if i == faulty:
                ratio[..., -1] = 500 * (1 + rng.random((2, 12, 7)))
            errors.append(distribution(node.outputs[0], ratio))
    blame: tuple[Blame, ...] = ()
    if faulty >= 0:
        node = network.nodes[faulty]
        cause = Explanation(
            "pads swapped", "the two ends of an axis are exchanged", {"pads": "((1, 0),)"}
        )
        reason = "the largest error is 406 times the most that rounding can do in any order"
        structure = ("only the last column",)
        blame = (
            Blame(node.name, node.operator, node.attributes, node.outputs[0], Kind.mistake, reason,
                  explanations=(cause,), structure=structure, guilty_pass="fold_pads"),
        )  # fmt: skip
    return Verdict(
        kind=Kind.mistake if blame else Kind.rounding,
        reasons=("the subject is right, or it is not",),
        subject={"name": "onnxruntime", "version": "1.32.0"},
        method="every node on its own inputs",
        outputs=(nodes[-1],),
        nodes=tuple(nodes),
        blame=blame,
        inputs=(InputRecord("x", "float32[2, 3, 7, 9]", "ab" * 32, "drawn with seed 5"),),
        environment={"python": "3.11", "verax": "0.1.0"},
        seed=5,
        network=network,
        errors=tuple(errors),
    )


def with_texts(value: Any, texts: Iterator[str]) -> Any:
    """A record in which every text, keys of mappings included, is replaced."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return type(value)(**{k: with_texts(v, texts) for k, v in fields.items()})
    if isinstance(value, str) and not isinstance(value, enum.Enum):
        return next(texts)
    if isinstance(value, tuple):
        return tuple(with_texts(v, texts) for v in value)
    if hasattr(value, "items"):
        return {next(texts): with_texts(v, texts) for v in value.values()}
    return value


HOSTILE = (
    "</script><script>alert({0})</script>",
    '"><img src=x onerror=alert({0})>',
    "' onfocus='alert({0})' autofocus='",
    "<!--<script>{0}",
    "javascript:alert({0})",
    "{{{{ {0} * 7 }}}}{{% include 'style.css' %}}",
    "]]><svg onload=alert({0})>\u202e\u2028\x00\ud800",
    "&lt;b&gt;&#x3c;{0}</title></style><style>*{{display:none}}",
)


def hostile_texts() -> Iterator[str]:
    """Texts that try to be markup, script or template, no two alike."""
    for i in count():
        yield HOSTILE[i % len(HOSTILE)].format(i)
