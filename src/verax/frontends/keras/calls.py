"""The calls of a layer, as both generations of Keras write them.

A call names the tensors that a layer is given, numbers among them, and options. Tensors and numbers
become operands in the order in which they stand; an option that is a tensor becomes the text
`operand N`; everything else is kept as attributes have it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from verax.base.errors import ModelError, UnsupportedError

Json = Mapping[str, Any]
Reference = tuple[str, int, int]
"""Layer, which call of it, which output."""
Operand = Reference | np.ndarray

MODELS = ("Functional", "Model", "Sequential")
"""Classes of models that are built of layers."""
OPERAND = "operand "
"""How an option says that it is an operand of the call; its number follows."""
CONSTANT = "_CONSTANT_VALUE"
"""The name under which Keras 2 lists a number among tensors."""
INDEXED = ("GetItem", "SlicingOpLambda")
"""Operators whose arguments are an index, not tensors."""
ARRAYS = ("__numpy__", "__tensor__")
"""Classes of arrays written into the configuration."""
ARRAY_TYPES = ("float32", "int32", "int64", "bool")


@dataclass(frozen=True)
class KerasCall:
    """One call of a layer: references and arrays it is given, and other arguments by name."""

    layer: Json
    index: int
    operands: tuple[Operand, ...]
    arguments: Json


def config_of(layer: Json) -> Json:
    """The configuration of a layer or model."""
    config = layer["config"]
    if isinstance(config, list):  # the oldest Sequential models are a bare list
        return {"layers": config}
    return dict(config)


def name_of(layer: Json) -> str:
    """The layer's name; raises `ModelError` when it has none."""
    name = layer.get("name", config_of(layer).get("name"))
    if not isinstance(name, str) or not name:
        raise ModelError("a layer has no name", place=str(layer.get("class_name")))
    return name


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
    reference = _listed(value)
    return [reference] if reference else [r for v in value for r in references(v)]


def _listed(value: Any) -> Reference | None:
    """A reference as a list."""
    if isinstance(value, list) and len(value) == 3 and isinstance(value[0], str):
        return str(value[0]), int(value[1]), int(value[2])
    return None


def calls_of(layer: Json) -> list[KerasCall]:
    """The calls of a layer: Keras 2 lists tensors as [layer, call, output, arguments], Keras 3 has
    arguments that are tensors, numbers, or lists of them."""
    calls = []
    for index, node in enumerate(layer.get("inbound_nodes", [])):
        bound = _Binding(name_of(layer))
        arguments = bound.new(node, layer) if isinstance(node, dict) else bound.old(node)
        arguments = {k: v for k, v in arguments.items() if v is not None}
        calls.append(KerasCall(layer, index, tuple(bound.operands), arguments))
    return calls


class _Binding:
    """Collects the operands of one call."""

    def __init__(self, name: str) -> None:
        self.location = f"layer {name!r}"
        self.operands: list[Operand] = []

    def new(self, node: Json, layer: Json) -> dict[str, Any]:
        """Arguments of a call as Keras 3 writes it."""
        extra = {}
        args = list(node["args"])
        while args and args[-1] is None:
            args.pop()
        if layer.get("class_name") in INDEXED and len(args) == 2:
            extra["index"] = json.dumps(_index(args.pop()))
        for item in args:
            self.positional(item)
        return {**{k: self.option(v) for k, v in dict(node["kwargs"]).items()}, **extra}

    def old(self, node: Any) -> dict[str, Any]:
        """Arguments of a call as Keras 2 writes it."""
        arguments: dict[str, Any] = {}
        for item in node if node and isinstance(node[0], list) else [node]:
            if len(item) < 3 or not isinstance(item[0], str):
                raise UnsupportedError("it is called on a structure", place=self.location)
            if item[0] == CONSTANT:
                self.positional(item[2])
            else:
                self.operands.append((item[0], int(item[1]), int(item[2])))
            arguments |= item[3] if len(item) > 3 else {}
        return {k: self.option(v) for k, v in arguments.items()}

    def positional(self, item: Any) -> None:
        """Append the operands that a positional argument holds; lists of numbers are one."""
        operand = _tensor(item)
        if operand is None and isinstance(item, list) and not _numeric(item):
            for entry in item:
                self.positional(entry)
            return
        if operand is None and _numeric(item):
            operand = _as_array(item)
        if operand is None:
            raise UnsupportedError(
                f"it is called with {json.dumps(item)[:80]}", place=self.location
            )
        self.operands.append(operand)

    def option(self, value: Any) -> Any:
        """An argument by name: `operand N` for a tensor."""
        tensor = _tensor(value) or _listed(value)
        if tensor is not None:
            self.operands.append(tensor)
            return f"{OPERAND}{len(self.operands) - 1}"
        if isinstance(value, list):
            return tuple(self.option(v) for v in value)
        return plain(value)


