"""`Recipe`: what decides the numbers of a compiled network, and nothing else.

It follows from the network, its shapes and the options; never from the machine, the number of
threads or a measurement. Equal recipes mean equal bits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from verax.base.option_groups.deprecation import first_pass, present_pass, present_passes
from verax.base.printing import OneLine
from verax.records.codec import read_json, write_json

SCHEMA = "verax.recipe/2"
WITHOUT_IDS = "verax.recipe/1"
"""The record of before, in which the texts of rewrites decided instead of their ids."""
BFLOAT16_PRODUCTS = "bfloat16 products"
"""The algorithm of a node whose factors are rounded to bfloat16."""


@dataclass(frozen=True)
class Rewriting:
    """What one pass did that may change numbers.

    ids: of its rewrites, in order. notes: the same in words, which decide nothing. digest: SHA-256
    of the nodes and constants that it made. A record that has no ids is one of before.
    """

    name: str
    ids: tuple[str, ...]
    notes: tuple[str, ...]
    digest: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", present_pass(self.name))
        object.__setattr__(self, "ids", present_passes(self.ids))
        object.__setattr__(self, "notes", present_passes(self.notes))

    @property
    def decides(self) -> list[Any]:
        """What of it decides numbers, as JSON has it: under the names that passes had first, so
        that a recipe keeps its hash when they are renamed."""
        rewrites = [first_pass(one) for one in self.ids or self.notes]
        return [first_pass(self.name), rewrites, self.digest]

    def differs(self, other: Rewriting) -> str:
        """The rewrite that only one of two recipes has, in words; empty if both make the same."""
        texts = sorted({*self.notes} ^ {*other.notes})
        if self.ids and other.ids:
            apart = {*self.ids} ^ {*other.ids}
            words = dict(zip((*self.ids, *other.ids), (*self.notes, *other.notes)))
            texts = sorted(words[one] for one in apart)
        elif not texts and self.digest == other.digest:
            return ""
        same = self.ids == other.ids and self.digest == other.digest
        return "" if same else (texts[0] if texts else "it makes other numbers")


@dataclass(frozen=True, repr=False)
class Recipe(OneLine):
    """What decides the numbers of a program.

    network: SHA-256 of the graph that was compiled, with its shapes and weights. arithmetic: the
    version of the promised bits (`numerics.version`). rewritings: by the passes that reassociate or
    approximate, in order. algorithms: of nodes that are not computed in their canonical order, by
    name. opt_level, disable, require, keep_exact, passes, steps, allow: the options it followed
    from; inputs: the types that it holds for; verax: the version that wrote it.
    """

    network: str
    arithmetic: int
    rewritings: tuple[Rewriting, ...] = ()
    algorithms: Mapping[str, str] = field(default_factory=dict)
    opt_level: int = 1
    disable: tuple[str, ...] = ()
    require: tuple[str, ...] = ()
    keep_exact: tuple[str, ...] = ()
    passes: tuple[str, ...] | None = None
    steps: tuple[str, ...] | None = None
    allow: tuple[str, ...] = ()
    inputs: Mapping[str, str] = field(default_factory=dict)
    verax: str = ""

    def __post_init__(self) -> None:
        for options in ("disable", "require", "passes", "steps"):
            if names := getattr(self, options):
                object.__setattr__(self, options, present_passes(names))

    @property
    def sha256(self) -> str:
        """Of what decides numbers: not of the options that led to it, nor of who wrote it."""
        done = [one.decides for one in self.rewritings]
        decides = [self.network, self.arithmetic, done, dict(self.algorithms)]
        text = json.dumps(decides, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def _brief(self) -> str:
        return f"{self.sha256[:16]}, O{self.opt_level}, of network {self.network[:16]}"

    def __str__(self) -> str:
        head = [
            f"recipe {self.sha256}",
            f"network {self.network}, arithmetic {self.arithmetic}, O{self.opt_level}, "
            f"Verax {self.verax}",
            *(f"input {name}: {type_}" for name, type_ in self.inputs.items()),
        ]
        for title, names in (
            ("disabled", self.disable),
            ("required", self.require),
            ("kept exact", self.keep_exact),
            ("allowed", self.allow),
        ):
            head += [f"{title}: {', '.join(names)}"] if names else []
        done = [line for r in self.rewritings for line in (f"{r.name} {r.digest[:16]}", *r.notes)]
        head += done or ["no rewriting that may change a bit"]
        head += [f"{node}: {algorithm}" for node, algorithm in self.algorithms.items()]
        return "\n".join([*head, "every other node: its canonical order"])

    def differs(self, candidate: Recipe) -> str:
        """In what `other` decides numbers differently, in words; empty when it does not."""
        if self.network != candidate.network:
            return "it belongs to another network, or to other shapes or weights"
        if self.arithmetic != candidate.arithmetic:
            return f"its arithmetic is version {self.arithmetic}, not {candidate.arithmetic}"
        mine = {r.name: r for r in self.rewritings}
        theirs = {r.name: r for r in candidate.rewritings}
        for name in dict.fromkeys([*mine, *theirs]):
            a, b = mine.get(name), theirs.get(name)
            if a is None or b is None:
                return f"the pass {name} rewrites {'nothing' if a is None else 'something'} in it"
            apart = a.differs(b)
            if apart:
                return f"the pass {name} differs: {apart}"
        if dict(self.algorithms) != dict(candidate.algorithms):
            return "other algorithms were chosen"
        return ""

    def to_json(self) -> str:
        """The whole record as JSON text; `from_json` gives an equal record."""
        return write_json(self, SCHEMA)

    @staticmethod
    def from_json(text: str) -> Recipe:
        """Read `to_json`'s text, or that of version 1. Raises `UsageError` for anything else."""
        return read_json(Recipe, text, SCHEMA, {WITHOUT_IDS: _with_ids})


def _with_ids(data: Any) -> Any:
    """The plain form of a record of version 1 in that of this one."""
    done = data.get("rewritings")
    if isinstance(done, list) and all(isinstance(one, dict) for one in done):
        data = {**data, "rewritings": [{"ids": [], **one} for one in done]}
    return data
