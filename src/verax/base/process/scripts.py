"""Files of Python that a user hands over to be run: a figure of merit, a pass of one's own.

Such a file is code and runs with all rights of this process. What goes wrong in it is told with its
file and line, never as a traceback.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from types import ModuleType

from verax.base.errors import UsageError
from verax.base.storage.reading import plain_bytes


def run_file(path: str | os.PathLike[str], description: str, next_step: str) -> ModuleType:
    """The module that the file `path` defines; the file is run.

    what: how errors call the file ("the file of the metric"); next_step: what it should be.
    Raises `UsageError` when it cannot be read, is no regular file, or fails.
    """
    file = Path(path)
    source = plain_bytes(file)
    module = ModuleType(f"verax_script_{file.stem}")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module  # dataclasses look their module up by its name
    try:
        exec(compile(source, str(file), "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        raise script_error(error, str(file), f"{description} fails", next_step) from error
    return module


def script_error(error: BaseException, file: str, failure: str, next_step: str) -> UsageError:
    """`error` in words, with the last line of `file` that was on the way to it."""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
    line = error.lineno if isinstance(error, SyntaxError) and not lines else lines and lines[-1]
    return UsageError(
        f"{failure}: {type(error).__name__}: {error}",
        place=f"{file}:{line}" if line else file,
        next_step=next_step,
    )
