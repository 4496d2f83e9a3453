"""Which emitter makes the kernel of a spec, and which schedules it may have.

A spec is what a kernel computes and where its operands lie, as data; a schedule is how: tiles,
order, prefetching. Neither a graph nor an LLVM module is needed to write them. An algorithm, a
dtype or a target more is one more registration here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

from verax.compiler.kernels.builder import Kernel, ModuleBuilder
from verax.compiler.kernels.target import Target

ANY_TARGET = ""
Schedule = Hashable
Emit = TypeVar("Emit", bound=Callable[..., Kernel])


@dataclasses.dataclass(frozen=True)
class Emitter:
    """emit(module, spec, schedule) writes the kernel, once per module and key.

    schedules(spec, target): those that the kernel may have, the one chosen by rule first. A family
    that decides all of it by itself has the one schedule None.
    """

    emit: Callable[[ModuleBuilder, Any, Any], Kernel]
    schedules: Callable[[Any, Target], Sequence[Schedule]]


EMITTERS: dict[tuple[type, str], Emitter] = {}
"""By type of spec, and by the target's name or `ANY_TARGET`."""


def emits(
    spec: type,
    schedules: Callable[[Any, Target], Sequence[Schedule]] | None = None,
    target: str = ANY_TARGET,
) -> Callable[[Emit], Emit]:
    """Register a function as the emitter of a type of spec.

    It takes (module, spec, schedule), or (module, spec) when there are no `schedules`.
    """

    def register(function: Emit) -> Emit:
        assert (spec, target) not in EMITTERS, f"{spec.__name__} is emitted twice"
        if schedules is None:
            EMITTERS[spec, target] = Emitter(lambda m, s, _: function(m, s), lambda s, t: (None,))
        else:
            EMITTERS[spec, target] = Emitter(function, schedules)
        return function

    return register


def emitter(spec: object, target: Target) -> Emitter:
    """Who makes the kernel of `spec` for `target`: the target's own emitter, or everybody's."""
    own = EMITTERS.get((type(spec), target.name))
    return own or EMITTERS[type(spec), ANY_TARGET]


def schedules(spec: object, target: Target) -> Sequence[Schedule]:
    """The schedules that `spec` may have on `target`; the first is the one chosen by rule."""
    return emitter(spec, target).schedules(spec, target)


def emit(module: ModuleBuilder, spec: object, schedule: Schedule) -> Kernel:
    """The kernel of `spec`, written into `module` unless it is there."""
    return emitter(spec, module.target).emit(module, spec, schedule)
