"""Exported program -> foreign model: ATen nodes with their arguments by name.

Every argument of a node is one of its attributes, tensors and symbolic sizes as a `Ref` to one of
its inputs, so that the ledger holds each of them to account. What a program writes in place is
renamed, so that a value never changes.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from verax.base.errors import ModelError, UnsupportedError
from verax.frontends.foreign import ForeignModel, ForeignNode, ForeignValue
from verax.frontends.torch.archive import SCALAR_TYPES, Archive

SCHEMA = 8
"""Major version of the program's schema that is understood."""
VIEWS = frozenset(
    [
        "view",
        "reshape",
        "_unsafe_view",
        "flatten",
        "unflatten",
        "permute",
        "transpose",
        "t",
        "squeeze",
        "unsqueeze",
        "expand",
        "expand_as",
        "slice",
        "select",
        "narrow",
        "split",
        "split_with_sizes",
        "chunk",
        "unbind",
        "detach",
        "contiguous",
        "alias",
        "to",
        "dropout",
        "diagonal",
        "unfold",
        "view_as",
        "reshape_as",
        "movedim",
        "swapaxes",
        "type_as",
        "feature_dropout",
    ]
)
"""Operators whose result may lie in the memory of their first argument."""
DEPTH_LIMIT = 200


@dataclass(frozen=True)
class Ref:
    """Argument that is the node's input number `index`."""

    index: int
    name: str

    def __repr__(self) -> str:
        return f"%{self.name}"


def read_program(archive: Archive) -> ForeignModel:
    """The foreign model of an archive. Raises `ModelError`, `UnsupportedError`."""
    program = archive.program()
    try:
        return _Reader(archive, program).model()
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise ModelError(
            f"the program is damaged ({type(error).__name__}: {str(error)[:200]})",
            place=archive.place,
        ) from error


class _Reader:
    def __init__(self, archive: Archive, program: Any) -> None:
        self.archive = archive
        version = program["schema_version"]
        if version["major"] != SCHEMA:
            raise UnsupportedError(
                f"the program has schema {version['major']}.{version['minor']}, "
                f"{SCHEMA}.x is understood",
                place=archive.place,
                next_step="export it with PyTorch 2.8 or later",
            )
        self.program = program
        self.graph = program["graph_module"]["graph"]
        self.renamed: dict[str, str] = {}
        self.memory: dict[str, str] = {}

    def model(self) -> ForeignModel:
        signature = self.program["graph_module"]["signature"]
        weights = {**self.archive.tensors("weights"), **self.archive.tensors("constants")}
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
                        f"the archive has no {kind} {label!r}", place=self.archive.place
                    )
                constants[content["arg"]["name"]] = weights[label]
            elif kind != "constant_input":
                raise UnsupportedError(f"an input of kind {kind}", place=self.archive.place)
        used = {n for node in self.graph["nodes"] for n in _names(node["inputs"])}
        outputs = self._outputs(signature["output_specs"])
        used.update(outputs)
        nodes = self._nodes(used)
        final: list[str] = []
        for name in (self._current(o) for o in outputs):
            if name in final or name in constants:
                copy = ForeignNode("copy", (name,), (f"{name}.out{len(final)}",), {}, "", "verax")
                nodes.append(copy)
                name = copy.outputs[0]
            final.append(name)
        return ForeignModel(
            name="exported",
            inputs=tuple(inputs),
            outputs=tuple(ForeignValue(o, None, None) for o in final),
            nodes=tuple(nodes),
            constants=constants,
            declared={name: self._value(name) for name in self.graph["tensor_values"]},
            versions={k: v for k, v in self.program["opset_version"].items()},
            metadata={"torch": str(self.program.get("torch_version", "unknown"))},
        )

    def _user_input(self, argument: Mapping[str, Any]) -> str | None:
        ((kind, content),) = argument.items()
        if kind == "as_tensor":
            return str(content["name"])
        if kind in ("as_none", "as_int", "as_float", "as_bool", "as_string"):
            return None  # a value fixed when the program was exported
        raise UnsupportedError(f"an input that is no tensor ({kind})", place=self.archive.place)

    def _outputs(self, specs: Any) -> list[str]:
        names = []
        for spec in specs:
            ((kind, content),) = spec.items()
            if kind != "user_output":
                raise UnsupportedError(
                    f"the program has an output of kind {kind}: it changes its own state",
                    place=self.archive.place,
                    next_step="call module.eval() before exporting",
                )
            ((form, value),) = content["arg"].items()
            if form == "as_tensor":
                names.append(value["name"])
            elif form != "as_none":
                raise UnsupportedError(
                    f"an output that is no tensor ({form})", place=self.archive.place
                )
        return names

    def _value(self, name: str) -> ForeignValue:
        meta = self.graph["tensor_values"][name]
        dtype = SCALAR_TYPES.get(meta["dtype"])
        dims = tuple(_dim(d) for d in meta["sizes"])
        return ForeignValue(name, dtype, dims, f"of element type {meta['dtype']}")

    # Nodes

    def _nodes(self, used: set[str]) -> list[ForeignNode]:
        nodes = []
        for position, node in enumerate(self.graph["nodes"]):
            made = self._node(node, used)
            if _writes_in_place(made):
                made = self._overwrite(made, position)
            elif made.op_type.partition(".")[0] in VIEWS and made.inputs:
                for output in made.outputs:
                    self.memory[output] = self._storage(made.inputs[0])
            nodes.append(made)
        return nodes

    def _node(self, node: Any, used: set[str]) -> ForeignNode:
        domain, op_type = _target(node["target"])
        inputs: list[str] = []
        attributes: dict[str, Any] = {}
        for i, argument in enumerate(node["inputs"]):
            value = self._argument(argument["arg"], inputs, 0)
            if value is not None:
                attributes[argument["name"] or f"argument{i}"] = value
        outputs = tuple(
            n if n in used else "" for output in node["outputs"] for n in _output_names(output)
        )
        name = node.get("name") or next((o for o in outputs if o), "")
        return ForeignNode(
            op_type,
            tuple(inputs),
            outputs,
            attributes,
            str(name),
            domain,
            int(self.program["opset_version"].get("aten", 0)),
        )

    def _argument(self, argument: Mapping[str, Any], inputs: list[str], depth: int) -> Any:
        """An argument as a number, text, `Ref` or tuple; None where none is given."""
        ((kind, value),) = argument.items()

        def ref(name: str) -> Ref:
            inputs.append(self._current(name))
            return Ref(len(inputs) - 1, name)

        if kind == "as_none":
            return None
        if kind == "as_tensor":
            return ref(value["name"])
        if kind in ("as_tensors",):
            return tuple(ref(v["name"]) for v in value)
        if kind == "as_optional_tensors":
            return tuple(ref(v["as_tensor"]["name"]) if "as_tensor" in v else None for v in value)
        if kind == "as_optional_tensor":
            return ref(value["as_tensor"]["name"]) if "as_tensor" in value else None
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
            found = SCALAR_TYPES.get(value)
            return f"element type {value}" if found is None else str(found)
        if kind == "as_device":
            return str(value.get("type"))
        if kind in ("as_int", "as_bool", "as_string", "as_layout", "as_memory_format"):
            return value
        return f"<{kind}>"  # no row reads this: the ledger refuses it by name

    @staticmethod
    def _symbolic(value: Mapping[str, Any], ref: Any) -> Any:
        ((kind, content),) = value.items()
        return ref(content) if kind == "as_name" else content

    # Writing in place

    def _current(self, name: str) -> str:
        """The value that a name stands for now."""
        while name in self.renamed:
            name = self.renamed[name]
        return name

    def _storage(self, name: str) -> str:
        return self.memory.get(name, name)

    def _overwrite(self, node: ForeignNode, position: int) -> ForeignNode:
        """An in-place node: from here on its first input's name means its output.

        Refused when a view of the same memory is read later: it would have changed, too.
        """
        overload = node.op_type.partition(".")
        target, output = node.inputs[0], node.outputs[0] or f"{node.name}.written"
        storage = self._storage(target)
        later = {
            self._current(n)
            for other in self.graph["nodes"][position + 1 :]
            for n in _names(other["inputs"])
        }
        later.update(
            self._current(o["as_tensor"]["name"]) for o in self.graph["outputs"] if "as_tensor" in o
        )
        shared = [n for n in later if n != target and self._storage(n) == storage]
        if shared:
            raise UnsupportedError(
                f"{node.op_type} writes into memory that {shared[0]!r} shows as well",
                place=node.place,
                next_step="use the operator that returns a new tensor, and export again",
            )
        self.renamed[target] = output
        self.memory[output] = storage
        return ForeignNode(
            f"{overload[0][:-1]}.{overload[2]}",
            node.inputs,
            (output,),
            node.attributes,
            node.name,
            node.domain,
            node.version,
        )


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


