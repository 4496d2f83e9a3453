"""Which of a SavedModel's graphs and signatures is meant: what goes in and out, by public names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from verax.base.errors import UnsupportedError, UsageError
from verax.frontends.common.foreign import ForeignValue
from verax.frontends.tensorflow.names import plain
from verax.frontends.tensorflow.tensors import DTYPES, dims_of

DEFAULT, SERVING = "serving_default", "serve"
"""Name of the signature, and tag of the graph, that serve."""
INNER = "__saved_model"
"""How names of signatures begin that loaders keep for themselves."""


@dataclass(frozen=True)
class ServingSignature:
    """What goes in and out: (public name, value) pairs; types by public name."""

    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]
    types: Mapping[str, ForeignValue]


def serving_graph(saved: Any, location: str) -> Any:
    """The only graph, or the only one that is tagged to serve."""
    graphs = list(saved.meta_graphs)
    if len(graphs) > 1:
        graphs = [g for g in graphs if SERVING in g.meta_info_def.tags]
    if len(graphs) != 1:
        raise UnsupportedError(
            f"the file holds {len(saved.meta_graphs)} graphs, {len(graphs)} of them to serve",
            place=location,
            next_step=f"save one graph with the tag {SERVING!r}",
        )
    return graphs[0]


def select_signature(signatures: Mapping[str, Any], requested: str | None, location: str) -> str:
    """The signature asked for, the default one, or the only one.

    Raises `UsageError` when there is none of that name, `UnsupportedError` when it is not clear
    which is meant.
    """
    usable = sorted(k for k, s in signatures.items() if s.outputs and not k.startswith(INNER))
    listed = ", ".join(usable[:8]) or "none"
    if requested is not None:
        if requested not in usable:
            raise UsageError(
                f"there is no signature {requested!r}",
                place=location,
                next_step=f"there are: {listed}",
            )
        return requested
    if DEFAULT in usable:
        return DEFAULT
    if len(usable) == 1:
        return usable[0]
    if not usable:
        raise UnsupportedError(
            "the model has no signature, so nothing says what goes in and out",
            place=location,
            next_step="save it with signatures={'serving_default': ...}",
        )
    raise UnsupportedError(
        f"the model has {len(usable)} signatures and none is the default: {listed}",
        place=location,
        next_step=f"choose one: verax.load(path, signature={usable[0]!r})",
    )


def signature_of(stored: Any) -> ServingSignature:
    """A stored signature's names, values and types, in the order of their names."""
    inputs = tuple((k, plain(i.name)) for k, i in sorted(stored.inputs.items()))
    outputs = tuple((k, plain(o.name)) for k, o in sorted(stored.outputs.items()))
    types = {
        k: ForeignValue(k, DTYPES.get(i.dtype), dims_of(i.tensor_shape), f"type {i.dtype}")
        for k, i in [*stored.inputs.items(), *stored.outputs.items()]
    }
    return ServingSignature(inputs, outputs, types)
