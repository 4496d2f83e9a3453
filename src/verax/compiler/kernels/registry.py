"""Which emitter makes the kernel of a spec, and which schedules it may have.

A spec is what a kernel computes and where its operands lie, as data; a schedule is how: tiles,
order, prefetching. Neither a graph nor an LLVM module is needed to write them. An algorithm, a
dtype or a target more is one more registration here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from verax.compiler.kernels.dtypes import unknown
from verax.compiler.kernels.llvm import gpu  # noqa: F401  (registers what writes GPUs' kernels)
from verax.compiler.kernels.llvm.builder import Kernel, ModuleBuilder
from verax.compiler.kernels.sizes import entries, numbers
from verax.compiler.kernels.target import Target

ANY_TARGET = ""
Schedule = Hashable
Emit = TypeVar("Emit", bound=Callable[..., Kernel])


class Spec(Protocol):
    """What a kernel computes: frozen data, whose text is what plans print."""

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Element types of all that it reads, reduces in and writes, by name."""


Stage = Callable[[Any], Iterable[Schedule]]
"""Other schedules than the one it is given, which differ from it in one respect."""


@dataclasses.dataclass(frozen=True)
class Space:
    """The schedules that may be tried for a family of specs.

    schedule: their type, a dataclass of numbers and flags; further: other such types, where some
    specs of the family have them. stages(spec, target): what is searched, one respect after the
    other; nothing where the kernel has no choice. admits(spec, target, schedule): whether the
    kernel may have a schedule that somebody else names, such as a file; of any type.
    """

    schedule: type
    stages: Callable[[Any, Target], Sequence[Stage]]
    admits: Callable[[Any, Target, Any], bool]
    further: tuple[type, ...] = ()


@dataclasses.dataclass(frozen=True)
class Emitter:
    """emit(module, spec, schedule) writes the kernel, once per module and key.

    schedules(spec, target): those that the kernel may have, the one chosen by rule first. A family
    that decides all of it by itself has the one schedule None. dtypes: names that it knows. space:
    what measuring may choose instead. settle(spec): the same with numbers for those sizes that its
    kernels cannot read at run time, all of them by default (`ir.assumptions`).
    """

    emit: Callable[[ModuleBuilder, Any, Any], Kernel]
    schedules: Callable[[Any, Target], Sequence[Schedule]]
    dtypes: tuple[str, ...]
    space: Space | None = None
    settle: Callable[[Any], Any] = numbers


EMITTERS: dict[tuple[type, str], Emitter] = {}
"""By type of spec, and by the target's name or family ("gpu") or `ANY_TARGET`."""


def emits(
    spec: type,
    dtypes: Collection[str],
    schedules: Callable[[Any, Target], Sequence[Schedule]] | None = None,
    target: str = ANY_TARGET,
    space: Space | None = None,
    settle: Callable[[Any], Any] = numbers,
) -> Callable[[Emit], Emit]:
    """Register a function as the emitter of a type of spec, on elements of `dtypes`.

    It takes (module, spec, schedule), or (module, spec) when there are no `schedules`. space,
    settle: see `Emitter`.
    """

    def register(function: Emit) -> Emit:
        assert (spec, target) not in EMITTERS, f"{spec.__name__} is emitted twice"
        supported = tuple(dtypes)
        if schedules is None:
            emit = lambda module, spec, _: function(module, spec)  # noqa: E731
            EMITTERS[spec, target] = Emitter(
                emit, lambda spec, target: (None,), supported, None, settle
            )
        else:
            EMITTERS[spec, target] = Emitter(function, schedules, supported, space, settle)
        return function

    return register


def emitter(spec: Spec, target: Target) -> Emitter:
    """Who makes the kernel of `spec` for `target`: the emitter of the target, of its family, or
    everybody's."""
    return _emitter_of(type(spec), target)


def _emitter_of(spec: type, target: Target) -> Emitter:
    for name in (target.name, target.family):
        if (spec, name) in EMITTERS:
            return EMITTERS[spec, name]
    return EMITTERS[spec, ANY_TARGET]


def dtypes_of(spec: type, target: Target) -> tuple[str, ...]:
    """Names of the element types that kernels of this type of spec know on `target`."""
    return _emitter_of(spec, target).dtypes


def refusal(spec: Spec, target: Target) -> str:
    """Why the emitter of `spec` cannot make it, in words; empty when it can."""
    return unknown(spec.dtypes, emitter(spec, target).dtypes)


def schedules(spec: Spec, target: Target) -> Sequence[Schedule]:
    """The schedules that `spec` may have on `target`; the first is the one chosen by rule."""
    return emitter(spec, target).schedules(spec, target)


def with_known_sizes(spec: Any, target: Target) -> Any:
    """`spec` with numbers for sizes that its kernel cannot read at run time."""
    return emitter(spec, target).settle(spec) if entries(spec) else spec


def space_of(spec: Spec, target: Target) -> Space | None:
    """What measuring may choose for `spec`; None where rules decide alone."""
    return emitter(spec, target).space


def stages(spec: Spec, target: Target) -> Sequence[Stage]:
    """What a search over the schedules of `spec` goes through; empty when there is no choice."""
    space = emitter(spec, target).space
    return () if space is None else space.stages(spec, target)


def admits(spec: Spec, target: Target, schedule: Schedule) -> bool:
    """Whether the kernel of `spec` may have `schedule`: no other one is ever emitted."""
    space = emitter(spec, target).space
    return space is not None and space.admits(spec, target, schedule)


def candidates(spec: Spec, target: Target) -> list[Schedule]:
    """All schedules one step away from the one chosen by rule, which is the first."""
    first = schedules(spec, target)[0]
    near = (s for stage in stages(spec, target) for s in stage(first))
    return list(dict.fromkeys([first, *(s for s in near if admits(spec, target, s))]))


def emit(module: ModuleBuilder, spec: Spec, schedule: Schedule) -> Kernel:
    """The kernel of `spec`, written into `module` unless it is there.

    NotImplementedError for a dtype that its emitter does not know; lowering asks `refusal` before.
    """
    reason = refusal(spec, module.target)
    if reason:
        raise NotImplementedError(f"{type(spec).__name__} ({spec}): {reason}")
    return emitter(spec, module.target).emit(module, spec, schedule)
