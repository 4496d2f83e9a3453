"""How far the four roads through the house lead: files and rooms that loading, compiling, running
and checking a network enter, and the doors between them.

    PYTHONPATH=old/src python benchmarks/walks.py record old.json
    PYTHONPATH=new/src python benchmarks/walks.py record new.json
    python benchmarks/walks.py compare old.json new.json

Every Python call of a road is observed while it runs. A file counts once it is entered, a room is a
folder of files, a door is a pair of files of which one calls into the other, and a stay is an entry
into a room from another one, counted once for each function that is entered. Smaller is easier to
follow; equal work is assumed, so compare two trees on the same network only. Modules are imported
before, by a first run of each road. The walk depends on the network: `--model` takes another one.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import verax

ROOT = Path(verax.__file__).parent
DIGITS = Path("examples/digits/digits.onnx")
Counts = dict[str, int]


class Observer:
    """The files that are entered, and who calls whom across files, while it is installed."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.doors: set[tuple[str, str]] = set()
        self.stays: set[tuple[str, str, str]] = set()
        self._names: dict[str, str] = {}

    def __enter__(self) -> Observer:
        threading.setprofile(self._observe)
        sys.setprofile(self._observe)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]

    def _name(self, frame: FrameType) -> str:
        """The file of a frame below the package; "" for any other."""
        path = frame.f_code.co_filename
        if path not in self._names:
            self._names[path] = ""
            with suppress(ValueError):
                self._names[path] = Path(path).relative_to(ROOT).as_posix()
        return self._names[path]

    def _observe(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "call":
            return
        name = self._name(frame)
        if not name:
            return
        self.files.add(name)
        caller = frame.f_back
        while caller is not None and not self._name(caller):
            caller = caller.f_back
        above = self._name(caller) if caller is not None else ""
        if above and above != name:
            self.doors.add((above, name))
            if _room(above) != _room(name):
                self.stays.add((_room(above), name, frame.f_code.co_qualname))

    def counts(self) -> Counts:
        """What was observed, by kind."""
        return {
            "files": len(self.files),
            "rooms": len({_room(f) for f in self.files}),
            "doors": len(self.doors),
            "stays": len(self.stays),
        }


def _room(file: str) -> str:
    return file.rpartition("/")[0] or "."


def roads(model: Path) -> Mapping[str, Callable[[], object]]:
    """What is observed, by name. Each can be run again and again."""
    loaded = verax.load(model, shapes={"n": 2})
    shapes = {name: type_.shape for name, type_ in loaded.inputs.items()}
    rng = np.random.default_rng(2003)
    inputs = {name: rng.random(shape, np.float32) for name, shape in shapes.items()}
    exe = verax.compile(loaded, opt_level=3)
    outputs = exe.run(inputs)
    return {
        "load": lambda: verax.load(model, shapes={"n": 2}),
        "compile": lambda: verax.compile(loaded, opt_level=3, cache=False),
        "run": lambda: exe.run(inputs),
        "check": lambda: verax.check(loaded, outputs, inputs),
    }


def record(model: Path) -> dict[str, Counts]:
    """The counts of every road, after a first run that imports what it needs."""
    found: dict[str, Counts] = {}
    for name, road in roads(model).items():
        road()
        with Observer() as observer:
            road()
        found[name] = observer.counts()
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("to", type=Path)
    recording.add_argument("--model", type=Path, default=DIGITS)
    comparing = commands.add_parser("compare")
    comparing.add_argument("old", type=Path)
    comparing.add_argument("new", type=Path)
    given = parser.parse_args(arguments)
    if given.command == "record":
        found = record(given.model)
        given.to.write_text(json.dumps(found, indent=1))
        print(f"the package {ROOT.name} at {verax.__version__}")
        for name, counts in found.items():
            print(f"{name}: " + ", ".join(f"{n} {kind}" for kind, n in counts.items()))
        return 0
    old, new = (json.loads(path.read_text()) for path in (given.old, given.new))
    for name in new:
        pairs = [f"{kind} {old[name][kind]} -> {n}" for kind, n in new[name].items()]
        print(f"{name}: {', '.join(pairs)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
