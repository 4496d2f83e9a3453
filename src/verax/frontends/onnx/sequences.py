"""Sequences and optionals of ONNX: which tensors a sequence holds, and whether an optional holds
anything, is decided while a file is read, so that none is left in the network.

A sequence is a list of values; an optional that holds something is what it holds. Where a network
takes or gives a sequence `x`, it takes or gives tensors `x[0]`, `x[1]`, ...; how many it takes is
asked of the caller, in `shapes`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from verax.base.errors import ModelError, UnsupportedError, UsageError
from verax.frontends.common.context import RunningDecidesError, ValueNeededError
from verax.frontends.common.control import (
    GIVE,
    MAX_COPIES,
    Control,
    KeptBranch,
    KeptRepeat,
    Scope,
    placed,
)
from verax.frontends.common.control_nodes import constant, identity, row, row_at, stack
from verax.frontends.common.foreign import ForeignModel, ForeignNode, ForeignValue, Subgraph
from verax.frontends.common.ledger import Attributes
from verax.frontends.common.stated_sizes import Shapes

MAX_LENGTH = 10_000
"""Tensors of one sequence."""
CONCAT_VERSION = 13
"""Operator set of the nodes that sequences are written out into."""


class SequenceImporter(Protocol):
    """What sequences need of an import.

    sequences: names of a sequence's tensors, by its own; empty: optionals that hold nothing.
    """

    sequences: dict[str, tuple[str, ...]]
    empty: set[str]

    @property
    def scope(self) -> Scope: ...

    def attributes(self, node: ForeignNode) -> Attributes: ...


Rule = Callable[[SequenceImporter, ForeignNode, Attributes], list[ForeignNode]]


def uses_sequences(node: ForeignNode) -> bool:
    """Whether `expand_sequences` has a rule for the node."""
    return type(node) is ForeignNode and not node.domain and node.op_type in RULES


def expand_sequences(importer: SequenceImporter, node: ForeignNode) -> list[ForeignNode] | None:
    """The nodes that one on sequences or optionals stands for, None for another one.

    Raises `RunningDecidesError` where inputs decide what only the import can follow,
    `UnsupportedError` for an operator that takes no sequences.
    """
    if uses_sequences(node):
        attributes = importer.attributes(node)
        nodes = RULES[node.op_type](importer, node, attributes)
        attributes.close()
        return nodes
    sequences = [v for v in node.inputs if v in importer.sequences or v in importer.empty]
    if not sequences:
        return None
    if node.op_type == "Identity":
        (source,), (result,) = node.inputs, node.outputs
        _alias(importer, source, result)
        return []
    if isinstance(node, KeptBranch | KeptRepeat):
        raise RunningDecidesError(
            f"the sequence or optional {sequences[0]!r} in a branch or loop "
            "that only running decides",
            place=node.place,
            next_step=GIVE,
        )
    if isinstance(node, Control):
        return None
    raise UnsupportedError(
        f"the operator {node.operator} of a sequence or an empty optional is not supported",
        place=node.place,
    )


def _alias(importer: SequenceImporter, source: str, result: str) -> None:
    if source in importer.empty:
        importer.empty.add(result)
    else:
        importer.sequences[result] = importer.sequences[source]


def _items(importer: SequenceImporter, node: ForeignNode, name: str) -> tuple[str, ...]:
    if name not in importer.sequences:
        description = "an optional that holds nothing" if name in importer.empty else "no sequence"
        raise ModelError(f"{name!r} is {description}", place=node.place)
    return importer.sequences[name]


def _known_value(
    importer: SequenceImporter, node: ForeignNode, name: str, description: str
) -> np.ndarray:
    content = importer.scope.known_value(name)
    if content is None:
        raise RunningDecidesError(
            f"{description} is decided only while running", place=node.place, next_step=GIVE
        )
    return content


def _position(
    importer: SequenceImporter,
    node: ForeignNode,
    name: str,
    count: int,
    description: str = "a place",
) -> int:
    content = _known_value(importer, node, name, f"{description} in a sequence").reshape(-1)
    if content.size != 1 or not -count <= int(content[0]) < count:
        raise ModelError(
            f"{description} {content.tolist()} in a sequence of {count}", place=node.place
        )
    return int(content[0]) % count


def _set(
    importer: SequenceImporter, node: ForeignNode, items: Sequence[str], result: int = 0
) -> list[ForeignNode]:
    if len(items) > MAX_LENGTH:
        raise UnsupportedError(
            f"a sequence of {len(items)} tensors is not supported", place=node.place
        )
    importer.sequences[node.outputs[result]] = tuple(items)
    return []


def _construct(importer: SequenceImporter, node: ForeignNode, a: Attributes) -> list[ForeignNode]:
    return _set(importer, node, node.inputs)


def _no_items(importer: SequenceImporter, node: ForeignNode, a: Attributes) -> list[ForeignNode]:
    a.irrelevant("dtype", "the tensors that are put into it say theirs")
    return _set(importer, node, ())


def _length(importer: SequenceImporter, node: ForeignNode, a: Attributes) -> list[ForeignNode]:
    count = len(_items(importer, node, node.inputs[0]))
    return [constant(node.outputs[0], np.array(count, np.int64))]


def _at(importer: SequenceImporter, node: ForeignNode, a: Attributes) -> list[ForeignNode]:
    """One tensor; a place that running decides is a row of equal tensors, stacked."""
    sequence, position = node.inputs
    items = _items(importer, node, sequence)
    if importer.scope.known_value(position) is None and items:
        types = {importer.scope.type(v) for v in items}
        if len(types) == 1 and not importer.scope.type(position).rank:
            stacked = importer.scope.fresh(f"{node.outputs[0]}/stacked")
            return [stack(items, stacked), row_at(stacked, position, node.outputs[0], 0)]
    index = _position(importer, node, position, len(items))
    return [identity(items[index], node.outputs[0])]


def _insert(importer: SequenceImporter, node: ForeignNode, a: Attributes) -> list[ForeignNode]:
    sequence, tensor, *position = node.inputs
    items = list(_items(importer, node, sequence))
    index = len(items)
    if position and position[0]:
        content = _known_value(importer, node, position[0], "a place in a sequence").reshape(-1)
        if content.size != 1 or not -len(items) <= int(content[0]) <= len(items):
            raise ModelError(
                f"place {content.tolist()} in a sequence of {len(items)}", place=node.place
            )
        index = int(content[0])
    items.insert(index, tensor)
    return _set(importer, node, items)


def _erase(importer: SequenceImporter, node: ForeignNode, a: Attributes) -> list[ForeignNode]:
    sequence, *position = node.inputs
    items = list(_items(importer, node, sequence))
    if not items:
        raise ModelError("an empty sequence has nothing to erase", place=node.place)
    index = len(items) - 1
    if position and position[0]:
        index = _position(importer, node, position[0], len(items))
    del items[index]
    return _set(importer, node, items)


def _split(importer: SequenceImporter, node: ForeignNode, a: Attributes) -> list[ForeignNode]:
    data, *sizes = node.inputs
    axis, keep = a.integer("axis", 0), a.flag("keepdims", True)
    type_ = importer.scope.type(data)
    if not -type_.rank <= axis < type_.rank:
        raise ModelError(f"axis {axis} of {type_}", place=node.place)
    sizes_value = None
    if sizes and sizes[0]:
        sizes_value = _known_value(importer, node, sizes[0], "how a tensor is split")
    if sizes_value is not None and sizes_value.ndim:
        chunk_sizes = [int(n) for n in sizes_value.reshape(-1)]
    else:
        axis_size, chunk_size = type_.dims[axis], 1 if sizes_value is None else int(sizes_value)
        if not isinstance(axis_size, int):
            raise RunningDecidesError(
                f"how many parts there are depends on the sizes of {type_}",
                place=node.place,
                next_step=GIVE,
            )
        if chunk_size < 1:
            raise ModelError(f"parts of size {chunk_size}", place=node.place)
        chunk_sizes = [
            min(chunk_size, axis_size - first) for first in range(0, axis_size, chunk_size)
        ]
    names = [importer.scope.fresh(f"{node.outputs[0]}[{i}]") for i in range(len(chunk_sizes))]
    _set(importer, node, names)
    if sizes_value is None and not keep:
        return [row(data, name, axis, i) for i, name in enumerate(names)]
    if not chunk_sizes:
        return []
    lengths = importer.scope.fresh(f"{node.outputs[0]}/sizes")
    return [
        constant(lengths, np.array(chunk_sizes, np.int64)),
        ForeignNode(
            "Split", (data, lengths), tuple(names), {"axis": axis}, node.name,
            version=CONCAT_VERSION,
        ),
    ]  # fmt: skip


def _concatenate(importer: SequenceImporter, node: ForeignNode, a: Attributes) -> list[ForeignNode]:
    items = _items(importer, node, node.inputs[0])
    axis, new = a.integer("axis"), a.flag("new_axis")
    if not items or axis is None:
        raise ModelError("it concatenates an empty sequence, or has no axis", place=node.place)
    if new:
        return [stack(items, node.outputs[0], axis)]
    return [
        ForeignNode(
            "Concat", items, node.outputs, {"axis": axis}, node.name, version=CONCAT_VERSION
        )
    ]


def _map(importer: SequenceImporter, node: ForeignNode, a: Attributes) -> list[ForeignNode]:
    """The body once for each tensor of the first input, and of others that are sequences."""
    body = a.get("body")
    if not isinstance(body, Subgraph):
        raise ModelError("the attribute body is no graph", place=node.place)
    count = len(_items(importer, node, node.inputs[0]))
    if count * max(1, len(body.nodes)) > MAX_COPIES:
        raise UnsupportedError(
            f"a body of {len(body.nodes)} nodes for {count} tensors is not supported",
            place=node.place,
        )
    columns: list[list[str]] = [[] for _ in node.outputs]
    nodes: list[ForeignNode] = []
    for i in range(count):
        operands = []
        for name in node.inputs:
            items = importer.sequences.get(name)
            if items is not None and len(items) != count:
                raise ModelError(
                    f"sequences of {count} and {len(items)} tensors are mapped", place=node.place
                )
            operands.append(name if items is None else items[i])
        results = [importer.scope.fresh(f"{o}[{i}]") for o in node.outputs]
        nodes += placed(node, body, operands, results, importer.scope, str(i))
        for column, result in zip(columns, results):
            column.append(result)
    for k, column in enumerate(columns):
        _set(importer, node, column, k)
    return nodes


def _optional(importer: SequenceImporter, node: ForeignNode, a: Attributes) -> list[ForeignNode]:
    a.irrelevant("type", "what is put into it says its own")
    if not any(node.inputs):
        importer.empty.add(node.outputs[0])
        return []
    return [identity(node.inputs[0], node.outputs[0])]


def _element(importer: SequenceImporter, node: ForeignNode, a: Attributes) -> list[ForeignNode]:
    if node.inputs[0] in importer.empty:
        raise ModelError("the optional holds nothing", place=node.place)
    return [identity(node.inputs[0], node.outputs[0])]


def _has_element(importer: SequenceImporter, node: ForeignNode, a: Attributes) -> list[ForeignNode]:
    is_present = any(node.inputs) and node.inputs[0] not in importer.empty
    return [constant(node.outputs[0], np.array(is_present))]


RULES: Mapping[str, Rule] = {
    "SequenceConstruct": _construct,
    "SequenceEmpty": _no_items,
    "SequenceLength": _length,
    "SequenceAt": _at,
    "SequenceInsert": _insert,
    "SequenceErase": _erase,
    "SequenceMap": _map,
    "SplitToSequence": _split,
    "ConcatFromSequence": _concatenate,
    "Optional": _optional,
    "OptionalGetElement": _element,
    "OptionalHasElement": _has_element,
}


# Inputs and outputs of a network


def item_name(sequence: str, index: int) -> str:
    """What tensor `index` of a sequence that a network takes or gives is called."""
    return f"{sequence}[{index}]"


class SequenceExpansion:
    """A model's inputs with tensors in place of sequences and optionals.

    foreign: the model; shapes: what is left of the caller's; sequences, empty: as of
    `SequenceImporter`.
    Raises `ValueNeededError` while `shapes` does not say how many tensors a sequence has, or
    whether an optional holds anything.
    """

    def __init__(
        self, foreign: ForeignModel, shapes: Shapes | None, values: Mapping[str, Any] | None
    ) -> None:
        self.shapes = dict(shapes or {})
        self.values = values or {}
        self.sequences: dict[str, tuple[str, ...]] = {}
        self.empty: set[str] = set()
        inputs = [v for value in foreign.inputs for v in self._tensors(value)]
        self.foreign = replace(foreign, inputs=tuple(inputs))

    def _tensors(self, value: ForeignValue) -> list[ForeignValue]:
        if value.of is None:
            return [value]
        name, element = value.name, value.of
        if value.kind == "optional":
            if name in self.shapes and self.shapes[name] is None:
                del self.shapes[name]
                self.empty.add(name)
                return []
            if element.of is not None:
                return self._tensors(replace(element, name=name))
            if name not in self.shapes and name not in self.values:
                raise ValueNeededError(
                    "the input is optional, and nothing says whether it is given",
                    place=f"input {name!r}",
                    next_step=f"give its shape, shapes={{{name!r}: (2, 3)}} in Python, --shape "
                    f"{name}=2x3 on the command line, or shapes={{{name!r}: None}} for nothing",
                )
            return [replace(element, name=name)]
        count = self._count(name)
        items = [item_name(name, i) for i in range(count)]
        self.sequences[name] = tuple(items)
        if element.dims is not None:
            # A name of a size is another size in each tensor.
            dims = tuple(d if isinstance(d, int) else None for d in element.dims)
            element = replace(element, dims=dims)
        return [replace(element, name=item) for item in items]

    def _count(self, name: str) -> int:
        length: Any = self.shapes.pop(name, None)
        if length is None:
            length = 0
            while item_name(name, length) in {*self.shapes, *self.values}:
                length += 1
            if not length:
                raise ValueNeededError(
                    "the input is a sequence, and nothing says of how many tensors",
                    place=f"input {name!r}",
                    next_step=f"give their number, shapes={{{name!r}: 2}} in Python, --shape "
                    f"{name}=2 on the command line, or the shape of each, {name}[0]=2x3",
                )
        if isinstance(length, Sequence) and len(length) == 1:
            length = length[0]
        if not isinstance(length, int) or not 0 <= length <= MAX_LENGTH:
            raise UsageError(
                f"{length} is no number of tensors of a sequence", place=f"input {name!r}"
            )
        return length


NOTHING = "nothing"


def stated_outputs(metadata: Mapping[str, str], name: str) -> list[str] | str | None:
    """What an import noted of the output `name`: the outputs that are a sequence's tensors, the
    name of the only one, or None for an optional that holds nothing."""
    if metadata.get(f"optional {name}") == NOTHING:
        return None
    noted = metadata.get(f"sequence {name}")
    return name if noted is None else list(json.loads(noted))


def note_outputs(metadata: dict[str, str], name: str, items: Sequence[str] | None) -> None:
    """Enter in a model's metadata what `stated_outputs` gives."""
    if items is None:
        metadata[f"optional {name}"] = NOTHING
    else:
        metadata[f"sequence {name}"] = json.dumps(list(items))
