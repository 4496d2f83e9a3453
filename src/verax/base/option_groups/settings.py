"""`Settings`: everything that changes generated code or its promises, in one frozen object.

It is passed explicitly; every field that changes code is part of the compilation cache key.
"""

from __future__ import annotations

import dataclasses

from verax.base.errors import UsageError
from verax.base.machine.cores import deciding
from verax.base.option_groups.deprecation import present_passes

LEVELS = (0, 1, 2, 3)
"""Optimization levels; `compiler.pipeline.levels` says what each admits."""
ALLOWANCES = ("bf16",)
"""Approximations that O3 makes only where a user allows them: products in bfloat16."""
MAX_PROGRAMS = 16
"""Programs that an executable holds at most, one for each set of input sizes, by default."""
DEFAULT_LEVEL = 3
"""What a user gets who asks for no level. `Settings` by itself is the level that changes no bit."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """How to compile.

    opt_level: one of LEVELS. 0 and 1 promise the bits of the network as it is; 2 stays within the
    rounding of what it rewrote, 3 approximates (`keep_exact`: names of nodes that it must not);
    these two promise the same bits on every machine and for any number of threads too. threads:
    worker count, 0 = as many as `base.machine.cores` says (cores, CPU quota, OMP_NUM_THREADS).
    target: "host", "avx512bf16", "avx512vnni", "avx512", "avxvnni", "avx2" or "aarch64". disable /
    require: names of passes. checked: verify the graph around every pass. stop_after: how many
    rewrites the passes may do together, None for all; a search for a faulty one uses it. memory:
    bytes that one value and the program's buffers may take, 0 for what `base.machine.memory` finds
    free. require_native: a node that no kernel takes is an error. passes: names of the only passes
    and decisions that run, None for the level's. inject: files of further passes
    (`compiler.pipeline.user_passes`): Python code, which is run. steps: ids of the only rewrites
    and decisions that are made (`records.trace.Rewrite`), None for all. quick: code is generated
    with little effort, for a few runs; the same bits. allow: of ALLOWANCES, at the highest level.
    programs: for so many sets of input sizes programs are held, at least 1. open_sizes: a network
    whose sizes are symbols gets a program that serves many of them, where kernels can. background:
    sizes that come often then get a program of their own, made on a thread beside the calls.
    """

    opt_level: int = 1
    threads: int = 0
    target: str = "host"
    disable: tuple[str, ...] = ()
    require: tuple[str, ...] = ()
    checked: bool = False
    stop_after: int | None = None
    memory: int = 0
    require_native: bool = False
    keep_exact: tuple[str, ...] = ()
    passes: tuple[str, ...] | None = None
    inject: tuple[str, ...] = ()
    steps: tuple[str, ...] | None = None
    quick: bool = False
    allow: tuple[str, ...] = ()
    programs: int = MAX_PROGRAMS
    open_sizes: bool = True
    background: bool = True

    def __post_init__(self) -> None:
        for field in ("disable", "require", "passes", "steps"):
            if names := getattr(self, field):
                object.__setattr__(self, field, present_passes(names))
        if self.opt_level not in LEVELS:
            raise UsageError(
                f"unknown opt_level {self.opt_level!r}",
                next_step=f"choose one of {', '.join(map(str, LEVELS))}",
            )
        for name in self.allow:
            if name not in ALLOWANCES:
                raise UsageError(
                    f"nothing called {name!r} can be allowed",
                    next_step=f"choose from {', '.join(ALLOWANCES)}",
                )
        if self.allow and self.opt_level < max(LEVELS):
            raise UsageError(
                f"{', '.join(self.allow)} is approximate, and O{self.opt_level} approximates "
                "nothing",
                next_step=f"ask for O{max(LEVELS)}, or allow nothing",
            )
        if self.stop_after is not None and self.stop_after < 0:
            raise UsageError(f"stop_after is {self.stop_after}", next_step="give 0 or more")
        if self.memory < 0:
            raise UsageError(f"memory is {self.memory}", next_step="give 0 (what is free) or more")
        if self.programs < 1:
            raise UsageError(f"programs is {self.programs}", next_step="give 1 or more")
        if self.threads < 0:
            raise UsageError(f"threads is {self.threads}", next_step="give 0 (all cores) or more")

    @property
    def thread_count(self) -> int:
        """Threads to use, at least 1: `threads`, or what `base.machine.cores` finds."""
        return self.threads or deciding().threads
