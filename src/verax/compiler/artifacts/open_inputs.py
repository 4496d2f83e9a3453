"""Inputs of a saved program for many sizes: which sizes they have, and whether it serves them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from verax.base.arrays import as_array
from verax.base.errors import InputError
from verax.ir.types import DType, TensorType
from verax.runtime.open_sizes import SYMBOL, OpenSizes
from verax.runtime.program import Program
from verax.runtime.program_binary import Signature

COMPILE = "compile the model for these sizes (`verax compile --open`)"


def open_types(
    signatures: Sequence[Signature],
    shapes: Sequence[Sequence[str]],
    open_sizes: OpenSizes,
    open_names: Sequence[str],
) -> dict[str, TensorType]:
    """Types by name. open_names: the network's, of the open sizes; used where they are words."""
    names = [*open_names, *[""] * open_sizes.unknown]
    for counted in open_sizes.counted:
        names[counted.symbol] = counted.name

    def dim(text: str) -> str:
        return SYMBOL.sub(lambda m: _plain(names[int(m[1])]) or m[0], text)

    return {
        s.name: TensorType.parse(f"{DType(s.dtype)}[{', '.join(map(dim, shape))}]")
        for s, shape in zip(signatures, shapes, strict=True)
    }


def _plain(name: str) -> str:
    return name if name.isidentifier() else ""


def is_readable(open_sizes: OpenSizes) -> bool:
    """Whether every size of `symbols` is the size of an axis of an input."""
    axes = {text for shape in open_sizes.inputs for text in shape}
    return all(f"d{i}" in axes for i in range(len(open_sizes.symbols)))


def sizes_of(
    program: Program, open_names: Sequence[str], inputs: Mapping[str, np.ndarray]
) -> tuple[int, ...]:
    """The sizes of the program's symbols, which the network calls `open_names`. Raises `InputError`
    where an input is missing, two differ in a size, or the program is not for these sizes."""
    open_sizes = program.binary.open_sizes
    assert open_sizes is not None
    types = open_types(program.binary.inputs, open_sizes.inputs, open_sizes, open_names)
    for name in {**inputs, **types}:
        if name not in types or name not in inputs:
            raise InputError(
                f"the input {name!r} is missing" if name in types else f"no input is {name!r}",
                next_step=f"it takes {', '.join(f'{v}: {t}' for v, t in types.items())}",
            )
    origin: dict[int, tuple[int, str]] = {}
    for signature, shape in zip(program.binary.inputs, open_sizes.inputs, strict=True):
        name = signature.name
        array = as_array(inputs[name], f"input {name!r}")
        if array.ndim != len(shape):
            raise InputError(
                f"the input has {array.ndim} axes, the program takes {types[name]}",
                place=f"input {name!r}",
            )
        for axis, (text, size) in enumerate(zip(shape, array.shape, strict=True)):
            symbol = SYMBOL.fullmatch(text)
            if symbol is None:
                continue
            first_size, location = origin.setdefault(int(symbol[1]), (size, f"{name}[{axis}]"))
            if first_size != size:
                raise InputError(
                    f"{open_names[int(symbol[1])]} is {size} here and {first_size} in {location}",
                    place=f"input {name!r}, axis {axis}",
                )
    sizes = tuple(origin[i][0] for i in range(len(open_sizes.symbols)))
    if not open_sizes.serves(sizes):
        named = ", ".join(f"{n}={s}" for n, s in zip(open_names, sizes, strict=True))
        raise InputError(f"the program is not for {named}", next_step=COMPILE)
    return sizes
