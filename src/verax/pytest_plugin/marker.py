"""What the marker `@pytest.mark.verax(seeds=[...], shapes={...})` asks for: a case for each seed
and each set of shapes, under the name that the test's id shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

NEXT = "write seeds=[0, 1] and shapes={'a': (3, 5)}, or shapes={'wide': {'a': (3, 5)}} for several"


class MarkerError(ValueError):
    """A marker asks for what there is not."""


@dataclass(frozen=True)
class MarkedCase:
    """One run of a test. shapes: by the input's name, or in order; of a model: sizes by symbol."""

    seed: int = 0
    shapes: Any = field(default_factory=dict)


def cases_of(
    keywords: Sequence[Mapping[str, Any]], arguments: Sequence[Sequence[Any]]
) -> dict[str, MarkedCase]:
    """The cases by id, those of each seed together. keywords, arguments: of the markers, the
    closest to the test first, whose seeds and shapes come before those of others.

    Raises `MarkerError`.
    """
    if any(arguments):
        raise MarkerError(f"the marker verax takes keywords alone: {NEXT}")
    unknown = [
        name for keyword_set in keywords for name in keyword_set if name not in ("seeds", "shapes")
    ]
    if unknown:
        raise MarkerError(f"the marker verax has no {unknown[0]!r}: {NEXT}")
    merged = {
        name: value for keyword_set in reversed(keywords) for name, value in keyword_set.items()
    }
    seeds = _seeds(merged["seeds"]) if "seeds" in merged else {"": 0}
    shapes = _shapes(merged["shapes"]) if "shapes" in merged else {"": {}}
    return {
        "-".join(filter(None, (shape_id, seed_id))) or "0": MarkedCase(seed, case)
        for seed_id, seed in seeds.items()
        for shape_id, case in shapes.items()
    }


def _seeds(seeds: Any) -> dict[str, int]:
    listed = list(seeds) if isinstance(seeds, Sequence | range | set) else [seeds]
    for seed in listed:
        if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 1 << 64:
            raise MarkerError(f"{seed!r} is no seed, a whole number of 64 bits, 0 or more: {NEXT}")
    if not listed:
        raise MarkerError(f"there are no seeds: {NEXT}")
    return {f"seed{seed}": seed for seed in listed}


def _shapes(shapes: Any) -> dict[str, Any]:
    """Sets of shapes by their ids: one set, a list of several, or several by their names."""
    if isinstance(shapes, Mapping) and shapes:
        if all(_is_shape(shape) for shape in shapes.values()):
            return {_id(shapes): dict(shapes)}
        sets = {str(name): case for name, case in shapes.items()}
    elif isinstance(shapes, list) and shapes:
        sets = {_id(case): case for case in shapes if _is_set(case)}
        if len(sets) < len(shapes):
            raise MarkerError(f"{shapes!r} holds one set of shapes twice, or what is none: {NEXT}")
    else:
        raise MarkerError(f"{shapes!r} are no shapes: {NEXT}")
    for name, case in sets.items():
        if not _is_set(case):
            raise MarkerError(f"{name!r}: {case!r} is no set of shapes: {NEXT}")
    return sets


def _is_set(case: Any) -> bool:
    values = case.values() if isinstance(case, Mapping) else case
    return isinstance(case, Mapping | tuple) and bool(case) and all(map(_is_shape, values))


def _is_shape(shape: Any) -> bool:
    sizes = shape if isinstance(shape, tuple | list) else (shape,)
    return all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in sizes)


def _id(case: Any) -> str:
    """An id from the shapes themselves: "a=3x5,b=5x7"."""
    if isinstance(case, Mapping):
        return ",".join(f"{name}={_shape_id(shape)}" for name, shape in case.items())
    return ",".join(map(_shape_id, case)) if isinstance(case, tuple) else ""


def _shape_id(shape: Any) -> str:
    return str(shape) if isinstance(shape, int) else "x".join(map(str, shape))
