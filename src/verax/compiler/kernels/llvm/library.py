"""LLVM, through llvmlite: imported when code is made, so that what makes none needs no LLVM."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verax.base.optional import late

if TYPE_CHECKING:
    import llvmlite
    from llvmlite import binding
    from llvmlite.binding import ffi
else:
    llvmlite, binding = late("llvmlite", "compile"), late("llvmlite.binding", "compile")
    ffi = late("llvmlite.binding.ffi", "compile")

__all__ = ["binding", "ffi", "llvmlite"]
