"""What a user states of sizes (`shapes=`, `--shape`), read for the inputs of one file.

Sizes are stated by the file's name of a dimension ("batch"), by the symbol that the loaded model
has for it, by an axis of an input ("ids[1]"), or for all axes of an input at once. Each is a
number; None, which leaves it as the file has it; a name, which makes axes of one name one size; or
bounds (lowest, highest), between which it stays open.
"""

from __future__ import annotations

import keyword
import operator
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from verax.base.errors import UnknownNameError, UsageError

Size: TypeAlias = int | str | tuple[int | None, int | None] | None
Shapes: TypeAlias = Mapping[str, Sequence[Size] | Size]
Axis: TypeAlias = tuple[str, int]
Declared: TypeAlias = Mapping[str, tuple[int | str | None, ...]]
Bounds: TypeAlias = tuple[int, int | None]

BY_AXIS = re.compile(r"(?P<input>.+)\[\s*(?P<axis>-?\d+)\s*\]", re.DOTALL)
LISTED = 12
"""Names that an error gives."""


class StatedSizes:
    """For each dimension, by `key_of`: its number, or a name and bounds."""

    def __init__(
        self, shapes: Shapes, declared: Declared, fixed: Mapping[str, Sequence[int]] | None = None
    ) -> None:
        """declared: dimensions of the inputs as the file has them; fixed: shapes of those that
        become constants. Raises `UnknownNameError` for names that the file lacks, `UsageError` for
        what cannot be a size or contradicts the file or itself."""
        self.declared = declared
        self.numbers: dict[str, int] = {}
        self.names: dict[str, str] = {}
        self.bounds: dict[str, Bounds] = {}
        """Of those that stay open."""
        self._labels = {d for dims in declared.values() for d in dims if isinstance(d, str)}
        self._symbols = self._default_symbols()
        unknown = [name for name in shapes if not self._has_name(name)]
        if unknown:
            raise UnknownNameError(
                f"the model has no input or dimension {unknown[0]!r}",
                tuple(unknown),
                next_step=f"it has {self.name_list()}",
            )
        for name, shape in (fixed or {}).items():
            self._read_input(name, tuple(shape))
        for name, stated in shapes.items():
            self._read(name, _as_tuple(stated))
        self._resolve_names()

    def key_of(self, name: str, axis: int) -> str:
        """The name of an input's dimension: the file's, or one made of input and axis."""
        dim = self.declared[name][axis]
        return dim if isinstance(dim, str) else f"{name}.{axis}"

    def name_list(self) -> str:
        """The names that sizes can be stated by, for an error."""
        axes = [
            f"{dim} ({name}[{axis}])" if isinstance(dim, str) else f"{name}[{axis}]"
            for name, dims in self.declared.items()
            for axis, dim in enumerate(dims)
            if not isinstance(dim, int)
        ]
        inputs = ", ".join(_first(list(self.declared))) or "none"
        if not axes:
            return f"the inputs {inputs}, and leaves no size open"
        return f"the inputs {inputs}, and leaves open {', '.join(_first(axes))}"

    # --- names

    def _default_symbols(self) -> dict[str, str]:
        """The symbols that dimensions get when nothing is stated, by key."""
        symbols: dict[str, str] = {}
        for name, dims in self.declared.items():
            for axis, dim in enumerate(dims):
                if not isinstance(dim, int):
                    symbol_of(self.key_of(name, axis), symbols)
        return symbols

    def _has_name(self, name: str) -> bool:
        return (
            name in self.declared
            or name in self._labels
            or name in self._symbols.values()
            or self._axis(name) is not None
        )

    def _axis(self, text: str) -> Axis | None:
        """The input and axis that `ids[1]` names; None for other texts and inputs."""
        match = BY_AXIS.fullmatch(text)
        if match is None or match["input"] not in self.declared:
            return None
        name, axis = match["input"], int(match["axis"])
        rank = len(self.declared[name])
        if not -rank <= axis < rank:
            raise UsageError(
                f"{text} names an axis that the input has not",
                place=f"input {name!r}",
                next_step=f"its {rank} axes are {', '.join(f'{name}[{i}]' for i in range(rank))}"
                if rank
                else "it has no axes",
            )
        return name, axis % rank

    # --- what is stated

    def _read(self, name: str, stated: Any) -> None:
        if name in self.declared and (_is_shape(stated) or name not in self._labels):
            self._read_input(name, stated)
            return
        if name in self._labels:
            self._state(name, stated, f"dimension {name!r}")
            return
        axis = self._axis(name)
        if axis is not None:
            self._state_axis(*axis, stated)
            return
        key = next(k for k, symbol in self._symbols.items() if symbol == name)
        self._state(key, stated, f"dimension {name!r}")

    def _read_input(self, name: str, stated: Any) -> None:
        dims = self.declared[name]
        if stated is None:
            return
        if not _is_shape(stated):
            if len(dims) != 1:
                raise UsageError(
                    f"one size is given for an input of {len(dims)} dimensions",
                    place=f"input {name!r}",
                    next_step=f"give all of them, or one by its axis: {name}[0]",
                )
            stated = (stated,)
        if len(stated) != len(dims):
            raise UsageError(
                f"the shape {tuple(stated)} is given for {len(dims)} dimensions",
                place=f"input {name!r}",
            )
        for axis, size in enumerate(stated):
            try:
                self._state_axis(name, axis, size)
            except UsageError as error:
                raise UsageError(
                    f"the shape {tuple(stated)} does not fit {dims}: on axis {axis}, {error.cause}",
                    place=f"input {name!r}",
                    next_step=error.next_step,
                ) from error

    def _state_axis(self, name: str, axis: int, stated: Any) -> None:
        dim, location = self.declared[name][axis], f"input {name!r}, axis {axis}"
        if not isinstance(dim, int):
            self._state(self.key_of(name, axis), stated, location)
            return
        read = _read_size(stated, location)
        if read is not None and read != dim:
            raise UsageError(
                f"{size_text(read)} is given, the file has {dim}",
                place=location,
                next_step="leave it out, or give None (? on the command line)",
            )

    def _state(self, key: str, stated: Any, location: str) -> None:
        read = _read_size(stated, location)
        if isinstance(read, int):
            low, high = self.bounds.get(key, (0, None))
            before = self.numbers.setdefault(key, read)
            if before != read or read < low or (high is not None and read > high):
                earlier = before if before != read else size_text((low, high))
                raise _contradiction(key, earlier, read, location)
        elif isinstance(read, str):
            before_name = self.names.setdefault(key, read)
            if before_name != read:
                raise _contradiction(key, before_name, read, location)
        elif read is not None:
            size = self.numbers.get(key)
            if size is not None and not within(size, read):
                raise _contradiction(key, size, size_text(read), location)
            before_bounds = self.bounds.setdefault(key, read)
            if before_bounds != read:
                raise _contradiction(key, size_text(before_bounds), size_text(read), location)

    def _resolve_names(self) -> None:
        """Give dimensions of one stated name, and the file's own of that name, one number and one
        set of bounds. Raises `UsageError` where they are stated otherwise."""
        for key, name in self.names.items():
            for numbers in (self.numbers, self.bounds):
                values: dict[str, Any] = numbers  # type: ignore[assignment]
                if key in values and values.setdefault(name, values[key]) != values[key]:
                    raise _contradiction(
                        name, size_text(values[name]), size_text(values[key]), "shapes"
                    )
        for key, name in self.names.items():
            if name in self.numbers:
                self.numbers[key] = self.numbers[name]

    def bounds_of(self, key: str) -> Bounds | None:
        """Those stated for a dimension, if any are."""
        return self.bounds.get(self.names.get(key, key))


