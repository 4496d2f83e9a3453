"""Old names of public attributes: they still work, and warn with the new name."""

from __future__ import annotations

import warnings
from typing import Any


def renamed_property(old: str, new: str) -> property:
    """A read-only property that returns the attribute `new` and warns: `old` is deprecated."""

    def read(self: Any) -> Any:
        name = type(self).__name__
        warnings.warn(
            f"{name}.{old} is deprecated: use {name}.{new}", DeprecationWarning, stacklevel=2
        )
        return getattr(self, new)

    return property(read, doc=f"Deprecated name of `{new}`.")
