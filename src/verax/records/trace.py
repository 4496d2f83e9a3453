"""`Rewrite`: one rewrite of a pass, by which it is selected, left out or reported as faulty.

`Trace`: where each value of a graph went, never found by matching names, and the rewrites done.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from verax.base.printing import OneLine


@dataclass(frozen=True)
class Rewrite:
    """One rewrite of a pass, or one decision behind the passes.

    id: the pass and the node (or value) that it rewrote, `fold_scales@conv1`; with `#2` and so on
    for further rewrites of the same node. It follows from the graph alone. pass_name: the pass;
    nodes, values: names of the nodes that it replaces and of the values that these compute, in the
    graph that the pass saw; text: what was done, for people.
    """

    id: str
    pass_name: str
    nodes: tuple[str, ...]
    values: tuple[str, ...]
    text: str

    @staticmethod
    def of(
        note: str, subject: str, nodes: Iterable[str] = (), values: Iterable[str] = ()
    ) -> Rewrite:
        """note: "pass: text". subject: the name by which the id tells it from the pass's others."""
        pass_name, _, text = note.partition(": ")
        return Rewrite(f"{pass_name}@{subject}", pass_name, tuple(nodes), tuple(values), text)

    def __str__(self) -> str:
        return f"{self.pass_name}: {self.text}"

    def is_in(self, selection: Collection[str]) -> bool:
        """True if `selection` has its id, or its text as recipes named it before there were ids."""
        return self.id in selection or str(self) in selection

    def in_body(self, field_name: str, node: str, location: str) -> Rewrite:
        """The same rewrite, of the body `field_name` of the node that computes value `node`."""
        return replace(
            self,
            id=self.id + body_suffix(field_name, node),
            text=self.text + body_text(field_name, location),
        )


def body_suffix(field_name: str, node: str) -> str:
    """The end of the ids of rewrites in one body of a node."""
    return f"@{field_name}@{node}"


def body_text(field_name: str, location: str) -> str:
    """The end of their texts."""
    return f" (in {field_name} of {location})"


def numbered(rewrites: Iterable[Rewrite]) -> tuple[Rewrite, ...]:
    """The same rewrites with different ids: a later one of an id that was there gets a number."""
    by_id: dict[str, Rewrite] = {}
    for one in rewrites:
        name, count = one.id, 1
        while name in by_id:
            count += 1
            name = f"{one.id}#{count}"
        by_id[name] = one if name == one.id else replace(one, id=name)
    return tuple(by_id.values())


@dataclass(frozen=True, repr=False)
class Trace(OneLine):
    """Maps a value of the old graph to the value of the new graph that holds the same tensor.

    A value missing from `values` no longer exists (it was fused away or was dead). `records` are
    the single rewrites done, in order. `refused` says which rewrites would have saved time but were
    left out for accuracy, and why.
    """

    values: Mapping[str, str]
    records: tuple[Rewrite, ...] = field(default=())
    refused: tuple[str, ...] = field(default=())

    @property
    def rewrites(self) -> int:
        """How many rewrites were done."""
        return len(self.records)

    @property
    def notes(self) -> tuple[str, ...]:
        """The rewrites in words."""
        return tuple(map(str, self.records))

    def _brief(self) -> str:
        suffix = f", {len(self.refused)} left exact" if self.refused else ""
        return f"{self.rewrites} rewrites{suffix}"

    def __str__(self) -> str:
        left = [f"kept exact, {note}" for note in self.refused]
        return "\n".join([f"{self.rewrites} rewrites", *self.notes, *left])

    def then(self, later: Trace) -> Trace:
        """This trace followed by `later`."""
        values = {a: later.values[b] for a, b in self.values.items() if b in later.values}
        return Trace(
            values,
            numbered((*self.records, *later.records)) if later.records else self.records,
            self.refused + later.refused,
        )
