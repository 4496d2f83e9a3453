"""Foreign runtimes run here: in a child process, with a time limit, through files.

The child is `python -m verax.runners.children.worker FOLDER`, or a fork of one that lives as long
as the check (`forking`). Files rather than pipes, so that a subject that prints, crashes or hangs
cannot confuse the exchange.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from verax.base.process.helpers import helper_of
from verax.base.process.processes import Ended, SubjectDiedError, SubjectError, run_process
from verax.base.storage.files import scratch_folder
from verax.runners.children.child_files import (
    INPUTS,
    OUTPUTS,
    REPLY,
    REQUEST,
    SERVE,
    load_arrays,
    save_arrays,
)
from verax.runners.children.forking import CAN_FORK, ForkServer
from verax.runners.memory import perturbing, poisonable

WORKER = (sys.executable, "-m", "verax.runners.children.worker")


def run_in_child(
    task: str,
    request: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    *,
    name: str,
    timeout: float,
    fill: int | None = None,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Let a child do `task` (a module, see `worker.main`); returns its reply and its arrays.

    request: JSON-able, bytes allowed as values at the top. timeout: seconds. fill: a byte
    that fresh memory of the child holds, where its allocator can do that.
    Raises `SubjectError` when the child fails, dies or hangs.
    """
    with scratch_folder() as folder:
        plain: dict[str, Any] = {"task": task}
        for key, value in request.items():
            if isinstance(value, bytes):
                (folder / key).write_bytes(value)
                plain[key] = str(folder / key)
            else:
                plain[key] = value
        plain["inputs"] = save_arrays(folder / INPUTS, arrays)
        (folder / REQUEST).write_text(json.dumps(plain))
        ended = _run(folder, task, name, timeout, fill)
        if ended.code != 0 or not (folder / REPLY).exists():
            kind = SubjectDiedError if ended.code < 0 else SubjectError
            raise kind(
                f"the subject's process died ({ended.ending}): {ended.last_words}",
                place=name,
                next_step="run the model with the runtime itself to see whether it survives",
            )
        try:
            reply = json.loads((folder / REPLY).read_text())
        except ValueError as error:
            raise SubjectError(
                f"the subject's process wrote no full answer ({error})", place=name
            ) from error
        if "error" in reply:
            raise SubjectError(
                f"the subject failed: {reply['error']}", place=name, next_step=reply["next_step"]
            )
        return reply, load_arrays(folder / OUTPUTS, reply["outputs"])


def _run(folder: Path, task: str, name: str, timeout: float, fill: int | None) -> Ended:
    """Let a child do what `folder` asks for."""
    if CAN_FORK:
        server = helper_of(task, lambda: ForkServer([*WORKER, SERVE, task], _environment(None)))
        if server is not None:
            ended = server.run(folder, name=name, timeout=timeout, fill=fill)
            if ended is not None:
                return ended
    return run_process(
        [*WORKER, str(folder)], name=name, timeout=timeout, environment=_environment(fill)
    )


def _environment(fill: int | None) -> dict[str, str]:
    """The child finds the same packages; `fill` is the byte that fresh memory holds."""
    environment = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p), **poisonable()}
    return environment if fill is None else {**environment, **perturbing(fill)}
