"""A spec as text that is the same in every process and on every machine, and its digest.

Tuning histories are looked up by it. Fields that have their default are left out, so that one that
is added later changes no digest; shared parts of expressions are written once.
"""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

from verax.compiler.kernels.registry import Spec
from verax.numerics.expr import Apply, Const, Expr, Input, nodes


def canonical(spec: Spec) -> str:
    """The text. TypeError: the spec holds something that has none."""
    return _text(spec)


def digest(spec: Spec) -> str:
    """SHA-256 of `canonical`, in hexadecimal."""
    return hashlib.sha256(canonical(spec).encode()).hexdigest()


def _text(value: Any) -> str:
    if isinstance(value, Expr):
        return _expression(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [(f, getattr(value, f.name)) for f in dataclasses.fields(value)]
        # An equal value of another type, such as True for 1, is no default.
        non_default = [
            (f, v) for f, v in fields if not (type(v) is type(f.default) and v == f.default)
        ]
        text = ",".join(
            f"{f.name}={_text(v)}" for f, v in sorted(non_default, key=lambda p: p[0].name)
        )
        return f"{type(value).__name__}({text})"
    if isinstance(value, tuple):
        return f"({','.join(map(_text, value))})"
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    raise TypeError(f"a spec holds a {type(value).__name__}, which has no canonical text")


def _expression(expr: Expr) -> str:
    """Canonical text of `expr`: its distinct nodes in order, arguments by node index."""
    numbers: dict[Expr, int] = {}
    texts = []
    for node in nodes(expr):
        if isinstance(node, Input):
            text = f"in{node.index}"
        elif isinstance(node, Const):
            text = repr(node.value)
        else:
            assert isinstance(node, Apply)
            text = f"{node.function}({','.join(str(numbers[a]) for a in node.args)})"
        numbers[node] = len(numbers)
        texts.append(f"{text}:{node.dtype}")
    return f"[{';'.join(texts)}]"
