"""MXNet symbol and params -> `Model`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from verax.base.errors import ModelError, UsageError
from verax.base.storage.reading import plain_bytes
from verax.frontends.common.foreign import ForeignNode
from verax.frontends.common.importing import Importer
from verax.frontends.common.ledger import Attributes
from verax.frontends.common.stated_sizes import Shapes
from verax.frontends.model import Model
from verax.frontends.mxnet.files import find_params, find_symbol
from verax.frontends.mxnet.reader import MAX_BYTES, read_model
from verax.frontends.mxnet.table import TABLE

IRRELEVANT = {
    "workspace": "a limit of scratch memory",
    "cudnn_tune": "how cuDNN chooses its algorithm",
    "cudnn_off": "whether cuDNN is used",
    "ctx_group": "the device that runs the node",
    "label (input)": "labels serve training only",
}
"""Parameters of many operators that cannot change an evaluated network's values, and why."""

TRAINING = ("lr_mult", "wd_mult", "force_mirroring", "mirror_stage", "profiler_scope")
"""Settings of training; old symbols write them bare, or after an input's name (weight_lr_mult)."""


def load_mxnet(
    source: str | os.PathLike[str],
    shapes: Shapes | None = None,
    values: Mapping[str, np.ndarray] | None = None,
    params: str | os.PathLike[str] | None = None,
) -> Model:
    """Import an MXNet network by the path of NAME-symbol.json (or of its params file).

    params: the file with the arrays; by default NAME-NNNN.params beside the symbol, of the newest
    epoch. The model's metadata names it, and the others that it was chosen from. shapes: sizes of
    inputs, which a symbol rarely states, e.g. {"data": (1, 3, 224, 224)}. values: inputs to be
    made constants.
    Raises `ModelError` for damaged files, `UnsupportedError` listing what Verax lacks,
    `UsageError` for unreadable paths or shapes that do not fit.
    """
    path = Path(source)
    if path.suffix == ".params":
        if params is not None:
            raise UsageError(
                "two params files are given", place=str(path), next_step="give the symbol instead"
            )
        path, params = find_symbol(path), path
    location = str(path)
    try:
        text = plain_bytes(path, "symbol", limit=MAX_BYTES)
        params_path, candidates = find_params(path) if params is None else (Path(params), [])
    except OSError as error:
        raise UsageError(f"cannot read the file: {error.strerror}", place=location) from error
    name = path.name.removesuffix(".json").removesuffix("-symbol")
    foreign = read_model(text, params_path, name, location)
    params_note = params_path.name
    if len(candidates) > 1:
        params_note += f" (the newest of {', '.join(candidates)})"
    foreign.metadata["params"] = params_note  # type: ignore[index]
    version = foreign.versions["mxnet"]
    printed_version = (
        f"{version // 10000}.{version // 100 % 100}.{version % 100}" if version else "unknown"
    )
    return _MxnetImporter(foreign, TABLE, shapes, values).run(location, f"MXNet {printed_version}")


class _Parameters(Attributes):
    """A parameter that is None reads as None, and only where None is what its absence means."""

    def _typed(self, name: str, default: Any, expected: str, fits: Any) -> Any:
        if default is None and name in self.values and self.values[name] is None:
            return self.get(name)
        return super()._typed(name, default, expected, fits)


class _MxnetImporter(Importer):
    def attributes(self, node: ForeignNode) -> Attributes:
        """The node's parameters without those that say nothing about its values."""
        parameters = _Parameters(self.ledger, node.place, node.operator, node.attributes)
        count = len(node.inputs)
        stated_count = node.attributes.get("num_args", count)
        if stated_count != count:
            raise ModelError(
                f"num_args is {stated_count}, the node has {count} inputs", place=node.place
            )
        parameters.get("num_args")
        for name in node.attributes:
            reason = IRRELEVANT.get(name)
            if name in TRAINING or name.endswith(tuple(f"_{t}" for t in TRAINING)):
                reason = "a setting of training"
            elif name.startswith("__") and name.endswith("__"):
                reason = "a remark of the user or of training"
            if reason:
                parameters.irrelevant(name, reason)
                del parameters.values[name]
        return parameters
