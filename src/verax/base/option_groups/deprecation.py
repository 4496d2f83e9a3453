"""Old names of public things: they still work, and a warning says the new name.

Attributes of objects (`renamed_property`), members of modules (`renamed_members`), and passes
(`present_pass`), which are named by what users have stored: recipes, scripts, records.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

RENAMED_PASSES = {
    "canonicalise": "canonicalize",
    "centre_integers": "center_integers",
    "move_dequantise": "move_dequantize",
    "recognise_attention": "recognize_attention",
    "recognise_gelu": "recognize_gelu",
    "recognise_layer_norm": "recognize_layer_norm",
    "recognise_lp_norm": "recognize_lp_norm",
    "recognise_rms_norm": "recognize_rms_norm",
    "recognise_softmax": "recognize_softmax",
    "recognise_swish": "recognize_swish",
    "scale_quantised": "scale_quantized",
}
"""Passes by the names that they had up to Verax 0.1, and their names now."""
_FIRST = {new: old for old, new in RENAMED_PASSES.items()}
_NAME = re.compile(r"\w+")
_warned: set[str] = set()


def renamed_property(old: str, new: str) -> property:
    """A read-only property that returns the attribute `new` and warns: `old` is deprecated."""

    def read(self: Any) -> Any:
        name = type(self).__name__
        warnings.warn(
            f"{name}.{old} is deprecated: use {name}.{new}", DeprecationWarning, stacklevel=2
        )
        return getattr(self, new)

    return property(read, doc=f"Deprecated name of `{new}`.")


def renamed_members(module: str, renamed: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a module whose members `renamed` (new name by old name) still exist
    under their old names, with a warning."""

    def member(name: str) -> Any:
        if name not in renamed:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        new = renamed[name]
        warnings.warn(f"{module}.{name} is deprecated: use {new}", DeprecationWarning, stacklevel=2)
        return getattr(sys.modules[module], new)

    return member


def present_pass(text: str) -> str:
    """`text` with the present name of the pass that it begins with; another text as it is.

    text: the name of a pass, the id of one of its rewrites ("pass@node"), or a rewrite in words
    ("pass: ..."). Each old name is warned of once in a process, by a `UserWarning`.
    """
    old = _first_word(text)
    if old not in RENAMED_PASSES:
        return text
    new = RENAMED_PASSES[old]
    if old not in _warned:
        _warned.add(old)
        warnings.warn(f"the pass {old} is called {new} now", UserWarning, stacklevel=2)
    return new + text[len(old) :]


def present_passes(texts: Iterable[str]) -> tuple[str, ...]:
    """`present_pass` of each."""
    return tuple(map(present_pass, texts))


def first_pass(text: str) -> str:
    """The inverse of `present_pass`: the name that a pass was given first, which hashes keep."""
    name = _first_word(text)
    return _FIRST.get(name, name) + text[len(name) :]


def _first_word(text: str) -> str:
    match = _NAME.match(text)
    return match.group() if match else ""
