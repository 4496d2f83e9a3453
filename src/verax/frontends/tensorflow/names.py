"""How TensorFlow names values: `node:port` in graphs, `node:output:place` in functions."""

from __future__ import annotations

from collections.abc import Mapping

from verax.base.errors import ModelError, UnsupportedError

NORMALIZED = ("y", "batch_mean", "batch_variance", "reserve_space_1", "reserve_space_2")
SUPPRESSED = ("nmsed_boxes", "nmsed_scores", "nmsed_classes", "valid_detections")
OUTPUTS: dict[str, tuple[str, ...]] = {
    "FusedBatchNorm": NORMALIZED,
    "FusedBatchNormV2": NORMALIZED,
    "FusedBatchNormV3": (*NORMALIZED, "reserve_space_3"),
    "TopKV2": ("values", "indices"),
    "NonMaxSuppressionV4": ("selected_indices", "valid_outputs"),
    "NonMaxSuppressionV5": ("selected_indices", "selected_scores", "valid_outputs"),
    "CombinedNonMaxSuppression": SUPPRESSED,
}
"""Outputs in order, of operators that have more than one by name."""
MAX_PORTS = 10_000
"""Outputs that a node may have."""


def plain(name: str) -> str:
    """`node:0` is called `node`."""
    return name.removesuffix(":0")


def node_of(value: str) -> str:
    """The node that gives a value."""
    return value.partition(":")[0]


def port_of(value: str) -> int:
    """Which output of its node a value is. Raises `ModelError` when the name tells none."""
    _, _, port = value.partition(":")
    if not port:
        return 0
    if not (port.isascii() and port.isdigit()) or len(port) > 5 or int(port) > MAX_PORTS:
        raise ModelError(f"{value[:80]!r} names no output of a node", place=node_of(value)[:80])
    return int(port)


def in_function(operators: Mapping[str, str], text: str) -> str:
    """`node:output:2` of a function's body -> node[:port]; an argument stays as it is.

    operators: of the body's nodes, by name. Raises `UnsupportedError` for an output that is not
    known.
    """
    components = text.split(":")
    if len(components) < 3:
        return plain(text)
    name, output, position = components[0], components[1], components[2]
    outputs = OUTPUTS.get(operators.get(name, ""), (output,))
    if output not in outputs:
        raise UnsupportedError(f"the output {text!r} is not known", place=f"node {name!r}")
    port = outputs.index(output) + port_of(f"{name}:{position}")
    return name if port == 0 else f"{name}:{port}"
