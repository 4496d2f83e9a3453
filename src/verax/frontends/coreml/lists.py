"""Lists of ML programs, `make_list` and the operations on it (`common.tensor_lists`): coremltools
writes recurrent networks as loops over them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common import tensor_lists as lists
from verax.frontends.common.control_nodes import constant
from verax.frontends.common.foreign import ForeignNode
from verax.frontends.common.tensor_lists import ListImporter, Rule, TensorList

DOMAIN = "mil"


class _ListOperation:
    """An operation on lists with its arguments by name."""

    def __init__(self, importer: ListImporter, node: ForeignNode) -> None:
        self.importer, self.node = importer, node
        self.bound = dict(zip(node.attributes.get("inputs", ()), node.inputs))

    def computed(self, name: str) -> str:
        """The value that is an argument. Raises `ModelError` for a constant or none."""
        if name not in self.bound:
            raise ModelError(f"the argument {name!r} is no computed value", place=self.node.place)
        return self.bound[name]

    def tensors(self) -> TensorList:
        return lists.list_of(self.importer, self.node, self.computed("ls"))

    def integers(self, name: str, default: Any = None) -> list[int]:
        """The elements of an argument that must be known while the network is read."""
        if name in self.bound:
            return lists.known_integers(self.importer, self.node, self.bound[name])
        content = np.asarray(self.node.attributes.get(name, default))
        if content.dtype.kind not in "iub":
            raise ModelError(f"{name} should be integers", place=self.node.place)
        return [int(i) for i in content.reshape(-1)]

    def integer(self, name: str, default: Any = None) -> int:
        integers = self.integers(name, default)
        if len(integers) != 1:
            raise ModelError(f"{name} should be one integer", place=self.node.place)
        return integers[0]

    def tensor(self, name: str) -> tuple[list[ForeignNode], str]:
        """The value that is an argument, and the node that makes it of a constant."""
        if name in self.bound or name not in self.node.attributes:
            return [], self.computed(name)
        value = self.importer.scope.fresh(f"{self.node.outputs[0]}/{name}")
        return [constant(value, self.node.attributes[name])], value

    def result(self, tensors: TensorList) -> None:
        self.importer.lists[self.node.outputs[0]] = tensors


def _make(importer: ListImporter, node: ForeignNode) -> list[ForeignNode]:
    call = _ListOperation(importer, node)
    size, grows = call.integer("init_length", 1), call.integer("dynamic_length", True)
    call.result(lists.create(node, size, bool(grows)))
    return []


def _write(importer: ListImporter, node: ForeignNode) -> list[ForeignNode]:
    call = _ListOperation(importer, node)
    nodes, value = call.tensor("value")
    call.result(lists.put(node, call.tensors(), call.integer("index"), value))
    return nodes


def _scatter(importer: ListImporter, node: ForeignNode) -> list[ForeignNode]:
    call = _ListOperation(importer, node)
    nodes, value = call.tensor("value")
    rows, filled = lists.scatter(importer, node, value, call.integers("indices"), call.tensors())
    call.result(filled)
    return [*nodes, *rows]


def _read(importer: ListImporter, node: ForeignNode) -> list[ForeignNode]:
    call = _ListOperation(importer, node)
    return lists.read(node, call.tensors(), call.integer("index"))


def _gather(importer: ListImporter, node: ForeignNode) -> list[ForeignNode]:
    call = _ListOperation(importer, node)
    return lists.gather(node, call.tensors(), call.integers("indices"))


def _length(importer: ListImporter, node: ForeignNode) -> list[ForeignNode]:
    return lists.length(node, _ListOperation(importer, node).tensors())


RULES: Mapping[tuple[str, str], Rule] = {
    (DOMAIN, "make_list"): _make,
    (DOMAIN, "list_write"): _write,
    (DOMAIN, "list_scatter"): _scatter,
    (DOMAIN, "list_read"): _read,
    (DOMAIN, "list_gather"): _gather,
    (DOMAIN, "list_length"): _length,
}
