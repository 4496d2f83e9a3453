"""The programs for single sets of input sizes that an executable holds, and which of them go when
there are too many, or when their buffers together take more than the memory that was stated. Beside
them, for sizes that were asked for lately, which program for many serves them."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from typing import Any, Protocol, TypeVar

from verax.base.option_groups.settings import Settings
from verax.compiler.specialized import Specialized
from verax.runtime.program import MOST_SIZES


class Held(Protocol):
    """What is held for one set of sizes."""

    @property
    def specialized(self) -> Specialized: ...


H = TypeVar("H", bound=Held)


class HeldPrograms(OrderedDict[tuple[Any, ...], H]):
    """By input sizes, the one used longest ago first."""

    def __init__(self, network: str, settings: Settings) -> None:
        """network: its name, for the warning; settings: whose `programs` and `memory` (0 for no
        limit) are kept to."""
        super().__init__()
        self._network, self._settings = network or "the network", settings
        self._has_dropped = False
        self.served: OrderedDict[tuple[Any, ...], H] = OrderedDict()
        """By input sizes, programs for many that served them; they are held elsewhere."""

    def find(self, key: tuple[Any, ...]) -> H | None:
        """What answers these sizes: a program of theirs, else one for many that served them."""
        for programs in (self, self.served):
            if key in programs:
                programs.move_to_end(key)
                return programs[key]
        return None

    def remember(self, key: tuple[Any, ...], program: H) -> H:
        """Have `find` give this program for many sizes, until others were asked for often."""
        self.served[key] = program
        if len(self.served) > MOST_SIZES:
            self.served.popitem(last=False)
        return program

    def hold(self, key: tuple[Any, ...], program: H) -> None:
        """Hold a program; the ones used longest ago go where it is one too many. Warns at the
        first that goes."""
        self[key] = program
        while len(self) > 1 and (len(self) > self._settings.programs or self._is_too_large()):
            reason = self._reason()
            self.popitem(last=False)
            if not self._has_dropped:
                self._has_dropped = True
                warnings.warn(
                    f"{self._network} {reason}: the program used longest ago is dropped, and made "
                    "again or read from the disk when its sizes come back",
                    stacklevel=7,
                )

    def _is_too_large(self) -> bool:
        limit = self._settings.memory
        return bool(limit) and sum(p.specialized.plan.arena_bytes for p in self.values()) > limit

    def _reason(self) -> str:
        if len(self) > self._settings.programs:
            return (
                f"ran with more than {self._settings.programs} sets of input sizes (compile with "
                "programs=... to hold more)"
            )
        return (
            f"has programs for {len(self)} sets of input sizes whose buffers take more than "
            f"{self._settings.memory:,} bytes (compile with another memory=...)"
        )
