"""Foreign runtimes run here: in a child process, with a time limit, through files.

The child is `python -m verax.runners.worker FOLDER`. Files rather than pipes, so that a subject
that prints, crashes or hangs cannot confuse the exchange.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from verax.base.errors import UsageError, VeraxError
from verax.ir.types import DType

REQUEST, REPLY, INPUTS, OUTPUTS = "request.json", "reply.json", "inputs.npz", "outputs.npz"


class SubjectError(VeraxError):
    """The subject refused, crashed or took too long."""


def run_in_child(
    task: str,
    request: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    *,
    name: str,
    timeout: float,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Let a child do `task` (see `worker.TASKS`); returns its reply and its arrays.

    request: JSON-able, bytes allowed as values at the top. timeout: seconds.
    Raises `SubjectError` when the child fails, dies or hangs.
    """
    with tempfile.TemporaryDirectory(prefix="verax-") as place:
        folder = Path(place)
        plain: dict[str, Any] = {"task": task}
        for key, value in request.items():
            if isinstance(value, bytes):
                (folder / key).write_bytes(value)
                plain[key] = str(folder / key)
            else:
                plain[key] = value
        plain["inputs"] = save_arrays(folder / INPUTS, arrays)
        (folder / REQUEST).write_text(json.dumps(plain))
        _wait(folder, name, timeout)
        reply = json.loads((folder / REPLY).read_text())
        if "error" in reply:
            raise SubjectError(
                f"the subject failed: {reply['error']}", place=name, next_step=reply["next_step"]
            )
        return reply, load_arrays(folder / OUTPUTS, reply["outputs"])


def _wait(folder: Path, name: str, timeout: float) -> None:
    command = [sys.executable, "-m", "verax.runners.worker", str(folder)]
    path = os.pathsep.join(p for p in sys.path if p)
    with open(folder / "log", "wb") as log:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "PYTHONPATH": path},
        )
        try:
            code = child.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise SubjectError(
                f"the subject gave no answer in {timeout:g} s and was stopped",
                place=name,
                next_step="give a longer time limit or a smaller input",
            ) from error
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
    if code != 0 or not (folder / REPLY).exists():
        last = (folder / "log").read_text(errors="replace").strip().splitlines()[-3:]
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        raise SubjectError(
            f"the subject's process died ({how}): {' / '.join(last) or 'it said nothing'}",
            place=name,
            next_step="run the model with the runtime itself to see whether it survives",
        )


def save_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> list[list[str]]:
    """Write arrays as bytes; returns (name, dtype, shape as text) of each, in order."""
    listed, flat = [], {}
    for i, (name, array) in enumerate(arrays.items()):
        array = np.ascontiguousarray(array)
        flat[f"a{i}"] = array.reshape(-1).view(np.uint8) if array.size else np.zeros(0, np.uint8)
        listed.append([name, str(DType.of(array)), json.dumps(list(np.shape(arrays[name])))])
    np.savez(path, allow_pickle=False, **flat)
    return listed


def load_arrays(path: Path, listed: list[list[str]]) -> dict[str, np.ndarray]:
    """Arrays that `save_arrays` wrote. Raises `UsageError` when the file does not match."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {
                name: stored[f"a{i}"].view(DType(dtype).numpy).reshape(json.loads(shape))
                for i, (name, dtype, shape) in enumerate(listed)
            }
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(f"the subject's arrays cannot be read ({error})") from error
