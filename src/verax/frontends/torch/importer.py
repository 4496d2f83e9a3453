"""PyTorch programs -> `Model`, from a `.pt2` file, its bytes, or torch's own objects.

Torch's objects take the same way as files: they are saved as an archive in memory and read back,
so there is one reader and one meaning.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from verax.base.errors import ModelError, UsageError
from verax.base.optional import optional
from verax.frontends.importing import Importer, Shapes
from verax.frontends.model import Model
from verax.frontends.torch.archive import Archive
from verax.frontends.torch.reader import read_program
from verax.frontends.torch.table import TABLE


def load_torch(
    source: Any,
    shapes: Shapes | None = None,
    values: Mapping[str, np.ndarray] | None = None,
    *,
    inputs: Sequence[Any] | None = None,
) -> Model:
    """Import a `.pt2` archive (a path or bytes, without torch), an `ExportedProgram`, or an
    `nn.Module` with example `inputs`.

    shapes, values: as for every format. Raises `ModelError` for a damaged file, `UnsupportedError`
    listing what Verax lacks, `UsageError` when a module comes without inputs or cannot be exported.
    """
    if isinstance(source, str | os.PathLike | bytes):
        archive = Archive(source)
        name = "bytes" if isinstance(source, bytes) else os.fspath(source)
    else:
        archive, name = Archive(_saved(source, inputs)), type(source).__name__
    foreign = read_program(archive)
    version = foreign.metadata["torch"]
    importer = Importer(foreign, TABLE, shapes, values)
    return importer.run(name, f"PyTorch {version} (torch.export)")


def _saved(source: Any, inputs: Sequence[Any] | None) -> bytes:
    """The archive of a program or module."""
    torch = optional("torch", "to read torch's own objects")
    if isinstance(source, torch.nn.Module):
        if inputs is None:
            raise UsageError(
                "a module says nothing about its inputs",
                place=type(source).__name__,
                next_step="give example inputs: verax.load(module, inputs=(x,))",
            )
        tensors = tuple(torch.as_tensor(x) for x in inputs)
        try:
            source = torch.export.export(source.eval(), tensors, strict=False)
        except Exception as error:
            raise UsageError(
                f"torch.export cannot export the module: {str(error).partition(chr(10))[0][:300]}",
                place=type(source).__name__,
                next_step="torch.export.export(module, inputs) shows the whole message",
            ) from error
    if not isinstance(source, torch.export.ExportedProgram):
        raise UsageError(
            f"a {type(source).__name__} cannot be imported",
            next_step="give an nn.Module with inputs, an ExportedProgram, or a .pt2 file",
        )
    buffer = io.BytesIO()
    try:
        torch.export.save(source, buffer)
    except Exception as error:
        raise ModelError(f"torch cannot save the program: {str(error)[:300]}") from error
    return buffer.getvalue()
