"""What workers are asked to do in the tests of the pool: named, as all that they run."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from verax.base.errors import InputError
from verax.distributed import fetch
from verax.distributed.contents import host_name


def double(number: float) -> float:
    return 2 * number


def echo(value: Any) -> Any:
    return value


def nap(seconds: float) -> list[Any]:
    time.sleep(seconds)
    return [seconds, host_name()]


def nap_longer_on_a(seconds: float) -> list[Any]:
    return nap(seconds * (4 if host_name().endswith("(a)") else 1))


def read(reference: Any) -> list[str]:
    path = fetch(reference)
    texts = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    return [host_name(), path.name, *(p.read_text() for p in texts)]


def raise_error(kind: str) -> None:
    if kind == "ours":
        raise InputError("three is no shape", place="input x", next_step="give two")
    raise ZeroDivisionError(kind)


def kill_worker(task: dict[str, Any]) -> int:
    """Dies as often as the task says; it counts in a file."""
    counter = Path(task["file"])
    with open(counter, "a") as stream:
        stream.write("x")
    if counter.stat().st_size <= task["deaths"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


def count_company(task: dict[str, Any]) -> int:
    """How many others were at work when it began; it may die the first time."""
    note = Path(task["folder"]) / str(task["name"])
    first = Path(task["folder"] + "-first")
    company = len(list(note.parent.iterdir()))
    note.touch()
    if task["dies"] and not first.exists():
        first.touch()
        note.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.2)
    note.unlink()
    return company


def not_plain(_: Any) -> object:
    return object()


class Adder:
    """An actor that adds up."""

    def __init__(self, settings: dict[str, Any]) -> None:
        if settings.get("refuse"):
            raise InputError("no such sum")
        self.total = settings["total"]

    def add(self, number: int) -> int:
        self.total += number
        return int(self.total)

    def surroundings(self, _: None) -> dict[str, Any]:
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        return {"cores": cores, "target": os.environ.get("VERAX_TARGET", "")}

    def environment(self, name: str) -> str:
        return os.environ.get(name, "")

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def die(self, _: None) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def fail(self, message: str) -> None:
        raise KeyError(message)
