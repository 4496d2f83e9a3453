"""Signatures of functions whose keyword arguments are the fields of groups of options.

Such a function is written `f(x, *, options=..., **keywords: Unpack[CheckKeywords])`, which type
checkers read; `help()`, editors and notebooks read what `with_options` makes of the groups. So an
option is stated in its group, and its type for callers in the keywords below the group.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def with_options(*groups: type) -> Callable[[F], F]:
    """Of a function with `**keywords`: itself, with the fields of the groups in its signature in
    their place, and the descriptions of the groups behind its docstring.

    groups: in the order of the signature, behind the function's own parameters; it must not have
    one of a field's name.
    """

    def described(function: F) -> F:
        own = inspect.signature(function)
        first = [p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD]
        fields = [p for group in groups for p in keyword_parameters(group)]
        function.__signature__ = own.replace(parameters=[*first, *fields])  # type: ignore[attr-defined]
        texts = [_text_of(group) for group in groups]
        function.__doc__ = "\n\n".join((inspect.getdoc(function) or "", *texts))
        return function

    return described


def keyword_parameters(group: type) -> list[inspect.Parameter]:
    """The fields of a group as parameters that are given by name."""
    return [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type
        )
        for field in dataclasses.fields(group)
    ]


def _text_of(group: type) -> str:
    """What a group's docstring says of its fields: all but its first paragraph."""
    _, _, fields = (inspect.getdoc(group) or "").partition("\n\n")
    return f"Keywords that are fields of `{group.__name__}`:\n{fields}"
