"""Seeded hostile variants of a JSON text: trees with changed leaves and members; broken text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.runtime.vx_mutations import at, change, places

DEEP = "[" * 90_000 + "]" * 90_000
HUGE = ["9" * 401, "-" + "9" * 401, "1e999", "9" * 6000, "NaN", "Infinity", "1" * 30]
NESTED = ("options", "recipe", "certificate")
"""Members whose text is JSON again: replays and the notes of programs keep records so."""


def mutants(text: str, seed: int, count: int) -> Iterator[str]:
    """`count` variants of `text`, which is a JSON object."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        tree = json.loads(text)
        kind = number % 8
        if kind < 3:
            for _ in range(1 + int(rng.integers(3))):
                change(rng, tree)
            yield json.dumps(tree)
        elif kind < 6:
            yield _within(rng, tree)
        elif kind == 6:
            yield _spelled(rng, tree)
        else:
            yield _broken(rng, text)


def _within(rng: np.random.Generator, tree: Any) -> str:
    """A mutant inside a text that is JSON; one of the tree where there is none."""
    inner = [p for p in places(tree) if p and p[-1] in NESTED and isinstance(at(tree, p), str)]
    if not inner:
        change(rng, tree)
        return json.dumps(tree)
    path = inner[int(rng.integers(len(inner)))]
    text = at(tree, path)
    inside = json.loads(text)
    kind = int(rng.integers(4))
    if kind == 0:
        text = _spelled(rng, inside)
    elif kind == 1:
        text = _broken(rng, text)
    else:
        change(rng, inside)
        text = json.dumps(inside)
    at(tree, path[:-1])[path[-1]] = text
    return json.dumps(tree)


def _spelled(rng: np.random.Generator, tree: Any) -> str:
    """A leaf is a number that no type holds, or lists in lists without end."""
    leaves = [p for p in places(tree) if p and not isinstance(at(tree, p), dict | list)]
    path = leaves[int(rng.integers(len(leaves)))]
    at(tree, path[:-1])[path[-1]] = "\0here"
    choices = [*HUGE, DEEP]
    return json.dumps(tree).replace('"\\u0000here"', choices[int(rng.integers(len(choices)))])


def _broken(rng: np.random.Generator, text: str) -> str:
    """Text cut off, or with some characters of others."""
    where = int(rng.integers(1, len(text)))
    kind = int(rng.integers(3))
    if kind == 0:
        return text[:where]
    if kind == 1:
        return text[:where] + chr(int(rng.integers(32, 127))) + text[where + 1 :]
    return text[:where] + text[where + int(rng.integers(1, 40)) :]
