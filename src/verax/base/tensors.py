"""What can be said of PyTorch's values without importing PyTorch, and inputs by their names."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from verax.base.errors import InputError, UsageError


def is_torch(value: object, kind: str) -> bool:
    """Whether a value is of PyTorch's class `kind` ("torch.Tensor") or of one below it, without
    importing PyTorch."""
    return _is_class(type(value), kind)  # type: ignore[arg-type]  # a type has a hash


@functools.lru_cache(maxsize=256)
def _is_class(type_: type, kind: str) -> bool:
    return any(f"{t.__module__}.{t.__qualname__}" == kind for t in type_.__mro__)


def is_from(value: object, package: str) -> bool:
    """Whether a class of `value` was defined in `package`, without importing it."""
    return _is_class_of(type(value), package)  # type: ignore[arg-type]


@functools.lru_cache(maxsize=256)
def _is_class_of(type_: type, package: str) -> bool:
    return any(f"{t.__module__}.".startswith(f"{package}.") for t in type_.__mro__)


def is_tensor(value: object) -> bool:
    return is_torch(value, "torch.Tensor")


def tensors_in(inputs: object) -> list[Any]:
    """The tensors among inputs in any form: lists and mappings of them, at any depth."""
    if isinstance(inputs, Mapping):
        return [t for v in inputs.values() for t in tensors_in(v)]
    if isinstance(inputs, list | tuple):
        return [t for v in inputs for t in tensors_in(v)]
    return [inputs] if is_tensor(inputs) else []


def is_module(value: object) -> bool:
    return is_torch(value, "torch.nn.modules.module.Module")


def is_function(value: object) -> bool:
    """True for a function of anybody's, and no module, program or network that can be called."""
    networks = ("torch.nn", "torch.export", "torch.onnx", "onnxruntime", "verax", "keras")
    own = any(is_from(value, package) for package in networks)
    return callable(value) and not isinstance(value, type) and not own


def is_array(value: object) -> bool:
    """True for an array, a tensor or a number."""
    return isinstance(value, bool | int | float) or is_exported(value) or is_tensor(value)


def is_exported(value: object) -> bool:
    """True for an array of any library, which says so by `__array__` or `__dlpack__`."""
    kind = type(value)
    return hasattr(kind, "__array__") or hasattr(kind, "__dlpack__")


def named_inputs(inputs: Any, names: Iterable[str]) -> Mapping[str, Any]:
    """Inputs by name: a mapping as it is, one array or tensor under the only one of `names`.

    Raises `InputError` for anything else, and for one array where several are taken.
    """
    if isinstance(inputs, Mapping):
        return inputs
    listed = list(names)
    form = "{" + ", ".join(f"{name!r}: ..." for name in listed) + "}"
    if not is_array(inputs):
        raise InputError(
            f"inputs are arrays by name, and a {type(inputs).__name__} is given",
            next_step=f"give {form}" + (", or the array itself" if len(listed) == 1 else ""),
        )
    if len(listed) != 1:
        raise InputError(
            f"one array is given, the network takes {len(listed)} inputs", next_step=f"give {form}"
        )
    return {listed[0]: inputs}


def inputs_by_name(
    names: Sequence[str], positional: Sequence[Any], named: Mapping[str, Any]
) -> dict[str, Any]:
    """Inputs by name: those by position take the names that are not given, in order.

    Raises `UsageError` for a name that the network lacks, and for too many or too few inputs.
    """
    strange = [name for name in named if name not in names]
    if strange:
        raise UsageError(
            f"the network has no input {strange[0]!r}", next_step=f"it has {', '.join(names)}"
        )
    open_ = [name for name in names if name not in named]
    if len(open_) != len(positional):
        raise UsageError(
            f"{len(positional) + len(named)} inputs are given, the network takes {len(names)}",
            next_step=f"they are {', '.join(names)}",
        )
    return {**dict(zip(open_, positional)), **named}
