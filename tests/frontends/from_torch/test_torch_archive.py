"""Files that are damaged, dishonest or another format: a clear error, never a pickle opened."""

from __future__ import annotations

import io
import json
import pickle
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch_blocks import block
from torch_programs import export, saved, torch

import verax
from verax.base.errors import ModelError, UnsupportedError, VeraxError
from verax.frontends.torch import load_torch


@pytest.fixture(scope="module")
def data() -> bytes:
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten())
    return saved(export(module, (torch.randn(2, 3, 5, 6),)))


def changed(data: bytes, change: Any, compression: int = zipfile.ZIP_STORED) -> bytes:
    """The archive with entries as `change(name, content)` gives them (None leaves one out)."""
    buffer = io.BytesIO()
    old = zipfile.ZipFile(io.BytesIO(data))
    with zipfile.ZipFile(buffer, "w", compression) as new:
        for name in old.namelist():
            content = change(name, old.read(name))
            if content is not None:
                new.writestr(name, content)
    return buffer.getvalue()


def edited(data: bytes, suffix: str, edit: Any) -> bytes:
    """The archive with one JSON entry edited in place."""

    def change(name: str, content: bytes) -> bytes:
        if not name.endswith(suffix):
            return content
        value = json.loads(content)
        edit(value)
        return json.dumps(value).encode()

    return changed(data, change)


class Bomb:
    """Running this pickle would end the test session."""

    def __reduce__(self) -> Any:
        return (exit, (3,))


def test_pickles_are_refused_and_named(tmp_path: Path, data: bytes) -> None:
    plain = tmp_path / "model.pt"
    plain.write_bytes(pickle.dumps(Bomb(), protocol=2))
    with pytest.raises(UnsupportedError, match="never opens pickles"):
        verax.load(plain)
    script = tmp_path / "script.pth"
    with zipfile.ZipFile(script, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Bomb()))
    with pytest.raises(UnsupportedError, match="never opens pickles"):
        verax.load(script)

    def use_pickle(config: Any) -> None:
        next(iter(config["config"].values()))["use_pickle"] = True

    with pytest.raises(UnsupportedError, match="never opens pickles"):
        load_torch(edited(data, "weights_config.json", use_pickle))
    samples = changed(data, lambda n, c: pickle.dumps(Bomb()) if "sample_inputs" in n else c)
    assert load_torch(samples).graph == load_torch(data).graph, "sample inputs are not opened"


def test_weights_that_claim_more_than_there_is_are_refused(data: bytes) -> None:
    def grow(config: Any) -> None:
        meta = next(iter(config["config"].values()))["tensor_meta"]
        meta["sizes"][0] = {"as_int": 10**12}

    with pytest.raises(ModelError, match="its file holds"):
        load_torch(edited(data, "weights_config.json", grow))

    def offset(config: Any) -> None:
        meta = next(iter(config["config"].values()))["tensor_meta"]
        meta["storage_offset"] = {"as_int": -1}

    with pytest.raises(ModelError, match="impossible"):
        load_torch(edited(data, "weights_config.json", offset))


def test_a_zip_bomb_is_refused(data: bytes) -> None:
    bomb = changed(
        data,
        lambda n, c: b" " * (1 << 26) if n.endswith("model.json") else c,
        zipfile.ZIP_DEFLATED,
    )
    with pytest.raises(ModelError, match="claims"):
        load_torch(bomb)


def test_compressed_weights_are_read(data: bytes) -> None:
    other = changed(data, lambda n, c: c, zipfile.ZIP_DEFLATED)
    assert load_torch(other).graph == load_torch(data).graph


def test_unknown_operators_are_listed_at_once_with_counts(data: bytes) -> None:
    def rename(program: Any) -> None:
        nodes = program["graph_module"]["graph"]["nodes"]
        nodes[0]["target"] = "torch.ops.mine.conv.default"
        nodes[1]["target"] = nodes[2]["target"] = "torch.ops.aten.strange.default"

    with pytest.raises(UnsupportedError) as caught:
        load_torch(edited(data, "model.json", rename))
    assert "mine::conv.default (1)" in caught.value.cause
    assert "aten::strange.default (2)" in caught.value.cause


def test_another_schema_is_refused(data: bytes) -> None:
    with pytest.raises(UnsupportedError, match="schema 9"):
        load_torch(edited(data, "model.json", lambda p: p["schema_version"].update(major=9)))


