"""Functions of PyTorch's tensors (`torch.matmul`, a lambda) as modules, which is what torch.export
takes."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from typing import Any

from verax.base.optional import optional
from verax.base.tensors import is_function

FUNCTION = "verax_function"
"""Attribute of a module that stands for a function: the function."""


def as_module(function: Callable[..., Any]) -> Any:
    """An `nn.Module` that calls `function`; its inputs are called as the function's parameters, as
    far as it tells them."""
    torch = optional("torch", "to read torch's own objects")
    module = torch.nn.Module()

    def forward(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    with contextlib.suppress(TypeError, ValueError):  # a function of C tells nothing
        forward.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    module.forward = forward
    setattr(module, FUNCTION, function)
    return module


def names_of_source(source: Any) -> tuple[str, str]:
    """("module" or "function", its name), for messages and models."""
    function = getattr(source, FUNCTION, None)
    if function is not None:
        return "function", names_of_source(function)[1]
    if is_function(source):
        return "function", str(getattr(source, "__name__", type(source).__name__))
    return "module", type(source).__name__
