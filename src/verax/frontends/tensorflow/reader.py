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
from verax.base.storage.reading import companion, open_bytes
from verax.frontends.common.control import Branch, SubgraphCall, While, switch
from verax.frontends.common.foreign import ForeignModel, ForeignNode, ForeignValue, Subgraph
from verax.frontends.tensorflow.branches import SWITCH, taken_branches
from verax.frontends.tensorflow.bundle import Bundle
from verax.frontends.tensorflow.frames import structured
from verax.frontends.tensorflow.large_tensors import lifted
from verax.frontends.tensorflow.messages import CLASSES
from verax.frontends.tensorflow.names import in_function, node_of, plain, port_of
from verax.frontends.tensorflow.signatures import (
    ServingSignature,
    select_signature,
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


def read_graph(data: bytes | memoryview, location: str) -> ForeignModel:
    """A frozen graph: placeholders are inputs, values that nobody reads are outputs."""
    graph, contents = _parse("Graph", memoryview(data), location)
    if not graph.node:
        raise ModelError(
            "the file holds no graph", place=location, next_step="is it a frozen GraphDef?"
        )
    return _GraphReader(graph, contents, None, location).model(None, {})


def read_saved_model(folder: Path, signature: str | None = None) -> ForeignModel:
    """A SavedModel folder: one graph, its signature (`wanted` or the default), its variables."""
    location = folder.name
    file = folder / "saved_model.pb"
    if not file.is_file():
        raise UsageError(
            "the folder is no SavedModel",
            place=str(file),
            next_step="give the folder that holds saved_model.pb",
        )
    path = companion(folder, file.name, "graph")
    saved, contents = _parse("SavedModel", open_bytes(path), location)
    meta = serving_graph(saved, location)
    index = folder / "variables" / "variables"
    bundle = Bundle(index) if index.with_suffix(".index").exists() else None
    reader = _GraphReader(meta.graph_def, contents, bundle, location)
    selected = select_signature(meta.signature_def, signature, location)
    metadata = {"tensorflow": meta.meta_info_def.tensorflow_version, "signature": selected}
    return reader.model(signature_of(meta.signature_def[selected]), metadata)


def _parse(kind: str, data: memoryview, location: str) -> tuple[Any, Sequence[memoryview]]:
    """The message, and the large contents that its tensors refer to."""
    small, contents = lifted(data, kind)
    if len(small) > MAX_BYTES:
        raise ModelError("the file is larger than protobuf allows", place=location)
    try:
        return CLASSES[kind].FromString(small), contents
    except DecodeError as error:
        raise ModelError(f"the file is damaged ({error})", place=location) from error


class _GraphReader:
    def __init__(
        self, graph: Any, contents: Sequence[memoryview], bundle: Bundle | None, location: str
    ) -> None:
        self.graph, self.contents, self.bundle, self.location = graph, contents, bundle, location
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

    def model(
        self, signature: ServingSignature | None, metadata: Mapping[str, str]
    ) -> ForeignModel:
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
            raise ModelError(f"the input {absent[0]!r} is no placeholder", place=self.location)
        values = [self._input(name, value, types) for name, value in inputs]
        results = [self._resolved(value) for _, value in outputs]
        nodes = self._ordered(results, public)
        final = []
        for (name, _), value in zip(outputs, results):
            if name != value:
                source = (public.get(value, value),)
                nodes.append(ForeignNode("Identity", source, (name,), {}, name))
            final.append(ForeignValue(name, None, None))
        return ForeignModel(
            name=self.location,
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
        constants = {v: self.constants[v] for v in read if v in self.constants}
        return constants | {v: self._variable(v) for v in read if v in self.variables}

    def _input(self, name: str, value: str, types: Mapping[str, ForeignValue]) -> ForeignValue:
        placeholder = self.placeholders[value]
        declared = types.get(name)
        dims = placeholder.dims if declared is None or declared.dims is None else declared.dims
        return ForeignValue(name, placeholder.dtype, dims, placeholder.kind)

    # Nodes

    def _add(
        self,
        nodes: Iterable[Any],
        prefix: str,
        named: Callable[[str], str],
        arguments: Mapping[str, str],
        depth: int,
    ) -> None:
        """Enter nodes, inlining calls. prefix: of their names; named: an input as node[:port];
        given: values of a function's arguments."""
        if depth > MAX_DEPTH:
            raise ModelError("functions call each other without end", place=self.location)

        def value(text: str) -> str:
            source = named(text)
            base, _, port = source.partition(":")
            if base in arguments and not port:
                return arguments[base]
            return f"{prefix}{source}"

        for node in nodes:
            if len(self.nodes) > MAX_NODES:
                raise ModelError(f"the model has more than {MAX_NODES} nodes", place=self.location)
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
            raise ModelError(
                f"functions are called more than {MAX_CALLS} times", place=self.location
            )
        called = node.attr["f"].func.name
        function = self.functions.get(called)
        if function is None:
            raise ModelError(f"there is no function {called!r}", place=f"node {name!r}")
        arguments = [a.name for a in function.signature.input_arg]
        if len(arguments) != len(inputs):
            raise ModelError(f"{called!r} takes {len(arguments)} inputs", place=f"node {name!r}")
        prefix = f"{name}/"
        bindings = dict(zip(arguments, inputs))
        operators = {n.name: n.op for n in function.node_def}
        body = partial(in_function, operators)
        self._add(function.node_def, prefix, body, bindings, depth + 1)
        for port, result in enumerate(function.signature.output_arg):
            source = body(function.ret[result.name])
            target = bindings.get(source, f"{prefix}{source}")
            self.alias[name if port == 0 else f"{name}:{port}"] = target

    def _control(self, node: Any, name: str, inputs: tuple[str, ...], depth: int) -> None:
        """A branch or loop, whose functions take all that they read."""
        called = [node.attr[key].func.name for key in CONTROL[node.op]]
        bodies = [self._function(function, name, depth) for function in called]
        count = len(bodies[1].outputs)
        outputs = (name, *(f"{name}:{port}" for port in range(1, count)))
        location = f"node {name!r} ({node.op})"
        if name in self.nodes:
            raise ModelError("the name is used twice", place=location)
        if node.op in BRANCHES:
            self.nodes[name] = Branch(
                node.op, inputs, outputs, {}, name, then=bodies[0], otherwise=bodies[1]
            )
        else:
            self.nodes[name] = While(
                node.op, inputs, outputs, {}, name, test=bodies[0], body=bodies[1]
            )

    def _cases(self, node: Any, name: str, inputs: tuple[str, ...], depth: int) -> None:
        """One of several branches, by number."""
        location = f"node {name!r} ({node.op})"
        called = [f.name for f in node.attr["branches"].list.func]
        branches = [self._function(function, name, depth) for function in called]
        if not branches or not inputs:
            raise ModelError("it has no branches, or nothing chooses one", place=location)
        outputs = (name, *(f"{name}:{port}" for port in range(1, len(branches[0].outputs))))
        case_node = ForeignNode(node.op, inputs, outputs, {}, name)
        for switch_node in switch(inputs[0], inputs[1:], branches, case_node):
            if switch_node.outputs[0] in self.nodes:
                raise ModelError("the name is used twice", place=location)
            self.nodes[switch_node.outputs[0]] = replace(switch_node, name=switch_node.outputs[0])

    def _function(self, called: str, name: str, depth: int) -> Subgraph:
        """A function of the library as a graph of its own."""
        function = self.functions.get(called)
        if function is None or depth > MAX_DEPTH:
            raise ModelError(f"there is no function {called!r}", place=f"node {name!r}")
        inside = _GraphReader(self.graph, self.contents, self.bundle, self.location)
        inside.keys = self.keys
        arguments = tuple(a.name for a in function.signature.input_arg)
        operators = {n.name: n.op for n in function.node_def}
        body = partial(in_function, operators)
        inside._add(function.node_def, "", body, dict(zip(arguments, arguments)), depth + 1)
        results = [
            inside._resolved(body(function.ret[r.name])) for r in function.signature.output_arg
        ]
        nodes = inside._ordered(results, {})
        read = {v for n in nodes for v in n.inputs} | set(results)
        constants = {v: a for v, a in inside.constants.items() if v in read}
        return Subgraph(arguments, tuple(results), constants, tuple(nodes))

    def _enter(self, node: Any, name: str, inputs: tuple[str, ...]) -> None:
        location = f"node {name!r} ({node.op})"
        if name in self.nodes or name in self.constants or name in self.variables:
            raise ModelError("the name is used twice", place=location)
        if node.op == "Const":
            if "value" not in node.attr:
                raise ModelError("a constant without a value", place=location)
            if node.attr["value"].tensor.dtype in DTYPES | COMPLEX:
                self.constants[name] = tensor_of(node.attr["value"].tensor, location, self.contents)
        elif node.op in VARIABLES:
            self.variables[name] = node
        elif node.op == "ReadVariableOp":
            self.alias[name] = inputs[0]
        elif node.op == "Placeholder":
            dims = dims_of(node.attr["shape"].shape) if "shape" in node.attr else None
            code = node.attr["dtype"].type
            self.placeholders[name] = ForeignValue(name, DTYPES.get(code), dims, type_name(code))
        else:
            attributes = {k: _attribute(a, location, self.contents) for k, a in node.attr.items()}
            self.nodes[name] = ForeignNode(node.op, inputs, (name,), attributes, name)

    def _variable(self, name: str) -> np.ndarray:
        """The stored value of a variable that the outputs need."""
        node, location = self.variables[name], f"variable {name!r}"
        if self.bundle is None:
            raise UnsupportedError(
                "the graph has variables, and their values are not in the file",
                place=location,
                next_step="give the SavedModel folder, or freeze the graph",
            )
        if self.keys is None:
            self.keys = {**self.bundle.keys_by_name(), **restored_keys(self.graph)}
        key = self.keys.get(node.name, node.name)
        array = self.bundle.tensor(key)
        if array is None:
            raise ModelError(f"the checkpoint has no variable {key!r}", place=location)
        code, declared = node.attr["dtype"].type, dims_of(node.attr["shape"].shape)
        fits = declared is None or len(declared) == array.ndim
        fits = fits and all(d in (n, None) for d, n in zip(declared or (), array.shape))
        if DTYPES.get(code) != DType(str(array.dtype)) or not fits:
            raise ModelError(
                f"the checkpoint holds {array.dtype}{list(array.shape)} as {key!r}", place=location
            )
        return array

    # Order

    def _resolved(self, value: str) -> str:
        seen = set()
        while value in self.alias:
            if value in seen:
                raise ModelError(f"{value!r} is defined by itself", place=self.location)
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

    def _ordered(self, results: list[str], public: Mapping[str, str]) -> list[ForeignNode]:
        """What the outputs need, each node after its inputs. Raises for cycles."""
        ports: dict[str, int] = {}
        order: list[str] = []
        state: dict[str, bool] = {}
        waiting = [(node_of(v), False) for v in reversed(results)]
        for value in results:
            _note_port(ports, value)
        while waiting:
            name, leaving = waiting.pop()
            if leaving:
                state[name] = True
                order.append(name)
                continue
            if name in state or name not in self.nodes:
                if state.get(name) is False:
                    raise ModelError(f"node {name!r} depends on itself", place=self.location)
                continue
            state[name] = False
            waiting.append((name, True))
            for value in self.nodes[name].inputs:
                target = self._resolved(value)
                _note_port(ports, target)
                base = node_of(target)
                if state.get(base) is False:
                    raise ModelError(f"node {base!r} depends on itself", place=self.location)
                waiting.append((base, False))
        ordered = []
        for name in order:
            node = self.nodes[name]
            inputs = [self._resolved(v) for v in node.inputs]
            outputs = (name, *(f"{name}:{p}" for p in range(1, ports.get(name, 0) + 1)))
            if isinstance(node, Branch | SubgraphCall | While):
                outputs = node.outputs
            ordered.append(
                replace(node, inputs=tuple(public.get(v, v) for v in inputs), outputs=outputs)
            )
        return ordered


def _note_port(ports: dict[str, int], value: str) -> None:
    name = node_of(value)
    ports[name] = max(ports.get(name, 0), port_of(value))


def _attribute(attribute: Any, location: str, contents: Sequence[memoryview]) -> Any:
    """An attribute as a number, text, array, or tuple of these; types as their names."""
    kind = attribute.WhichOneof("value")
    return None if kind is None else _value(kind, getattr(attribute, kind), location, contents)


def _value(kind: str, value: Any, location: str, contents: Sequence[memoryview]) -> Any:
    if kind == "s":
        return value.decode(errors="replace")
    if kind == "type":
        return type_name(value)
    if kind == "shape":
        return dims_of(value)
    if kind == "tensor":
        return tensor_of(value, location, contents)
    if kind == "func":
        return f"function {value.name}"
    if kind == "list":
        for name in ("s", "i", "f", "b", "type", "shape"):
            items = getattr(value, name)
            if items:
                return tuple(_value(name, v, location, contents) for v in items)
        return ()
    return value
