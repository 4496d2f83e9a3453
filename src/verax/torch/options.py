"""What a user of `torch.compile(backend="verax")` can say in `mode` and `options`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from verax.base.errors import UsageError
from verax.base.option_groups.settings import ALLOWANCES, DEFAULT_LEVEL, LEVELS

MODES = {
    **dict.fromkeys(("default", "reduce-overhead"), DEFAULT_LEVEL),
    **dict.fromkeys(("max-autotune", "max-autotune-no-cudagraphs"), max(LEVELS)),
}
"""Modes of torch.compile -> optimization level."""
FALLBACKS = ("error", "eager")
T = TypeVar("T")


@dataclass(frozen=True)
class CompileOptions:
    """Options of the backend "verax".

    opt_level: as for `verax.compile`. certify: judge every program on the first inputs before it
    is used; one that does not hold is an error. threads: 0 for as many as the process has.
    fallback: what a graph that cannot be compiled means: "error", or "eager", which runs it as
    PyTorch does and says so in `verax.torch.report()`. freeze: whether weights are constants of the
    program; a weight that changes makes a new program. require_native: whether an operator without
    a kernel, which would run in NumPy, is an error. programs: how many programs are kept of one
    graph whose sizes vary. allow, target: as for `verax.compile`; by default the processor, or the
    card on which the graph's tensors lie.
    """

    opt_level: int = DEFAULT_LEVEL
    certify: bool = False
    threads: int = 0
    fallback: str = "error"
    freeze: bool = True
    require_native: bool = False
    programs: int = 16
    allow: tuple[str, ...] = ()
    target: str = ""

    def __post_init__(self) -> None:
        _must_be(self.opt_level in LEVELS, "opt_level", self.opt_level, f"one of {LEVELS}")
        _must_be(self.fallback in FALLBACKS, "fallback", self.fallback, f"one of {FALLBACKS}")
        names = (self.allow,) if isinstance(self.allow, str) else tuple(self.allow)
        object.__setattr__(self, "allow", names)
        fine = set(names) <= {*ALLOWANCES} and (not names or self.opt_level == max(LEVELS))
        _must_be(fine, "allow", names, f"some of {ALLOWANCES}, at opt_level {max(LEVELS)}")
        _must_be(_count(self.threads), "threads", self.threads, "0 (all cores) or more")
        _must_be(_count(self.programs) and self.programs, "programs", self.programs, "1 or more")


@dataclass(frozen=True)
class JudgeOptions:
    """Options of the backend "verax_judge".

    inner: what runs the program: a backend's name, or a function as torch.compile takes it. rate:
    share of the runs of each graph that are judged, the first one always. budget: seconds that
    judging may take in all; runs after that are not judged, and the report counts them. winograd:
    whether the inner backend may use Winograd's algorithm.
    """

    inner: Any = "inductor"
    rate: float = 1.0
    budget: float = 600.0
    winograd: bool = True

    def __post_init__(self) -> None:
        is_valid = callable(self.inner) or isinstance(self.inner, str)
        _must_be(is_valid, "inner", self.inner, "a backend's name or a function")
        _must_be(0 < self.rate <= 1, "rate", self.rate, "above 0, at most 1")
        _must_be(self.budget > 0, "budget", self.budget, "a number of seconds")


def options_of(
    cls: type[T], options: Mapping[str, Any] | None, mode: str | None = None, backend: str = ""
) -> T:
    """The options in `cls` that a user gave to torch.compile.

    Raises `UsageError` for one that does not exist, or has a value that it cannot have.
    """
    values = dict(options or {})
    names = [f.name for f in fields(cls)]  # type: ignore[arg-type]
    for name in values:
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            raise UsageError(
                f"the backend has no option {name!r}"
                + (f"; is {near[0]!r} meant?" if near else ""),
                place=f"torch.compile(backend={backend!r})",
                next_step=f"it has {', '.join(names)}",
            )
    if mode is not None:
        if mode not in MODES or "opt_level" not in names:
            raise UsageError(
                f"the backend has no mode {mode!r}",
                place=f"torch.compile(backend={backend!r})",
                next_step=f"choose one of {', '.join(MODES)}, or give options",
            )
        values.setdefault("opt_level", MODES[mode])
    return cls(**values)


def _count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _must_be(fine: Any, name: str, value: Any, expected: str) -> None:
    if not fine:
        raise UsageError(f"the option {name} is {value!r}", next_step=f"give {expected}")
