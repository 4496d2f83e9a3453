"""Keras configuration and weights -> foreign nodes.

Functional and Sequential models, nested ones in place. A call of a layer is a node: its operator is
the layer's class, its attributes are the layer's configuration (what is null counts as absent), its
inputs are the tensors of the call and then the layer's weights in their own order. A value is named
as its layer; that of a further call of a shared layer is `NAME:1`, ..., a further output of a layer
`NAME.1`, ... A layer around another (`wrappers`) is a node of its own beside the inner one.

A node's domain tells a layer ("") from an operation of `keras.ops` ("ops"), a function of
TensorFlow ("tf") and a class of somebody's own ("custom").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from verax.base.errors import ModelError, UnsupportedError
from verax.frontends.common.foreign import ForeignModel, ForeignNode, ForeignValue
from verax.frontends.keras.archive import KerasArchive, StoredWeights, damage_told, stored_names
from verax.frontends.keras.calls import (
    MODELS,
    Json,
    KerasCall,
    Operand,
    Reference,
    calls_of,
    config_of,
    from_zero,
    in_order,
    name_of,
    plain,
    references,
)
from verax.frontends.keras.domains import domain_of
from verax.frontends.keras.wrappers import WRAPPERS, Around
from verax.ir.types import COMPUTED, DType

MAX_CALLS = 100_000
MAX_DEPTH = 16
LAYER_KEYS = {
    "module", "class_name", "config", "registered_name", "build_config", "compile_config", "name",
    "inbound_nodes", "shared_object_id",
}  # fmt: skip
"""What a layer's entry may say. How it was built and compiled follows from the rest."""
MODEL_KEYS = {
    "name", "trainable", "dtype", "layers", "input_layers", "output_layers", "build_input_shape",
    "batch_input_shape",
}  # fmt: skip
"""What a model's configuration may say."""


@dataclass(frozen=True)
class LayerPath:
    """Where a layer stands. names: from the outermost model to the layer. stored: the step to each
    in a .keras file, the name by which it may be stored, or `.NAME` for a layer's own part."""

    names: tuple[str, ...] = ()
    stored: tuple[str, ...] = ()

    def step(self, name: str, stored: str) -> LayerPath:
        return LayerPath((*self.names, name), (*self.stored, stored))

    def __str__(self) -> str:
        return "/".join(self.names)


def read_model(archive: KerasArchive) -> ForeignModel:
    """The model of an archive. Raises `ModelError` when it contradicts itself, `UnsupportedError`
    for classes of models that are not built of layers."""
    with damage_told():
        reader = _KerasReader(archive.weights, int(archive.version.partition(".")[0]))
        outputs = reader.model(archive.config, LayerPath(), None)
        return ForeignModel(
            name=str(config_of(archive.config).get("name", "graph")),
            inputs=tuple(reader.inputs),
            outputs=tuple(ForeignValue(o, DType.float32, None) for o in outputs),
            nodes=tuple(reader.nodes),
            constants=reader.constants,
            declared={},
            versions={"keras": reader.version},
            metadata={"keras_version": archive.version},
        )


