"""The process between Verax and a foreign program: it sees to it that nothing is left behind.

`python guard.py CHANNEL PROGRAM ARGS...`, CHANNEL being one end of a pair of sockets, by number. It
runs the program in a session of its own and says on the channel how it ended. Then, or when the
other end of the channel is closed (Verax has died or has had enough), it kills whatever the program
started: on Linux all descendants, those too that took a session of their own and whose parents have
died, because such orphans become children of this process (a "subreaper"); elsewhere the session's
process group. It is no part of the package: it imports nothing of Verax, so that it starts at once.

What it cannot do: find what another service started on the program's request (a container, a job of
at, cron or systemd), and outlive a SIGKILL of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time

SET_PARENT_DEATH_SIGNAL, SET_CHILD_SUBREAPER = 1, 36
"""Options of Linux's prctl."""
FRESH = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ)
"""What this interpreter handles or ignores, and a program shall not."""
PATIENCE = 5.0
"""Seconds for which children that keep coming are killed."""


def prctl(option: int, value: int) -> bool:
    """Whether the system did it: False where there is no prctl."""
    if sys.platform != "linux":
        return False
    try:
        return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def children() -> list[int]:
    """Processes whose parent this one is, orphans of its descendants included."""
    me, pids = os.getpid(), []
    try:
        with open(f"/proc/self/task/{me}/children") as stream:
            return [int(word) for word in stream.read().split()]
    except OSError:  # a kernel without that file
        pass
    try:
        listed = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []
    for pid in listed:
        with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/stat") as s:
            if int(s.read().rpartition(")")[2].split()[1]) == me:
                pids.append(pid)
    return pids


def sweep() -> None:
    """Kill every child until there is none: the children of those that die become ours."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        for pid in children():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.001)


def start(words: list[str], channel: int) -> int:
    """The program's process; when it cannot be started, what the system says goes to the channel.

    The program leads a session of its own, signals are as in a fresh process, and on Linux it is
    killed with this process.
    """
    child = os.fork()
    if child:
        return child
    try:
        os.setsid()
        prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        for signal_number in (
            signal.SIGTERM,
            signal.SIGHUP,
            signal.SIGINT,
            signal.SIGPIPE,
            signal.SIGXFSZ,
        ):
            signal.signal(signal_number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        os.set_inheritable(channel, False)
        os.execvp(words[0], words)
    except (OSError, ValueError) as error:
        os.write(channel, f"unstarted {error}".encode())
    finally:
        os._exit(127)


def main(arguments: list[str]) -> int:
    channel, parent = int(arguments[0]), os.getppid()
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken)
    ended = [False]
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: ended.__setitem__(0, True))
    # The thread that started us may end while its process lives: then this signal means nothing.
    signal.signal(signal.SIGHUP, lambda *_: ended.__setitem__(0, os.getppid() != parent))
    adopts = prctl(SET_CHILD_SUBREAPER, 1)
    prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGHUP)
    if os.getppid() != parent:
        return 1
    child = start(arguments[1:], channel)
    while not ended[0]:
        readable, _, _ = select.select([channel, wake], [], [])
        if channel in readable:  # nothing is ever sent here: the other end is closed
            break
        os.read(wake, 4096)
        code = reap(child)
        if code is not None:
            with contextlib.suppress(OSError):
                os.write(channel, f"ended {code}".encode())
            break
    with contextlib.suppress(OSError):
        os.killpg(child, signal.SIGKILL)
    if adopts:
        sweep()
    return 0


def reap(child: int) -> int | None:
    """How `child` ended (negative: by which signal), if it has; other orphans are let go."""
    code = None
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            if pid == child:
                code = os.waitstatus_to_exitcode(status)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
