"""Writes .h5 files as Keras 2 did, with h5py alone: tests that use it need no Keras."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

h5py = pytest.importorskip("h5py")

Layer = tuple[str, dict[str, Any], Sequence[np.ndarray]]
"""Class, configuration, weights."""


def sequential(
    layers: Sequence[Layer], shape: Sequence[int | None], version: str = "2.4.0"
) -> bytes:
    """A sequential model; layer i is called `l{i}`, the input `x`."""
    listed: list[dict[str, Any]] = [
        {"class_name": "InputLayer",
         "config": {"name": "x", "batch_input_shape": list(shape), "dtype": "float32"}}
    ]  # fmt: skip
    weights = {}
    for i, (kind, config, arrays) in enumerate(layers):
        listed.append({"class_name": kind, "config": {"name": f"l{i}", **config}})
        weights[f"l{i}"] = arrays
    config = {"class_name": "Sequential", "config": {"name": "net", "layers": listed}}
    return written(config, weights, version)


def functional(layers: Sequence[Mapping[str, Any]], output: str) -> bytes:
    """A functional model without weights; layer: class_name, name, config, inbound names."""
    listed = [
        {
            "class_name": layer["class_name"],
            "name": layer["name"],
            "config": {"name": layer["name"], **layer.get("config", {})},
            "inbound_nodes": [[[n, 0, 0, layer.get("call", {})] for n in layer["inbound"]]]
            if layer.get("inbound")
            else [],
        }
        for layer in layers
    ]
    config = {
        "class_name": "Functional",
        "config": {
            "name": "net",
            "layers": listed,
            "input_layers": [[n["name"], 0, 0] for n in listed if n["class_name"] == "InputLayer"],
            "output_layers": [[output, 0, 0]],
        },
    }
    return written(config, {}, "2.4.0")


def written(config: Any, weights: Mapping[str, Sequence[np.ndarray]], version: str) -> bytes:
    """The bytes of a file with this configuration and these weights by layer."""
    stream = io.BytesIO()
    with h5py.File(stream, "w") as file:
        file.attrs["keras_version"] = version
        file.attrs["model_config"] = config if isinstance(config, str) else json.dumps(config)
        group = file.create_group("model_weights")
        for name, arrays in weights.items():
            layer = group.create_group(name)
            names = [f"{name}/w{i}:0" for i in range(len(arrays))]
            layer.attrs["weight_names"] = [n.encode() for n in names]
            for key, array in zip(names, arrays):
                layer.create_dataset(key, data=array)
    return stream.getvalue()