def _tensor(item: Any) -> Operand | None:
    """What an object of the configuration stands for, if that is a tensor or an array."""
    if not isinstance(item, dict):
        return None
    if item.get("class_name") == "__keras_tensor__":
        name, call, output = item["config"]["keras_history"]
        return str(name), int(call), int(output)
    if item.get("class_name") in ARRAYS and item["config"].get("dtype") in ARRAY_TYPES:
        with np.errstate(over="ignore"):
            return np.array(item["config"]["value"], item["config"]["dtype"])
    return None


def _numeric(item: Any) -> bool:
    """Whether an argument is a number, or a list of nothing else."""
    if isinstance(item, list):
        return bool(item) and all(_numeric(v) for v in item)
    return isinstance(item, int | float) and not isinstance(item, bool)


def _as_array(item: Any) -> np.ndarray:
    """Numbers as Keras takes them: whole ones as int32."""
    array = np.array(item)
    if array.dtype.kind != "f":
        if abs(array).max() >= 2**31:
            raise UnsupportedError(f"the number {abs(array).max()} is none of int32")
        return array.astype(np.int32)
    with np.errstate(over="ignore"):
        return array.astype(np.float32)


def _index(item: Any) -> Any:
    """An index: numbers, None, "..." and {"slice": [start, stop, step]}, in a list."""
    if isinstance(item, list):
        return [_index(v) for v in item]
    if isinstance(item, dict):
        config = item.get("config", {})
        if item.get("class_name") == "__slice__":
            return {"slice": [config.get("start"), config.get("stop"), config.get("step")]}
        if item.get("class_name") == "__ellipsis__":
            return "..."
    return item


def from_zero(
    layers: Sequence[Json], calls: Sequence[KerasCall], outputs: Sequence[Reference]
) -> tuple[list[KerasCall], list[Reference]]:
    """The calls of a model's layers and the references to its outputs, all calls counted from 0.

    A nested model has a call of its own, by which it was made and which is not written. Keras 2
    counts it as call 0 where its kinds of models do; every written call is referred to, so that the
    least number tells. Keras 3 counts it for functional models, in references to outputs only.
    """
    operands = [o for call in calls for o in call.operands if isinstance(o, tuple)]
    inside: dict[str, int] = {}
    outside: dict[str, int] = {}
    for layer in layers:
        name, nodes = name_of(layer), layer.get("inbound_nodes") or [[]]
        if layer["class_name"] not in MODELS:
            continue
        if isinstance(nodes[0], dict):
            outside[name] = int(layer["class_name"] != "Sequential")
            continue
        first_call = min((r[1] for r in (*operands, *outputs) if r[0] == name), default=0)
        inside[name] = outside[name] = min(first_call, 1)

    def shifted(reference: Reference, by: Mapping[str, int]) -> Reference:
        return reference[0], reference[1] - by.get(reference[0], 0), reference[2]

    return [
        replace(
            c,
            operands=tuple(shifted(o, inside) if isinstance(o, tuple) else o for o in c.operands),
        )
        for c in calls
    ], [shifted(r, outside) for r in outputs]


def in_order(calls: list[KerasCall], available: set[Reference]) -> list[KerasCall]:
    """Calls in an order in which every operand comes first. Raises `ModelError` for a circle."""
    waiting: dict[tuple[str, int], list[int]] = {}
    missing = []
    for i, call in enumerate(calls):
        needs = {(o[0], o[1]) for o in call.operands if isinstance(o, tuple) and o not in available}
        missing.append(len(needs))
        for need in needs:
            waiting.setdefault(need, []).append(i)
    ready = [i for i, count in enumerate(missing) if not count][::-1]
    order = []
    while ready:
        i = ready.pop()
        order.append(calls[i])
        for j in waiting.pop((name_of(calls[i].layer), calls[i].index), []):
            missing[j] -= 1
            if not missing[j]:
                ready.append(j)
    if len(order) != len(calls):
        stuck = next(c for i, c in enumerate(calls) if missing[i])
        raise ModelError(
            "it needs what is computed nowhere, or itself", place=f"layer {name_of(stuck.layer)!r}"
        )
    return order
