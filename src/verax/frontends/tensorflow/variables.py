"""Which checkpoint key belongs to which variable: what the graph's own restoring part assigns.

Names alone do not tell: two variables may bear one name. The graph of a SavedModel contains the
operations that would restore it, RestoreV2 with a list of keys and assignments of its results. What
they leave out is found by the name in the checkpoint's table of objects: models of Keras 3 saved by
`tf.saved_model.save` restore copies of their variables, and read the variables.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

CALLS = ("PartitionedCall", "StatefulPartitionedCall")
ASSIGNMENTS = ("AssignVariableOp", "Assign")
PASSED_ON = ("Identity",)


def restored_keys(graph: Any) -> dict[str, str]:
    """Checkpoint keys by the name of the variable's node."""
    keys = _assigned(graph.node)
    functions = {f.signature.name: f for f in graph.library.function}
    for node in graph.node:
        function = functions.get(node.attr["f"].func.name) if node.op in CALLS else None
        if function is None or not any(n.op == "RestoreV2" for n in function.node_def):
            continue
        arguments = [a.name for a in function.signature.input_arg]
        inputs = [i for i in node.input if not i.startswith("^")]
        bindings = dict(zip(arguments, (i.partition(":")[0] for i in inputs)))
        keys |= {bindings.get(k, k): key for k, key in _assigned(function.node_def).items()}
    return keys


def _assigned(nodes: Iterable[Any]) -> dict[str, str]:
    """Variable -> key within one list of nodes."""
    by_name = {n.name: n for n in nodes}
    keys = {}
    for node in by_name.values():
        if node.op not in ASSIGNMENTS or len(node.input) < 2:
            continue
        key = _key(by_name, node.input[1])
        if key is not None:
            keys[node.input[0].partition(":")[0]] = key
    return keys


def _key(by_name: dict[str, Any], value: str) -> str | None:
    """The checkpoint key that a value was restored from."""
    for _ in range(len(by_name) + 1):
        name, _, port = value.partition(":")
        node = by_name.get(name)
        if node is None:
            return None
        if node.op in PASSED_ON and node.input:
            value = node.input[0]
            continue
        if node.op != "RestoreV2" or len(node.input) < 2:
            return None
        names = by_name.get(node.input[1].partition(":")[0])
        if names is None or "value" not in names.attr:
            return None
        keys = names.attr["value"].tensor.string_val
        index = int(port.rpartition(":")[2] or 0)
        return keys[index].decode(errors="replace") if index < len(keys) else None
    return None
