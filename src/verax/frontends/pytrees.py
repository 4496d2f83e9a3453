"""Names for what a PyTorch program gives: the keys of dictionaries and dataclasses, dotted.

`torch.export` flattens whatever a module returns into a list and keeps its form as a tree: a JSON
text in files, the same text from `treespec_dumps` for living programs. A place in that tree is
named by the way to it: `{"a": x, "b": {"c": y}}` gives `a` and `b.c`, `(x, {"z": y})` gives no name
to x, which has none, and `1.z` to y.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from verax.base.errors import ModelError

DEEPEST = 100
"""Containers within containers."""
Step = tuple[str, bool]
"""A step into a container: its name, and whether it is a key rather than a position."""


def leaf_names(spec: str) -> list[str]:
    """A name for every leaf of a tree, in order; "" where no key leads to it.

    spec: the JSON that PyTorch writes. Raises `ModelError` when it is no such tree.
    """
    try:
        _, tree = json.loads(spec)
        return [name_of(path) for path in _leaves(tree, ())]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelError(
            f"the form of the program's outputs is damaged ({type(error).__name__}: {error})"
        ) from error


def name_of(path: tuple[Step, ...]) -> str:
    """The dotted name of a place, "" where no key leads to it."""
    return ".".join(step for step, _ in path) if any(key for _, key in path) else ""


def _leaves(tree: Mapping[str, Any], path: tuple[Step, ...]) -> Iterator[tuple[Step, ...]]:
    if len(path) > DEEPEST:
        raise ValueError(f"more than {DEEPEST} containers within each other")
    if tree["type"] is None:
        yield path
        return
    children = tree["children_spec"]
    keys = _keys(tree["context"], len(children))
    for i, child in enumerate(children):
        step = (str(i), False) if keys is None else (str(keys[i]), True)
        yield from _leaves(child, (*path, step))


def _keys(context: Any, count: int) -> list[Any] | None:
    """The keys of a container: a list of them, a dataclass's fields with those that are None, or
    what a defaultdict keeps beside its factory. None for tuples and lists."""
    keys = json.loads(context) if isinstance(context, str) else context
    if isinstance(keys, Mapping):
        keys = keys.get("dict_context")
    if isinstance(keys, list) and keys and isinstance(keys[0], list):
        keys = keys[0]
    return keys if isinstance(keys, list) and len(keys) == count else None