@dataclass
class _KerasReader:
    weights: StoredWeights
    version: int
    inputs: list[ForeignValue] = field(default_factory=list)
    nodes: list[ForeignNode] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)

    def model(
        self, model: Json, path: LayerPath, nested_inputs: Sequence[str] | None, suffix: str = ""
    ) -> list[str]:
        """Append a model's nodes; returns its outputs. given: values of a nested model's inputs."""
        kind = str(model.get("class_name"))
        if kind not in MODELS or domain_of(model):
            raise UnsupportedError(
                f"a model of class {kind} is not built of layers by its configuration",
                next_step="save a functional or sequential model",
            )
        if len(path.names) > MAX_DEPTH:
            raise ModelError(f"models are nested more than {MAX_DEPTH} deep")
        config = config_of(model)
        _check_keys(config, MODEL_KEYS, f"model {path}")
        layers: list[Json] = [dict(layer) for layer in config["layers"]]
        names = stored_names([str(layer["class_name"]) for layer in layers])
        for layer in layers:
            _check_keys(layer, LAYER_KEYS, f"layer {name_of(layer)!r}")
        if kind == "Sequential":
            return self._sequential(config, layers, names, path, nested_inputs, suffix)
        table = {name_of(layer): (layer, name) for layer, name in zip(layers, names)}
        if len(table) != len(layers):
            raise ModelError("two layers have one name", place=str(path))
        sources = references(config["input_layers"])
        values: dict[Reference, str] = {}
        for i, source in enumerate(sources):
            if source[0] not in table:
                raise ModelError(f"the input {source[0]!r} is no layer", place=str(path))
            if nested_inputs is None:
                values[source] = self._input(name_of(table[source[0]][0]), table[source[0]][0])
            elif i < len(nested_inputs):
                values[source] = nested_inputs[i]
        if nested_inputs is not None and len(nested_inputs) != len(sources):
            raise ModelError(f"it is called on {len(nested_inputs)} tensors", place=str(path))
        outputs = references(config["output_layers"])
        calls = [call for layer in layers for call in calls_of(layer)]
        calls, outputs = from_zero(layers, calls, outputs)
        used = [*outputs, *(o for call in calls for o in call.operands if isinstance(o, tuple))]
        counts: dict[tuple[str, int], int] = {}
        for name, call_index, output in used:
            counts[name, call_index] = max(counts.get((name, call_index), 1), output + 1)
        for call in in_order(calls, set(values)):
            operands = [self._operand(o, values, path) for o in call.operands]
            layer, name = table[name_of(call.layer)]
            key = (name_of(layer), call.index)
            at = path.step(name_of(layer), name)
            results = self.call(layer, call, operands, at, suffix, counts.get(key, 1))
            for i, value in enumerate(results):
                values[*key, i] = value
        missing = [r for r in outputs if r not in values]
        if missing or not outputs:
            raise ModelError(f"the output {missing[0] if missing else '?'} is computed nowhere")
        return [values[r] for r in outputs]

    def _sequential(
        self,
        config: Json,
        layers: list[Json],
        names: list[str],
        path: LayerPath,
        nested_inputs: Sequence[str] | None,
        suffix: str,
    ) -> list[str]:
        if not layers:
            raise ModelError("a sequential model has no layers", place=str(path))
        values = list(nested_inputs or ())
        if not values:
            first = layers[0]
            shape = config.get("build_input_shape", config_of(first).get("batch_input_shape"))
            if first["class_name"] != "InputLayer":
                first = {"config": {"batch_shape": shape}}
            name = config_of(first).get("name") or f"{name_of(layers[0])}_input"
            values = [self._input(str(name), first)]
        for layer, name in zip(layers, names):
            if layer["class_name"] == "InputLayer":
                continue
            call = KerasCall(layer, 0, (), {})
            values = self.call(layer, call, values, path.step(name_of(layer), name), suffix)
        return values

    def _input(self, name: str, layer: Json) -> str:
        config = config_of(layer)
        shape = config.get("batch_shape", config.get("batch_input_shape"))
        dtype = str(config.get("dtype") or "float32")
        for key in ("sparse", "ragged"):
            if config.get(key):
                raise UnsupportedError(f"a {key} input is not supported", place=name)
        dims = None if shape is None else tuple(None if d is None else int(d) for d in shape)
        supported = DType(dtype) if dtype in COMPUTED else None
        self.inputs.append(ForeignValue(name, supported, dims, dtype))
        return name

    def _operand(self, operand: Operand, values: Mapping[Reference, str], path: LayerPath) -> str:
        if isinstance(operand, tuple):
            if operand not in values:
                raise ModelError(f"output {operand[2]} of {operand[0]!r} is computed nowhere",
                                 place=str(path))  # fmt: skip
            return values[operand]
        name = "/".join((*path.names, f"number {len(self.constants)}"))
        self.constants[name] = operand
        return name

    def call(
        self,
        layer: Json,
        call: KerasCall,
        operands: Sequence[str],
        path: LayerPath,
        suffix: str,
        count: int = 1,
    ) -> list[str]:
        """Append the nodes of one call of a layer or nested model, of which `count` outputs are
        used; returns their values."""
        kind, domain = str(layer["class_name"]), domain_of(layer)
        suffix += f":{call.index}" if call.index else ""
        if kind in MODELS and not domain:
            options = {k for k in call.arguments if k != "training"}
            if options:
                raise UnsupportedError(f"a model is called with {sorted(options)}", place=str(path))
            return self.model(layer, path, operands, suffix)
        if kind in WRAPPERS and not domain:
            around = Around(layer, call, tuple(operands), path, suffix, count)
            return WRAPPERS[kind](self, around)
        weights = []
        for i, array in enumerate(self.weights.of_layer(path.names, path.stored, kind)):
            weights.append(f"{path}/weight {i}")
            self.constants[weights[-1]] = native(array)
        attributes = {k: plain(v) for k, v in config_of(layer).items() if v is not None}
        attributes |= {f"call.{k}": v for k, v in call.arguments.items()}
        attributes["weights"] = len(weights)
        if domain == "custom":
            kind = str(layer.get("registered_name") or f"{layer.get('module')}.{kind}")
        return self.node(kind, (*operands, *weights), attributes, path, suffix, count, domain)

    def node(
        self,
        kind: str,
        inputs: Sequence[str],
        attributes: Json,
        path: LayerPath,
        suffix: str,
        count: int = 1,
        domain: str = "",
    ) -> list[str]:
        """Append a node; returns its outputs."""
        if len(self.nodes) >= MAX_CALLS or count > MAX_CALLS:
            raise ModelError(f"layers are called more than {MAX_CALLS} times")
        name = f"{path}{suffix}"
        outputs = (name, *(f"{name}.{i}" for i in range(1, count)))
        node = ForeignNode(
            kind, tuple(inputs), outputs, attributes, str(path), domain, self.version
        )
        self.nodes.append(node)
        return list(outputs)


def native(array: np.ndarray) -> np.ndarray:
    """A weight as Keras reads it: floats as float32, numbers in the machine's byte order."""
    if array.dtype.kind == "f":
        return array if array.dtype == np.float32 else array.astype(np.float32)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _check_keys(config: Mapping[str, Any], keys: set[str], path: str) -> None:
    """Raise `UnsupportedError` for a key that no rule of the importer reads."""
    for key in config:
        if key not in keys:
            raise UnsupportedError(f"no rule of the importer reads {key!r}", place=path)