def stated_rank(stated: Any) -> int | None:
    """How many dimensions an input has by what is stated of it; None where nothing is."""
    if stated is None:
        return None
    return len(stated) if _is_shape(stated) else 1


def _first(names: Sequence[str]) -> list[str]:
    more = [f"{len(names) - LISTED} more"] if len(names) > LISTED else []
    return [*names[:LISTED], *more]


def _as_tuple(stated: Any) -> Any:
    """A shape for an array of sizes; all else as it is."""
    return tuple(stated.tolist()) if isinstance(stated, np.ndarray) and stated.ndim else stated


def _is_shape(stated: Any) -> bool:
    """True for one entry for each axis; a text is a name."""
    return isinstance(stated, Sequence) and not isinstance(stated, str | bytes)


def size_text(size: Any) -> str:
    """A size, a name or bounds as `--shape` takes them."""
    if isinstance(size, tuple):
        low, high = size
        return f"{low}:{'' if high is None else high}"
    return str(size)


def within(size: int, bounds: Bounds) -> bool:
    """True if the size is none that the bounds exclude."""
    low, high = bounds
    return low <= size and (high is None or size <= high)


def _contradiction(key: str, first: object, second: object, location: str) -> UsageError:
    return UsageError(f"{key} is given as {first} and as {second}", place=location)


def _read_size(stated: Any, location: str) -> int | str | Bounds | None:
    """What is stated of one dimension. Raises `UsageError` for what is no size."""
    if stated is None:
        return None
    if isinstance(stated, str):
        if stated.isidentifier() and not keyword.iskeyword(stated):
            return stated
        raise _no_size(stated, location)
    if _is_shape(stated):
        if len(stated) == 1:  # of one axis, as the command line writes its bounds
            return _read_size(stated[0], location)
        return _read_bounds(tuple(stated), location)
    return _read_number(stated, stated, location)


def _read_number(value: Any, stated: Any, location: str) -> int:
    try:
        size = operator.index(value)
    except TypeError as error:
        raise _no_size(stated, location) from error
    if isinstance(value, bool) or size < 0:
        raise _no_size(stated, location)
    return size


def _read_bounds(stated: tuple[Any, ...], location: str) -> int | Bounds:
    if len(stated) != 2:
        raise _no_size(stated, location)
    low = 1 if stated[0] is None else _read_number(stated[0], stated, location)
    high = None if stated[1] is None else _read_number(stated[1], stated, location)
    if high is not None and high < low:
        raise _no_size(stated, location)
    return low if low == high else (low, high)


def _no_size(stated: object, location: str) -> UsageError:
    return UsageError(
        f"{stated!r} is no size",
        place=location,
        next_step="give a number of 0 or more, None (?) to leave it open, a name such as 'batch', "
        "or bounds: (1, 512) in Python, 1:512 on the command line",
    )


def symbol_of(key: str, symbols: dict[str, str]) -> str:
    """The symbol of a dimension, an identifier of its own, which is entered in `symbols` by key."""
    if key not in symbols:
        plain = re.sub(r"\W", "_", key, flags=re.ASCII).strip("_")
        plain = plain if plain and not plain[0].isdigit() else f"d{plain}"
        if keyword.iskeyword(plain) or plain in ("max", "ceildiv"):
            plain += "_"
        unique, i = plain, 1
        while unique in symbols.values():
            i += 1
            unique = f"{plain}_{i}"
        symbols[key] = unique
    return symbols[key]
