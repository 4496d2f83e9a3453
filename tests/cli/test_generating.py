"""`verax generate`: token ids as they come."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.generation.decoder_models import VOCABULARY, Weights, save

from .conftest import Cli

WEIGHTS = Weights.of(7)


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("cli") / "decoder.onnx", WEIGHTS)


def test_ids_and_speed_are_shown(cli: Cli, decoder: Path, tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    result = cli("generate", decoder, "--prompt-ids", "5,7,3", "--tokens", 9, "--json", record)
    expected = WEIGHTS.continued([5, 7, 3], 9)
    assert result.code == 0
    assert " ".join(map(str, expected)) in result.out
    assert "prefill: 3 tokens" in result.out and "decode: " in result.out
    written = json.loads(record.read_text())
    assert written["schema"] == "verax.generate/1"
    assert written["tokens"] == [expected]
    assert len(written["log_probabilities"][0]) == 9


def test_sequences_side_by_side_and_what_stops(cli: Cli, decoder: Path) -> None:
    prompts = [[5, 7, 3], [2, 8]]
    expected = [WEIGHTS.continued(p, 6) for p in prompts]
    options = [o for p in prompts for o in ("--prompt-ids", ",".join(map(str, p)))]
    result = cli("generate", decoder, *options, "--tokens", 6, "--stop", "none")
    for index, row in enumerate(expected):
        assert f"{index}: {' '.join(map(str, row))}" in result.out
    end = next(i for i, t in enumerate(expected[0]) if t not in expected[0][:i] and i)
    stopped = cli("generate", decoder, *options[:2], "--tokens", 6, "--stop", expected[0][end])
    assert stopped.out.splitlines()[0].split() == list(map(str, expected[0][: end + 1]))


def test_a_seed_gives_one_text(cli: Cli, decoder: Path) -> None:
    options = ("--prompt-ids", "1,2", "--tokens", 12, "--top-k", 15, "--seed")
    texts = [cli("generate", decoder, *options, s).out.splitlines()[0] for s in (3, 3, 4)]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "there is no prompt"),
        (("--prompt-ids", "a,b"), "no list of token ids"),
        (("--prompt-ids", f"1,{VOCABULARY}"), f"no token {VOCABULARY}"),
        (("--prompt-ids", "1", "--top-p", "2"), "top_p"),
        (("--prompt-ids", "1,2,3", "--room", "8"), "room of 8"),
    ],
)
def test_what_makes_no_sense(cli: Cli, decoder: Path, options: tuple[str, ...], words: str) -> None:
    result = cli("generate", decoder, *options)
    assert result.code == 2
    assert words in result.err


def test_a_network_that_is_no_language_model(cli: Cli, digits: Path) -> None:
    result = cli("generate", digits, "--prompt-ids", "1")
    assert result.code == 2
    assert "no input input_ids" in result.err
