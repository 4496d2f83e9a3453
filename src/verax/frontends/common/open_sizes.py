"""What to do about sizes that a file leaves open and that its network depends on: each by name, as
the command line takes it, with the sizes that a known family of models is used with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from verax.ir.types import TensorType


@dataclass(frozen=True)
class Family:
    """Models known by their inputs. inputs: dims by name, None for an open one. sizes: what people
    give; why says what these are."""

    name: str
    inputs: Mapping[str, tuple[int | None, ...]]
    sizes: Mapping[str, tuple[int, ...]]
    reason: str


FAMILIES = (
    Family(
        "Silero's voice detector (5 and later)",
        {"input": (None, None), "state": (2, None, 128)},
        {"input": (1, 576), "state": (2, 1, 128)},
        "64 samples of before and 512 new ones, at 16 kHz",
    ),
    Family(
        "Silero's voice detector (4)",
        {"input": (None, None), "h": (2, None, 64), "c": (2, None, 64)},
        {"input": (1, 512), "h": (2, 1, 64), "c": (2, 1, 64)},
        "512 samples at 16 kHz",
    ),
)


def advice(inputs: Mapping[str, TensorType]) -> str:
    """Text that says how to give the sizes that these inputs leave open; "" where none is."""
    open_ones = {name: type_ for name, type_ in inputs.items() if not type_.is_static}
    if not open_ones:
        return ""
    listed = " ".join(f"--shape {name}={_sizes(type_)}" for name, type_ in open_ones.items())
    message = f"the file leaves sizes open: {listed} (a number for each name)"
    for family in FAMILIES:
        if _is_of(family, inputs):
            options = " ".join(f"--shape {k}={_times(v)}" for k, v in family.sizes.items())
            return f"{message}; {family.name} is used with {options}: {family.reason}"
    return message


def _is_of(family: Family, inputs: Mapping[str, TensorType]) -> bool:
    for name, dims in family.inputs.items():
        type_ = inputs.get(name)
        if type_ is None or type_.rank != len(dims) or not type_.dtype.is_float:
            return False
        if any(
            isinstance(d, int) != (expected is not None) for d, expected in zip(type_.dims, dims)
        ):
            return False
        if any(expected is not None and d != expected for d, expected in zip(type_.dims, dims)):
            return False
    return True


def _sizes(type_: TensorType) -> str:
    return "x".join(str(d).upper() if not isinstance(d, int) else str(d) for d in type_.dims)


def _times(sizes: tuple[int, ...]) -> str:
    return "x".join(map(str, sizes))
