"""Kernels and schedules as plain data, for devices and builders elsewhere; and back.

Data that came from elsewhere can name nothing but dataclasses of the kernels' room and primitives
of expressions. `workload_of_plain(workload_to_plain(w)) == w`, in every process.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from typing import Any

from verax.base.errors import InputError
from verax.compiler import kernels
from verax.compiler.kernels.registry import Schedule, Spec
from verax.compiler.tune.kernel_bench import Workload
from verax.numerics.expr import Apply, Const, Expr, Input, nodes

ROOM = f"{kernels.__name__}."
"""What classes' modules begin with."""
KIND, EXPRESSION = "class", "expression"


def to_plain(value: Any) -> Any:
    """A spec, a schedule or a part of one as dicts, lists, texts, numbers, booleans and None.

    Raises `InputError` for what has no such form, such as sizes that are read at run time.
    """
    if isinstance(value, Expr):
        return {EXPRESSION: _nodes(value)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kind = type(value)
        fields = {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {KIND: f"{kind.__module__.removeprefix(ROOM)}:{kind.__name__}", **fields}
    if isinstance(value, tuple):
        return [to_plain(v) for v in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise InputError(
        f"a kernel that holds a {type(value).__name__} is not sent to other devices",
        next_step="tune it in this process, without --device",
    )


def of_plain(plain: Any) -> Any:
    """What `to_plain` was given. Raises `InputError` for anything else."""
    try:
        return _value(plain)
    except (ImportError, AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        raise InputError(f"this is no kernel: {type(error).__name__}: {error}") from error


def _value(plain: Any) -> Any:
    if isinstance(plain, list):
        return tuple(_value(v) for v in plain)
    if not isinstance(plain, Mapping):
        return plain
    if EXPRESSION in plain:
        return _expression(plain[EXPRESSION])
    module, _, name = plain[KIND].partition(":")
    kind = getattr(importlib.import_module(ROOM + module), name)
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        raise TypeError(f"{name} is no class of data")
    return kind(**{k: _value(v) for k, v in plain.items() if k != KIND})


def _nodes(expr: Expr) -> list[list[Any]]:
    """The distinct nodes in order, arguments by number."""
    numbers: dict[Expr, int] = {}
    listed: list[list[Any]] = []
    for node in nodes(expr):
        if isinstance(node, Input):
            listed.append(["input", node.dtype, node.index])
        elif isinstance(node, Const):
            value = repr(node.value) if isinstance(node.value, float) else node.value
            listed.append(["const", node.dtype, value])
        elif isinstance(node, Apply):
            numbered = [numbers[a] for a in node.args]
            listed.append(["apply", node.dtype, node.function, *numbered])
        else:
            raise InputError(
                "a kernel whose expression reads sizes at run time is not sent to other devices"
            )
        numbers[node] = len(numbers)
    return listed


def _expression(listed: list[list[Any]]) -> Expr:
    expressions: list[Expr] = []
    for kind, dtype, first, *arguments in listed:
        if kind == "input":
            expressions.append(Input(first, dtype))
        elif kind == "const":
            expressions.append(Const(float(first) if isinstance(first, str) else first, dtype))
        else:
            expressions.append(Apply(first, [expressions[i] for i in arguments], dtype))
    return expressions[-1]


def workload_to_plain(workload: Workload) -> dict[str, Any]:
    """A workload as plain data. Raises as `to_plain`."""
    values = {f.name: getattr(workload, f.name) for f in dataclasses.fields(workload)}
    return {name: to_plain(value) for name, value in values.items()}


def workload_of_plain(plain: Mapping[str, Any]) -> Workload:
    """What `workload_to_plain` was given. Raises `InputError`."""
    return Workload(**{name: of_plain(value) for name, value in plain.items()})


def kernel_to_plain(spec: Spec, schedule: Schedule) -> list[Any]:
    """A kernel as builders take it."""
    return [to_plain(spec), to_plain(schedule)]
