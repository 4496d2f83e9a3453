"""Compiled programs that come from somebody: signed, unsigned, hostile."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from tests.runtime.test_signature import key_pair
from tests.runtime.vx_mutations import Parts

from .conftest import Cli

needs_cryptography = pytest.mark.skipif(
    importlib.util.find_spec("cryptography") is None,
    reason="needs the optional package cryptography (the extra `sign`)",
)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "image.npy"
    np.save(path, np.random.default_rng(91).random((1, 1, 9, 7), np.float32))
    return path


@needs_cryptography
def test_a_fleet_runs_what_it_trusts(cli: Cli, tiny: Path, image: Path, tmp_path: Path) -> None:
    private, public = key_pair(tmp_path, "ours")
    _, theirs = key_pair(tmp_path, "theirs")
    signed, plain = tmp_path / "signed.vx", tmp_path / "plain.vx"
    facts = tmp_path / "facts.json"
    made = cli("compile", tiny, "-o", signed, "--shape", "n=1", "--sign", private, "--json", facts)
    assert made.code == 0
    assert json.loads(facts.read_text())["signed_by"] in made.out
    assert cli("compile", tiny, "-o", plain, "--shape", "n=1").code == 0
    given = ("--input", f"image={image}")
    assert cli("run", signed, *given, "--trust-key", public, "--threads", 2).code == 0
    assert cli("run", signed, *given).code == 0
    for program, key, words in (
        (plain, public, "is not signed"),
        (signed, theirs, "is signed by the key"),
        (signed, private, "the public one"),
        (signed, tmp_path / "none", "cannot read the key"),
        (tiny, public, "compiled programs can be"),
    ):
        refused = cli("run", program, *given, "--trust-key", key)
        assert (refused.code, refused.out) == (2, "")
        assert words in refused.err


@needs_cryptography
def test_a_bad_key_is_said_before_the_work(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    _, public = key_pair(tmp_path, "ours")
    refused = cli("compile", tiny, "-o", tmp_path / "net.vx", "--shape", "n=1", "--sign", public)
    assert refused.code == 2
    assert "the private one is needed" in refused.err
    assert not (tmp_path / "net.vx").exists()


def test_a_hostile_program_is_refused_in_words(
    cli: Cli, tiny: Path, image: Path, tmp_path: Path
) -> None:
    path = tmp_path / "net.vx"
    assert cli("compile", tiny, "-o", path, "--shape", "n=1").code == 0
    parts = Parts(path.read_bytes())
    parts.header["notes"]["verax"] = "[/red]"
    path.write_bytes(parts.assembled())
    assert cli("inspect", path).code == 0
    parts.header["image"]["arena_bytes"] //= 2
    path.write_bytes(parts.assembled())
    for command in (("run", path, "--input", f"image={image}"), ("inspect", path)):
        refused = cli(*command)
        assert refused.code == 2
        assert "no intact .vx file" in refused.err


def test_the_help_says_what_a_program_is(cli: Cli) -> None:
    assert "machine code, and as trustworthy as its sender" in " ".join(
        cli("run", "--help").out.split()
    )
    assert "machine code" in cli("compile", "--help").out
