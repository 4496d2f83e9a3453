"""torch.compile at steps of its work: its backends, and then what Inductor applies, one by one.

Dynamo alone, AOTAutograd, decompositions and the partitioner are backends of their own ("eager",
"aot_eager", "aot_eager_decomp_partition"). Inductor asks before each pass over its graphs and
before each operator that it lowers to loops of its own whether it may (`CompilerBisector`); an
operator that it may not lower is called as eager PyTorch has it. So its applications are counted,
and the first so many are allowed.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

BACKENDS = ("eager", "aot_eager", "aot_eager_decomp_partition", "inductor")
"""Backends of torch.compile in the order in which each does more."""
ASKS = "torch._inductor.compiler_bisector"


@dataclass(frozen=True)
class Compiling:
    """How to compile. backend: one of BACKENDS; max_applications: how many of Inductor's
    applications are allowed, None for all."""

    backend: str = "inductor"
    max_applications: int | None = None

    def call(self, torch: Any, module: Any) -> Any:
        """What runs `module` compiled; it is compiled when it is first called."""
        return torch.compile(module, backend=self.backend)

    @contextlib.contextmanager
    def counted(self, applied: list[str] | None = None) -> Iterator[None]:
        """Compiling inside is counted and limited. applied: gets a name for each application."""
        if self.max_applications is None and applied is None:
            yield
            return
        notes: list[str] = [] if applied is None else applied

        def refused(
            cls: Any, backend: str, subsystem: str, debug_info: Callable[[], str] | None = None
        ) -> bool:
            if backend != "inductor":
                return False
            notes.append(f"{subsystem}: {_description(debug_info)}")
            return self.max_applications is not None and len(notes) > self.max_applications

        patch = importlib.import_module("unittest.mock").patch  # a tenth of a second, for few
        bisector = importlib.import_module(ASKS).CompilerBisector
        config = importlib.import_module("torch._inductor.config")
        importlib.import_module("torch._dynamo").reset()
        with (
            patch.object(bisector, "bisection_enabled", True),
            patch.object(bisector, "disable_subsystem", classmethod(refused)),
            config.patch(force_disable_caches=True),
        ):
            yield


def _description(debug_info: Callable[[], str] | None) -> str:
    """Inductor's description of one application, on one line of at most 120 characters."""
    with contextlib.suppress(Exception):  # made for developers of PyTorch, and may fail
        if debug_info is not None:
            return " ".join(str(debug_info()).split())[:120]
    return "?"


def from_request(request: Mapping[str, Any]) -> Compiling | None:
    """How a request to a child says to compile; None: not at all."""
    arguments = request["compiled"]
    return None if arguments is None else Compiling(*arguments)


def to_request(compiling: Compiling | None) -> list[Any] | None:
    """`compiling` in plain JSON, as `from_request` reads it."""
    return None if compiling is None else [compiling.backend, compiling.max_applications]


def steps(applied: list[str]) -> list[tuple[str, Compiling | None]]:
    """(name, how to compile) of every step, the plain one first (None: not at all), given what
    Inductor applies."""
    compilings: list[tuple[str, Compiling | None]] = [("eager, not compiled", None)]
    compilings += [(f"torch.compile, backend {b}", Compiling(b)) for b in BACKENDS[:-1]]
    compilings.append(("inductor without what it can leave out", Compiling(max_applications=0)))
    counts: dict[str, int] = {}
    for i, note in enumerate(applied, 1):
        subsystem, _, words = note.partition(": ")
        counts[subsystem] = counts.get(subsystem, 0) + 1
        compilings.append(
            (f"inductor {subsystem} {counts[subsystem]}: {words}", Compiling(max_applications=i))
        )
    return compilings
