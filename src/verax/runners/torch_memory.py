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
from verax.runners.torch_tensors import PURPOSE, from_torch, to_torch

OWN = "self."
"""Stands before the name of a buffer that a value of the program is called like, too."""
WRAPPED = "_orig_mod."
"""What `torch.compile` puts before the names of a module's tensors."""


class Memory:
    """The buffers (and parameters) of `module`, by the names that a network's state has."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.before = {name: (t, t.detach().clone()) for name, t in _named(module).items()}

    def put(self, values: Mapping[str, np.ndarray]) -> None:
        """Let the buffers that are named in `values` hold these; other names are passed over."""
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
        """What the buffers hold now. state: buffer -> the name to show it under."""
        named = self._present()
        found = {shown: named.get(_own(name, named)) for name, shown in state.items()}
        return {shown: from_torch(t) for shown, t in found.items() if t is not None}

    def said(self, graph: Graph) -> dict[str, str]:
        """For `describe`: buffers that changed, and that the network does not remember."""
        now = _named(self.module)
        known = {_own(v, now) for v in graph.state}
        lost = [
            name.removeprefix(WRAPPED)
            for name, (_, content) in self.before.items()
            if name in now
            and name not in known
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
    """The module's name of a state."""
    bare = name.removeprefix(OWN) if name not in named else name
    return next((n for n in (name, bare, WRAPPED + name, WRAPPED + bare) if n in named), name)


@contextmanager
def borrowed(module: Any, *, evaluating: Sequence[Any] = ()) -> Iterator[Memory]:
    """Inside, the module may change its buffers; at the end it has them back as they were.

    evaluating: its parts that are in training mode and are in evaluation mode inside.
    """
    memory = Memory(module)
    try:
        for part in evaluating:
            part.training = False
        yield memory
    finally:
        for part in evaluating:
            part.training = True
        memory.restore()


def written(graph: Graph) -> dict[str, str]:
    """Inputs that the network writes to: input -> output that holds the new content."""
    return {v: new for v, new in graph.updates.items() if v not in graph.state}
