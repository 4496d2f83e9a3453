"""Lists of tensors (TensorList, TensorArray): what loops read their slices from and put their
results into. They hold no numbers: which tensor lies at which place is known while the loop is
unrolled, so that they are gone when the network is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from verax.base.errors import ModelError, UnsupportedError
from verax.frontends.common.control import Scope
from verax.frontends.common.control_nodes import DOMAIN, constant, identity, stack
from verax.frontends.common.foreign import ForeignNode
from verax.frontends.common.ledger import Attributes

MOST = 10_000
"""Tensors of one list."""
NEXT = "give the sizes when loading, so that the loop's length is known"
List = tuple[str | None, ...]
"""Names of the tensors, None where none was put yet."""


class ListImporter(Protocol):
    """What lists need of an import."""

    lists: dict[str, List]
    scope: Scope

    def attributes(self, node: ForeignNode) -> Attributes: ...


Rule = Callable[[ListImporter, ForeignNode], list[ForeignNode]]


def of_lists(importer: ListImporter, node: ForeignNode) -> list[ForeignNode] | None:
    """The nodes that one on lists stands for, None for another one."""
    passes = node.op_type == "Identity" and node.domain in ("", DOMAIN)
    if passes and node.inputs[0] in importer.lists:
        importer.lists[node.outputs[0]] = importer.lists[node.inputs[0]]
        return []
    rule = RULES.get(node.op_type) if not node.domain else None
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


def _known_value(importer: ListImporter, node: ForeignNode, name: str) -> np.ndarray:
    content = importer.scope.known_value(name)
    if content is None or content.dtype == object:
        raise UnsupportedError(
            "a place in a list of tensors, or its length, is decided only while running",
            place=node.place,
            next_step=NEXT,
        )
    return content.reshape(-1)


def _list(importer: ListImporter, node: ForeignNode, name: str) -> List:
    if name not in importer.lists:
        raise ModelError(f"{name!r} is no list of tensors", place=node.place)
    return importer.lists[name]


def _item(importer: ListImporter, node: ForeignNode, name: str, index: int) -> str:
    items = _list(importer, node, name)
    item = items[index] if 0 <= index < len(items) else None
    if item is None:
        raise UnsupportedError(f"nothing was put at place {index} of a list", place=node.place)
    return item


def _new_list(
    importer: ListImporter, node: ForeignNode, count: str, output: str
) -> list[ForeignNode]:
    size = int(_known_value(importer, node, count)[0])
    if not 0 <= size <= MOST:
        raise UnsupportedError(f"a list of {size} tensors is not supported", place=node.place)
    importer.lists[output] = (None,) * size
    return []


def _reserve(importer: ListImporter, node: ForeignNode) -> list[ForeignNode]:
    return _new_list(importer, node, node.inputs[1], node.outputs[0])


def _array(importer: ListImporter, node: ForeignNode) -> list[ForeignNode]:
    importer.lists[node.outputs[0]] = ()
    return _new_list(importer, node, node.inputs[0], node.outputs[-1])


def _sliced(
    importer: ListImporter, node: ForeignNode, source: str, indices: Sequence[int], into: List
) -> list[ForeignNode]:
    items, nodes = list(into), []
    for row, index in enumerate(indices):
        name = importer.scope.fresh(f"{node.outputs[0]}/{index}")
        attributes = {"axis": 0, "index": row}
        nodes.append(ForeignNode("Row", (source,), (name,), attributes, domain=DOMAIN))
        if not 0 <= index < len(items):
            raise ModelError(f"place {index} of a list of {len(items)}", place=node.place)
        items[index] = name
    importer.lists[node.outputs[0]] = tuple(items)
    return nodes


def _from_tensor(importer: ListImporter, node: ForeignNode) -> list[ForeignNode]:
    size = importer.scope.type(node.inputs[0]).dims[0]
    if not isinstance(size, int) or size > MOST:
        raise UnsupportedError(
            f"a list of {size} tensors is not supported", place=node.place, next_step=NEXT
        )
    return _sliced(importer, node, node.inputs[0], range(size), (None,) * size)


def _scatter(importer: ListImporter, node: ForeignNode) -> list[ForeignNode]:
    _, indices, value, flow = node.inputs
    positions = [int(i) for i in _known_value(importer, node, indices)]
    return _sliced(importer, node, value, positions, _list(importer, node, flow))


def _get(importer: ListImporter, node: ForeignNode) -> list[ForeignNode]:
    index = int(_known_value(importer, node, node.inputs[1])[0])
    return [identity(_item(importer, node, node.inputs[0], index), node.outputs[0])]


def _read(importer: ListImporter, node: ForeignNode) -> list[ForeignNode]:
    index = int(_known_value(importer, node, node.inputs[1])[0])
    return [identity(_item(importer, node, node.inputs[2], index), node.outputs[0])]


def _put(
    importer: ListImporter, node: ForeignNode, source: str, index: str, item: str
) -> list[ForeignNode]:
    items, slot = list(_list(importer, node, source)), int(_known_value(importer, node, index)[0])
    if not 0 <= slot < len(items):
        raise ModelError(f"place {slot} of a list of {len(items)}", place=node.place)
    items[slot] = item
    importer.lists[node.outputs[0]] = tuple(items)
    return []


def _set(importer: ListImporter, node: ForeignNode) -> list[ForeignNode]:
    return _put(importer, node, node.inputs[0], node.inputs[1], node.inputs[2])


def _write(importer: ListImporter, node: ForeignNode) -> list[ForeignNode]:
    return _put(importer, node, node.inputs[3], node.inputs[1], node.inputs[2])


def _stack(importer: ListImporter, node: ForeignNode) -> list[ForeignNode]:
    size = len(_list(importer, node, node.inputs[0]))
    items = [_item(importer, node, node.inputs[0], i) for i in range(size)]
    if not items:
        raise UnsupportedError("an empty list is stacked", place=node.place)
    return [stack(items, node.outputs[0])]


def _gather(importer: ListImporter, node: ForeignNode) -> list[ForeignNode]:
    indices = _known_value(importer, node, node.inputs[1])
    items = [_item(importer, node, node.inputs[2], int(i)) for i in indices]
    if not items:
        raise UnsupportedError("an empty list is stacked", place=node.place)
    return [stack(items, node.outputs[0])]


def _length(importer: ListImporter, node: ForeignNode) -> list[ForeignNode]:
    size = len(_list(importer, node, node.inputs[-1]))
    return [constant(node.outputs[0], np.array(size, np.int32))]


RULES: Mapping[str, Rule] = {
    "TensorListReserve": _reserve,
    "TensorListFromTensor": _from_tensor,
    "TensorListGetItem": _get,
    "TensorListSetItem": _set,
    "TensorListStack": _stack,
    "TensorListLength": _length,
    "TensorArrayV3": _array,
    "TensorArrayScatterV3": _scatter,
    "TensorArrayReadV3": _read,
    "TensorArrayWriteV3": _write,
    "TensorArrayGatherV3": _gather,
    "TensorArraySizeV3": _length,
}


def is_of_lists(node: Any) -> bool:
    """Whether `of_lists` knows the operator."""
    return not node.domain and node.op_type in RULES
