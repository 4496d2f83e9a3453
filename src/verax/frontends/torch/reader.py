"""Exported program -> foreign model: ATen nodes with their arguments by name.

Every argument of a node is one of its attributes, tensors and symbolic sizes as a `Ref` to one of
its inputs, so that the ledger holds each of them to account. What a program writes in place is
renamed, so that a value never changes. Complex tensors are pairs: a last axis of two numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from typing import Any

from verax.base.errors import ModelError, UnsupportedError
from verax.frontends.common.control import constant
from verax.frontends.common.foreign import (
    UNBOUNDED,
    ForeignModel,
    ForeignNode,
    ForeignValue,
    Subgraph,
)
from verax.frontends.torch.aliasing import Aliases
from verax.frontends.torch.archive import (
    COMPLEX_TYPES,
    SCALAR_TYPES,
    Pt2Archive,
    type_name,
)
from verax.frontends.torch.arguments import Ref, dim, name_in, names_of, output_names
from verax.frontends.torch.control import CONTROL, branch, scan, while_loop
from verax.frontends.torch.inlining import inlined
from verax.frontends.torch.module_calls import Call, calls_of, module_of_value
from verax.frontends.torch.mutation import (
    MUTATIONS,
    declared_updates,
    functional_batch_norm,
    notes,
    placeholders,
    with_changes,
)
from verax.frontends.torch.output_names import output_keys, with_keys
from verax.frontends.torch.scalar_tensors import lengthened

SCHEMA = 8
"""Major version of the program's schema that is understood."""
SYMBOLIC = ("sym_int_values", "sym_float_values", "sym_bool_values")
"""Where the values of a program are listed that are no tensors."""

FIXED = ("as_none", "as_int", "as_float", "as_bool", "as_string")
"""Arguments and results whose values were fixed when the program was exported."""


def read_program(archive: Pt2Archive) -> ForeignModel:
    """The foreign model of an archive. Raises `ModelError`, `UnsupportedError`."""
    program = archive.program()
    try:
        return _Pt2Reader(archive, program).model()
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise ModelError(
            f"the program is damaged ({type(error).__name__}: {str(error)[:200]})",
            place=archive.location,
        ) from error


