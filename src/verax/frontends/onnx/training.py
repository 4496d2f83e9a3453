"""Files that were exported in training mode: what gives it away, and the same network at inference.

PyTorch writes Dropout and BatchNormalization with `training_mode`, and where it takes Dropout apart
a uniform random tensor that is compared with the probability, multiplied by what is kept and
divided by how much that is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from verax.frontends.common.foreign import ForeignNode

RANDOM = ("RandomUniformLike", "RandomUniform", "Bernoulli")
ADVICE = (
    "was it exported in training mode? Export it after model.eval(), or read it as at inference: "
    "--eval (verax.load(..., evaluation=True))"
)
"""What to do about what only training has."""
PASSED = ("Cast", "CastLike", "Not", "Identity")
COMPARED = ("Greater", "GreaterOrEqual", "Less", "LessOrEqual")


def at_inference(
    nodes: Sequence[ForeignNode], constants: Mapping[str, np.ndarray]
) -> tuple[list[ForeignNode], list[str]]:
    """The nodes without training, and what was changed, a sentence each.

    Dropout passes its data on, taken apart or not; BatchNormalization uses the statistics that it
    has stored.
    """
    simplified: list[ForeignNode] = []
    changes: list[str] = []
    for node in nodes:
        mode = node.attributes.get("training_mode")
        if node.op_type == "Dropout" and not node.domain and len(node.inputs) > 2:
            changes.append(f"{node.place} drops nothing")
            node = replace(node, inputs=node.inputs[:1])
        elif node.op_type == "BatchNormalization" and mode:
            changes.append(f"{node.place} uses its stored statistics")
            attributes = {k: v for k, v in node.attributes.items() if k != "training_mode"}
            node = replace(node, outputs=node.outputs[:1], attributes=attributes)
        simplified.append(node)
    return _without_masks(simplified, dict(constants), changes), changes


def _without_masks(
    nodes: list[ForeignNode], constants: dict[str, np.ndarray], changes: list[str]
) -> list[ForeignNode]:
    """Without random masks and the factor behind them, where both are what Dropout is made of."""
    makers = {v: n for n in nodes for v in n.outputs if v}
    for node in nodes:
        value = node.attributes.get("value")
        if node.op_type == "Constant" and value is not None:
            constants[node.outputs[0]] = np.asarray(value)
    dropped: dict[str, str] = {}
    idle: set[str] = set()
    for node in nodes:
        if node.op_type != "Mul" or len(node.inputs) != 2:
            continue
        readers = [n for n in nodes if node.outputs[0] in n.inputs]
        if len(readers) != 1 or not _scales_up(readers[0], node.outputs[0], constants):
            continue
        for data, mask in (node.inputs, node.inputs[::-1]):
            chain = _mask(mask, makers)
            if chain:
                dropped[readers[0].outputs[0]] = data
                idle.update([*chain, node.outputs[0]])
                changes.append(f"{node.place} and the factor behind it drop nothing")
                break
    replaced = [
        replace(n, op_type="Identity", inputs=(dropped[n.outputs[0]],), attributes={})
        if n.outputs and n.outputs[0] in dropped
        else n
        for n in nodes
    ]
    return _read(replaced, idle)


def _mask(value: str, makers: Mapping[str, ForeignNode]) -> list[str]:
    """The values from a random tensor, over a comparison with a number, to a mask; else nothing."""
    chain, compared = [], False
    while value in makers:
        node = makers[value]
        chain.append(value)
        if node.op_type in RANDOM:
            return chain if compared or node.op_type == "Bernoulli" else []
        compared = compared or node.op_type in COMPARED
        if node.op_type not in (*PASSED, *COMPARED):
            return []
        value = node.inputs[0]
    return []


def _scales_up(node: ForeignNode, value: str, constants: Mapping[str, np.ndarray]) -> bool:
    """True if the node multiplies `value` by a constant above 1, or divides it by one below."""
    remaining = [v for v in node.inputs if v != value]
    if (
        len(remaining) != 1
        or remaining[0] not in constants
        or np.size(constants[remaining[0]]) != 1
    ):
        return False
    factor = float(np.ravel(constants[remaining[0]])[0])
    return (node.op_type == "Mul" and factor > 1) or (
        node.op_type == "Div" and node.inputs[0] == value and 0 < factor < 1
    )


def _read(nodes: list[ForeignNode], idle: set[str]) -> list[ForeignNode]:
    """Without those of the masks' nodes that nobody reads any more."""
    while True:
        read = {v for n in nodes for v in n.inputs}
        alive = [n for n in nodes if not idle.issuperset(n.outputs) or read.intersection(n.outputs)]
        if len(alive) == len(nodes):
            return nodes
        nodes = alive
