"""`Recipe`: what decides the numbers of a compiled network, and nothing else.

It follows from the network, its shapes and the options; never from the machine, the number of
threads or a measurement. Equal recipes mean equal bits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from verax.base.printing import OneLine
from verax.records.codec import read_json, to_plain, write_json

SCHEMA = "verax.recipe/1"
BFLOAT16_PRODUCTS = "bfloat16 products"
"""The algorithm of a node whose factors are rounded to bfloat16."""


@dataclass(frozen=True)
class Rewriting:
    """What one pass did that may change numbers.

    notes: its rewrites in words, in order. digest: SHA-256 of the nodes and constants that it made.
    """

    name: str
    notes: tuple[str, ...]
    digest: str


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

    @property
    def sha256(self) -> str:
        """Of what decides numbers: not of the options that led to it, nor of who wrote it."""
        decides = [self.network, self.arithmetic, to_plain(self.rewritings), dict(self.algorithms)]
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
            if a == b:
                continue
            if a is None or b is None:
                return f"the pass {name} rewrites {'nothing' if a is None else 'something'} in it"
            apart = sorted({*a.notes} ^ {*b.notes})
            return f"the pass {name} differs: {apart[0] if apart else 'it makes other numbers'}"
        if dict(self.algorithms) != dict(candidate.algorithms):
            return "other algorithms were chosen"
        return ""

    def to_json(self) -> str:
        """The whole record as JSON text; `from_json` gives an equal record."""
        return write_json(self, SCHEMA)

    @staticmethod
    def from_json(text: str) -> Recipe:
        """Read `to_json`'s text. Raises `UsageError` when it is something else."""
        return read_json(Recipe, text, SCHEMA)
