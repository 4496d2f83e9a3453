"""Decoders with GroupQueryAttention: their caches are written in place, and the bits are those of
the network that is handed its caches back."""

from __future__ import annotations

import threading
from itertools import islice
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.compiler.decoder_graphs import CACHES, VOCABULARY, decoder
from verax.base.errors import InputError, UsageError
from verax.base.option_groups.compile_options import CompilationOptions
from verax.generation import Generator
from verax.generation import caches_in_place as in_place
from verax.generation.caches_in_place import CacheInPlace
from verax.generation.decoders import Decoder, DecoderSignature, GrowingCache
from verax.generation.folders import networks

OPTIONS = CompilationOptions(opt_level=2, threads=1, cache=False, background=False)
PROMPTS = [[5, 7, 3, 19, 11, 2], [4, 2, 8], [9, 1, 22]]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("grouped") / "model.onnx"
    onnx.save(decoder("grouped", batch="batch_size"), path)
    return path


@pytest.fixture(scope="module")
def generator(path: Path) -> Generator:
    generator = Generator(path, options=OPTIONS, room=48)
    assert isinstance(generator.decoder, CacheInPlace)
    return generator


@pytest.fixture(scope="module")
def unbound(path: Path) -> Generator:
    generator = Generator(path, options=OPTIONS, room=48)
    generator.decoder = GrowingCache(
        DecoderSignature.of(networks(path).main), None, OPTIONS, pads=False
    )
    return generator


def steps(decoder: Decoder, counts: tuple[int, ...], seed: int = 3) -> list[np.ndarray]:
    """Logits of two sequences after so many tokens each."""
    random, context = np.random.default_rng(seed), decoder.begin(2, 8)
    ids = [random.integers(0, VOCABULARY, (2, n)) for n in counts]
    return [decoder.advance(context, i, np.ones_like(i)) for i in ids]


def test_the_bits_are_those_of_caches_that_are_handed_back(
    generator: Generator, unbound: Generator
) -> None:
    counts = (5, 1, 1, 7, 1)
    pairs = zip(steps(generator.decoder, counts), steps(unbound.decoder, counts), strict=True)
    assert all(a.tobytes() == b.tobytes() for a, b in pairs)
    found, wanted = (g.generate(PROMPTS, 20, top_k=9, seed=5) for g in (generator, unbound))
    assert found.tokens == wanted.tokens
    assert found.log_probabilities == wanted.log_probabilities


def test_sequences_of_different_lengths_have_the_tokens_that_they_have_alone(
    generator: Generator, path: Path
) -> None:
    """Keys are placed by the number of those before them: a batch is not padded."""
    assert not networks(path).pads
    alone = [generator.generate(p, 12).tokens[0] for p in PROMPTS]
    assert len({tuple(row) for row in alone}) == len(PROMPTS)
    assert generator.generate(PROMPTS, 12).tokens == alone


def test_no_cache_is_copied_or_allocated_at_a_token(generator: Generator) -> None:
    stream = generator.stream(PROMPTS[0], 30)
    next(stream)
    exe = generator.decoder.programs[0]
    places = {v: a.ctypes.data for v, a in exe._state.items()}
    list(stream)
    assert {v: a.ctypes.data for v, a in exe._state.items()} == places


def test_prompts_and_tokens_have_one_program_each(generator: Generator) -> None:
    generator.generate(PROMPTS[0], 9)
    made = [len(e._open.programs) + len(e._programs) for e in generator.decoder.programs]
    generator.generate([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], 30)
    assert [len(e._open.programs) + len(e._programs) for e in generator.decoder.programs] == made
    assert max(made) == 2


def test_the_room_grows_by_doubling(
    path: Path, unbound: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_place, "SMALLEST_ROOM", 8)
    decoder = CacheInPlace(DecoderSignature.of(networks(path).main), OPTIONS, None)
    counts = (5, 1, 1, 1, 1, 4, 1, 5, 1)
    pairs = zip(steps(decoder, counts), steps(unbound.decoder, counts), strict=True)
    assert all(a.tobytes() == b.tobytes() for a, b in pairs)
    assert list(decoder._executables) == [(2, 8), (2, 16), (2, 32)]


def test_streams_that_take_turns_have_caches_of_their_own(generator: Generator) -> None:
    alone = [generator.generate(p, 12).tokens[0] for p in PROMPTS]
    streams = [generator.stream(p, 12) for p in PROMPTS]
    found: list[list[int | None]] = [[] for _ in PROMPTS]
    for _ in range(12):
        for row, stream in zip(found, streams, strict=True):
            row.append(next(stream).tokens[0])
    assert found == alone


def test_a_stream_that_is_given_up_leaves_nothing_behind(generator: Generator) -> None:
    alone = generator.generate(PROMPTS[1], 8).tokens
    list(islice(generator.stream(PROMPTS[0], 20), 5))
    assert generator.generate(PROMPTS[1], 8).tokens == alone


def test_threads_take_turns(generator: Generator) -> None:
    alone = [generator.generate(p, 16).tokens for p in PROMPTS]
    found: list[list[list[int]]] = [[] for _ in PROMPTS]

    def run(index: int) -> None:
        found[index] = generator.generate(PROMPTS[index], 16).tokens

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(PROMPTS))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == alone


def test_a_model_of_one_sequence_takes_several_after_one_another(tmp_path: Path) -> None:
    onnx.save(decoder("grouped"), tmp_path / "lone.onnx")
    lone = Generator(tmp_path / "lone.onnx", options=OPTIONS)
    alone = [lone.generate(p, 5).tokens[0] for p in PROMPTS]
    assert lone.generate(PROMPTS, 5).tokens == alone


def test_what_does_not_fit_is_refused(generator: Generator) -> None:
    with pytest.raises(UsageError, match="room of 48"):
        generator.generate(PROMPTS[0], 43)
    context, ids = generator.decoder.begin(2), np.ones((2, 3), np.int64)
    with pytest.raises(InputError, match="no padding"):
        generator.decoder.advance(context, ids, np.eye(2, 3, dtype=np.int64))


def test_state_is_exchanged_without_a_copy(generator: Generator) -> None:
    generator.generate(PROMPTS[0], 3)
    exe = generator.decoder.programs[0]
    own = exe.state
    taken = exe.exchange_state({})
    assert {v: a.tobytes() for v, a in taken.items()} == {v: a.tobytes() for v, a in own.items()}
    assert not any(a.any() for a in exe.state.values())
    exe.exchange_state(taken)
    assert all(exe._state[v] is taken[v] for v in CACHES)
    with pytest.raises(InputError, match="the network has no state"):
        exe.exchange_state({"cache": np.zeros(3)})
