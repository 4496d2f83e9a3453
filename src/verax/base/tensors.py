"""What can be said of PyTorch's values without importing PyTorch, and inputs by their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from verax.base.errors import UsageError


def is_torch(value: object, kind: str) -> bool:
    """Whether a value is of PyTorch's class `kind` ("torch.Tensor") or of one below it, without
    importing PyTorch."""
    return any(f"{t.__module__}.{t.__qualname__}" == kind for t in type(value).__mro__)


def is_tensor(value: object) -> bool:
    return is_torch(value, "torch.Tensor")


def is_module(value: object) -> bool:
    return is_torch(value, "torch.nn.modules.module.Module")


def placed(names: Sequence[str], given: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs by name: those by position take the names that are not given, in order.

    Raises `UsageError` for a name that the network lacks, and for too many or too few inputs.
    """
    strange = [name for name in named if name not in names]
    if strange:
        raise UsageError(
            f"the network has no input {strange[0]!r}", next_step=f"it has {', '.join(names)}"
        )
    open_ = [name for name in names if name not in named]
    if len(open_) != len(given):
        raise UsageError(
            f"{len(given) + len(named)} inputs are given, the network takes {len(names)}",
            next_step=f"they are {', '.join(names)}",
        )
    return {**dict(zip(open_, given)), **named}
