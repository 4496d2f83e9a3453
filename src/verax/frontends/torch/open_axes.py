"""Which axes of a module's example inputs are exported open: those that the user states as None, by
a name or by bounds (`frontends.common.stated_sizes`)."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any

from verax.base.errors import UsageError
from verax.base.optional import optional
from verax.frontends.common.stated_sizes import BY_AXIS, Shapes

FIXED = re.compile(r"L\['(\w+)'\]\.size\(\)\[(\d+)\] as dynamic but .*? a constant \((\d+)\)")
"""How torch.export says that an axis cannot be open."""


def open_axes_of(
    module: Any, positional: Sequence[Any], named: Mapping[str, Any], shapes: Shapes
) -> dict[str, Any] | None:
    """`dynamic_shapes` of torch.export, by argument of `module.forward`; None where all sizes are
    those of the examples. Raises `UsageError` for an open axis of what is no tensor."""
    requested = _open_axes(shapes)
    if not requested:
        return None
    torch = optional("torch", "to read torch's own objects")
    arguments = _arguments(module, positional, named)
    for name, axes in requested.items():
        example = arguments.get(name)
        if not isinstance(example, torch.Tensor):
            raise UsageError(
                f"sizes are left open for {name!r}, which is no tensor among the arguments",
                next_step="its arguments are " + (", ".join(arguments) or "none"),
            )
        for axis in axes:
            if not -example.ndim <= axis < example.ndim:
                raise UsageError(
                    f"{name}[{axis}] names an axis that the example has not",
                    place=f"input {name!r} of shape {tuple(example.shape)}",
                )
    dynamic, automatic = torch.export.Dim.DYNAMIC, torch.export.Dim.AUTO
    axes_of: dict[str, Any] = dict.fromkeys(arguments)
    for name, axes in requested.items():
        rank = arguments[name].ndim
        axes_of[name] = (
            {axis % rank: dynamic for axis in axes}
            if axes
            else dict.fromkeys(range(rank), automatic)
        )
    return axes_of


def unmarked(examples: Any) -> Any:
    """The same examples as tensors of their own: torch.export notes on them which axes are open."""
    torch = optional("torch", "to read torch's own objects")
    return torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.detach(), examples)


def fixed_axes(error: Exception) -> str:
    """The axes that torch.export says are of one size; "" if it says something else."""
    axes = dict.fromkeys(FIXED.findall(str(error)))
    return ", ".join(f"{name}[{axis}] has to be {size}" for name, axis, size in axes)


def _open_axes(shapes: Shapes) -> dict[str, list[int]]:
    """Axes by argument that are stated as None, by a name or by bounds; none of an argument that is
    None itself, of which every axis is open that the module can have open."""
    axes_of_argument: dict[str, list[int]] = {}
    for text, stated in shapes.items():
        if stated is None and BY_AXIS.fullmatch(text) is None:
            axes_of_argument.setdefault(text, [])
            continue
        by_axis = BY_AXIS.fullmatch(text)
        if by_axis is not None:
            if _is_open(stated):
                axes_of_argument.setdefault(by_axis["input"], []).append(int(by_axis["axis"]))
        elif isinstance(stated, Sequence) and not isinstance(stated, str):
            axes = [axis for axis, size in enumerate(stated) if _is_open(size)]
            if axes:
                axes_of_argument.setdefault(text, []).extend(axes)
    return axes_of_argument


def _is_open(stated: Any) -> bool:
    return stated is None or isinstance(stated, str | Sequence)


def _arguments(module: Any, positional: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """The examples by the names of the arguments; those of `*args` are not open."""
    bound = inspect.signature(module.forward).bind(*positional, **named)
    return dict(bound.arguments)
