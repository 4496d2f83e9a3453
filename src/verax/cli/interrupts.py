"""Ctrl-C, SIGTERM and a closed terminal: heard at once, wherever the interpreter is.

Python hears a signal between two steps of the main thread, as an exception. That comes late where
the main thread is inside a library or waits for a thread, and not at all where exceptions are
dropped (a destructor, the callback of a weak reference). So a thread of its own hears the signal
too: it ends the processes of subjects, for nobody waits for these any more, and if the command has
not left GRACE seconds later, it leaves for it.

An import that an exception cuts short leaves native libraries half set up, and clearing those up
may crash the process. So no exception is raised within one: the process ends on the spot.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from contextlib import contextmanager

from verax.base.process.leaving import interrupted, vanishing

TYPE_CHECKING = False  # as in typing, which takes its time to import
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType
    from typing import Any

GRACE = 3.0
"""Seconds from a signal to the end of the process, at most."""
IMPORTING = "<frozen importlib"
"""Begins the file's name of Python's own code that imports."""
AGAIN = 0.02
"""Seconds after which an interruption that was dropped is tried again."""
HEARD = {signal.SIGINT: signal.default_int_handler}
"""Signals, and the handlers in whose place ours is put: what the caller ignores stays ignored."""
for _name in ("SIGTERM", "SIGHUP"):
    if hasattr(signal, _name):
        HEARD[getattr(signal, _name)] = signal.SIG_DFL  # type: ignore[assignment]


class Interrupted(BaseException):
    """A signal asks this process to end. Other than KeyboardInterrupt, nobody handles it."""


class Heard:
    """The signals that arrived. signal_number: the first one, 0 for none."""

    def __init__(self) -> None:
        self.signal_number = 0
        self._raised = self._was_reported = self._noticed = False
        self._main = threading.get_ident()
        self._outside = _imports(sys._getframe())

    @property
    def code(self) -> int:
        """Exit code: 130 for Ctrl-C."""
        return 128 + (self.signal_number or signal.SIGINT)

    def say(self) -> None:
        """One line on standard error, once."""
        if not self._was_reported:
            self._was_reported = True
            # Written past every buffer and lock; a progress bar may have hidden the cursor.
            clear_line = b"\r\x1b[2K\x1b[?25h" if sys.stderr.isatty() else b""
            with contextlib.suppress(OSError):
                os.write(2, clear_line + b"interrupted\n")

    def handle(self, signal_number: int, frame: FrameType | None) -> None:
        """The handler, in the main thread. The second signal ends the process at once, and so does
        the first within an import."""
        self.signal_number = self.signal_number or signal_number
        if self._raised or _imports(frame) > self._outside:
            self.leave()
        self._raised = True
        raise Interrupted

    def leave(self) -> None:
        """End the process here and now, with nothing left behind."""
        interrupted()
        self.say()
        vanishing()
        os._exit(self.code)

    def dropped(self) -> None:
        """The exception was lost: raise it again a moment later."""
        self._raised = False

        def again() -> None:
            time.sleep(AGAIN)
            # A signal to the main thread itself: it may be waiting in a system call.
            signal.pthread_kill(self._main, self.signal_number or signal.SIGINT)

        threading.Thread(target=again, daemon=True).start()

    def listen(self, signals: int) -> None:
        """The thread: reads the numbers of signals as they come, until 0."""
        while (byte := os.read(signals, 1)) != b"\0":
            if byte[0] in HEARD and not self._noticed:
                self._noticed, self.signal_number = True, byte[0]
                threading.Thread(target=self._leave_later, daemon=True).start()
                interrupted()

    def _leave_later(self) -> None:
        time.sleep(GRACE)
        self.leave()


def _imports(frame: FrameType | None) -> int:
    """How many frames of imports lie below a frame."""
    count = 0
    while frame is not None:
        count += frame.f_code.co_filename.startswith(IMPORTING)
        frame = frame.f_back
    return count


@contextmanager
def ending_quietly() -> Iterator[None]:
    """Inside, an interruption ends the process with one line and code 128 + the signal (130 for
    Ctrl-C), whatever it became on its way out."""
    with listening() as heard:
        try:
            yield
        except (Interrupted, KeyboardInterrupt):
            heard.say()
            sys.exit(heard.code)
        except BaseException:
            if not heard.signal_number:
                raise
            heard.say()  # what was raised came of the interruption: an import that was cut short
            sys.exit(heard.code)


@contextmanager
def as_keyboard_interrupt() -> Iterator[None]:
    """Inside, Ctrl-C is a KeyboardInterrupt and nothing else: for a command that ends well by it,
    with what it has by then. One that gets out, as from a second Ctrl-C, interrupts the command."""
    ours = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or ours is signal.SIG_IGN:
        yield
        return
    wakeup = signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt as error:
        raise Interrupted from error
    finally:
        signal.signal(signal.SIGINT, ours)
        signal.set_wakeup_fd(wakeup)


@contextmanager
def listening() -> Iterator[Heard]:
    """Inside, the signals in HEARD raise `Interrupted`; only where this process is ours to end: in
    the main thread, and where nobody else handles them."""
    heard = Heard()
    mine = [s for s, usual in HEARD.items() if signal.getsignal(s) == usual]
    if threading.current_thread() is not threading.main_thread() or not mine:
        yield heard
        return
    signals, ours = os.pipe()
    os.set_blocking(ours, False)
    thread = threading.Thread(target=heard.listen, args=(signals,), daemon=True)
    thread.start()
    old_hook, old_wakeup = sys.unraisablehook, signal.set_wakeup_fd(ours)

    def hook(lost: Any) -> None:
        if issubclass(lost.exc_type, Interrupted | KeyboardInterrupt):
            heard.dropped()
        else:
            old_hook(lost)

    sys.unraisablehook = hook
    for signal_number in mine:
        signal.signal(signal_number, heard.handle)
    try:
        yield heard
    finally:
        if (
            not heard.signal_number
        ):  # else the process ends, and until then the thread watches over that
            for signal_number in mine:
                signal.signal(signal_number, HEARD[signal_number])
            signal.set_wakeup_fd(old_wakeup)
            sys.unraisablehook = old_hook
            os.write(ours, b"\0")
            thread.join()
            os.close(ours)
            os.close(signals)
