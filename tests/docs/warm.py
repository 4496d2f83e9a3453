"""A process that has imported Verax once and forks for every page, and every `verax` of a page.

`python -m tests.docs.warm DESCRIPTOR FOLDER`: does what the descriptor asks for until it
is closed. Half of what a page's commands take is Python importing the same modules. A fork has done
nothing but import: arguments, environment, working directory and output are its own, and it ends as
any process does. Object code is shared by the run of the suite in FOLDER (`tests.shared_code`).
Only Linux forks safely. The pages in `REAL` start every command as a process of its own, as users
do: what a command forgot to import would show there.
"""

from __future__ import annotations

import json
import os
import pkgutil
import runpy
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

FORKS = sys.platform == "linux"
REAL = ("SECURITY.md", "levels.md", "same_padding.md")
ENVIRONMENT = {
    "VERAX_CACHE": "off",  # a page shows what its first reader sees
    **{"COLUMNS": "100", "PATH": os.path.dirname(sys.executable), "TERM": "dumb"},
}
"""Of a page's commands."""
_ASKED = 1 << 16


def environment() -> dict[str, str]:
    kept = {k: os.environ[k] for k in ("PYTHONPATH", "OMP_NUM_THREADS") if k in os.environ}
    return {**kept, **ENVIRONMENT}


class Forks:
    """Does in forks of a process what `does` does with the words it is given."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel

    def run(self, words: Sequence[str], env: Mapping[str, str], timeout: float) -> tuple[int, str]:
        """Exit code, and what was printed on both streams. timeout: seconds; `TimeoutError`."""
        with tempfile.TemporaryFile() as printed:
            asked = {"words": list(words), "env": dict(env), "at": os.getcwd()}
            socket.send_fds(self._channel, [json.dumps(asked).encode()], [printed.fileno()])
            self._channel.settimeout(timeout)
            code = self._channel.recv(_ASKED)
            assert code, "the warm process has died"
            printed.seek(0)
            return int(code), printed.read().decode(errors="replace")

    def close(self) -> None:
        self._channel.close()


def serve(channel: socket.socket, does: Callable[[list[str]], Any]) -> Any:
    """In this process: None when the channel is closed. In a fork: what `does` gave."""
    while True:
        said, descriptors, _, _ = socket.recv_fds(channel, _ASKED, 1)
        if not said:
            return None
        child = _fork()
        if child == 0:
            channel.close()
            asked = json.loads(said)
            os.dup2(descriptors[0], 1)
            os.dup2(descriptors[0], 2)
            os.close(descriptors[0])
            os.chdir(asked["at"])
            os.environ.clear()
            os.environ.update(asked["env"])
            return does(asked["words"])
        os.close(descriptors[0])
        channel.send(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())


def _fork() -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there are threads: NumPy's, which survive forks
        return os.fork()


def verax(words: list[str]) -> None:
    """What `python -m verax.cli.main WORDS` does."""
    sys.modules.pop("verax.cli.main", None)
    sys.argv[1:] = words
    runpy.run_module("verax.cli.main", run_name="__main__", alter_sys=True)


def commands() -> Forks:
    """A fork of this process that forks for every `verax`, and ends with it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if _fork() == 0:
        ours.close()
        serve(theirs, verax)
        sys.exit()
    theirs.close()
    return Forks(ours)


def start(folder: Path) -> tuple[subprocess.Popen[bytes], Forks]:
    """The process, and how it is asked for pages. folder: of the object code that is shared."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.docs.warm", str(theirs.fileno()), str(folder)],
            cwd=Path(__file__).parents[2],
            env=environment(),  # some of it is read when modules are imported
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
    return process, Forks(ours)


def page(words: list[str]) -> int:
    from tests.docs import run_page

    path = Path(words[0])
    return run_page.main(path, None if path.name in REAL else commands())


def main(descriptor: int, folder: Path) -> int:
    import verax.cli.work

    for module in pkgutil.iter_modules(verax.cli.work.__path__, "verax.cli.work."):
        import_module(module.name)
    import_module("onnx")
    from tests.shared_code import share_code

    share_code(folder)
    channel = socket.socket(fileno=descriptor)
    channel.set_inheritable(False)
    return serve(channel, page) or 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2])))
