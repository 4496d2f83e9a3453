"""Finds attention that a network writes out as single operators: its scale and its mask.

Scores q k, scaled before or after, a mask added, a Softmax: where a runtime fuses them, the likely
mistakes concern the scale or the mask of the whole rather than an operand of some product.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from verax.ir.graph import Node
from verax.ops.pointwise.arithmetic import Add, Div, Mul
from verax.ops.pointwise.where import Where
from verax.ops.sums.linear import MatMul
from verax.ops.sums.softmax import Softmax

MOVES = ("Transpose", "Reshape", "Identity")


@dataclass(frozen=True)
class Scores:
    """Positions in a region. product: of q k; last: of what the Softmax reads; masked: of the
    addition of the mask or of the choice by it, with the operand that is the mask, or None;
    unmasked: the operand there that is the scores; features: of a head; scale: by which q k is
    multiplied altogether, as far as constants tell."""

    product: int
    last: int
    masked: tuple[int, int] | None
    features: int
    scale: float
    unmasked: int = 0

    def scales(self) -> Iterator[tuple[str, float]]:
        """(words, factor on the scores) for the scales that are usual."""
        for words, scale in (
            ("no scale", 1.0),
            ("1 / sqrt(features)", 1 / math.sqrt(self.features)),
            ("1 / features", 1 / self.features),
            ("1 / sqrt(features + 1)", 1 / math.sqrt(self.features + 1)),
            ("sqrt(features)", math.sqrt(self.features)),
            ("the scale applied twice", self.scale**2),
        ):
            if not math.isclose(scale, self.scale, rel_tol=1e-5):
                yield f"{words}: {scale:.6g}, not {self.scale:.6g}", scale / self.scale


def scores_of(nodes: Sequence[Node], values: Mapping[str, np.ndarray]) -> Iterator[Scores]:
    """Yield the attentions that a region writes out. values: arrays by name, constants too."""
    makers = {v: i for i, node in enumerate(nodes) for v in node.outputs}
    for node in nodes:
        if not isinstance(node.op, Softmax):
            continue
        last = i = makers.get(str(node.inputs[0]), -1)
        masked, scale, unmasked = None, 1.0, 0
        while i >= 0 and not isinstance(nodes[i].op, MatMul):
            own = nodes[i]
            factor = _factor(own, values)
            if isinstance(own.op, Add) and masked is None:
                are_products = [_is_product(nodes, makers, str(v)) for v in own.inputs]
                if sum(are_products) != 1:
                    break
                masked, unmasked = (i, are_products.index(False)), are_products.index(True)
                i = makers[str(own.inputs[are_products.index(True)])]
            elif isinstance(own.op, Where) and masked is None:
                if not _is_product(nodes, makers, str(own.inputs[1])):
                    break
                masked, unmasked = (i, 0), 1
                i = makers[str(own.inputs[1])]
            elif own.op.kind in MOVES:
                i = makers.get(str(own.inputs[0]), -1)
            elif factor is not None:
                scale *= factor
                i = makers.get(str(own.inputs[0]), -1)
            else:
                break
        if i < 0 or not isinstance(nodes[i].op, MatMul):
            continue
        for side in nodes[i].inputs:
            scale *= _scale_before(nodes, makers, str(side), values)
        features = values[str(nodes[i].inputs[0])].shape[-1]
        yield Scores(i, last, masked, features, scale, unmasked)


def _factor(node: Node, values: Mapping[str, np.ndarray]) -> float | None:
    """What a product or quotient multiplies its first operand by, if that is one number."""
    if not isinstance(node.op, Mul | Div) or values[str(node.inputs[1])].size != 1:
        return None
    scalar = float(values[str(node.inputs[1])].ravel()[0])
    if not scalar or not math.isfinite(scalar):
        return None
    return scalar if isinstance(node.op, Mul) else 1 / scalar


def _is_product(nodes: Sequence[Node], makers: Mapping[str, int], value: str) -> bool:
    """Whether a value is a matrix product, scaled or not."""
    i = makers.get(value, -1)
    while i >= 0 and isinstance(nodes[i].op, Mul | Div):
        i = makers.get(str(nodes[i].inputs[0]), -1)
    return i >= 0 and isinstance(nodes[i].op, MatMul)


def _scale_before(
    nodes: Sequence[Node], makers: Mapping[str, int], value: str, values: Mapping[str, np.ndarray]
) -> float:
    """The scale that queries or keys have before the product, over what only moves them."""
    scale = 1.0
    i = makers.get(value, -1)
    while i >= 0:
        factor = _factor(nodes[i], values)
        if factor is None and nodes[i].op.kind not in MOVES:
            break
        scale *= factor or 1.0
        i = makers.get(str(nodes[i].inputs[0]), -1)
    return scale
