"""Whose class a layer's entry names: Keras's own layers, its operations, or somebody else's.

Keras writes the module of a class beside its name, so that a class of one's own that is called
`Dense` is not mistaken for Keras's. Files of Keras 2 in HDF5 name the class only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OWN = ("keras", "keras.src", "tf_keras", "tf_keras.src", "tensorflow.keras")
"""Where Keras's modules lie."""
LAYERS = ("layers", "models", "engine", "applications")
"""Modules of layers, below those."""
OPERATIONS = ("ops", "backend")
FUNCTIONS = ("TFOpLambda", "SlicingOpLambda")
"""Layers of Keras 2 that stand for a function of TensorFlow."""

TERSE = ("SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D")
"""Layers that leave out of their configuration what every other one has."""


def domain_of(layer: Mapping[str, Any]) -> str:
    """Nothing for a layer or model, "ops" for an operation, "tf" for a function of TensorFlow,
    "custom" for what is none of Keras's."""
    kind, module = str(layer.get("class_name")), layer.get("module")
    if kind in FUNCTIONS:
        return "tf"
    if "module" not in layer:
        return "custom" if ">" in kind else _without_module(layer)
    for own in sorted(OWN, key=len, reverse=True):
        if module == own:
            return ""
        if str(module).startswith(f"{own}."):
            package = str(module)[len(own) + 1 :].split(".")[0]
            if package in LAYERS:
                return ""
            return "ops" if package in OPERATIONS else "custom"
    return "custom"


def _without_module(layer: Mapping[str, Any]) -> str:
    """Keras 3 writes HDF5 without modules; an operation's configuration lacks what every layer's
    has."""
    if layer.get("class_name") in TERSE:
        return ""
    config, calls = layer.get("config"), layer.get("inbound_nodes")
    new = isinstance(calls, list) and calls and isinstance(calls[0], dict)
    return "ops" if new and isinstance(config, dict) and "trainable" not in config else ""
