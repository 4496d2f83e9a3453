"""Which two files are one MXNet network: NAME-symbol.json and NAME-NNNN.params of some epoch."""

from __future__ import annotations

import os
import re
from pathlib import Path

from verax.base.errors import UsageError
from verax.base.storage.reading import companion

_EPOCH = re.compile(r"-(\d{4,})\.params")


def find_params(symbol: Path) -> tuple[Path, list[str]]:
    """The params file that belongs to a symbol, and the names of all that could.

    It is NAME-NNNN.params of the newest epoch, else NAME.params. Raises `UsageError` when there is
    none beside the symbol, or two of one epoch, `ModelError` when it is a link that leaves the
    folder.
    """
    stem = symbol.name.removesuffix(".json").removesuffix("-symbol")
    plain = f"{stem}.params"
    epochs: dict[str, int] = {}
    for name in os.listdir(symbol.parent or "."):
        if name == plain:
            epochs[name] = -1
        elif name.startswith(stem) and (epoch := _EPOCH.fullmatch(name[len(stem) :])):
            epochs[name] = int(epoch[1])
    if not epochs:
        raise UsageError(
            "an MXNet network has a second file with its arrays, and it is not there",
            place=str(symbol),
            next_step=f"put {stem}-0000.params beside it, or name the file: params=... in Python, "
            "--params FILE on the command line",
        )
    names = sorted(epochs, key=lambda n: (epochs[n], n))
    if len(names) > 1 and epochs[names[-1]] == epochs[names[-2]]:
        raise UsageError(
            f"{names[-2]} and {names[-1]} are of one epoch",
            place=str(symbol),
            next_step="say which: params=... in Python, --params FILE on the command line",
        )
    return companion(symbol.parent, names[-1], "params file"), names


def find_symbol(params: Path) -> Path:
    """The symbol that belongs to a params file.

    Raises `UsageError` when there is none, `ModelError` when it is a link that leaves the folder.
    """
    stem = _EPOCH.sub("", params.name).removesuffix(".params")
    for name in (f"{stem}-symbol.json", f"{stem}.json"):
        if (params.parent / name).exists():
            return companion(params.parent, name, "symbol")
    raise UsageError(
        "an MXNet network has a second file with its nodes, and it is not there",
        place=str(params),
        next_step=f"put {stem}-symbol.json beside it",
    )
