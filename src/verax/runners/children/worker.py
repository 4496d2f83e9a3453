"""The child process of `child.run_in_child`: `python -m verax.runners.children.worker FOLDER`.

As `worker serve TASK DESCRIPTOR` it does what folders ask for until the descriptor is closed, each
in a fork of itself, and imports what the task needs before (see `forking`).
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from verax.base.errors import VeraxError
from verax.base.process import guard
from verax.runners.children.child_files import (
    FOLDER,
    INPUTS,
    OUTPUTS,
    REPLY,
    REQUEST,
    SERVE,
    load_arrays,
    save_arrays,
)
from verax.runners.children.forking import BEGUN, ENDED, UNFIT
from verax.runners.memory import poison

_ASKED = 1 << 16


def main(folder: Path) -> int:
    """Do the task in `folder` and write the reply; a refusal is a reply too.

    The task is a module of this folder: its `answer` makes reply and outputs of request and inputs.
    """
    request = json.loads((folder / REQUEST).read_text())
    request[FOLDER] = str(folder)
    inputs = load_arrays(folder / INPUTS, request["inputs"])
    try:
        reply, outputs = _module(request["task"]).answer(request, inputs)
        reply["outputs"] = save_arrays(folder / OUTPUTS, outputs)
    except VeraxError as error:
        reply = {"error": error.cause, "next_step": error.next_step}
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        reply = {"error": text, "next_step": "the text above is the runtime's own"}
    (folder / REPLY).write_text(json.dumps(reply))
    return 0


def serve(task: str, descriptor: int) -> int:
    """Handle requests from the socket `descriptor` until it is closed, each in a fork; return the
    exit status."""
    channel = socket.socket(fileno=descriptor)
    channel.set_inheritable(False)
    renew, fit = _prepared(task)
    guard.prctl(guard.SET_CHILD_SUBREAPER, 1)
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, _ASKED, 1)
        if not message:
            return 0
        if not fit:
            channel.send(UNFIT)
            return 0
        (printed,) = descriptors
        channel.send(BEGUN)
        server, run = os.getpid(), _forked()
        if run == 0:
            channel.close()
            request = json.loads(message)
            _settle(server, printed)
            os.chdir(request["at"])
            renew()
            poison(request["fill"])
            return main(Path(request["folder"]))
        os.close(printed)
        status = os.waitpid(run, 0)[1]
        with contextlib.suppress(OSError):
            os.killpg(run, signal.SIGKILL)
        guard.sweep()
        channel.send(ENDED + str(os.waitstatus_to_exitcode(status)).encode())


def _module(task: str) -> ModuleType:
    return importlib.import_module(f"verax.runners.{task}")


def _prepared(task: str) -> tuple[Callable[[], None], bool]:
    """(function that every fork calls first, True if forking is safe: no thread was started).

    A module's `prepare` imports what is slow to import and starts no thread; what it returns is
    called by every fork, for forks shall not draw the same random numbers.
    """
    before, renew = _threads(), _nothing
    module = _module(task)
    if hasattr(module, "prepare"):
        # A package that is missing, or broken, is said by every run.
        with contextlib.suppress(Exception):
            renew = module.prepare()
    # What forks inherit they need not look through when they end, which took two seconds.
    gc.collect()
    gc.freeze()
    return renew, _threads() <= before


def _threads() -> int:
    """Threads of this process, those of libraries too."""
    return len(os.listdir("/proc/self/task"))


def _nothing() -> None:
    pass


def _forked() -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there are threads: NumPy's, which survive forks
        return os.fork()


def _settle(server: int, printed: int) -> None:
    """Give the fork a session of its own that ends with the server, and print into `printed`."""
    os.setsid()
    guard.prctl(guard.SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != server:
        os._exit(1)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    os.close(printed)


if __name__ == "__main__":
    if sys.argv[1] == SERVE:
        sys.exit(serve(sys.argv[2], int(sys.argv[3])))
    sys.exit(main(Path(sys.argv[1])))
