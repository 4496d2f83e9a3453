"""Named tuples that a module takes or gives, such as what `x.max(-1)` returns.

PyTorch exports such a program, and does not save it: their classes have no name in its files. While
it is saved they are dictionaries of their fields, so that outputs are named by them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from verax.base.optional import optional

SPECS = ("in_spec", "out_spec")


@contextmanager
def as_dictionaries(program: Any) -> Iterator[None]:
    """While it is entered, the form of what an ExportedProgram takes and gives has no named
    tuple."""
    pytree = optional("torch", "to read torch's own objects").utils._pytree
    before: list[tuple[Any, str, Any]] = []
    try:
        for call in program.module_call_graph:
            for name in SPECS if call.signature is not None else ():
                spec = getattr(call.signature, name)
                before.append((call.signature, name, spec))
                if spec is not None:
                    tree = pytree.tree_unflatten(range(spec.num_leaves), spec)
                    setattr(call.signature, name, pytree.tree_structure(_plain(tree)))
        yield
    finally:
        for signature, name, spec in before:
            setattr(signature, name, spec)


def _plain(tree: Any) -> Any:
    """A tree of containers with named tuples as dictionaries; other containers stay."""
    fields = _fields_of(tree)
    if fields is not None:
        return {k: _plain(v) for k, v in zip(fields, tree, strict=True)}
    if type(tree) in (tuple, list):
        return type(tree)(map(_plain, tree))
    if type(tree) is dict:
        return {k: _plain(v) for k, v in tree.items()}
    return tree


def _fields_of(tree: Any) -> Any:
    """The fields of a named tuple or of one of `torch.return_types`; None of anything else."""
    if not isinstance(tree, tuple):
        return None
    if hasattr(tree, "_fields"):
        return tree._fields
    is_torch = type(tree).__module__ == "torch.return_types"
    return type(tree).__match_args__ if is_torch else None  # type: ignore[attr-defined]
