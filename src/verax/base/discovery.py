"""Importing every module of a package, for what they register: an addition is a file in its folder,
and no table lists it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable


def import_modules(package: str, path: Iterable[str], prefix: str = "") -> None:
    """Import the modules directly in a package whose names begin with `prefix`.

    package: its dotted name. path: its `__path__`.
    """
    for module in pkgutil.iter_modules(path):
        if module.name.startswith(prefix):
            importlib.import_module(f"{package}.{module.name}")
