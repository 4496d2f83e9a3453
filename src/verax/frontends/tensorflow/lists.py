"""TensorFlow's lists of tensors, TensorList and TensorArray (`common.tensor_lists`)."""

from __future__ import annotations

from collections.abc import Mapping

from verax.base.errors import UnsupportedError
from verax.frontends.common import tensor_lists as lists
from verax.frontends.common.foreign import ForeignNode
from verax.frontends.common.tensor_lists import ListImporter, Rule


def _create(
    importer: ListImporter, node: ForeignNode, count: str, output: str
) -> list[ForeignNode]:
    size, *_ = lists.known_integers(importer, node, count)
    importer.lists[output] = lists.create(node, size)
    return []


def _reserve(importer: ListImporter, node: ForeignNode) -> list[ForeignNode]:
    return _create(importer, node, node.inputs[1], node.outputs[0])


def _array(importer: ListImporter, node: ForeignNode) -> list[ForeignNode]:
    importer.lists[node.outputs[0]] = lists.TensorList()
    return _create(importer, node, node.inputs[0], node.outputs[-1])


def _from_tensor(importer: ListImporter, node: ForeignNode) -> list[ForeignNode]:
    size = importer.scope.type(node.inputs[0]).dims[0]
    if not isinstance(size, int):
        raise UnsupportedError(
            f"a list of {size} tensors is not supported", place=node.place, next_step=lists.NEXT
        )
    into = lists.create(node, size)
    nodes, filled = lists.scatter(importer, node, node.inputs[0], range(size), into)
    importer.lists[node.outputs[0]] = filled
    return nodes


def _scatter(importer: ListImporter, node: ForeignNode) -> list[ForeignNode]:
    _, indices, value, flow = node.inputs
    positions = lists.known_integers(importer, node, indices)
    into = lists.list_of(importer, node, flow)
    nodes, importer.lists[node.outputs[0]] = lists.scatter(importer, node, value, positions, into)
    return nodes


def _read(source: int) -> Rule:
    """An item of the list that is the operator's input `source`."""

    def rule(importer: ListImporter, node: ForeignNode) -> list[ForeignNode]:
        index, *_ = lists.known_integers(importer, node, node.inputs[1])
        return lists.read(node, lists.list_of(importer, node, node.inputs[source]), index)

    return rule


def _write(source: int) -> Rule:
    """The list that is the operator's input `source` with its input 2 at the index."""

    def rule(importer: ListImporter, node: ForeignNode) -> list[ForeignNode]:
        tensors = lists.list_of(importer, node, node.inputs[source])
        index, *_ = lists.known_integers(importer, node, node.inputs[1])
        importer.lists[node.outputs[0]] = lists.put(node, tensors, index, node.inputs[2])
        return []

    return rule


def _stack(importer: ListImporter, node: ForeignNode) -> list[ForeignNode]:
    tensors = lists.list_of(importer, node, node.inputs[0])
    return lists.gather(node, tensors, range(len(tensors.items)))


def _gather(importer: ListImporter, node: ForeignNode) -> list[ForeignNode]:
    indices = lists.known_integers(importer, node, node.inputs[1])
    return lists.gather(node, lists.list_of(importer, node, node.inputs[2]), indices)


def _length(importer: ListImporter, node: ForeignNode) -> list[ForeignNode]:
    return lists.length(node, lists.list_of(importer, node, node.inputs[-1]))


RULES: Mapping[tuple[str, str], Rule] = {
    ("", "TensorListReserve"): _reserve,
    ("", "TensorListFromTensor"): _from_tensor,
    ("", "TensorListGetItem"): _read(0),
    ("", "TensorListSetItem"): _write(0),
    ("", "TensorListStack"): _stack,
    ("", "TensorListLength"): _length,
    ("", "TensorArrayV3"): _array,
    ("", "TensorArrayScatterV3"): _scatter,
    ("", "TensorArrayReadV3"): _read(2),
    ("", "TensorArrayWriteV3"): _write(3),
    ("", "TensorArrayGatherV3"): _gather,
    ("", "TensorArraySizeV3"): _length,
}
