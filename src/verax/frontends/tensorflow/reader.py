"""GraphDef or SavedModel -> foreign model: nodes in an order in which they can run.

Calls of functions are inlined and variables become constants, so that what comes out has neither.
Values are named as TensorFlow prints them: `node` for a node's first output, `node:1` for others;
inputs and outputs of a SavedModel are named by its signature.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from verax.base.errors import ModelError, UnsupportedError, UsageError
from verax.base.reading import companion, open_bytes
from verax.frontends.common.control import Branch, Call, While, switch
from verax.frontends.common.foreign import ForeignModel, ForeignNode, ForeignValue, Subgraph
from verax.frontends.tensorflow.branches import SWITCH, taken_branches
from verax.frontends.tensorflow.bundle import Bundle
from verax.frontends.tensorflow.frames import structured
from verax.frontends.tensorflow.lifting import lifted
from verax.frontends.tensorflow.messages import CLASSES
from verax.frontends.tensorflow.names import in_function, node_of, plain, port_of
from verax.frontends.tensorflow.signatures import (
    Signature,
    chosen_signature,
    serving_graph,
    signature_of,
)
from verax.frontends.tensorflow.tensors import COMPLEX, DTYPES, dims_of, tensor_of, type_name
from verax.frontends.tensorflow.variables import restored_keys
from verax.ir.types import DType

CALLS = ("PartitionedCall", "StatefulPartitionedCall")
VARIABLES = ("VarHandleOp", "VariableV2", "Variable")
BRANCHES, LOOPS = ("If", "StatelessIf"), ("While", "StatelessWhile")
CASES = ("Case", "StatelessCase")
CONTROL = {
    **dict.fromkeys(BRANCHES, ("then_branch", "else_branch")),
    **dict.fromkeys(LOOPS, ("cond", "body")),
}
"""Operators that call functions as branches or loops, and the attributes that name these."""
UNUSED = "unused_control_flow_input"
"""Placeholders that TensorFlow leaves where it takes functions apart; nobody reads them."""
NO_VALUE = ("NoOp", "Assert", "SaveV2", "RestoreV2", "MergeV2Checkpoints", "AssignVariableOp")
MAX_NODES = 200_000
MAX_DEPTH, MAX_CALLS = 32, 10_000
MAX_BYTES = 2**31 - 1


def read_graph(data: bytes | memoryview, place: str) -> ForeignModel:
    """A frozen graph: placeholders are inputs, values that nobody reads are outputs."""
    graph, contents = _parse("Graph", memoryview(data), place)
    if not graph.node:
        raise ModelError(
            "the file holds no graph", place=place, next_step="is it a frozen GraphDef?"
        )
    return _Reader(graph, contents, None, place).model(None, {})


def read_saved_model(folder: Path, wanted: str | None = None) -> ForeignModel:
    """A SavedModel folder: one graph, its signature (`wanted` or the default), its variables."""
    place = folder.name
    file = folder / "saved_model.pb"
    if not file.is_file():
        raise UsageError(
            "the folder is no SavedModel",
            place=str(file),
            next_step="give the folder that holds saved_model.pb",
        )
    path = companion(folder, file.name, "graph")
    saved, contents = _parse("SavedModel", open_bytes(path), place)
    meta = serving_graph(saved, place)
    index = folder / "variables" / "variables"
    bundle = Bundle(index) if index.with_suffix(".index").exists() else None
    reader = _Reader(meta.graph_def, contents, bundle, place)
    chosen = chosen_signature(meta.signature_def, wanted, place)
    metadata = {"tensorflow": meta.meta_info_def.tensorflow_version, "signature": chosen}
    return reader.model(signature_of(meta.signature_def[chosen]), metadata)


def _parse(kind: str, data: memoryview, place: str) -> tuple[Any, Sequence[memoryview]]:
    """The message, and the large contents that its tensors refer to."""
    small, contents = lifted(data, kind)
    if len(small) > MAX_BYTES:
        raise ModelError("the file is larger than protobuf allows", place=place)
    try:
        return CLASSES[kind].FromString(small), contents
    except DecodeError as error:
        raise ModelError(f"the file is damaged ({error})", place=place) from error


class _Reader:
    def __init__(
        self, graph: Any, contents: Sequence[memoryview], bundle: Bundle | None, place: str
    ) -> None:
        self.graph, self.contents, self.bundle, self.place = graph, contents, bundle, place
        self.functions = {f.signature.name: f for f in graph.library.function}
        self.constants: dict[str, np.ndarray] = {}
        self.nodes: dict[str, ForeignNode] = {}
        self.alias: dict[str, str] = {}
        self.placeholders: dict[str, ForeignValue] = {}
        self.variables: dict[str, Any] = {}
        self.keys: dict[str, str] | None = None
        self.calls = 0
        self.controls: dict[str, tuple[str, ...]] = {}
        self.dead: set[str] = set()

    def model(self, signature: Signature | None, metadata: Mapping[str, str]) -> ForeignModel:
        self._add(self.graph.node, "", plain, {}, 0)
        branches, self.dead = taken_branches(
            self.nodes, self.constants, self.controls, self._resolved
        )
        self.alias |= branches
        structured(self)
        if signature is None:
            inputs = tuple((n, n) for n in self.placeholders if not n.startswith(UNUSED))
            outputs = tuple((o, o) for o in self._unread())
            types: Mapping[str, ForeignValue] = {}
        else:
            inputs, outputs, types = signature.inputs, signature.outputs, signature.types
        public = {value: name for name, value in inputs}
        absent = [v for v in public if v not in self.placeholders]
        if absent:
            raise ModelError(f"the input {absent[0]!r} is no placeholder", place=self.place)
        values = [self._input(name, value, types) for name, value in inputs]
        wanted = [self._resolved(value) for _, value in outputs]
        nodes = self._ordered(wanted, public)
        final = []
        for (name, _), value in zip(outputs, wanted):
            if name != value:
                source = (public.get(value, value),)
                nodes.append(ForeignNode("Identity", source, (name,), {}, name))
            final.append(ForeignValue(name, None, None))
        return ForeignModel(
            name=self.place,
            inputs=tuple(values),
            outputs=tuple(final),
            nodes=tuple(nodes),
            constants=self._needed(nodes),
            declared={k: v for k, v in types.items() if k in dict(outputs)},
            versions={"": int(self.graph.versions.producer)},
            metadata=metadata,
        )

    def _needed(self, nodes: Iterable[ForeignNode]) -> dict[str, np.ndarray]:
        """The constants and variables that nodes read, or that are outputs."""
        read = dict.fromkeys(v for node in nodes for v in node.inputs)
        found = {v: self.constants[v] for v in read if v in self.constants}
        return found | {v: self._variable(v) for v in read if v in self.variables}

    def _input(self, name: str, value: str, types: Mapping[str, ForeignValue]) -> ForeignValue:
        said = self.placeholders[value]
        known = types.get(name)
        dims = said.dims if known is None or known.dims is None else known.dims
        return ForeignValue(name, said.dtype, dims, said.kind)

    # Nodes

    def _add(
        self,
        nodes: Iterable[Any],
        prefix: str,
        named: Callable[[str], str],
        given: Mapping[str, str],
        depth: int,
    ) -> None:
        """Enter nodes, inlining calls. prefix: of their names; named: an input as node[:port];
        given: values of a function's arguments."""
        if depth > MAX_DEPTH:
            raise ModelError("functions call each other without end", place=self.place)

        def value(text: str) -> str:
            source = named(text)
            base, _, port = source.partition(":")
            if base in given and not port:
                return given[base]
            return f"{prefix}{source}"

        for node in nodes:
            if len(self.nodes) > MAX_NODES:
                raise ModelError(f"the model has more than {MAX_NODES} nodes", place=self.place)
            name = f"{prefix}{node.name}"
            inputs = tuple(value(i) for i in node.input if not i.startswith("^"))
            if node.op in CALLS:
                self._call(node, name, inputs, depth)
            elif node.op in CASES:
                self._cases(node, name, inputs, depth)
            elif node.op in CONTROL:
                self._control(node, name, inputs, depth)
            elif node.op not in NO_VALUE:
                self._enter(node, name, inputs)
                waits = tuple(f"{prefix}{i[1:]}" for i in node.input if i.startswith("^"))
                if waits:
                    self.controls[name] = waits

    def _call(self, node: Any, name: str, inputs: tuple[str, ...], depth: int) -> None:
        self.calls += 1
        if self.calls > MAX_CALLS:
            raise ModelError(f"functions are called more than {MAX_CALLS} times", place=self.place)
        called = node.attr["f"].func.name
        function = self.functions.get(called)
        if function is None:
            raise ModelError(f"there is no function {called!r}", place=f"node {name!r}")
        arguments = [a.name for a in function.signature.input_arg]
        if len(arguments) != len(inputs):
            raise ModelError(f"{called!r} takes {len(arguments)} inputs", place=f"node {name!r}")
        prefix = f"{name}/"
        given = dict(zip(arguments, inputs))
        operators = {n.name: n.op for n in function.node_def}
        body = partial(in_function, operators)
        self._add(function.node_def, prefix, body, given, depth + 1)
        for port, result in enumerate(function.signature.output_arg):
            source = body(function.ret[result.name])
            target = given.get(source, f"{prefix}{source}")
            self.alias[name if port == 0 else f"{name}:{port}"] = target

    def _control(self, node: Any, name: str, inputs: tuple[str, ...], depth: int) -> None:
        """A branch or loop, whose functions take all that they read."""
        called = [node.attr[part].func.name for part in CONTROL[node.op]]
        parts = [self._function(function, name, depth) for function in called]
        count = len(parts[1].outputs)
        outputs = (name, *(f"{name}:{port}" for port in range(1, count)))
        place = f"node {name!r} ({node.op})"
        if name in self.nodes:
            raise ModelError("the name is used twice", place=place)
        if node.op in BRANCHES:
            self.nodes[name] = Branch(
                node.op, inputs, outputs, {}, name, then=parts[0], otherwise=parts[1]
            )
        else:
            self.nodes[name] = While(
                node.op, inputs, outputs, {}, name, test=parts[0], body=parts[1]
            )

    def _cases(self, node: Any, name: str, inputs: tuple[str, ...], depth: int) -> None:
        """One of several branches, by number."""
        place = f"node {name!r} ({node.op})"
        called = [f.name for f in node.attr["branches"].list.func]
        parts = [self._function(function, name, depth) for function in called]
        if not parts or not inputs:
            raise ModelError("it has no branches, or nothing chooses one", place=place)
        outputs = (name, *(f"{name}:{port}" for port in range(1, len(parts[0].outputs))))
        made = ForeignNode(node.op, inputs, outputs, {}, name)
        for part in switch(inputs[0], inputs[1:], parts, made):
            if part.outputs[0] in self.nodes:
                raise ModelError("the name is used twice", place=place)
            self.nodes[part.outputs[0]] = replace(part, name=part.outputs[0])

    def _function(self, called: str, name: str, depth: int) -> Subgraph:
        """A function of the library as a graph of its own."""
        function = self.functions.get(called)
        if function is None or depth > MAX_DEPTH:
            raise ModelError(f"there is no function {called!r}", place=f"node {name!r}")
        inside = _Reader(self.graph, self.contents, self.bundle, self.place)
        inside.keys = self.keys
        arguments = tuple(a.name for a in function.signature.input_arg)
        operators = {n.name: n.op for n in function.node_def}
        body = partial(in_function, operators)
        inside._add(function.node_def, "", body, dict(zip(arguments, arguments)), depth + 1)
        wanted = [
            inside._resolved(body(function.ret[r.name])) for r in function.signature.output_arg
        ]
        nodes = inside._ordered(wanted, {})
        read = {v for n in nodes for v in n.inputs} | set(wanted)
        constants = {v: a for v, a in inside.constants.items() if v in read}
        return Subgraph(arguments, tuple(wanted), constants, tuple(nodes))

    def _enter(self, node: Any, name: str, inputs: tuple[str, ...]) -> None:
        place = f"node {name!r} ({node.op})"
        if name in self.nodes or name in self.constants or name in self.variables:
            raise ModelError("the name is used twice", place=place)
        if node.op == "Const":
            if "value" not in node.attr:
                raise ModelError("a constant without a value", place=place)
            if node.attr["value"].tensor.dtype in DTYPES | COMPLEX:
                self.constants[name] = tensor_of(node.attr["value"].tensor, place, self.contents)
        elif node.op in VARIABLES:
            self.variables[name] = node
        elif node.op == "ReadVariableOp":
            self.alias[name] = inputs[0]
        elif node.op == "Placeholder":
            dims = dims_of(node.attr["shape"].shape) if "shape" in node.attr else None
            code = node.attr["dtype"].type
            self.placeholders[name] = ForeignValue(name, DTYPES.get(code), dims, type_name(code))
        else:
            attributes = {k: _attribute(a, place, self.contents) for k, a in node.attr.items()}
            self.nodes[name] = ForeignNode(node.op, inputs, (name,), attributes, name)

    def _variable(self, name: str) -> np.ndarray:
        """The stored value of a variable that the outputs need."""
        node, place = self.variables[name], f"variable {name!r}"
        if self.bundle is None:
            raise UnsupportedError(
                "the graph has variables, and their values are not in the file",
                place=place,
                next_step="give the SavedModel folder, or freeze the graph",
            )
        if self.keys is None:
            self.keys = {**self.bundle.keys_by_name(), **restored_keys(self.graph)}
        key = self.keys.get(node.name, node.name)
        found = self.bundle.tensor(key)
        if found is None:
            raise ModelError(f"the checkpoint has no variable {key!r}", place=place)
        code, said = node.attr["dtype"].type, dims_of(node.attr["shape"].shape)
        fits = said is None or len(said) == found.ndim
        fits = fits and all(d in (n, None) for d, n in zip(said or (), found.shape))
        if DTYPES.get(code) != DType(str(found.dtype)) or not fits:
            raise ModelError(
                f"the checkpoint holds {found.dtype}{list(found.shape)} as {key!r}", place=place
            )
        return found

    # Order

    def _resolved(self, value: str) -> str:
        seen = set()
        while value in self.alias:
            if value in seen:
                raise ModelError(f"{value!r} is defined by itself", place=self.place)
            seen.add(value)
            value = self.alias[value]
        return value

    def _is_read(self, name: str) -> bool:
        values = (v for node in self.nodes.values() for v in node.inputs)
        return any(node_of(self._resolved(v)) == name for v in values)

    def _unread(self) -> list[str]:
        """Nodes that nobody reads or waits for, dead ones aside; what chooses a branch is read."""
        alive = [n for n in self.nodes.values() if n.name not in self.dead]
        readers = [*alive, *(n for n in self.nodes.values() if n.op_type in SWITCH)]
        values = [i for node in readers for i in node.inputs]
        read = {node_of(v) for i in values for v in (i, self._resolved(i))}
        read.update(name for names in self.controls.values() for name in names)
        return [node.name for node in alive if node.name not in read]

    def _ordered(self, wanted: list[str], public: Mapping[str, str]) -> list[ForeignNode]:
        """What the outputs need, each node after its inputs. Raises for cycles."""
        ports: dict[str, int] = {}
        order: list[str] = []
        state: dict[str, bool] = {}
        waiting = [(node_of(v), False) for v in reversed(wanted)]
        for value in wanted:
            _note_port(ports, value)
        while waiting:
            name, leaving = waiting.pop()
            if leaving:
                state[name] = True
                order.append(name)
                continue
            if name in state or name not in self.nodes:
                if state.get(name) is False:
                    raise ModelError(f"node {name!r} depends on itself", place=self.place)
                continue
            state[name] = False
            waiting.append((name, True))
            for value in self.nodes[name].inputs:
                found = self._resolved(value)
                _note_port(ports, found)
                base = node_of(found)
                if state.get(base) is False:
                    raise ModelError(f"node {base!r} depends on itself", place=self.place)
                waiting.append((base, False))
        made = []
        for name in order:
            node = self.nodes[name]
            inputs = [self._resolved(v) for v in node.inputs]
            outputs = (name, *(f"{name}:{p}" for p in range(1, ports.get(name, 0) + 1)))
            if isinstance(node, Branch | Call | While):
                outputs = node.outputs
            made.append(
                replace(node, inputs=tuple(public.get(v, v) for v in inputs), outputs=outputs)
            )
        return made


def _note_port(ports: dict[str, int], value: str) -> None:
    name = node_of(value)
    ports[name] = max(ports.get(name, 0), port_of(value))


def _attribute(attribute: Any, place: str, contents: Sequence[memoryview]) -> Any:
    """An attribute as a number, text, array, or tuple of these; types as their names."""
    kind = attribute.WhichOneof("value")
    return None if kind is None else _value(kind, getattr(attribute, kind), place, contents)


def _value(kind: str, value: Any, place: str, contents: Sequence[memoryview]) -> Any:
    if kind == "s":
        return value.decode(errors="replace")
    if kind == "type":
        return type_name(value)
    if kind == "shape":
        return dims_of(value)
    if kind == "tensor":
        return tensor_of(value, place, contents)
    if kind == "func":
        return f"function {value.name}"
    if kind == "list":
        for name in ("s", "i", "f", "b", "type", "shape"):
            items = getattr(value, name)
            if items:
                return tuple(_value(name, v, place, contents) for v in items)
        return ()
    return value
