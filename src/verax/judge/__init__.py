"""The judge: says of every number a subject gives whether it is rounding or a mistake, and where.

It knows operators by their meaning only and nothing of our compiler, so that its word can be
trusted on the compiler too. Subjects reach it through `protocol.Runner`; `check` and `bisect` put
the rooms together, each of which may use those before it:

decide    one value or one node
regions   several nodes between known values, up to a whole network
locate    where a mistake is
explain   what it is: rival meanings, weights, the shape of the error
align     two networks side by side
harness   faults around the network
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from verax.judge.check import check
    from verax.judge.inputs import draw_inputs
    from verax.judge.protocol import Runner

_HOMES = {
    "Runner": "verax.judge.protocol",
    "check": "verax.judge.check",
    "draw_inputs": "verax.judge.inputs",
}

__all__ = ["Runner", "check", "draw_inputs"]


def __getattr__(name: str) -> Any:
    """Loaded at its first use: the child of a subject needs the protocol, not the judge."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


class _Package(ModuleType):
    """This package; importing the module `verax.judge.check` must not hide the function."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
