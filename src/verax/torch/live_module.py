"""Modules of PyTorch and layers of Keras 3 on its torch backend, alike: how the layers of a network
are listed, where their computation stands, and how they run on other tensors than their own.

Keras is never imported here: a network that is Keras's has done so.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from verax.base.errors import UsageError
from verax.base.optional import optional

torch: Any = optional("torch", "to use verax.torch")


class LiveModule(Protocol):
    """A kind of networks.

    attribute: the method that computes a layer. layers: those inside of a network, by name. own: a
    layer's parameters and buffers by name. changing: the tensors of a network that running it may
    change. running: a layer that computes with these tensors, which are written to where it changes
    its own.
    """

    attribute: str

    def layers(self, net: Any) -> Iterator[tuple[str, Any]]: ...

    def own(self, layer: Any) -> dict[str, Any]: ...

    def absent(self, layer: Any) -> list[str]: ...

    def changing(self, net: Any) -> list[Any]: ...

    def running(self, layer: Any, own: Sequence[Any]) -> AbstractContextManager[Any]: ...


class _Modules:
    attribute = "forward"

    def layers(self, net: Any) -> Iterator[tuple[str, Any]]:
        return ((name, module) for name, module in net.named_modules() if name)

    def own(self, layer: Any) -> dict[str, Any]:
        return {**dict(layer.named_parameters()), **dict(layer.named_buffers())}

    def absent(self, layer: Any) -> list[str]:
        return [name for name, value in layer._parameters.items() if value is None]

    def changing(self, net: Any) -> list[Any]:
        return list(net.buffers())

    def running(self, layer: Any, own: Sequence[Any]) -> AbstractContextManager[Any]:
        names = dict(zip(self.own(layer), own))
        context: AbstractContextManager[Any]
        context = torch.nn.utils.stateless._reparametrize_module(layer, names)
        return context


class _Keras:
    attribute = "call"

    def layers(self, net: Any, above: str = "") -> Iterator[tuple[str, Any]]:
        for layer in getattr(net, "layers", None) or getattr(net, "_layers", None) or ():
            name = f"{above}{layer.name}"
            yield name, layer
            yield from self.layers(layer, f"{name}.")

    def own(self, layer: Any) -> dict[str, Any]:
        return {name: v.value for name, v in self._variables(layer).items()}

    def absent(self, layer: Any) -> list[str]:
        return [k for k, v in vars(layer).items() if v is None and not k.startswith("_")]

    def changing(self, net: Any) -> list[Any]:
        return [v.value for v in net.variables if not v.trainable]

    @contextmanager
    def running(self, layer: Any, own: Sequence[Any]) -> Iterator[None]:
        keras = sys.modules["keras"]
        mapping = list(zip(self._variables(layer).values(), own))
        with keras.StatelessScope(state_mapping=mapping) as scope:
            before = [scope.get_current_value(variable) for variable, _ in mapping]
            yield
        for (variable, tensor), old in zip(mapping, before):
            new = scope.get_current_value(variable)
            if new is not old:
                tensor.copy_(new)

    @staticmethod
    def _variables(layer: Any) -> Mapping[str, Any]:
        """Variables by name; those of layers inside by their path below this layer."""
        variables = list(layer.variables)
        short = [v.name for v in variables]
        paths = [v.path.removeprefix(f"{layer.path}/").replace("/", ".") for v in variables]
        return dict(zip(short if len(set(short)) == len(short) else paths, variables))


MODULES: LiveModule = _Modules()
KERAS: LiveModule = _Keras()


def live_module_of(net: Any) -> LiveModule:
    """The kind of a network. Raises `UsageError` for what is none, and for a network of Keras that
    does not run on PyTorch."""
    keras = sys.modules.get("keras")
    layer = getattr(keras, "Layer", None)
    if isinstance(layer, type) and isinstance(net, layer):
        if not isinstance(net, torch.nn.Module):
            raise UsageError(
                f"layers of a {type(net).__name__} of Keras run on another backend than PyTorch",
                next_step="set KERAS_BACKEND=torch before Keras is imported",
            )
        return KERAS
    if not isinstance(net, torch.nn.Module):
        raise UsageError(
            f"layers of a {type(net).__name__} cannot be exchanged",
            next_step="give an nn.Module or a model of Keras 3 on its torch backend",
        )
    return MODULES