class _Pt2Reader:
    def __init__(self, archive: Pt2Archive, program: Any) -> None:
        self.archive = archive
        version = program["schema_version"]
        if version["major"] != SCHEMA:
            raise UnsupportedError(
                f"the program has schema {version['major']}.{version['minor']}, "
                f"{SCHEMA}.x is understood",
                place=archive.location,
                next_step="export it with PyTorch 2.8 or later",
            )
        self.program = program
        self.graph = inlined(program["graph_module"]["graph"])
        self.nodes: list[ForeignNode] = []
        self.calls: list[tuple[Call, ...]] = []  # of each node: the modules being called
        last_read = {
            n: i for i, node in enumerate(self.graph["nodes"]) for n in names_of(node["inputs"])
        }
        signature = program["graph_module"]["signature"]
        self.weights = {**archive.tensors("weights"), **archive.tensors("constants")}
        self.placeholders = placeholders(signature["input_specs"], self.weights)
        self.updates = declared_updates(signature["output_specs"], self.placeholders)
        live_at_end = [*self._outputs(signature["output_specs"]), *self.updates.values()]
        # Whoever runs the program sees what it has written to.
        live_at_end += [p.name for p in self.placeholders]
        last_read.update((name, len(self.graph["nodes"])) for name in live_at_end)
        self.last_read = last_read
        self.aliases = Aliases(self.graph["tensor_values"], last_read, self.nodes.append)

    def model(self) -> ForeignModel:
        signature = self.program["graph_module"]["signature"]
        weights = self.weights
        inputs, constants = [], {}
        for spec in signature["input_specs"]:
            ((kind, content),) = spec.items()
            if kind == "user_input":
                name = self._user_input(content["arg"])
                if name is not None:
                    inputs.append(self._value(name))
            elif kind in ("parameter", "buffer", "tensor_constant"):
                label = content[f"{kind}_name"]
                if label not in weights:
                    raise ModelError(
                        f"the archive has no {kind} {label!r}", place=self.archive.location
                    )
                constants[name_in(content["arg"])] = weights[label]
            elif kind != "constant_input":
                raise UnsupportedError(f"an input of kind {kind}", place=self.archive.location)
        outputs = self._outputs(signature["output_specs"])
        for position, node in enumerate(self.graph["nodes"]):
            self._read(node, position)
            stack = calls_of(node["metadata"].get("nn_module_stack"))
            self.calls += [stack] * (len(self.nodes) - len(self.calls))
        final: list[str] = []
        for name in [self.aliases.read(o) for o in outputs]:
            if name in final or name in constants:
                copy = ForeignNode("copy", (name,), (f"{name}.out{len(final)}",), {}, "", "verax")
                self.nodes.append(copy)
                name = copy.outputs[0]
            final.append(name)
        declared = {name: self._value(name) for name in self.graph["tensor_values"]}
        meant = {p.name: self.updates.get(p.name, p.name) for p in self.placeholders}
        contents = {name: self.aliases.read(value) for name, value in meant.items()}
        changed = with_changes(self.nodes, contents, self.placeholders, (*declared, *final))
        for placeholder, name in changed.names.items():
            if constants.pop(placeholder, None) is not None:
                inputs.append(replace(declared[placeholder], name=name))
        self.calls += [()] * (len(self.nodes) - len(self.calls))
        symbolic = {n for kind in SYMBOLIC for n in self.graph.get(kind, ())}
        read = ForeignModel(
            name="exported",
            inputs=tuple(inputs),
            outputs=tuple(ForeignValue(o, None, None) for o in (*final, *changed.updates.values())),
            nodes=tuple(changed.nodes),
            constants=constants,
            declared=declared,
            versions={k: v for k, v in self.program["opset_version"].items()},
            metadata={"torch": str(self.program.get("torch_version", "unknown")), **notes(changed)},
            updates=changed.updates,
            initial=changed.initial,
            sizes={
                symbol: range(bounds["min_val"] or 0, (bounds["max_val"] or UNBOUNDED) + 1)
                for symbol, bounds in self.program["range_constraints"].items()
            },
            modules=module_of_value(self.nodes, self.calls, final, symbolic),
        )
        return with_keys(read, [*output_keys(self.program), *("" for _ in changed.updates)])

    def _user_input(self, argument: Mapping[str, Any]) -> str | None:
        ((kind, content),) = argument.items()
        if kind == "as_tensor":
            return name_in(content)
        if kind in FIXED:
            return None
        raise UnsupportedError(f"an input that is no tensor ({kind})", place=self.archive.location)

    def _outputs(self, specs: Any) -> list[str]:
        names = []
        for spec in specs:
            ((kind, content),) = spec.items()
            if kind in MUTATIONS:
                continue
            if kind != "user_output":
                raise UnsupportedError(
                    f"the program has an output of kind {kind}", place=self.archive.location
                )
            ((form, value),) = content["arg"].items()
            if form == "as_tensor":
                names.append(name_in(value))
            elif form not in FIXED:
                raise UnsupportedError(
                    f"an output that is no tensor ({form})", place=self.archive.location
                )
        return names

    def _value(self, name: str) -> ForeignValue:
        meta = self.graph["tensor_values"][name]
        dtype = SCALAR_TYPES.get(meta["dtype"])
        dims = tuple(dim(d) for d in meta["sizes"])
        if meta["dtype"] in COMPLEX_TYPES:
            dtype, dims = COMPLEX_TYPES[meta["dtype"]], (*dims, 2)
        return ForeignValue(name, dtype, dims, f"of element type {meta['dtype']}")

    # Nodes

    def _read(self, node: Any, position: int) -> None:
        """Append a node, and what has to be computed again before it."""
        domain, op_type = _target(node["target"])
        if (domain, op_type) in CONTROL:
            self.nodes.append(self._control(node, op_type))
            return
        inputs: list[str] = []
        attributes: dict[str, Any] = {}
        for i, argument in enumerate(node["inputs"]):
            value = self._argument(argument["arg"], inputs)
            if value is not None:
                attributes[name_in(argument) or f"argument{i}"] = value
        if op_type in ("as_strided.default", "as_strided_scatter.default"):
            recorded = self.graph["tensor_values"][inputs[0]]
            attributes["recorded_strides"] = tuple(dim(s) for s in recorded["strides"])
            attributes["recorded_offset"] = dim(recorded["storage_offset"])
        names = tuple(n for output in node["outputs"] for n in output_names(output))
        outputs = tuple(n if n in self.last_read else "" for n in names)
        complex_inputs = tuple(i for i, name in enumerate(inputs) if self._is_complex(name))
        if domain == "aten" and (complex_inputs or any(map(self._is_complex, names))):
            domain, attributes["complex_inputs"] = "complex", complex_inputs
        foreign = ForeignNode(
            op_type,
            tuple(self.aliases.read(name) for name in inputs),
            outputs,
            attributes,
            str(node.get("name") or next((o for o in outputs if o), "")),
            domain,
            int(self.program["opset_version"].get("aten", 0)),
        )
        functional = functional_batch_norm(foreign)
        if functional is not None:
            self.nodes.append(functional)
            for target, value in zip(("running_mean", "running_var"), functional.outputs[3:]):
                name = inputs[attributes[target].index]
                self.aliases.assign(name, value, functional, position)
        elif _writes_in_place(foreign):
            self.aliases.write(foreign, inputs[0], position)
        else:
            self.nodes += lengthened(foreign, self._sizes)
            self.aliases.note(foreign, tuple(inputs), names)

    def _control(self, node: Any, op_type: str) -> ForeignNode:
        """A branch or loop: its sub-programs take all that they read."""
        graphs = [a["arg"]["as_graph"] for a in node["inputs"] if "as_graph" in a["arg"]]
        bodies = [self._body(g["graph"]) for g in graphs]
        operands: list[list[str]] = []
        for argument in node["inputs"]:
            if "as_graph" not in argument["arg"]:
                names: list[str] = []
                value = self._argument(argument["arg"], names)
                if isinstance(value, bool):
                    names = [f"{node['name']}.condition"]
                    self.nodes.append(constant(names[0], value))
                operands.append([self.aliases.read(n) for n in names])
        outputs = tuple(n for output in node["outputs"] for n in output_names(output))
        name = str(node.get("name") or outputs[0])
        if op_type == "cond":
            return branch(op_type, name, operands, outputs, bodies)
        if op_type == "while_loop":
            return while_loop(op_type, name, operands, outputs, bodies)
        return scan(op_type, name, operands, outputs, bodies)

    def _body(self, graph: Any) -> Subgraph:
        """A sub-program."""
        inside = copy(self)
        inside.graph = inlined(graph)
        inside.nodes, inside.calls = [], []
        inside.last_read = {
            n: i for i, node in enumerate(graph["nodes"]) for n in names_of(node["inputs"])
        }
        results = [_tensor(value) for value in graph["outputs"]]
        inside.last_read |= dict.fromkeys(results, len(graph["nodes"]))
        inside.aliases = Aliases(graph["tensor_values"], inside.last_read, inside.nodes.append)
        for position, node in enumerate(inside.graph["nodes"]):
            inside._read(node, position)
        formal = tuple(_tensor(value) for value in graph["inputs"])
        outputs = tuple(inside.aliases.read(name) for name in results)
        written = [n for n in formal if inside.aliases.read(n) != n]
        if written:
            raise UnsupportedError(
                f"a sub-program writes to {written[0]!r}, which it is given",
                place=self.archive.location,
            )
        return Subgraph(formal, outputs, {}, tuple(inside.nodes))

    def _sizes(self, name: str) -> tuple[Any, ...] | None:
        """Recorded sizes of a tensor; None for what is none."""
        meta = self.graph["tensor_values"].get(name)
        return None if meta is None else tuple(dim(d) for d in meta["sizes"])

    def _is_complex(self, name: str) -> bool:
        meta = self.graph["tensor_values"].get(name)
        return meta is not None and meta["dtype"] in COMPLEX_TYPES

    def _argument(self, argument: Mapping[str, Any], inputs: list[str]) -> Any:
        """An argument as a number, text, `Ref` or tuple, the names of its values added to `inputs`;
        None where none is given."""
        ((kind, value),) = argument.items()

        def ref(name: str) -> Ref:
            inputs.append(name)
            return Ref(len(inputs) - 1, name)

        if kind == "as_none":
            return None
        if kind == "as_tensor":
            return ref(name_in(value))
        if kind in ("as_tensors",):
            return tuple(ref(name_in(v)) for v in value)
        if kind == "as_optional_tensors":
            return tuple(ref(name_in(v["as_tensor"])) if "as_tensor" in v else None for v in value)
        if kind == "as_optional_tensor":
            return ref(name_in(value["as_tensor"])) if "as_tensor" in value else None
        if kind in ("as_sym_int", "as_sym_float", "as_sym_bool"):
            return self._symbolic(value, ref)
        if kind in ("as_sym_ints", "as_sym_floats"):
            return tuple(self._symbolic(v, ref) for v in value)
        if kind == "as_floats":
            return tuple(float(v) for v in value)
        if kind in ("as_ints", "as_bools", "as_strings"):
            return tuple(value)
        if kind == "as_float":
            return float(value)  # infinities are written as text
        if kind == "as_scalar_type":
            type_ = SCALAR_TYPES.get(value)
            if type_ is None and value not in COMPLEX_TYPES:
                raise UnsupportedError(
                    f"elements of {type_name(value)} are not supported",
                    next_step=f"supported are {', '.join(SCALAR_TYPES.values())}",
                )
            return f"element type {value}" if type_ is None else str(type_)
        if kind == "as_device":
            return str(value.get("type"))
        if kind in ("as_int", "as_bool", "as_string", "as_layout", "as_memory_format"):
            return value
        return f"<{kind}>"  # no row reads this: the ledger refuses it by name

    @staticmethod
    def _symbolic(value: Mapping[str, Any], ref: Any) -> Any:
        ((kind, content),) = value.items()
        return ref(name_in(value, kind)) if kind == "as_name" else content


def _tensor(value: Mapping[str, Any]) -> str:
    """The name of a tensor that a sub-program takes or gives."""
    ((kind, content),) = value.items()
    if kind != "as_tensor":
        raise UnsupportedError(f"a sub-program takes or gives {kind}, not a tensor")
    return name_in(content)


def _writes_in_place(node: ForeignNode) -> bool:
    """`add_` does, `__and__` does not."""
    name = node.op_type.partition(".")[0]
    return node.domain == "aten" and name.endswith("_") and not name.endswith("__")


def _target(target: str) -> tuple[str, str]:
    """`torch.ops.aten.conv2d.default` -> ("aten", "conv2d.default")."""
    if target.startswith("torch.ops."):
        domain, _, op_type = target.removeprefix("torch.ops.").partition(".")
        return domain, op_type
    domain, _, op_type = target.rpartition(".")
    return domain or "python", op_type
