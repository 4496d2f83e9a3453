"""Arguments, outputs and sizes as the JSON of an exported program writes them."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from verax.base.errors import UnsupportedError

DEPTH_LIMIT = 200


@dataclass(frozen=True)
class Ref:
    """Argument that is the node's input number `index`."""

    index: int
    name: str

    def __repr__(self) -> str:
        return f"%{self.name}"


def name_in(value: Mapping[str, Any], key: str = "name") -> str:
    """The name under `key`. Raises `TypeError` for anything but text."""
    name = value[key]
    if not isinstance(name, str):
        raise TypeError(f"the name {name!r} is no text")
    return name


def output_names(output: Mapping[str, Any]) -> list[str]:
    """Names of a node's output, "" where it gives nothing."""
    ((kind, value),) = output.items()
    if kind == "as_tensor":
        return [name_in(value)]
    if kind == "as_tensors":
        return [name_in(v) for v in value]
    if kind in ("as_sym_int", "as_sym_float", "as_sym_bool"):
        return [name_in(value, "as_name")]
    if kind == "as_none":
        return [""]
    raise UnsupportedError(f"a node's output is {kind}")


def names_of(arguments: Any) -> list[str]:
    """Every value that a node's arguments name."""
    names: list[str] = []
    waiting = [a["arg"] for a in arguments]
    while waiting:
        item = waiting.pop()
        if isinstance(item, Mapping):
            for key, value in item.items():
                if key in ("as_name", "name") and isinstance(value, str):
                    names.append(value)
                else:
                    waiting.append(value)
        elif isinstance(item, list):
            waiting.extend(item)
    return names


def dim(size: Mapping[str, Any]) -> int | str:
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
    operands = [_expression(a, depth + 1) for a in node.args]
    if name == "Add":
        return f"({' + '.join(operands)})"
    if name == "Mul":
        return "*".join(operands)
    if name == "FloorDiv" and len(operands) == 2:
        return f"({operands[0]} // {operands[1]})"
    raise ValueError(f"no expression of sizes: {name}")
