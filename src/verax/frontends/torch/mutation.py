"""What a program changes beyond its results: its own buffers, and inputs of its caller.

Programs say so in two ways: those that are traced write in place, and those that were decomposed
list the new values in their signature. Both become inputs and outputs here: a changed buffer is
state, with the stored value as its first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from verax.base.errors import UnsupportedError
from verax.frontends.common.foreign import ForeignNode
from verax.frontends.torch.arguments import Ref, name_in

MUTATIONS = {
    "buffer_mutation": "buffer_name",
    "parameter_mutation": "parameter_name",
    "user_input_mutation": "user_input_name",
}
"""Kinds of outputs that are new contents, and where they say of what."""
NEXT = ".next"
"""What the new content of a value is called, behind the value's name."""


@dataclass(frozen=True)
class Placeholder:
    """An input of the program: its own name, and that of the buffer or parameter it stands for."""

    name: str
    target: str
    stored: np.ndarray | None = None


def placeholders(
    specs: Sequence[Mapping[str, Any]], weights: Mapping[str, np.ndarray]
) -> list[Placeholder]:
    """Every tensor that the program is given, in order."""
    listed = []
    for spec in specs:
        ((kind, content),) = spec.items()
        if kind == "user_input" and "as_tensor" in content["arg"]:
            name = name_in(content["arg"]["as_tensor"])
            listed.append(Placeholder(name, name))
        elif kind in ("parameter", "buffer", "tensor_constant"):
            target = name_in(content, f"{kind}_name")
            listed.append(Placeholder(name_in(content["arg"]), target, weights.get(target)))
    return listed


def declared_updates(
    specs: Sequence[Mapping[str, Any]], declared: Sequence[Placeholder]
) -> dict[str, str]:
    """Placeholder -> the value that the signature lists as its new content."""
    own = {p.target: p.name for p in declared if p.stored is not None}
    user_inputs = {p.target: p.name for p in declared if p.stored is None}
    updates = {}
    for spec in specs:
        ((kind, content),) = spec.items()
        if kind in MUTATIONS:
            target = name_in(content, MUTATIONS[kind])
            updates[(user_inputs if kind.startswith("user") else own)[target]] = name_in(
                content["arg"]
            )
    return updates


@dataclass(frozen=True)
class Changed:
    """The program with its changes as inputs and outputs. updates, initial: as in `ir.graph.Graph`;
    names: placeholders that are called otherwise now."""

    nodes: list[ForeignNode]
    updates: dict[str, str]
    initial: dict[str, np.ndarray]
    names: dict[str, str]


def with_changes(
    nodes: Sequence[ForeignNode],
    contents: Mapping[str, str],
    declared: Sequence[Placeholder],
    used_names: Collection[str],
) -> Changed:
    """Name what is changed, and compute its new content in its own type.

    contents: placeholder -> the value that it means at the end. State is called as the module calls
    it ("layers.0.cache"), with "self." in front where a value of the program has that name.
    """
    changed = [p for p in declared if contents[p.name] != p.name]
    used = {*used_names, *(v for n in nodes for v in (*n.inputs, *n.outputs))}
    names, updates, initial, copies = {}, {}, {}, []
    for placeholder in changed:
        name = placeholder.name
        if placeholder.stored is not None:
            name = placeholder.target
            while name in used:
                name = f"self.{name}"
            initial[name] = placeholder.stored
        new = f"{name}{NEXT}"
        while new in used:
            new += NEXT
        used |= {name, new}
        names[placeholder.name], updates[name] = name, new
        refs = {"self": Ref(0, placeholder.name), "src": Ref(1, contents[placeholder.name])}
        copies.append(
            ForeignNode(
                "copy.default",
                (placeholder.name, contents[placeholder.name]),
                (new,),
                refs,
                new,
                "aten",
            )
        )
    renamed = [
        replace(n, inputs=tuple(names.get(v, v) for v in n.inputs)) for n in (*nodes, *copies)
    ]
    return Changed(renamed, updates, initial, names)


def notes(changed: Changed) -> dict[str, str]:
    """What a user has to know of the changes, for the model's metadata."""
    entries = {}
    if changed.initial:
        entries["state"] = f"{', '.join(changed.initial)}: kept from run to run"
    for name, new in changed.updates.items():
        if name not in changed.initial:
            entries[f"input {name}"] = f"the program writes to it; its new content is output {new}"
    return entries


def functional_batch_norm(node: ForeignNode) -> ForeignNode | None:
    """In training, batch_norm changes its running statistics, and nothing in its name says so: the
    same node with their new values as outputs 3 and 4; None for any other node."""
    if not node.attributes.get("running_mean") or node.domain != "aten":
        return None
    if node.op_type == "instance_norm.default" and node.attributes.get("use_input_stats"):
        raise UnsupportedError(
            "instance_norm changes its running statistics in training",
            place=node.place,
            next_step="call module.eval() before exporting",
        )
    if node.op_type != "batch_norm.default" or not node.attributes.get("training"):
        return None
    attributes = {k: v for k, v in node.attributes.items() if k != "cudnn_enabled"}
    outputs = (node.outputs[0], "", "", f"{node.name}.mean", f"{node.name}.var")
    return replace(
        node,
        op_type="_native_batch_norm_legit_functional.default",
        attributes=attributes,
        outputs=outputs,
    )
