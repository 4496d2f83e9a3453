"""Sizes and strides of specs: numbers, or values that are read when a kernel runs.

A `Size` is an int where it is known, else a `Dim` over symbols "d0", "d1", ...: a polynomial over
the entries of a table of dims, an i64 array that the kernel is handed (see `builder`). Arithmetic
on numbers stays a number and costs nothing in the code, so one emitter serves programs made for one
size and programs made for all. Equal polynomials are equal objects: dims of unknown extent still
merge where strides fit. Emitters ask `isinstance(size, int)` where they decide.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from verax.ir import dim
from verax.ir.assumptions import assumptions
from verax.ir.dim import Dim, DimLike, Symbol, symbol, symbols
from verax.numerics.expr import Const, Expr, RunTime, nodes, substitute

Data = TypeVar("Data")

Size: TypeAlias = DimLike
"""A number, or what is read at run time."""


def entry(index: int) -> Dim:
    """The size that is read at run time from entry `index` of the table of dims."""
    return symbol(f"d{index}")


def index_of(symbol_: Symbol) -> int:
    """The entry of the table that a symbol is read from."""
    return int(symbol_.name[1:])


def sizes_of(table: Sequence[int]) -> Mapping[str, int]:
    """The sizes of all symbols for the entries of `table`."""
    return {f"d{i}": int(n) for i, n in enumerate(table)}


def ceil_div(a: Size, b: Size) -> Size:
    """a / b rounded up."""
    return dim.ceildiv(a, b)


def minimum(*sizes: Size) -> Size:
    """The smallest of `sizes`; an int if all are."""
    smallest, *remaining = sizes
    for size in remaining:
        smallest = smallest + size - dim.maximum(smallest, size)
    return smallest


def maximum(*sizes: Size) -> Size:
    """The largest of `sizes`; an int if all are."""
    largest, *remaining = sizes
    for size in remaining:
        largest = dim.maximum(largest, size)
    return largest


def equal(a: Size, b: Size) -> Size:
    """1 where they are equal, 0 where not."""
    return 1 - minimum(1, maximum(a - b, b - a))


def value(size: Size, table: Sequence[int]) -> int:
    """The number that a size is, for the entries of `table`."""
    return dim.evaluated(size, sizes_of(table))


def moves(strides: Sequence[Size]) -> bool:
    """Whether there is a stride that is not zero."""
    return not all(dim.same(s, 0) for s in strides)


def static_size(size: Size) -> int:
    """`size` as an int, for kernels without symbolic sizes, which it has to stay where it is
    assumed. Raises `ValueError` when it is read at run time."""
    if isinstance(size, Dim) and assumptions() is not None:
        return int(size)
    if isinstance(size, Dim):
        raise ValueError(f"this kernel is made for known sizes, and {size} is read at run time")
    return size


def with_dims(data: Data, table: Sequence[int]) -> Data:
    """A spec with the sizes that it has for the entries of `table`: what a program made for these
    sizes would carry. Tuples and dataclasses are entered."""
    return with_sizes(data, sizes_of(table))


def with_sizes(data: Data, sizes: Mapping[str, int]) -> Data:
    """The same for sizes of symbols by name."""
    return _replaced(data, lambda size: size.value(sizes))  # type: ignore[no-any-return]


def with_replaced_sizes(data: Data, replacement: Callable[[Dim], Size]) -> Data:
    """A spec with another size for each of those that are read at run time."""
    return _replaced(data, replacement)  # type: ignore[no-any-return]


def numbers(data: Data) -> Data:
    """A spec with assumed sizes as numbers, which they have to stay (`ir.assumptions`)."""
    return _replaced(data, int)  # type: ignore[no-any-return]


def all_open(data: Data) -> Data:
    """A spec of a kernel that reads every size at run time."""
    return data


def _replaced(data: Any, replacement: Callable[[Dim], Size]) -> Any:
    """`data` with a number, or another dim, for each dim; tuples and dataclasses are entered."""
    if isinstance(data, Dim):
        return replacement(data)
    if isinstance(data, Expr):
        read: dict[Expr, Expr] = {
            e: _expression_of(replacement(e.value), e.dtype)
            for e in nodes(data)
            if isinstance(e, RunTime)
        }
        return substitute(data, read) if read else data
    if isinstance(data, tuple):
        entered = [_replaced(item, replacement) for item in data]
        return data if all(map(operator.is_, entered, data)) else tuple(entered)
    if dataclasses.is_dataclass(data) and not isinstance(data, type):
        old = {f.name: getattr(data, f.name) for f in dataclasses.fields(data)}
        new = {name: _replaced(item, replacement) for name, item in old.items()}
        changed = {name: item for name, item in new.items() if item is not old[name]}
        return dataclasses.replace(data, **changed) if changed else data
    return data


def _expression_of(size: Size, dtype: str) -> Expr:
    return Const(size, dtype) if isinstance(size, int) else RunTime(size, dtype)


def dims_of(data: Any) -> Iterator[Dim]:
    """The sizes that a spec reads at run time."""
    if isinstance(data, Dim):
        yield data
    elif isinstance(data, Expr):
        for e in nodes(data):
            if isinstance(e, RunTime):
                yield from dims_of(e.value)
    elif isinstance(data, tuple):
        for item in data:
            yield from dims_of(item)
    elif dataclasses.is_dataclass(data) and not isinstance(data, type):
        for f in dataclasses.fields(data):
            yield from dims_of(getattr(data, f.name))


def entries(data: Any) -> int:
    """How many entries of the table a spec reads: one more than the last; 0 when all is known."""
    return _entries(data)


@functools.lru_cache(maxsize=4096)
def _entries(data: Any) -> int:
    if isinstance(data, Dim):
        return 1 + max(index_of(Symbol(name)) for name in symbols(data))
    if isinstance(data, Expr):
        return max((entries(e.value) for e in nodes(data) if isinstance(e, RunTime)), default=0)
    if isinstance(data, tuple):
        return max(map(entries, data), default=0)
    if dataclasses.is_dataclass(data) and not isinstance(data, type):
        return max((entries(getattr(data, f.name)) for f in dataclasses.fields(data)), default=0)
    return 0