def _output_names(output: Mapping[str, Any]) -> list[str]:
    ((kind, value),) = output.items()
    if kind == "as_tensor":
        return [value["name"]]
    if kind == "as_tensors":
        return [v["name"] for v in value]
    if kind in ("as_sym_int", "as_sym_float", "as_sym_bool"):
        return [value["as_name"]]
    if kind == "as_none":
        return [""]
    raise UnsupportedError(f"a node's output is {kind}")


def _names(arguments: Any) -> list[str]:
    """Every value that a node's arguments name."""
    found: list[str] = []
    waiting = [a["arg"] for a in arguments]
    while waiting:
        item = waiting.pop()
        if isinstance(item, Mapping):
            for key, value in item.items():
                if key in ("as_name", "name") and isinstance(value, str):
                    found.append(value)
                else:
                    waiting.append(value)
        elif isinstance(item, list):
            waiting.extend(item)
    return found


def _dim(size: Mapping[str, Any]) -> int | str:
    """A recorded size as a number, or as text over the names of sizes."""
    if "as_int" in size:
        return int(size["as_int"])
    text = size["as_expr"]["expr_str"]
    try:
        return _expression(ast.parse(text, mode="eval").body, 0)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return str(text)


def _expression(node: ast.expr, depth: int) -> str:
    """SymPy's constructor text as arithmetic: Mul(Integer(2), Symbol('s')) -> 2*s."""
    if depth > DEPTH_LIMIT or not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise ValueError("no expression of sizes")
    name = node.func.id
    if name in ("Symbol", "Integer") and node.args and isinstance(node.args[0], ast.Constant):
        return str(node.args[0].value)
    parts = [_expression(a, depth + 1) for a in node.args]
    if name == "Add":
        return f"({' + '.join(parts)})"
    if name == "Mul":
        return "*".join(parts)
    if name == "FloorDiv" and len(parts) == 2:
        return f"({parts[0]} // {parts[1]})"
    raise ValueError(f"no expression of sizes: {name}")
