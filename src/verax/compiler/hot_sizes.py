"""Sizes that are asked for again and again get a program of their own, made beside the calls.

A program for many sizes answers at once, and a program of these sizes alone gives the same bits
some percent faster. It is made on a thread of low priority, one at a time, and takes over between
two calls.
"""

from __future__ import annotations

import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable

from verax.base.process import background
from verax.base.process.switching import switching_often

CALLS = 8
"""Of the same sizes, at least, before they are hot."""
SECONDS = 2.0
"""That calls of the same sizes took together. Making a program takes one to three, and gains a
tenth (0 to 12 % in BERT-base, a ResNet and a U-Net), so some ten more pay for it."""
MOST_HOT = 4
"""Sets of sizes of one network that get programs: each has buffers of its own. Eleven more than
doubled what a U-Net held, 417 MB."""
MOST_BYTES = 64 << 20
"""Of packed weights of a network that gets such programs: theirs may be in other orders, so that
they are held twice (BERT-base after two of them: 2,050 MB for 1,316, 3 % faster)."""
MOST_SIZES = 256
"""That are counted at once; the longest unused are forgotten."""


class HotSizes:
    """Counts calls by sizes."""

    def __init__(self) -> None:
        self._spent: OrderedDict[Hashable, list[float]] = OrderedDict()
        self._count = 0
        self.renew()

    def renew(self) -> None:
        """In the child of a fork: the thread is gone, and its sizes get another turn."""
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        for key in [k for k, spent in self._spent.items() if spent[0] < 0]:
            del self._spent[key]
            self._count -= 1

    def note(self, key: Hashable, seconds: float, make: Callable[[], object]) -> None:
        """A call of these sizes took so long. Once they are hot, `make` is run beside.

        `make` is asked for once for each key; what it raises is a warning.
        """
        with self._lock:
            spent = self._spent.setdefault(key, [0.0, 0.0])
            self._spent.move_to_end(key)
            if len(self._spent) > MOST_SIZES:
                self._spent.popitem(last=False)
            if spent[0] < 0:
                return
            spent[0] += 1
            spent[1] += seconds
            is_busy = self._thread is not None and self._thread.is_alive()
            if spent[0] < CALLS or spent[1] < SECONDS or is_busy or self._count >= MOST_HOT:
                return
            spent[0] = -1
            self._count += 1
            self._thread = background.start(lambda: _run(make), "verax-hot-sizes")

    def wait(self) -> None:
        """Until what is being made is there."""
        thread = self._thread
        if thread is not None:
            thread.join()


def _run(make: Callable[[], object]) -> None:
    try:
        with switching_often():
            make()
    except Exception as error:
        warnings.warn(
            f"no program could be made for sizes that come often ({type(error).__name__}: "
            f"{error}); the one for many sizes goes on answering",
            stacklevel=2,
        )
