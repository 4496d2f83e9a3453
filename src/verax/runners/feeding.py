"""Inputs to and outputs from a subject whose model may call them by other names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from verax.base.errors import UsageError
from verax.ir.graph import Graph
from verax.judge.protocol import Shape, matched_names, shape_of


def feed(
    wanted: Mapping[str, Shape], inputs: Mapping[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """`inputs` under the names that a subject's model takes, and what was assumed, for `describe`.

    wanted: shapes by input name. Raises `UsageError` when it is not clear which is which.
    """
    pairs = matched_names(wanted, {k: v.shape for k, v in inputs.items()}, by_order=True)
    if pairs is None or len(pairs) != len(wanted):
        raise UsageError(
            f"the subject's model takes the inputs {_listed(wanted)}, the network judged takes "
            f"{', '.join(inputs)}",
            next_step="give the subject a model with the same input names",
        )
    renamed = [f"{given} as {name}" for given, name in pairs.items() if given != name]
    said = {"inputs renamed": ", ".join(renamed)} if renamed else {}
    return {name: inputs[given] for given, name in pairs.items()}, said


def _listed(wanted: Mapping[str, Shape]) -> str:
    return ", ".join(wanted) or "none"


def collect(
    graph: Graph, values: Mapping[str, np.ndarray], declared: Sequence[str]
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """`values` with the subject's outputs named as the network names its own, and what was assumed.

    declared: the subject's outputs in their order, which decides when no name agrees and all
    shapes do. Nothing is renamed when it is not clear.
    """
    if not declared or any(v in graph.types for v in declared):
        return dict(values), {}
    wanted = {v: shape_of(graph, v) for v in graph.outputs}
    given = {v: values[v].shape for v in declared if v in values}
    pairs = matched_names(wanted, given, by_order=True) or {}
    said = ", ".join(f"{name} as {meant}" for name, meant in pairs.items())
    named = {pairs.get(name, name): array for name, array in values.items()}
    return named, {"outputs renamed": said} if said else {}
