"""Judging again what a record says, and saying what changed since.

A record carries a recipe: the command's options, the SHA-256 of every file that was read (the
model, the subject, given inputs, images), and of the network that the model file meant. Inputs are
not stored in the record. Files are looked for where they lay, relative to the folder of the replay,
and then beside the record; one that is gone or holds other bytes ends the replay with its name.
Versions of packages may differ: they are told, because they may be the answer.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from verax.base.errors import InputError, UsageError
from verax.base.storage.reading import plain_bytes
from verax.ir.graph import Graph
from verax.records import agreement, alignment, verdict
from verax.records.agreement import Agreement
from verax.records.alignment import Alignment
from verax.records.codec import read_plain
from verax.records.environment import file_hash
from verax.records.verdict import Verdict

Record: TypeAlias = Verdict | Alignment | Agreement
READERS: Mapping[str, Callable[[str], Record]] = {
    **dict.fromkeys((verdict.SCHEMA, verdict.WITHOUT_NETWORK), Verdict.from_json),
    **dict.fromkeys((alignment.SCHEMA, alignment.WITHOUT_NETWORKS), Alignment.from_json),
    **dict.fromkeys((agreement.SCHEMA, agreement.WITHOUT_NETWORK), Agreement.from_json),
}
OPTIONS, MEANING, FILE = "options", "network SHA-256", "SHA-256 of "
"""Keys of a recipe in a record's `replay`; FILE is followed by the path."""
MOST_BYTES = 1 << 30
"""Of a record: one of a large network, judged node by node, has some megabytes."""


@dataclass(frozen=True)
class ReplayOptions:
    """How a record was made: options by name (as JSON has them; nobody has looked at them), hashes
    of the files by path as it was given, and the hash of the network."""

    options: Any
    files: Mapping[str, str] = field(default_factory=dict)
    network: str = ""

    def to_text(self) -> dict[str, str]:
        """The recipe as a record holds it."""
        return {
            OPTIONS: json.dumps(self.options, sort_keys=True),
            MEANING: self.network,
            **{FILE + path: digest for path, digest in self.files.items()},
        }

    @staticmethod
    def from_text(text: Mapping[str, str], location: str) -> ReplayOptions:
        """Read `to_text`. Raises `UsageError` for a record that was made without a recipe."""
        try:
            options = read_plain(text[OPTIONS])
        except (KeyError, UsageError) as error:
            raise UsageError(
                "the record does not say how it was made",
                place=location,
                next_step="replay records of `verax check --json`; those made in Python hold "
                "arrays that no file has",
            ) from error
        files = {k.removeprefix(FILE): v for k, v in text.items() if k.startswith(FILE)}
        return ReplayOptions(options, files, text.get(MEANING, ""))

    def located(self, folder: Path) -> dict[str, str]:
        """Where each file lies now, by its recorded path. folder: of the record.

        Raises `InputError` naming the file that is gone or has changed.
        """
        new_paths = {}
        for path, digest in self.files.items():
            candidates = [p for p in (Path(path), folder / Path(path).name) if os.path.exists(p)]
            if not candidates:
                raise InputError(
                    "a file that the record was made from is gone",
                    place=path,
                    next_step="put it back where it was, or beside the record",
                )
            hashes = [_hash(p) for p in candidates]
            same = [p for p, found_hash in zip(candidates, hashes) if found_hash == digest]
            if not same:
                raise InputError(
                    "a file is not the one that the record was made from: its SHA-256 was "
                    f"{digest[:12]} and is {hashes[0][:12]}",
                    place=str(candidates[0]),
                    next_step="check it anew without --replay, or find the old file",
                )
            new_paths[path] = str(same[0])
        return new_paths


def _hash(path: Path) -> str:
    """Of a file that is there. Raises `InputError` when it cannot be read."""
    try:
        return file_hash(path)
    except OSError as error:
        raise InputError(
            f"a file that the record was made from cannot be read: {error.strerror}",
            place=str(path),
        ) from error


def hashes_of(paths: Iterable[str | Path]) -> dict[str, str]:
    """SHA-256 by path, of those paths that exist."""
    return {str(p): file_hash(Path(p)) for p in paths if os.path.exists(p)}


def network_hash(graph: Graph) -> str:
    """SHA-256 of a network's text and constants: the same file may be read differently by another
    version, or have its weights in another file."""
    digest = hashlib.sha256(str(graph).encode())
    for name in sorted(graph.constants):
        digest.update(name.encode())
        digest.update(graph.constants[name].tobytes())
    return digest.hexdigest()


def read_record(path: Path) -> Record:
    """The record in a JSON file. Raises `UsageError` when it is none that can be replayed."""
    try:
        text = plain_bytes(path, "record", limit=MOST_BYTES).decode()
        content = read_plain(text)
    except UnicodeDecodeError as error:
        raise UsageError(f"this is not a record of Verax ({error})", place=str(path)) from error
    schema = content.get("schema") if isinstance(content, dict) else None
    if not isinstance(schema, str) or schema not in READERS:
        raise UsageError(
            f"{schema!a:.80} is no record that can be replayed",
            place=str(path),
            next_step=f"this version replays {', '.join(READERS)}",
        )
    return READERS[schema](text)


def require_same_inputs(old: Record, new: Record) -> None:
    """Raise `InputError` when the same seed and options no longer give the same inputs."""
    before, after = _inputs(old), _inputs(new)
    for name in after.keys() - before.keys():
        raise InputError(
            "the record does not know this input",
            place=name,
            next_step="check it anew without --replay",
        )
    for name in before:
        if before[name] != after.get(name):
            raise InputError(
                f"the input is not the recorded one: its SHA-256 was {before[name][:12]} and is "
                f"{after.get(name, 'missing')[:12]}",
                place=name,
                next_step="; ".join(changed_versions(old, new)) or "check it anew",
            )


def _inputs(record: Record) -> dict[str, str]:
    if isinstance(record, Verdict):
        return {i.name: i.sha256 for i in record.inputs}
    if isinstance(record, Alignment):
        return {k: v.rpartition("SHA-256 ")[2] for k, v in record.drawn.items()}
    return dict(record.hashes)


def changed_versions(old: Record, new: Record) -> list[str]:
    """Packages, machine and system that are not what they were, in words."""
    names = sorted({*old.environment, *new.environment})
    return [
        f"{name} was {old.environment.get(name, 'absent')}, is "
        f"{new.environment.get(name, 'absent')}"
        for name in names
        if old.environment.get(name) != new.environment.get(name)
    ]


def differences(old: Record, new: Record) -> list[str]:
    """What the two records do not share, apart from where they were made, in words; empty for the
    same answer with the same figures."""
    texts = []
    if _answer(old) != _answer(new):
        texts.append(f"the answer was {_answer(old)}, is {_answer(new)}")
    skipped = ("environment", "replay", "kind", "relation", "network", "networks", "errors")
    names = [f.name for f in dataclasses.fields(old) if f.name not in skipped]
    if type(old) is type(new):
        changed = [n for n in names if getattr(old, n) != getattr(new, n)]
        if changed:
            texts.append(f"other figures or words in {', '.join(changed)}")
    return texts


def _answer(record: Record) -> str:
    return str(record.relation if isinstance(record, Alignment) else record.kind)


def same_answer(old: Record, new: Record) -> bool:
    """Whether both give one answer and blame the same nodes."""
    if _answer(old) != _answer(new) or type(old) is not type(new):
        return False
    if isinstance(old, Verdict) and isinstance(new, Verdict):
        return [b.value for b in old.blame] == [b.value for b in new.blame]
    return True
