"""Which value of a program is what a module gave, and at which of its calls.

`torch.export` notes for every node the modules that were being called (`nn_module_stack`), each
call of a module that is called several times with its number. What leaves a call, because a node
outside of it or the program's caller reads it, is what the module gave. Names say nothing about
it: the node `permute` and a submodule called `permute` need have nothing in common.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from verax.frontends.common.foreign import ForeignNode

Call = tuple[str, int]
"""Path of a module ("layer1.0.conv1") and the number of its call, from 0."""


def calls_of(stack: object) -> tuple[Call, ...]:
    """The calls in a node's `nn_module_stack` as files write it, outermost first."""
    calls = []
    for entry in stack.split(";") if isinstance(stack, str) else ():
        key, _, remainder = entry.partition(",")
        path = remainder.partition(",")[0]
        count = key.rpartition("@")[2] if "@" in key else "0"
        if path and count.isdecimal():
            calls.append((path, int(count)))
    return tuple(calls)


def module_of_value(
    nodes: Sequence[ForeignNode],
    stacks: Sequence[tuple[Call, ...]],
    outputs: Sequence[str],
    sizes: Container[str] = (),
) -> dict[str, Call]:
    """Value -> the innermost call that gave it. A call that gave several values is left out.

    stacks: one for each node. outputs: the program's own. sizes: values that are no tensors.
    """
    maker = {o: i for i, node in enumerate(nodes) for o in node.outputs if o and o not in sizes}
    left: dict[Call, set[str]] = {}
    readers = [(v, stacks[i]) for i, node in enumerate(nodes) for v in node.inputs]
    for value, reader in [*readers, *((o, ()) for o in outputs)]:
        if value in maker:
            inside = frozenset(reader)
            for call in stacks[maker[value]]:
                if call not in inside:
                    left.setdefault(call, set()).add(value)
    calls: dict[str, Call] = {}
    depth = {call: i for stack in stacks for i, call in enumerate(stack)}
    for call in sorted(left, key=lambda c: depth[c]):
        if len(left[call]) == 1:
            calls[next(iter(left[call]))] = call  # a deeper one replaces it: the value is the same
    return calls
