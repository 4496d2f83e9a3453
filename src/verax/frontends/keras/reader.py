"""Keras configuration and weights -> foreign nodes.

Functional and Sequential models, nested ones in place. A call of a layer is a node: its operator is
the layer's class, its attributes are the layer's configuration (what is null counts as absent), its
inputs are the tensors of the call and then the layer's weights in their own order. A value is named
as its layer; that of a further call of a shared layer is `NAME:1`, ...
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from verax.base.errors import ModelError, UnsupportedError
from verax.frontends.foreign import ForeignModel, ForeignNode, ForeignValue
from verax.frontends.keras.archive import Archive, Weights, damage_told, stored_names
from verax.ir.types import DType

MODELS = ("Functional", "Model", "Sequential")
MAX_CALLS = 100_000
MAX_DEPTH = 16

Json = Mapping[str, Any]
Reference = tuple[str, int, int]
"""Layer, which call of it, which output."""


@dataclass(frozen=True)
class Call:
    """One call of a layer: references and numbers it is given, and other arguments."""

    layer: Json
    index: int
    operands: tuple[Reference | float, ...]
    arguments: Json


def read_model(archive: Archive) -> ForeignModel:
    """The model of an archive. Raises `ModelError` when it contradicts itself, `UnsupportedError`
    for classes of models that are not built of layers."""
    with damage_told():
        reader = _Reader(archive.weights, int(archive.version.partition(".")[0]))
        outputs = reader.model(archive.config, (), (), None)
        return ForeignModel(
            name=str(_config(archive.config).get("name", "graph")),
            inputs=tuple(reader.inputs),
            outputs=tuple(ForeignValue(o, DType.float32, None) for o in outputs),
            nodes=tuple(reader.nodes),
            constants=reader.constants,
            declared={},
            versions={"keras": reader.version},
            metadata={"keras_version": archive.version},
        )


def _config(layer: Json) -> Json:
    config = layer["config"]
    if isinstance(config, list):  # the oldest Sequential models are a bare list
        return {"layers": config}
    return dict(config)


def _name(layer: Json) -> str:
    name = layer.get("name", _config(layer).get("name"))
    if not isinstance(name, str) or not name:
        raise ModelError("a layer has no name", place=str(layer.get("class_name")))
    return name


@dataclass
class _Reader:
    weights: Weights
    version: int
    inputs: list[ForeignValue] = field(default_factory=list)
    nodes: list[ForeignNode] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)

    def model(
        self,
        model: Json,
        path: tuple[str, ...],
        stored: tuple[str, ...],
        given: Sequence[str] | None,
        suffix: str = "",
    ) -> list[str]:
        """Append a model's nodes; returns its outputs. given: values of a nested model's inputs."""
        kind = str(model.get("class_name"))
        if kind not in MODELS:
            raise UnsupportedError(
                f"a model of class {kind} is not built of layers by its configuration",
                next_step="save a functional or sequential model",
            )
        if len(path) > MAX_DEPTH:
            raise ModelError(f"models are nested more than {MAX_DEPTH} deep")
        config = _config(model)
        layers: list[Json] = [dict(layer) for layer in config["layers"]]
        names = stored_names([str(layer["class_name"]) for layer in layers])
        if kind == "Sequential":
            return self._sequential(config, layers, names, path, stored, given, suffix)
        table = {_name(layer): (layer, name) for layer, name in zip(layers, names)}
        if len(table) != len(layers):
            raise ModelError("two layers have one name", place="/".join(path))
        sources = references(config["input_layers"])
        values: dict[Reference, str] = {}
        for i, source in enumerate(sources):
            if source[0] not in table:
                raise ModelError(f"the input {source[0]!r} is no layer", place="/".join(path))
            if given is None:
                values[source] = self._input(_name(table[source[0]][0]), table[source[0]][0])
            elif i < len(given):
                values[source] = given[i]
        calls = [call for layer in layers for call in _calls(layer)]
        for call in _in_order(calls, set(values)):
            operands = [self._operand(o, values, path) for o in call.operands]
            layer, name = table[_name(call.layer)]
            made = self._call(layer, call, operands, path, (*stored, name), suffix)
            for i, value in enumerate(made):
                values[_name(layer), call.index, i] = value
        wanted = references(config["output_layers"])
        missing = [r for r in wanted if r not in values]
        if missing or not wanted:
            raise ModelError(f"the output {missing[0] if missing else '?'} is computed nowhere")
        return [values[r] for r in wanted]

    def _sequential(
        self,
        config: Json,
        layers: list[Json],
        names: list[str],
        path: tuple[str, ...],
        stored: tuple[str, ...],
        given: Sequence[str] | None,
        suffix: str,
    ) -> list[str]:
        if not layers:
            raise ModelError("a sequential model has no layers", place="/".join(path))
        values = list(given or ())
        if not values:
            first = layers[0]
            shape = config.get("build_input_shape", _config(first).get("batch_input_shape"))
            if first["class_name"] != "InputLayer":
                first = {"config": {"batch_shape": shape}}
            name = _config(first).get("name") or f"{_name(layers[0])}_input"
            values = [self._input(str(name), first)]
        for layer, name in zip(layers, names):
            if layer["class_name"] == "InputLayer":
                continue
            call = Call(layer, 0, (), {})
            values = self._call(layer, call, values, path, (*stored, name), suffix)
        return values

    def _input(self, name: str, layer: Json) -> str:
        config = _config(layer)
        shape = config.get("batch_shape", config.get("batch_input_shape"))
        dtype = str(config.get("dtype", "float32"))
        for key in ("sparse", "ragged"):
            if config.get(key):
                raise UnsupportedError(f"a {key} input is not supported", place=name)
        dims = None if shape is None else tuple(None if d is None else int(d) for d in shape)
        known = DType(dtype) if dtype in list(DType) else None
        self.inputs.append(ForeignValue(name, known, dims, dtype))
        return name

    def _operand(
        self, operand: Reference | float, values: Mapping[Reference, str], path: tuple[str, ...]
    ) -> str:
        if isinstance(operand, tuple):
            return values[operand]
        name = "/".join((*path, f"number {len(self.constants)}"))
        self.constants[name] = np.array(operand, np.float32)
        return name

    def _call(
        self,
        layer: Json,
        call: Call,
        operands: list[str],
        path: tuple[str, ...],
        stored: tuple[str, ...],
        suffix: str,
    ) -> list[str]:
        name, kind = _name(layer), str(layer["class_name"])
        suffix += f":{call.index}" if call.index else ""
        if kind in MODELS:
            return self.model(layer, (*path, name), stored, operands, suffix)
        if len(self.nodes) >= MAX_CALLS:
            raise ModelError(f"layers are called more than {MAX_CALLS} times")
        place = "/".join((*path, name))
        weights = []
        for i, array in enumerate(self.weights.of_layer((*path, name), stored)):
            weights.append(f"{place}/weight {i}")
            self.constants[weights[-1]] = array
        attributes = {k: plain(v) for k, v in _config(layer).items() if v is not None}
        attributes |= {f"call.{k}": plain(v) for k, v in call.arguments.items() if v is not None}
        attributes["weights"] = len(weights)
        self.nodes.append(
            ForeignNode(
                kind, (*operands, *weights), (place + suffix,), attributes, place, "", self.version
            )
        )
        return [place + suffix]


def plain(value: Any) -> Any:
    """A value of the configuration as attributes have it: lists as tuples; an object that only
    names something as that name, any other as its JSON text."""
    if isinstance(value, list):
        return tuple(plain(v) for v in value)
    if isinstance(value, dict):
        if value.get("class_name") == "DTypePolicy":
            return str(value["config"]["name"])
        return json.dumps(value, sort_keys=True)
    return value


def references(value: Any) -> list[Reference]:
    """All [layer, call, output] in nested lists and dictionaries, in order."""
    if isinstance(value, dict):
        return [r for v in value.values() for r in references(v)]
    if not isinstance(value, list):
        return []
    if len(value) == 3 and isinstance(value[0], str):
        return [(str(value[0]), int(value[1]), int(value[2]))]
    return [r for v in value for r in references(v)]


def _calls(layer: Json) -> list[Call]:
    """The calls of a layer: Keras 2 lists tensors as [layer, call, output, arguments], Keras 3 has
    arguments that are tensors, numbers, or lists of them."""
    found = []
    for index, node in enumerate(layer.get("inbound_nodes", [])):
        operands: list[Reference | float] = []
        arguments: dict[str, Any] = {}
        if isinstance(node, dict):
            for item in _leaves(node["args"]):
                operands.append(_argument(item, layer))
            arguments = dict(node["kwargs"])
        else:
            for item in node if node and isinstance(node[0], list) else [node]:
                if len(item) < 3 or not isinstance(item[0], str):
                    raise UnsupportedError("a layer is called on a number", place=_name(layer))
                operands.append((item[0], int(item[1]), int(item[2])))
                arguments |= item[3] if len(item) > 3 else {}
        found.append(Call(layer, index, tuple(operands), arguments))
    return found


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, list):
        return [leaf for v in value for leaf in _leaves(v)]
    return [value]


def _argument(item: Any, layer: Json) -> Reference | float:
    if isinstance(item, int | float) and not isinstance(item, bool):
        return float(item)
    if isinstance(item, dict) and item.get("class_name") == "__keras_tensor__":
        name, call, output = item["config"]["keras_history"]
        return str(name), int(call), int(output)
    raise UnsupportedError(
        f"it is called with {json.dumps(item)[:80]}", place=f"layer {_name(layer)!r}"
    )


def _in_order(calls: list[Call], known: set[Reference]) -> list[Call]:
    """Calls in an order in which every operand comes first. Raises `ModelError` for a circle."""
    waiting: dict[tuple[str, int], list[int]] = {}
    missing = []
    for i, call in enumerate(calls):
        needs = {(o[0], o[1]) for o in call.operands if isinstance(o, tuple) and o not in known}
        missing.append(len(needs))
        for need in needs:
            waiting.setdefault(need, []).append(i)
    ready = [i for i, count in enumerate(missing) if not count][::-1]
    order = []
    while ready:
        i = ready.pop()
        order.append(calls[i])
        for j in waiting.pop((_name(calls[i].layer), calls[i].index), []):
            missing[j] -= 1
            if not missing[j]:
                ready.append(j)
    if len(order) != len(calls):
        stuck = next(c for i, c in enumerate(calls) if missing[i])
        raise ModelError(
            "it needs what is computed nowhere, or itself", place=f"layer {_name(stuck.layer)!r}"
        )
    return order
