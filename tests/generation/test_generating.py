"""`Generator`: whatever form a decoder's cache has, the tokens are those that it means."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import verax
from verax.base.errors import InputError, ModelError, UsageError
from verax.base.machine.processor import EMULATED_GPU, PROCESSOR_NAMES
from verax.base.option_groups.compile_options import CompilationOptions
from verax.compiler.growing_executable import GrowingExecutable
from verax.compiler.kernels.target import Target
from verax.generation import Generator
from verax.generation.decoders import DecoderSignature, GrowingCache
from verax.generation.sampling import log_probability

from .decoder_models import PLACES, VOCABULARY, Weights, save, save_genai_config, save_merged

WEIGHTS = Weights.of(7)
PROMPTS = [[5, 7, 3, 9, 11, 2], [4, 2, 8]]
FIRST = [WEIGHTS.continued(p, 12) for p in PROMPTS]
OPTIONS = {"threads": 1, "cache": False}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("decoders")


@pytest.fixture(scope="module")
def generator(folder: Path) -> Generator:
    return Generator(save(folder / "past.onnx", WEIGHTS), **OPTIONS)


def test_the_tokens_are_those_that_the_network_means(generator: Generator) -> None:
    assert len(set(FIRST[0])) > 3  # not one token again and again
    found = generator.generate(PROMPTS[0], 12)
    assert found.tokens == FIRST[:1]
    assert found.ended == ["length"]


def test_prompts_of_different_lengths_are_continued_side_by_side(generator: Generator) -> None:
    assert generator.generate(PROMPTS, 12).tokens == FIRST


def test_a_prompt_in_chunks_gives_the_same_tokens(folder: Path) -> None:
    chunked = Generator(folder / "past.onnx", chunk=2, **OPTIONS)
    assert chunked.generate(PROMPTS, 12).tokens == FIRST


def test_a_growing_past_is_not_compiled_for_each_length(generator: Generator) -> None:
    exe = generator.decoder.programs[0]
    assert isinstance(exe, GrowingExecutable)
    generator.generate(PROMPTS[0], 20)
    made = list(exe._programs), list(exe._open.programs), list(exe._roomy.programs)
    assert made[2]
    generator.generate([1, 2, 3, 4, 5, 6, 7, 8, 9], 40)
    assert (list(exe._programs), exe._open.programs, exe._roomy.programs) == made


def test_a_growing_cache_is_written_in_place_with_the_bits_of_one_handed_on(
    generator: Generator, folder: Path
) -> None:
    """Two sequences of different lengths, then a further batch that takes turns with them."""
    model = verax.load(folder / "past.onnx")
    options = CompilationOptions(opt_level=2, threads=1, background=False)
    handed_on = GrowingCache(DecoderSignature.of(model.graph), None, options, in_place=False)
    bound = GrowingCache(DecoderSignature.of(model.graph), None, options)
    random, places = np.random.default_rng(6), []
    contexts = {(d, b): d.begin(b) for d in (handed_on, bound) for b in (2, 3)}
    for batch, count in ((2, 1), (2, 4), (3, 1), (2, 1), (3, 6), (3, 1), (2, 1), (2, 1), (2, 1)):
        ids = random.integers(0, 29, (batch, count))
        mask = np.ones_like(ids)
        mask[0] = contexts[bound, batch].seen > 0  # padding
        found, want = (d.advance(contexts[d, batch], ids, mask) for d in (bound, handed_on))
        assert found.tobytes() == want.tobytes()
        rows = bound.programs[0]._rows  # type: ignore[attr-defined]
        places.append({v: a.ctypes.data for v, a in rows.buffers.items()})
    assert places[0] == places[3] == places[-1] != places[2] == places[5]
    assert bound.programs[0]._last_roomy is not None  # type: ignore[attr-defined]


def test_sequences_share_weights_and_nothing_else(generator: Generator) -> None:
    first, second = (generator.stream(p, 12) for p in PROMPTS)
    found: list[list[int | None]] = [[], []]
    for one, other in zip(first, second, strict=True):
        found[0].append(one.tokens[0])
        found[1].append(other.tokens[0])
    assert found == FIRST


def test_a_stream_computes_no_more_than_is_taken(generator: Generator) -> None:
    steps = list(islice(generator.stream(PROMPTS[0], 12), 3))
    assert [s.tokens[0] for s in steps] == FIRST[0][:3]


def test_log_probabilities_are_those_of_the_whole_sequence_at_once(
    generator: Generator, folder: Path
) -> None:
    found = generator.generate(PROMPTS[0], 12)
    sequence = [*PROMPTS[0], *found.tokens[0]]
    ids = np.array([sequence])
    given = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    given["position_ids"] = np.arange(len(sequence))[None]
    whole = save(folder / "whole.onnx", WEIGHTS, past=False, cache=False)
    (logits,) = verax.compile(whole, threads=1, opt_level=2).run(given).values()
    expected = [log_probability(logits[0, i], t) for i, t in enumerate(sequence[1:])]
    assert found.log_probabilities[0] == expected[-12:]
    assert generator.score(sequence) == expected


def test_log_probabilities_are_had_after_further_steps(generator: Generator) -> None:
    """They are computed when they are read, from what each token was chosen by."""
    steps = list(generator.stream(PROMPTS, 5))
    found = [list(row) for row in zip(*(s.log_probabilities for s in steps), strict=True)]
    assert found == generator.generate(PROMPTS, 5).log_probabilities


def test_without_a_past_the_tokens_are_the_same(folder: Path) -> None:
    whole = save(folder / "no_cache.onnx", WEIGHTS, past=False, cache=False)
    assert Generator(whole, **OPTIONS).generate(PROMPTS, 12).tokens == FIRST


def test_two_files_as_optimum_writes_them(folder: Path) -> None:
    (folder / "two").mkdir()
    save(folder / "two" / "decoder_model.onnx", WEIGHTS, past=False)
    save(folder / "two" / "decoder_with_past_model.onnx", WEIGHTS)
    found = Generator(folder / "two", **OPTIONS)
    assert len(found.decoder.programs) == 2
    assert found.generate(PROMPTS, 12).tokens == FIRST
    assert found.generate(PROMPTS[1], 12).tokens == FIRST[1:]


def test_a_merged_file(folder: Path) -> None:
    (folder / "merged").mkdir()
    save_merged(folder / "merged" / "decoder_model_merged.onnx", WEIGHTS)
    assert Generator(folder / "merged", **OPTIONS).generate(PROMPTS, 12).tokens == FIRST


def test_a_folder_says_room_and_what_stops(folder: Path) -> None:
    (folder / "genai").mkdir()
    save(folder / "genai" / "model.onnx", WEIGHTS)
    end = FIRST[0][4]
    save_genai_config(folder / "genai", "model.onnx", [end, VOCABULARY - 1])
    found = Generator(folder / "genai", **OPTIONS)
    assert (found.room, found.stop) == (PLACES, (end, VOCABULARY - 1))
    generated = found.generate(PROMPTS, 12)
    where = FIRST[0].index(end)
    assert generated.tokens[0] == FIRST[0][: where + 1]
    assert generated.ended[0] == "stop"
    assert found.generate(PROMPTS, 12, stop=()).tokens == FIRST
    with pytest.raises(UsageError, match=f"room of {PLACES}"):
        found.generate(PROMPTS[0], PLACES)


def test_a_seed_gives_one_text_and_another_another(generator: Generator) -> None:
    texts = [generator.generate(PROMPTS, 12, top_k=20, seed=s).tokens for s in (3, 3, 4)]
    assert texts[0] == texts[1] != texts[2]
    alone = generator.generate(PROMPTS[0], 12, top_k=20, seed=3).tokens
    assert alone == texts[0][:1]  # whoever is beside it
    assert texts[0] != FIRST


def test_sampled_tokens_are_the_same_for_every_target(folder: Path) -> None:
    texts = [
        Generator(folder / "past.onnx", target=target, **OPTIONS)
        .generate(PROMPTS, 12, temperature=0.7, top_p=0.9, seed=11)
        .tokens
        for target in (*PROCESSOR_NAMES, EMULATED_GPU)
        if Target.named(target).runs_here()
    ]
    assert len(texts) > 1
    assert all(t == texts[0] for t in texts)


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ([], "a prompt is empty"),
        ([[1, 2], []], "a prompt is empty"),
        ([1, VOCABULARY], f"no token {VOCABULARY}: it has {VOCABULARY}"),
        ([1, -1], "no token -1"),
    ],
)
def test_prompts_that_are_none(generator: Generator, prompt: list[int], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        generator.generate(prompt, 3)


@pytest.mark.parametrize(
    "prompt", ["Once upon a time", b"abc", [1.5, 2.0], None, 7, [[1], 2], [1, [2]]]
)
def test_text_is_no_prompt(generator: Generator, prompt: Any) -> None:
    with pytest.raises(InputError, match="token ids"):
        generator.generate(prompt, 3)


def test_prompts_are_any_sequences_of_whole_numbers(generator: Generator) -> None:
    expected = generator.generate(PROMPTS, 3).tokens
    assert generator.generate([np.array(p) for p in PROMPTS], 3).tokens == expected
    assert generator.generate(tuple(map(tuple, PROMPTS)), 3).tokens == expected
    assert generator.generate(np.array(PROMPTS[:1]), 3).tokens == expected[:1]


def test_counts_and_stops_are_whole_numbers(generator: Generator, folder: Path) -> None:
    for tokens in (0, 1.5, "5", True):
        with pytest.raises(UsageError, match="tokens are asked for"):
            generator.generate(PROMPTS, tokens)  # type: ignore[arg-type]
    for stop in (5, "5", [1.5]):
        with pytest.raises(UsageError, match="stop is"):
            generator.generate(PROMPTS, 3, stop=stop)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"top_k .* is 1\.5"):
        generator.generate(PROMPTS, 3, top_k=1.5)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"chunk .* is 2\.5"):
        Generator(folder / "past.onnx", chunk=2.5)  # type: ignore[arg-type]


def test_networks_that_are_no_language_models(folder: Path) -> None:
    with pytest.raises(ModelError, match="no input input_ids"):
        Generator(Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx")
    model = onnx.load(folder / "past.onnx")
    del model.graph.output[0]
    onnx.save(model, folder / "headless.onnx")
    with pytest.raises(ModelError, match="no logits"):
        Generator(folder / "headless.onnx")
    (folder / "nothing").mkdir()
    with pytest.raises(UsageError, match="no ONNX decoder in the folder"):
        Generator(folder / "nothing")
    (folder / "broken").mkdir()
    (folder / "broken" / "genai_config.json").write_text("{")
    with pytest.raises(ModelError, match="cannot be read"):
        Generator(folder / "broken")
    (folder / "broken" / "genai_config.json").write_text(
        json.dumps({"model": {"decoder": {"filename": "../past.onnx"}}})
    )
    with pytest.raises(ModelError, match="names no file"):
        Generator(folder / "broken")
