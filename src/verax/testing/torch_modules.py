"""Modules of PyTorch as functions of their inputs and parameters, for gradients of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from verax.base.errors import UsageError
from verax.base.optional import optional
from verax.base.tensors import is_module

torch: Any = optional("torch", "to judge gradients of modules")


def with_parameters(
    module: Any, meaning: Any, named: Mapping[str, Any]
) -> tuple[Callable[..., Any], Any, dict[str, Any]]:
    """A module and its meaning as functions of the inputs and, if the meaning is a module too, of
    the parameters that require gradients; and the inputs with these behind them.

    Raises `UsageError` where the two modules' parameters have other names or shapes.
    """
    if not is_module(meaning):
        return module.forward if not callable(module) else _called(module), meaning, dict(named)
    parameters = {k: p for k, p in module.named_parameters() if p.requires_grad}
    counterparts = {k: p for k, p in meaning.named_parameters() if k in parameters}
    for name, parameter in parameters.items():
        if name not in counterparts or counterparts[name].shape != parameter.shape:
            raise UsageError(
                f"the meaning has no parameter {name!r} of shape {tuple(parameter.shape)}",
                place=type(meaning).__name__,
                next_step="give a module with the same parameters, or a function of the inputs",
            )
    count = len(named)
    everything = {**named, **{k: p.detach() for k, p in parameters.items()}}
    return (
        _of_parameters(module, count, list(parameters)),
        _of_parameters(meaning, count, list(parameters)),
        everything,
    )


def _called(module: Any) -> Callable[..., Any]:
    def forward(*inputs: Any) -> Any:
        return module(*inputs)

    forward.__name__ = type(module).__name__
    return forward


def _of_parameters(module: Any, count: int, names: list[str]) -> Callable[..., Any]:
    def forward(*arguments: Any) -> Any:
        values = dict(zip(names, arguments[count:]))
        kind = arguments[0].dtype if arguments[0].is_floating_point() else None
        buffers = {
            k: b.to(kind) if kind is not None and b.is_floating_point() else b.clone()
            for k, b in module.named_buffers()
        }
        return torch.func.functional_call(module, {**values, **buffers}, arguments[:count])

    forward.__name__ = type(module).__name__
    return forward
