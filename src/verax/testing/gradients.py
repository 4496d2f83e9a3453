"""`assert_gradients`: not there yet, which it says."""

from __future__ import annotations

from typing import Any, NoReturn

from verax.base.errors import UsageError


def assert_gradients(function: Any, meaning: Any, inputs: Any, **options: Any) -> NoReturn:
    """Raise `UsageError`: vector-Jacobian products of single functions are not judged yet."""
    raise UsageError(
        "gradients of a single function are not judged by this version",
        next_step='judge a whole module\'s with torch.compile(module, backend="verax_judge")',
    )
