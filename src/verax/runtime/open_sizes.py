"""Programs of open sizes: what is computed once for each set of sizes before their code runs.

Code of such a program reads sizes, offsets and numbers of work items from a table of int64, whose
entries are expressions over the sizes of symbols "d0", "d1", ... (text as `ir.dim` has it), or the
offsets of buffers in the arena. Buffers are placed one after the other, each in the first gap that
those have left which live at the same time. What depends on sizes that data decide is computed when
kernels have counted them (`counted_sizes`).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from types import CodeType
from typing import Any

import numpy as np

from verax.base.errors import InputError

ALIGNMENT = 64
"""Of buffers in the arena, which lie as far apart."""
OFFSET = re.compile(r"@(\d{1,9})")
"""The entry that is a buffer's offset."""
TOKENS = re.compile(r"[-+*(), ]|//|\d{1,19}(?!\d)|d\d{1,6}(?!\d)|max|ceildiv")
"""What the text of a dimension is made of, as `ir.dim` writes it: no names but those of symbols."""
SYMBOL = re.compile(r"d(\d+)")


@dataclasses.dataclass(frozen=True)
class ArenaBuffer:
    """nbytes: an expression. conflicts: numbers of buffers before it that live when it does. kept:
    it holds zeros between runs, and nothing else ever lies there; such buffers come first."""

    nbytes: str
    conflicts: tuple[int, ...]
    keeps_zeros: bool = False

    def conflicts_none(self, numbers: Iterable[int]) -> bool:
        """Whether it lives when none of these earlier buffers does."""
        return not any(n in self.conflicts for n in numbers)


@dataclasses.dataclass(frozen=True)
class CountedSize:
    """A size that data decide. symbol: the number of "d5"; name: the network's; limit: what it can
    be at most, given the sizes before it; entry: of the table, which holds where in the arena
    kernels write it, an int64."""

    symbol: int
    name: str
    limit: str
    entry: int


@dataclasses.dataclass(frozen=True)
class SizedProgram:
    """What is known of a program when its sizes are. table: as its code reads it; what follows from
    counted sizes is still 0 there, and as shape of an output."""

    sizes: tuple[int, ...]
    table: np.ndarray
    arena_bytes: int
    kept_bytes: int
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]


