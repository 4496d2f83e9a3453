"""What PyTorch's objects remember: a module's buffers, lent out and put back as they were.

Whatever runs between `borrowed` and its end may write to the buffers or assign others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from verax.base.optional import optional
from verax.ir.graph import Graph
from verax.runners.pytorch.torch_tensors import PURPOSE, from_torch, to_torch

OWN = "self."
"""Prefix of a buffer's name where a value of the program has the same name."""
WRAPPED = "_orig_mod."
"""Prefix that `torch.compile` gives to the names of a module's tensors."""


class Memory:
    """The buffers (and parameters) of `module`, by the names that a network's state has."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.before = {name: (t, t.detach().clone()) for name, t in _named(module).items()}

    def put(self, values: Mapping[str, np.ndarray]) -> None:
        """Copy `values` into the buffers of these names; names that are no buffer are ignored."""
        torch = optional("torch", PURPOSE)
        named = self._present()
        with torch.no_grad():
            for name, array in values.items():
                tensor = named.get(_own(name, named))
                if tensor is None or from_torch(tensor).tobytes() == np.asarray(array).tobytes():
                    continue
                if name not in self.before:  # a parameter
                    self.before[_own(name, named)] = (tensor, tensor.detach().clone())
                tensor.copy_(to_torch(np.asarray(array)).reshape(tensor.shape))

    def new(self, state: Mapping[str, str]) -> dict[str, np.ndarray]:
        """Contents of the buffers now, as arrays. state: buffer name -> key in the result."""
        named = self._present()
        tensors = {key: named.get(_own(name, named)) for name, key in state.items()}
        return {key: from_torch(t) for key, t in tensors.items() if t is not None}

    def notes(self, graph: Graph) -> dict[str, str]:
        """Notes for `describe`: buffers that changed although the network has no state for them."""
        now = _named(self.module)
        in_state = {_own(v, now) for v in graph.state}
        lost = [
            name.removeprefix(WRAPPED)
            for name, (_, content) in self.before.items()
            if name in now
            and name not in in_state
            and from_torch(now[name]).tobytes() != from_torch(content).tobytes()
        ]
        return {"changed, and not remembered by the network": ", ".join(lost)} if lost else {}

    def restore(self) -> None:
        """Give the module its own tensors back, with what they held."""
        torch = optional("torch", PURPOSE)
        now = self._present()
        with torch.no_grad():
            for name, (tensor, content) in self.before.items():
                if not torch.equal(tensor, content):
                    tensor.copy_(content)
                if now.get(name) is not tensor:
                    path, _, leaf = name.rpartition(".")
                    setattr(self.module.get_submodule(path), leaf, tensor)

    def _present(self) -> dict[str, Any]:
        return {**dict(self.module.named_parameters()), **_named(self.module)}


def _named(module: Any) -> dict[str, Any]:
    return dict(module.named_buffers(remove_duplicate=False))


def _own(name: str, named: Mapping[str, Any]) -> str:
    """The module's name of the buffer that the network's state `name` stands for."""
    bare = name.removeprefix(OWN) if name not in named else name
    return next((n for n in (name, bare, WRAPPED + name, WRAPPED + bare) if n in named), name)


@contextmanager
def borrowed(module: Any, *, evaluating: Sequence[Any] = ()) -> Iterator[Memory]:
    """Context in which the module may change its buffers; their contents are restored at the end.

    evaluating: its parts that are in training mode and are in evaluation mode inside.
    """
    memory = Memory(module)
    try:
        for module_ in evaluating:
            module_.training = False
        yield memory
    finally:
        for module_ in evaluating:
            module_.training = True
        memory.restore()


def written(graph: Graph) -> dict[str, str]:
    """Inputs that the network writes to: input -> output that holds the new content."""
    return {v: new for v, new in graph.updates.items() if v not in graph.state}
