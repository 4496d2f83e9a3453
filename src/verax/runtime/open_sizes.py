"""Programs of open sizes: what is computed once for each set of sizes before their code runs.

Code of such a program reads sizes, offsets and numbers of work items from a table of int64, whose
entries are expressions over the sizes of symbols "d0", "d1", ... (text as `ir.dim` has it), or the
offsets of buffers in the arena. Buffers are placed one after the other, each in the first gap that
those have left which live at the same time.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from functools import cached_property
from types import CodeType

import numpy as np

from verax.base.errors import InputError
from verax.ir.assumptions import RELATIONS

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


@dataclasses.dataclass(frozen=True)
class SizedProgram:
    """What is known of a program when its sizes are. table: as its code reads it."""

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
    """

    symbols: tuple[str, ...]
    conditions: tuple[tuple[str, str], ...]
    entries: tuple[str, ...]
    buffers: tuple[ArenaBuffer, ...]
    start: int
    inputs: tuple[tuple[str, ...], ...]
    outputs: tuple[tuple[str, ...], ...]

    def serves(self, sizes: Sequence[int]) -> bool:
        """Whether the program computes the network for these sizes of its symbols."""
        if any(n < 1 for n in sizes):
            return False
        differences = self._differences(*sizes)
        return all(
            RELATIONS[relation](difference)
            for difference, (_, relation) in zip(differences, self.conditions, strict=True)
        )

    def at(self, sizes: Sequence[int]) -> SizedProgram:
        """The program for these sizes."""
        try:
            offsets, end, kept_end = self._placed(self._bytes(*sizes))
            table = np.array([*sizes, *self._values(offsets, *sizes)], np.int64)
        except (ArithmeticError, RecursionError) as error:
            named = ", ".join(f"{name}={n}" for name, n in zip(self.symbols, sizes, strict=True))
            raise InputError(
                f"the program cannot be placed for {named}: {error}", next_step="run smaller inputs"
            ) from error
        dims = iter(self._dims(*sizes))
        inputs, outputs = (
            tuple(tuple(next(dims) for _ in shape) for shape in shapes)
            for shapes in (self.inputs, self.outputs)
        )
        return SizedProgram(tuple(sizes), table, end, kept_end, inputs, outputs)

    def _placed(self, nbytes: Sequence[int]) -> tuple[list[int], int, int]:
        """Offsets of the buffers; the end of the arena, and of what is kept in it."""
        offsets: list[int] = []
        ends: list[int] = []
        end = kept_end = self.start
        for buffer, size in zip(self.buffers, nbytes, strict=True):
            room = -(-size // ALIGNMENT) * ALIGNMENT + ALIGNMENT
            at = kept_end
            for begin, stop in sorted([(offsets[i], ends[i]) for i in buffer.conflicts]):
                if begin - at >= room:
                    break
                at = max(at, stop)
            offsets.append(at)
            ends.append(at + room)
            end = max(end, at + room)
            kept_end = at + room if buffer.keeps_zeros else kept_end
        return offsets, end, kept_end

    @cached_property
    def _differences(self) -> Callable[..., tuple[int, ...]]:
        return self._function([difference for difference, _ in self.conditions])

    @cached_property
    def _bytes(self) -> Callable[..., tuple[int, ...]]:
        return self._function([buffer.nbytes for buffer in self.buffers])

    @cached_property
    def _dims(self) -> Callable[..., tuple[int, ...]]:
        return self._function([d for s in (*self.inputs, *self.outputs) for d in s])

    @cached_property
    def _values(self) -> Callable[..., tuple[int, ...]]:
        return self._function(self.entries, "offsets")

    def require_readable(self) -> None:
        """Raise `ValueError` naming the first expression that is none over these symbols, as
        `ir.dim` writes them."""
        _ = self._differences, self._bytes, self._dims, self._values

    def _function(self, expressions: Sequence[str], *first: str) -> Callable[..., tuple[int, ...]]:
        """Of the sizes, and what is named `first`: the values of `expressions`."""
        names = ", ".join([*first, *(f"d{i}" for i in range(len(self.symbols)))])
        terms = "".join(f"{self._as_code(e)}, " for e in expressions)
        code = _compiled(f"lambda {names}: ({terms})")
        return eval(code, {"__builtins__": {}, "max": max, "ceildiv": _ceildiv})  # type: ignore[no-any-return]

    def _as_code(self, expression: str) -> str:
        """An expression as Python code that is nothing else."""
        offset = OFFSET.fullmatch(expression)
        if offset is not None and int(offset[1]) < len(self.buffers):
            return f"offsets[{offset[1]}]"
        foreign = "".join(TOKENS.findall(expression)) != expression or "**" in expression
        if foreign or any(int(n) >= len(self.symbols) for n in SYMBOL.findall(expression)):
            raise ValueError(f"{expression[:80]!a} is no expression over {len(self.symbols)} sizes")
        _compiled(expression)  # alone, so that no two of them make one
        return expression


def _compiled(code: str) -> CodeType:
    try:
        return compile(code, "<sizes>", "eval")
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"{code[:80]!a} is no expression") from error


def _ceildiv(a: int, b: int) -> int:
    return -(-a // b)
