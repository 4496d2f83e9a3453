"""Explains a fault inside a region whose products were computed in a coarser arithmetic.

Behind a mistake in TF32 or 16 bits the numbers are not those of float32, whatever the mistake is.
So each hypothesis is carried out with the factors of all products rounded as matrix units take
them, one arithmetic after the other, the usual ones first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from verax.base.deadline import clock
from verax.ir.graph import Node
from verax.ir.types import DType, TensorType
from verax.judge.decide.precision import ARITHMETICS, PRODUCTS
from verax.judge.explain.region import search_region
from verax.records.verdict import Explanation

TRIED = ("TF32 inputs", "bf16 inputs", "fp16 inputs")
"""Arithmetics of products behind a mistake."""
SHORT = 40
"""Nodes of a region up to which all of them are tried; in longer ones the first alone, for each
takes as long as the search in float32 (some 30 s for a transformer of three blocks)."""


def search_coarse(
    nodes: Sequence[Node],
    arrays: Mapping[str, np.ndarray],
    actual: np.ndarray,
    types: Mapping[str, TensorType],
    constants: Collection[str],
    seed: int,
) -> tuple[Explanation, ...]:
    """Explanations of the last node's output in the first arithmetic in which there are some.

    Arguments as of `search_region`; only hypotheses without a number that is fitted. None for a
    region without products of float32 numbers.
    """
    products = [n for n in nodes if n.op.kind in PRODUCTS]
    if not any(types[n.outputs[0]].dtype is DType.float32 for n in products):
        return ()
    for arithmetic in ARITHMETICS:
        candidates = TRIED if len(nodes) <= SHORT else TRIED[:1]
        if arithmetic.name not in candidates or clock().is_up:
            continue
        explanations, _ = search_region(
            nodes,
            arrays,
            actual,
            types,
            constants=constants,
            seed=seed,
            only_known=True,
            factors=arithmetic,
        )
        if explanations:
            words = f" (products with {arithmetic.name})"
            return tuple(dataclasses.replace(e, words=e.words + words) for e in explanations)
    return ()
