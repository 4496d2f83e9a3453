"""Names that are loaded at their first use: importing who has them loads nothing else."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

TYPE_CHECKING = False  # as in typing, which takes its time to import
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def lazy(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package that is being imported. homes: name -> the module that has it.

    A module of the package that has one of these names, when it is imported, does not hide what the
    name stands for.
    """

    class Package(ModuleType):
        def __setattr__(self, name: str, value: object) -> None:
            if not (name in homes and isinstance(value, ModuleType)):
                super().__setattr__(name, value)

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    sys.modules[package].__class__ = Package
    return load


def deferred(home: str) -> Any:
    """A function that imports what it stands for when it is first called. home: "module:function",
    or "module:Class.method"."""
    module, _, path = home.partition(":")
    names, loaded = path.split("."), None

    def call(*arguments: Any, **named: Any) -> Any:
        nonlocal loaded
        if loaded is None:
            loaded = import_module(module)
        function: Any = loaded
        for name in names:
            function = getattr(function, name)
        return function(*arguments, **named)

    return call
