"""Lines of the user's Python behind the nodes of a program in memory, for errors and verdicts.

PyTorch keeps the stack of calls that led to a node in its `stack_trace`; the innermost one is the
line that a user can change.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

from verax.base.errors import VeraxError

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')
_NODE = re.compile(r"node '(?P<name>[^']+)'")
_LISTED = re.compile(r"(?P<operator>[a-z_]\w*::[\w.]+) \(\d+\)")
_LIBRARY = ("/torch/nn/", "/torch/_", "/torch/functional", "/torch/utils/", "/torch/fx/")
Error = TypeVar("Error", bound=VeraxError)


def line_of(node: Any) -> str:
    """`FILE:LINE in FUNCTION: CODE` of the innermost frame outside of PyTorch that led to a node of
    an FX graph; "" when the node does not say."""
    text = node.meta.get("stack_trace") or ""
    rows = text.splitlines()
    line = ""
    for i, row in enumerate(rows):
        frame = _FRAME.search(row)
        if frame is None or any(folder in frame["file"] for folder in _LIBRARY):
            continue
        code = rows[i + 1].strip() if i + 1 < len(rows) else ""
        code = "" if _FRAME.search(code) else code
        line = f"{frame['file']}:{frame['line']} in {frame['function']}"
        line += f": {code}" if code else ""
    return line


def module_of(node: Any) -> str:
    """The path of the module that a node was traced in ("block.1"); "" in the outermost one."""
    stack = node.meta.get("nn_module_stack") or {}
    paths = [entry[0] for entry in stack.values() if isinstance(entry, tuple)]
    return str(paths[-1]).removeprefix("L['self']").removeprefix(".") if paths else ""


def _source_location(node: Any) -> str:
    module, line = module_of(node), line_of(node)
    return f"module {module}, {line}" if module and line else line


def with_line(error: Error, program: Any) -> Error:
    """The same error, with modules and the user's lines of the nodes that it names in its place.

    program: the ExportedProgram that was being read, None for one from a file.
    """
    if program is None:
        return error
    nodes = {node.name: node for node in program.graph.nodes if node.op == "call_function"}
    named = [m["name"] for m in _NODE.finditer(f"{error.place} {error.cause}")]
    kinds = {m["operator"] for m in _LISTED.finditer(error.cause)}
    named += [n for n, node in nodes.items() if _operator(node) in kinds]
    lines = list(dict.fromkeys(_source_location(nodes[n]) for n in named if n in nodes))
    printed = "; ".join(line for line in lines[:3] if line)
    if not printed or printed in error.place:
        return error
    location = f"{error.place}, {printed}" if error.place else printed
    return type(error)(error.cause, place=location, next_step=error.next_step)


def _operator(node: Any) -> str:
    """`aten::diff.default` of a node that calls torch.ops.aten.diff.default."""
    domain, _, name = str(node.target).partition(".")
    return f"{domain}::{name}"
