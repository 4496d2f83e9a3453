"""Lists of tensors: what loops read their slices from and put their results into.

They hold no numbers: which tensor lies at which position is known while a loop is unrolled, so that
they are gone when the network is read. A format says which of its operators create, read and change
lists (`Rule`), by the functions here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from verax.base.errors import ModelError, UnsupportedError
from verax.frontends.common.control import Scope
from verax.frontends.common.control_nodes import DOMAIN, constant, identity, row, stack
from verax.frontends.common.foreign import ForeignNode
from verax.frontends.common.ledger import Attributes

MAX_LENGTH = 10_000
"""Tensors of one list."""
NEXT = "give the sizes when loading, so that the loop's length is known"


@dataclass(frozen=True)
class TensorList:
    """items: names of the tensors, None where none was put yet. grows: whether a tensor may be put
    behind the last one."""

    items: tuple[str | None, ...] = ()
    grows: bool = False


class ListImporter(Protocol):
    """What lists need of an import."""

    lists: dict[str, TensorList]

    @property
    def scope(self) -> Scope: ...

    def attributes(self, node: ForeignNode) -> Attributes: ...


Rule = Callable[[ListImporter, ForeignNode], list[ForeignNode]]
"""The nodes that an operator on lists stands for."""


def expand_lists(
    importer: ListImporter, node: ForeignNode, rules: Mapping[tuple[str, str], Rule]
) -> list[ForeignNode] | None:
    """The nodes that one on lists stands for, None for another one.

    rules: by domain and operator. Raises `UnsupportedError` for an operator on lists without a
    rule.
    """
    passes = node.op_type == "Identity" and node.domain in ("", DOMAIN)
    if passes and node.inputs[0] in importer.lists:
        importer.lists[node.outputs[0]] = importer.lists[node.inputs[0]]
        return []
    rule = rules.get((node.domain, node.op_type))
    if rule is None:
        if any(v in importer.lists for v in node.inputs) and not _hands_on(node):
            raise UnsupportedError("it takes a list of tensors", place=node.place, next_step=NEXT)
        return None
    attributes = importer.attributes(node)
    for name in node.attributes:
        attributes.irrelevant(name, "the tensors of the list say it")
    return rule(importer, node)


def _hands_on(node: ForeignNode) -> bool:
    return type(node).__name__ in ("Branch", "SubgraphCall", "While", "CountedLoop")


def known_integers(importer: ListImporter, node: ForeignNode, name: str) -> list[int]:
    """The elements of an index, or of several, or of a length.

    Raises `UnsupportedError` where it is computed at run time.
    """
    content = importer.scope.known_value(name)
    if content is None or content.dtype == object:
        raise UnsupportedError(
            "an index of a list of tensors, or its length, is computed at run time",
            place=node.place,
            next_step=NEXT,
        )
    return [int(i) for i in content.reshape(-1)]


def list_of(importer: ListImporter, node: ForeignNode, name: str) -> TensorList:
    if name not in importer.lists:
        raise ModelError(f"{name!r} is no list of tensors", place=node.place)
    return importer.lists[name]


def create(node: ForeignNode, size: int, grows: bool = False) -> TensorList:
    """A list of `size` positions without tensors."""
    if not 0 <= size <= MAX_LENGTH:
        raise UnsupportedError(f"a list of {size} tensors is not supported", place=node.place)
    return TensorList((None,) * size, grows)


def put(node: ForeignNode, tensors: TensorList, index: int, tensor: str) -> TensorList:
    """The list with a tensor at `index`."""
    items = list(tensors.items)
    if tensors.grows and len(items) <= index < MAX_LENGTH:
        items += [None] * (index + 1 - len(items))
    if not 0 <= index < len(items):
        raise ModelError(f"position {index} of a list of {len(items)}", place=node.place)
    items[index] = tensor
    return replace(tensors, items=tuple(items))


def scatter(
    importer: ListImporter,
    node: ForeignNode,
    source: str,
    indices: Sequence[int],
    into: TensorList,
) -> tuple[list[ForeignNode], TensorList]:
    """The slices of a tensor along its first axis, and the list with these at `indices`."""
    nodes = []
    for i, index in enumerate(indices):
        name = importer.scope.fresh(f"{node.outputs[0]}/{index}")
        nodes.append(row(source, name, 0, i))
        into = put(node, into, index, name)
    return nodes, into


def get(node: ForeignNode, tensors: TensorList, index: int) -> str:
    """The name of the tensor at `index`."""
    item = tensors.items[index] if 0 <= index < len(tensors.items) else None
    if item is None:
        raise UnsupportedError(f"nothing was put at position {index} of a list", place=node.place)
    return item


def read(node: ForeignNode, tensors: TensorList, index: int) -> list[ForeignNode]:
    """The node's result is one tensor of the list."""
    return [identity(get(node, tensors, index), node.outputs[0])]


def gather(node: ForeignNode, tensors: TensorList, indices: Sequence[int]) -> list[ForeignNode]:
    """The node's result is the tensors at `indices`, stacked along a new first axis."""
    items = [get(node, tensors, i) for i in indices]
    if not items:
        raise UnsupportedError("an empty list is stacked", place=node.place)
    return [stack(items, node.outputs[0])]


def length(node: ForeignNode, tensors: TensorList) -> list[ForeignNode]:
    """The node's result is the number of positions, int32."""
    return [constant(node.outputs[0], np.array(len(tensors.items), np.int32))]
