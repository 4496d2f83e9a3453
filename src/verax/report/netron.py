"""A verdict in the metadata of an ONNX file: Netron shows what a node's `metadata_props` say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from verax.base.errors import ModelError
from verax.base.figures import times
from verax.base.optional import late
from verax.base.storage.files import atomic_write
from verax.base.storage.reading import plain_bytes
from verax.records.verdict import Finding, Verdict
from verax.report.faulty_node import explanation_line, judged_together
from verax.report.model_explorer import verdict_of

onnx = late("onnx", "onnx")
PREFIX = "verax."
"""Of the keys; those of an earlier verdict are replaced."""
MAX_BYTES = (1 << 31) - 1
"""What protobuf takes; larger models have their weights beside the file, where they stay."""


def annotated_path(model: Path) -> Path:
    """Where the annotated copy of a model is written: beside it, as its weights may be."""
    return model.with_name(f"{model.stem}.verdict{model.suffix}")


def write_annotated(record: Any, model: Path, target: Path) -> None:
    """Write a copy of an ONNX file with the verdict on each node in its metadata.

    Nodes are found by the names of their outputs; those that were judged together have the same
    verdict, and say with whom. Raises `UsageError` for records without a verdict
    and `ModelError` when the file is no ONNX model or has none of the nodes.
    """
    verdict = verdict_of(record)
    content = plain_bytes(model, "model", limit=MAX_BYTES)
    try:
        proto = onnx.load_model_from_string(content)
    except Exception as error:  # protobuf's own classes differ from version to version
        raise ModelError("this is no ONNX model", place=str(model)) from error
    findings = {f.value: f for f in verdict.nodes}
    together = judged_together(verdict.nodes)
    texts = {b.value: b for b in verdict.blame}
    seen = 0
    for node in proto.graph.node:
        own = [findings[v] for v in node.output if v in findings]
        remaining = [p for p in node.metadata_props if not p.key.startswith(PREFIX)]
        del node.metadata_props[:]
        node.metadata_props.extend(remaining)
        region = together.get(node.name or "".join(node.output[:1]))
        if region is not None and not own:
            node.metadata_props.add(key=PREFIX + "judged_with", value=region.node)
            own = [region]
        for f in own:
            seen += 1
            for key, text in _properties(f).items():
                node.metadata_props.add(key=PREFIX + key, value=text)
        for blame in (texts[v] for v in node.output if v in texts):
            causes = [explanation_line(e) for e in blame.explanations if not e.refuted]
            if causes:
                node.metadata_props.add(key=PREFIX + "cause", value=causes[0])
    if not seen:
        raise ModelError(
            "none of the judged values is in this file",
            place=str(model),
            next_step="give the ONNX file that the record was made from",
        )
    _state(proto, verdict)
    with atomic_write(target) as stream:
        stream.write(proto.SerializeToString())


def _properties(f: Finding) -> dict[str, str]:
    return {"verdict": f.kind.value, "error_over_allowed": times(f.statistic), "reason": f.reason}


def _state(proto: Any, verdict: Verdict) -> None:
    """The answer as a whole, in the model's metadata."""
    remaining = [p for p in proto.metadata_props if not p.key.startswith(PREFIX)]
    del proto.metadata_props[:]
    proto.metadata_props.extend(remaining)
    facts = {"verdict": verdict.kind.value, "subject": verdict.subject.get("name", "?")}
    for key, text in facts.items():
        proto.metadata_props.add(key=PREFIX + key, value=text)
