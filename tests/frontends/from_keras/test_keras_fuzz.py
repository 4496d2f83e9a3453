"""Damaged Keras files: every one is a model or a clear error, in bounded time and memory.

Bytes are mutated in files of both kinds, and in the members of .keras archives with their checksums
put right again; so are single values of the configuration.
"""

from __future__ import annotations

import io
import json
import struct
import time
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from tests.frontends.from_keras.test_keras_answers import stored

from verax.base.errors import VeraxError
from verax.frontends.keras import load_keras
from verax.ir.graph import Graph

SECONDS = 5.0
"""Most processor time that one small damaged file may take."""
VICTIMS = ("network shared_and_nested", "graph detector", "graph LSTM", "graph TimeDistributed")
ODD: tuple[Any, ...] = (
    None, True, 0, -1, 3, 2**40, 10**400, 1e308, "", "x", "same", [], [[]], [0, 0, 0], ["x0", 0, 0],
    {}, {"class_name": "Dense"}, {"class_name": "__keras_tensor__", "config": {}},
)  # fmt: skip
"""What a value of the configuration may become."""


def outcome(data: bytes) -> bool:
    """Whether `data` is a model; anything but a model or a `VeraxError` fails the test."""
    start = time.process_time()
    try:
        assert isinstance(load_keras(data).graph, Graph)
        return True
    except VeraxError as error:
        assert error.cause
        return False
    finally:
        assert time.process_time() - start < SECONDS


def mutated(rng: np.random.Generator, data: bytes) -> bytes:
    """Some bytes of the file turned into other ones, or the end cut off."""
    copy = bytearray(data)
    if rng.random() < 0.1:
        return bytes(copy[: int(rng.integers(len(copy)))])
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(copy)))
        word = int(rng.choice([0, 1, 2**31 - 1, 2**32 - 1, len(copy), int(rng.integers(2**32))]))
        size = int(rng.integers(1, 5))
        copy[at : at + size] = struct.pack("<I", word)[:size][: len(copy) - at]
    return bytes(copy)


def members_of(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return {name: file.read(name) for name in file.namelist()}


def zipped(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)
    return stream.getvalue()


def inside(rng: np.random.Generator, data: bytes) -> bytes:
    """A .keras archive of which one member is mutated, mostly the weights."""
    members = members_of(data)
    name = "config.json" if rng.random() < 0.3 else "model.weights.h5"
    return zipped({**members, name: mutated(rng, members[name])})


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """(container, key) of everything in a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in list(items):
        yield value, key
        if isinstance(part, dict | list):
            yield from places(part)


def misconfigured(rng: np.random.Generator, data: bytes) -> bytes:
    """A .keras archive with a few values of its configuration exchanged, or left out."""
    members = members_of(data)
    config = json.loads(members["config.json"])
    for _ in range(int(rng.integers(1, 3))):
        found = list(places(config))
        container, key = found[int(rng.integers(len(found)))]
        choice = int(rng.integers(len(ODD) + 1))
        if choice == len(ODD):
            del container[key]
        else:
            container[key] = ODD[choice]
    return zipped({**members, "config.json": json.dumps(config).encode()})


WAYS: dict[str, tuple[str, Callable[[np.random.Generator, bytes], bytes]]] = {
    "h5": ("file.h5", mutated),
    "keras": ("file.keras", mutated),
    "members": ("file.keras", inside),
    "configuration": ("file.keras", misconfigured),
}


def fuzz(way: str, count: int) -> None:
    form, change = WAYS[way]
    rng = np.random.default_rng(count)
    outcomes = []
    for i in range(count):
        data = stored()[VICTIMS[i % len(VICTIMS)]][form].tobytes()
        outcomes.append(outcome(change(rng, data)))
    assert not all(outcomes)
    assert any(outcomes) or way == "keras"  # whose members have checksums


@pytest.mark.parametrize("way", WAYS)
def test_damaged_files(way: str) -> None:
    fuzz(way, 40)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_thousands_of_damaged_files(way: str) -> None:
    fuzz(way, 5000)


def test_members_of_other_names_are_not_touched() -> None:
    """Paths that lead out of the archive, pickles, code: only three members are ever read."""
    members = members_of(stored()["graph LSTM"]["file.keras"].tobytes())
    extra = {"../../escape": b"x", "/etc/escape": b"x", "code.pkl": b"cos\nsystem\n(S'true'\ntR."}
    assert outcome(zipped({**members, **extra}))
