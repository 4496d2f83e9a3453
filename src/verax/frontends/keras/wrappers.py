"""Layers around layers: their inner layers become nodes of their own.

TimeDistributed folds time into the batch around its layer or model; Bidirectional is two recurrent
layers and a merger; SpectralNormalization is, at inference, its layer; RNN is the layer named as
its cell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from verax.base.errors import ModelError, UnsupportedError
from verax.frontends.keras.calls import Json, KerasCall, config_of, name_of, plain

CELLS = {"LSTMCell": "LSTM", "GRUCell": "GRU", "SimpleRNNCell": "SimpleRNN"}
STATES = {"LSTM": 2, "GRU": 1, "SimpleRNN": 1, "RNN": 1}
"""Recurrent layers, and how many states each has."""


class Extendable(Protocol):
    """A path to a layer that can be led on to one inside of it (see `reader.LayerPath`)."""

    def step(self, name: str, stored: str) -> Any: ...


class Appender(Protocol):
    """What a wrapper asks of the reader: to append a layer's call, or a node."""

    def call(
        self,
        layer: Json,
        call: KerasCall,
        operands: Sequence[str],
        path: Any,
        suffix: str,
        count: int,
    ) -> list[str]: ...

    def node(
        self,
        kind: str,
        inputs: Sequence[str],
        attributes: Json,
        path: Any,
        suffix: str,
        count: int,
    ) -> list[str]: ...


@dataclass(frozen=True)
class Around:
    """One call of a wrapper, of which `count` outputs are used."""

    layer: Json
    call: KerasCall
    operands: tuple[str, ...]
    path: Extendable
    suffix: str
    count: int

    def inner(self, key: str = "layer") -> Mapping[str, Any] | None:
        """A wrapped layer, None when the configuration has none under this key."""
        config = config_of(self.layer).get(key)
        return None if config is None else dict(config)

    def attributes(self) -> dict[str, Any]:
        """The wrapper's own attributes."""
        config = {k: v for k, v in config_of(self.layer).items() if v is not None}
        own = {k: plain(v) for k, v in config.items() if k not in ("layer", "backward_layer")}
        own |= {f"call.{k}": v for k, v in self.call.arguments.items()}
        return {**own, "weights": 0}

    def required(self) -> Mapping[str, Any]:
        config = self.inner()
        if config is None:
            raise ModelError("it holds no layer", place=str(self.path))
        return config


def time_distributed(reader: Appender, w: Around) -> list[str]:
    """[batch, time, ...] as [batch time, ...] through the layer."""
    layer = w.required()
    at = w.path.step(name_of(layer), ".layer")
    if len(w.operands) != 1:
        raise ModelError(f"it is called on {len(w.operands)} tensors", place=str(w.path))
    folds = w.path.step("folded", "")
    folded = reader.node("TimeDistributed.fold", w.operands, {}, folds, w.suffix, 1)
    results = reader.call(layer, KerasCall(layer, 0, (), {}), folded, at, w.suffix, 1)
    if len(results) != 1:
        raise UnsupportedError("around a layer of several outputs", place=str(w.path))
    inputs = (*results, *w.operands)
    return reader.node("TimeDistributed", inputs, w.attributes(), w.path, w.suffix, w.count)


def bidirectional(reader: Appender, w: Around) -> list[str]:
    """A layer, the same in the other direction, and what merges their outputs. The initial states
    are the first layer's, then the second's."""
    forward = w.required()
    name = name_of(forward).removeprefix("forward_")
    config = config_of(forward)
    reversed_config = {**config, "go_backwards": not config.get("go_backwards", False)}
    backward = w.inner("backward_layer") or {**forward, "config": reversed_config}
    if forward["class_name"] not in STATES:
        raise UnsupportedError(f"around {forward['class_name']}", place=str(w.path))
    count = 1 + STATES[forward["class_name"]] if config.get("return_state") else 1
    x, states = w.operands[:1], w.operands[1:]
    half, results = len(states) // 2, []
    if len(states) % 2:
        raise ModelError("it is given an odd number of states", place=str(w.path))
    states_by_direction = [states[:half], states[half:]]
    for i, (layer, side) in enumerate(((forward, "forward"), (backward, "backward"))):
        own = f"{side}_{name}" if i == 0 or not w.inner("backward_layer") else name_of(layer)
        at = w.path.step(own, f".{side}_layer")
        renamed = {**layer, "name": own, "config": {**config_of(layer), "name": own}}
        call = KerasCall(
            renamed, 0, (), {"initial_state": "states"} if states_by_direction[i] else {}
        )
        results.append(
            reader.call(renamed, call, (*x, *states_by_direction[i]), at, w.suffix, count)
        )
    attributes = w.attributes()
    attributes.pop("call.initial_state", None)  # handed on
    if "merge_mode" in config_of(w.layer):
        attributes["merge_mode"] = str(config_of(w.layer)["merge_mode"])
    attributes["return_sequences"] = bool(config.get("return_sequences", False))
    inputs = (results[0][0], results[1][0], *results[0][1:], *results[1][1:])
    return reader.node("Bidirectional", inputs, attributes, w.path, w.suffix, w.count)


def spectral_normalization(reader: Appender, w: Around) -> list[str]:
    """Training has left the normalized weights in the layer."""
    layer = w.required()
    at = w.path.step(name_of(layer), ".layer")
    results = reader.call(layer, KerasCall(layer, 0, (), {}), w.operands, at, w.suffix, 1)
    return reader.node("SpectralNormalization", results, w.attributes(), w.path, w.suffix, w.count)


def recurrence(reader: Appender, w: Around) -> list[str]:
    """A cell and how it is run, as the layer that Keras has for both."""
    cell = w.inner("cell")
    if cell is None or cell["class_name"] not in CELLS:
        kind = None if cell is None else cell["class_name"]
        raise UnsupportedError(f"RNN of {kind} is not supported", place=str(w.path))
    config = {**config_of(cell), **config_of(w.layer)}
    config.pop("cell")
    layer = {**w.layer, "class_name": CELLS[cell["class_name"]], "config": config}
    call = replace(w.call, index=0)  # the suffix has it already
    return reader.call(layer, call, w.operands, w.path, w.suffix, w.count)


WRAPPERS: dict[str, Callable[[Any, Around], list[str]]] = {
    "TimeDistributed": time_distributed,
    "Bidirectional": bidirectional,
    "SpectralNormalization": spectral_normalization,
    "RNN": recurrence,
}
"""By class of the layer."""