def test_a_recorded_type_that_contradicts_is_refused(data: bytes) -> None:
    def lie(program: Any) -> None:
        values = program["graph_module"]["graph"]["tensor_values"]
        values["relu" if "relu" in values else next(reversed(values))]["sizes"][1] = {"as_int": 5}

    with pytest.raises(ModelError, match="the file records"):
        load_torch(edited(data, "model.json", lie))


@pytest.mark.parametrize("keep", [0, 1, 3, 40, 400, 2000])
def test_truncated_files_are_refused(tmp_path: Path, data: bytes, keep: int) -> None:
    path = tmp_path / "cut.pt2"
    path.write_bytes(data[:keep])
    with pytest.raises(VeraxError):
        verax.load(path)


def mutated(data: bytes, seed: int) -> bytes:
    """Some bytes changed, cut or doubled."""
    random = np.random.default_rng(seed)
    changed = bytearray(data)
    for _ in range(int(random.integers(1, 6))):
        at = int(random.integers(len(changed) or 1))
        kind = random.integers(3)
        if kind == 0 and changed:
            changed[at] = int(random.integers(256))
        elif kind == 1:
            del changed[at : at + int(random.integers(1, 50))]
        else:
            changed[at:at] = changed[at : at + int(random.integers(1, 50))]
    return bytes(changed)


def outcome(data: bytes) -> None:
    """A model or a clear error; anything else fails the test."""
    try:
        load_torch(data)
    except VeraxError as error:
        assert error.cause


@pytest.mark.parametrize("part", range(4))
def test_mutations_give_a_model_or_a_clear_error(data: bytes, part: int) -> None:
    for seed in range(100 * part, 100 * part + 100):
        outcome(mutated(data, seed))


@pytest.mark.parametrize("part", range(4))
def test_mutated_programs_give_a_model_or_a_clear_error(data: bytes, part: int) -> None:
    """Mutations of the JSON alone reach deeper than those of the archive."""
    for seed in range(100 * part, 100 * part + 100):

        def change(name: str, content: bytes, seed: int = seed) -> bytes:
            return mutated(content, seed) if name.endswith(".json") else content

        outcome(changed(data, change))


@pytest.mark.slow
def test_thousands_of_mutations(data: bytes) -> None:
    for seed in range(10_000, 16_000):
        outcome(mutated(data, seed))


@pytest.fixture(scope="module")
def networks() -> list[bytes]:
    """Programs that write in place, through views, under modes, and by index."""
    x = torch.randn(2, 3, 20, 24)

    def under_a_mode(x: Any) -> Any:
        with torch.no_grad():
            y = x.clone()
            y[:, 1:].mul_(2)
            y[y < 0] = 0.5
        first, second = y.split(12, 3)
        second += first
        return y, y.flatten(1).topk(5).indices

    modules = (block("decoding"), block("standardised"), under_a_mode)
    with torch.enable_grad():
        return [saved(export(module, (x,))) for module in modules]


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to everything inside a JSON value."""
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, item in items:
        yield (*path, key)
        yield from leaves(item, (*path, key))


def transplanted(program: Any, seed: int) -> None:
    """A few parts of a program replaced by other parts of it, or by odd values."""
    random = np.random.default_rng(seed)
    paths = [p for p in leaves(program) if "metadata" not in p]
    odd = [None, -1, 2**40, "", [], {}, True, 1e300, "Infinity", {"as_int": -(2**63)}]
    for _ in range(int(random.integers(1, 4))):
        target, source = (paths[int(random.integers(len(paths)))] for _ in range(2))
        try:
            new = (
                odd[int(random.integers(len(odd)))]
                if random.random() < 0.4
                else _at(program, source)
            )
            _at(program, target[:-1])[target[-1]] = json.loads(json.dumps(new))
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change took the place away


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def transplants(networks: list[bytes], seeds: range) -> None:
    for seed in seeds:
        data = networks[seed % len(networks)]
        start = time.process_time()
        outcome(edited(data, "model.json", lambda p, s=seed: transplanted(p, s)))
        assert time.process_time() - start < LONGEST


LONGEST = 20
"""Seconds of processor time that one damaged file may take."""


def test_transplanted_programs_give_a_model_or_a_clear_error(networks: list[bytes]) -> None:
    transplants(networks, range(60))


@pytest.mark.slow
def test_thousands_of_transplants(networks: list[bytes]) -> None:
    transplants(networks, range(10_000, 13_000))
