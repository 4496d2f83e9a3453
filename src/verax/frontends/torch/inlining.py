"""Sub-programs that only set a mode (no gradients, no autocast) are put in the place of their call.

Names inside get the sub-program's name in front, as programs use the same names inside and outside.
Sub-programs that are chosen or repeated while running (cond, while_loop, ...) are left as they are:
see `control`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from verax.base.errors import ModelError, UnsupportedError

HIGHER_ORDER = "torch.ops.higher_order."
GRADIENTS, AUTOCAST = (
    f"{HIGHER_ORDER}wrap_with_set_grad_enabled",
    f"{HIGHER_ORDER}wrap_with_autocast",
)
DEEPEST = 20
"""Sub-programs within sub-programs."""


def inlined(graph: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    """The same graph without mode-setting sub-programs. Raises `UnsupportedError` for autocast that
    is on, `ModelError` for a call that does not fit its sub-program."""
    if depth > DEEPEST:
        raise ModelError(f"sub-programs are nested more than {DEEPEST} deep")
    nodes: list[Any] = []
    values = dict(graph["tensor_values"])
    for position, node in enumerate(graph["nodes"]):
        if node["target"] not in (GRADIENTS, AUTOCAST):
            nodes.append(node)
            continue
        prefix, inner, operands = _call(node, position)
        inner = inlined(inner, depth + 1)
        names, copies = _bound(inner, operands, node["outputs"], str(node.get("name")))
        for name, meta in inner["tensor_values"].items():
            if names.get(name) is None:
                values[f"{prefix}.{name}"] = meta
        nodes.extend(_renamed(n, names, prefix) for n in inner["nodes"])
        nodes.extend(_alias(value, alias) for value, alias in copies)
    return {**graph, "nodes": nodes, "tensor_values": values}


def _call(node: Mapping[str, Any], position: int) -> tuple[str, Mapping[str, Any], list[Any]]:
    """Prefix, sub-program and operands of a call."""
    arguments = [argument["arg"] for argument in node["inputs"]]
    at = ["as_graph" in argument for argument in arguments].index(True)
    if node["target"] == AUTOCAST:
        kind, _, enabled, _ = arguments[:at]
        if enabled["as_bool"]:
            raise UnsupportedError(
                f"autocast is on for {kind['as_string']}: in which precision a part of the network "
                "runs depends on the device",
                place=f"node {node.get('name')!r}",
                next_step="export outside of torch.autocast",
            )
    content = arguments[at]["as_graph"]
    return f"{content['name']}_{position}", content["graph"], arguments[at + 1 :]


def _bound(
    inner: Mapping[str, Any], operands: list[Any], outputs: list[Any], location: str
) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Outer names of the sub-program's inputs and outputs; and (value, further name) pairs where it
    gives an input, or one value twice."""
    formal = [name for value in inner["inputs"] for name in _value_names(value)]
    actual = [name for value in operands for name in _value_names(value)]
    results = [name for value in inner["outputs"] for name in _value_names(value)]
    output_names = [name for value in outputs for name in _value_names(value)]
    if len(formal) != len(actual) or len(results) != len(output_names):
        raise ModelError("the call does not fit its sub-program", place=f"node {location!r}")
    names = dict(zip(formal, actual))
    names.update((m, w) for m, w in zip(results, output_names) if m not in names)
    return names, [(names[m], w) for m, w in zip(results, output_names) if names[m] != w]


def _alias(value: str, name: str) -> dict[str, Any]:
    """A node that gives a tensor another name."""
    return {
        "target": "torch.ops.aten.alias.default",
        "inputs": [{"name": "self", "arg": {"as_tensor": {"name": value}}, "kind": 1}],
        "outputs": [{"as_tensor": {"name": name}}],
        "metadata": {},
        "name": name,
    }


def _value_names(value: Any) -> Iterator[str]:
    """Names of the values that an argument holds, in order."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key in ("as_name", "name") and isinstance(item, str):
                yield item
            else:
                yield from _value_names(item)
    elif isinstance(value, list):
        for item in value:
            yield from _value_names(item)


def _renamed(node: Mapping[str, Any], names: Mapping[str, str], prefix: str) -> dict[str, Any]:
    """A node of the sub-program, with the names that its values have outside."""

    def rename(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {
                k: names.get(v, f"{prefix}.{v}")
                if k in ("as_name", "name") and isinstance(v, str)
                else rename(v)
                for k, v in value.items()
            }
        return [rename(v) for v in value] if isinstance(value, list) else value

    inputs = [{**argument, "arg": rename(argument["arg"])} for argument in node["inputs"]]
    name = f"{prefix}.{node.get('name')}"
    return {**node, "inputs": inputs, "outputs": rename(node["outputs"]), "name": name}
