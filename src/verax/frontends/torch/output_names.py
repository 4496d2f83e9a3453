"""Outputs of a PyTorch program under the keys of the dictionary, dataclass or ModelOutput that the
module returns, instead of the names of the nodes that made them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from verax.frontends.common.foreign import ForeignModel, ForeignNode
from verax.frontends.pytrees import leaf_names


def output_keys(program: Mapping[str, Any]) -> list[str]:
    """The dotted key of each of the caller's outputs that is a tensor, in order; "" without one.

    Empty when the program does not tell the form of its outputs. Raises `ModelError` when it tells
    it wrongly.
    """
    graph = program["graph_module"]
    signatures = [
        c for c in graph.get("module_call_graph", ()) if c["fqn"] == "" and c["signature"]
    ]
    if not signatures:
        return []
    names = leaf_names(signatures[0]["signature"]["out_spec"])
    user_outputs = [
        s["user_output"]["arg"] for s in graph["signature"]["output_specs"] if "user_output" in s
    ]
    if len(names) != len(user_outputs):
        return []
    return [name for name, argument in zip(names, user_outputs) if "as_tensor" in argument]


def with_keys(model: ForeignModel, keys: Sequence[str]) -> ForeignModel:
    """`model` whose last `len(keys)` outputs have these names, where one is not empty.

    A key that is also an inner value's name is taken from that value; one that is an input's or
    constant's, or comes twice, gets a suffix.
    """
    first = len(model.outputs) - len(keys)
    names: dict[str, str] = {}
    copies: dict[str, str] = {}
    computed = {o for node in model.nodes for o in node.outputs}
    used_names = {*(v.name for v in model.inputs), *model.constants}
    for value, key in zip(model.outputs[first:], keys):
        if key:
            kind = names if value.name in computed else copies  # an input given back is copied
            kind[value.name] = _free(key, ".out", {*used_names, *names.values(), *copies.values()})
    used = {*names.values(), *copies.values()}
    for name in sorted(used & computed - names.keys()):
        names[name] = _free(name, ".inner", {*used_names, *computed, *used})
        used.add(names[name])
    if not used:
        return model

    def name_of(value: str) -> str:
        return names.get(value, value)

    return replace(
        model,
        outputs=tuple(replace(v, name=copies.get(v.name, name_of(v.name))) for v in model.outputs),
        nodes=(
            *(
                replace(
                    n,
                    inputs=tuple(map(name_of, n.inputs)),
                    outputs=tuple(map(name_of, n.outputs)),
                )
                for n in model.nodes
            ),
            *(ForeignNode("copy", (v,), (key,), {}, "", "verax") for v, key in copies.items()),
        ),
        declared={name_of(k): replace(v, name=name_of(k)) for k, v in model.declared.items()},
        modules={name_of(k): call for k, call in model.modules.items()},
        updates={v: name_of(new) for v, new in model.updates.items()},
    )


def _free(name: str, suffix: str, used_names: set[str]) -> str:
    """`name`, with a suffix and then a number where it is in `used_names`."""
    candidate, i = name, 1
    while candidate in used_names:
        candidate, i = f"{name}{suffix}" + (str(i) if i > 1 else ""), i + 1
    return candidate