@dataclasses.dataclass(frozen=True)
class OpenSizes:
    """The sizes that a program leaves open.

    symbols: the network's names of them, in the order of "d0", "d1", ... conditions: (difference,
    relation to zero) that have to hold for them. entries: of the table behind the sizes; "@3" is
    the offset of buffer 3. start: bytes of the arena before the buffers. inputs, outputs: shapes.

    counted: the sizes that data decide, in the order in which they are counted; `unknown` symbols,
    theirs among them, follow those of the inputs. What depends on one is computed when it is known
    (`counted_sizes`), and only then count_conditions are looked at: (difference, relation, elements
    without which it need not hold, or "").
    """

    symbols: tuple[str, ...]
    conditions: tuple[tuple[str, str], ...]
    entries: tuple[str, ...]
    buffers: tuple[ArenaBuffer, ...]
    start: int
    inputs: tuple[tuple[str, ...], ...]
    outputs: tuple[tuple[str, ...], ...]
    unknown: int = 0
    counted: tuple[CountedSize, ...] = ()
    count_conditions: tuple[tuple[str, str, str], ...] = ()

    def serves(self, sizes: Sequence[int]) -> bool:
        """Whether the program computes the network for these sizes of its symbols."""
        return min(sizes, default=1) >= 1 and self._holds(*sizes)

    def at(self, sizes: Sequence[int]) -> SizedProgram:
        """The program for these sizes."""
        try:
            offsets, end, kept_end = self._placed(self._bytes(*sizes))
            table = np.zeros(self.size_count + len(self.entries), np.int64)
            table[: len(sizes)] = sizes
            table[self._known_entries] = self._values(offsets, *sizes)
        except (ArithmeticError, RecursionError) as error:
            named = ", ".join(f"{name}={n}" for name, n in zip(self.symbols, sizes, strict=True))
            raise InputError(
                f"the program cannot be placed for {named}: {error}", next_step="run smaller inputs"
            ) from error
        dims = iter(self._dims(*sizes))
        inputs, outputs = (
            tuple(
                (0,) * len(shape) if self.stage(*shape) else tuple(next(dims) for _ in shape)
                for shape in shapes
            )
            for shapes in (self.inputs, self.outputs)
        )
        return SizedProgram(tuple(sizes), table, end, kept_end, inputs, outputs)

    @property
    def size_count(self) -> int:
        """Sizes at the front of the table."""
        return len(self.symbols) + self.unknown

    # --- what follows from which sizes

    @cached_property
    def derived(self) -> dict[str, Any]:
        """What was made of the expressions so far, by name: code of functions, lists of numbers.
        Who has it from equal ones may put it here (`size_code`); it is believed."""
        return {}

    @cached_property
    def _counted_after(self) -> dict[int, int]:
        return {size.symbol: stage for stage, size in enumerate(self.counted, 1)}

    def stage(self, *expressions: str) -> int:
        """How many sizes have been counted when all `expressions` are known."""
        if not self.counted:
            return 0
        stages = [0]
        for text in expressions:
            offset = OFFSET.fullmatch(text)
            if offset is not None and int(offset[1]) < len(self.buffers):
                stages.append(self.stage(self.buffers[int(offset[1])].nbytes))
            else:
                numbers = (int(n) for n in SYMBOL.findall(text))
                stages += [self._counted_after.get(n, 0) for n in numbers]
        return max(stages)

    def entries_of(self, stage: int) -> list[int]:
        """Numbers of the entries, among `entries`, that are known then and not before."""
        return self._of_stage(stage, "entries", self.entries)

    def buffers_of(self, stage: int) -> list[int]:
        """Numbers of the buffers whose sizes are known then and not before."""
        return self._of_stage(stage, "buffers", [b.nbytes for b in self.buffers])

    def _of_stage(self, stage: int, name: str, texts: Sequence[str]) -> list[int]:
        if not self.counted:
            return [] if stage else list(range(len(texts)))
        stages = self.derived.get(f"stages of {name}")
        if stages is None:
            stages = self.derived[f"stages of {name}"] = [self.stage(text) for text in texts]
        return [i for i, one in enumerate(stages) if one == stage]

    @cached_property
    def _known_entries(self) -> list[int]:
        return [self.size_count + i for i in self.entries_of(0)]

    @cached_property
    def _known_buffers(self) -> list[int]:
        return self.buffers_of(0)

    def _placed(self, nbytes: Sequence[int]) -> tuple[dict[int, int], int, int]:
        """Offsets of the buffers of known size; the end of the arena, and of what is kept in it."""
        offsets: dict[int, int] = {}
        extents: dict[int, tuple[int, int]] = {}
        end = kept_end = self.start
        for (index, conflicts, keeps_zeros), size in zip(self._to_place, nbytes, strict=True):
            room = room_of(size)
            at = kept_end
            for begin, stop in sorted([extents[i] for i in conflicts]):
                if begin - at >= room:
                    break
                if stop > at:
                    at = stop
            offsets[index], stop = at, at + room
            extents[index] = at, stop
            if stop > end:
                end = stop
            if keeps_zeros:
                kept_end = stop
        return offsets, end, kept_end

    @cached_property
    def _to_place(self) -> list[tuple[int, list[int], bool]]:
        """Buffers of known size: their numbers, those of such that live when they do, and whether
        they keep zeros."""
        numbers, buffers = set(self._known_buffers), self.buffers
        return [
            (i, [c for c in buffers[i].conflicts if c in numbers], buffers[i].keeps_zeros)
            for i in self._known_buffers
        ]

    @cached_property
    def _holds(self) -> Callable[..., bool]:
        """Of the sizes: whether all conditions hold."""
        holds: Callable[..., bool] = self._compiled_function("holds", self._conditions_hold)
        return holds

    def _conditions_hold(self) -> str:
        count = len(self.symbols)
        terms = (f"({self._as_code(d, count)}) {relation} 0" for d, relation in self.conditions)
        return self._lambda(count, " and ".join(terms) or "True")

    @cached_property
    def _bytes(self) -> Callable[..., tuple[int, ...]]:
        return self.function("bytes", self._known_bytes)

    def _known_bytes(self) -> list[str]:
        return [self.buffers[i].nbytes for i in self._known_buffers]

    @cached_property
    def _dims(self) -> Callable[..., tuple[int, ...]]:
        return self.function("dims", self._known_dims)

    def _known_dims(self) -> list[str]:
        shapes = (s for s in (*self.inputs, *self.outputs) if not self.stage(*s))
        return [d for s in shapes for d in s]

    @cached_property
    def _values(self) -> Callable[..., tuple[int, ...]]:
        return self.function("values", self._known_values, "offsets")

    def _known_values(self) -> list[str]:
        return [self.entries[i] for i in self.entries_of(0)]

    def make_functions(self) -> None:
        """Make what follows from the inputs' sizes alone, which is made when it is used."""
        _ = self._holds, self._bytes, self._dims, self._values

    def require_readable(self) -> None:
        """Raise `ValueError` naming the first expression that is none over these symbols, as
        `ir.dim` writes them, or that is needed before all its sizes are counted."""
        of_inputs = [*self._known_bytes(), *self._known_dims(), *self._known_values()]
        for text in (*of_inputs, *(difference for difference, _ in self.conditions)):
            self._as_code(text, len(self.symbols))
        conditions = (e for d, _, elements in self.count_conditions for e in (d, elements or "1"))
        sizes = [*(b.nbytes for b in self.buffers), *(d for shape in self.outputs for d in shape)]
        for text in (*sizes, *conditions, *(c.limit for c in self.counted), *self.entries):
            self._as_code(text, self.size_count)
        for stage, counted in enumerate(self.counted):
            if self.stage(counted.limit) > stage:
                raise ValueError(f"{counted.limit[:80]!a} is no limit of count {stage}")

    def function(
        self,
        name: str,
        expressions: Callable[[], Sequence[str]],
        *first: str,
        counted: bool = False,
    ) -> Callable[..., tuple[int, ...]]:
        """Of the sizes (`counted`: of those that data decide, too), and what is named `first`: the
        values of `expressions`. name: of the function, under which its code is in `derived`."""
        count = self.size_count if counted else len(self.symbols)

        def text() -> str:
            terms = "".join(f"{self._as_code(e, count)}, " for e in expressions())
            return self._lambda(count, f"({terms})", *first)

        function: Callable[..., tuple[int, ...]] = self._compiled_function(name, text)
        return function

    def _lambda(self, count: int, value: str, *first: str) -> str:
        names = ", ".join([*first, *(f"d{i}" for i in range(count))])
        return f"lambda {names}: {value}"

    def _compiled_function(self, name: str, text: Callable[[], str]) -> Any:
        """The function of that text, or of the code that was found under its name."""
        code = self.derived.get(name)
        if code is None:
            code = self.derived[name] = _compiled(text())
        return eval(code, {"__builtins__": {}, "max": max, "ceildiv": _ceildiv})

    @cached_property
    def _readable(self) -> set[tuple[str, int]]:
        """Expressions that were looked at, and over how many sizes."""
        return set()

    def _as_code(self, expression: str, size_count: int) -> str:
        """An expression over so many sizes as Python code that is nothing else."""
        offset = OFFSET.fullmatch(expression)
        if offset is not None and int(offset[1]) < len(self.buffers):
            return f"offsets[{offset[1]}]"
        if (expression, size_count) in self._readable:
            return expression
        foreign = "".join(TOKENS.findall(expression)) != expression or "**" in expression
        if foreign or any(int(n) >= size_count for n in SYMBOL.findall(expression)):
            raise ValueError(f"{expression[:80]!a} is no expression over {size_count} sizes")
        _compiled(expression)  # alone, so that no two of them make one
        self._readable.add((expression, size_count))
        return expression


def _compiled(code: str) -> CodeType:
    try:
        return compile(code, "<sizes>", "eval")
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"{code[:80]!a} is no expression") from error


def room_of(nbytes: int) -> int:
    """Bytes that a buffer takes in the arena."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT + ALIGNMENT


def _ceildiv(a: int, b: int) -> int:
    return -(-a // b)
