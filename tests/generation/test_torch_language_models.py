"""Greedy tokens of language models of transformers are PyTorch's, whatever carries the cache."""

from __future__ import annotations

from typing import Any

import pytest

from verax.base.errors import ModelError, UsageError
from verax.generation import Generator

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from benchmarks.generation import MODELS, TOKENS, language_model  # noqa: E402

PROMPTS = [[5, 61, 7, 23, 11], [9, 2, 44]]
QUICK = ("gpt2", "qwen3")


def likeliest(net: Any, prompt: list[int], tokens: int = TOKENS) -> list[int]:
    """What `generate` of transformers gives, with a cache that grows."""
    import transformers

    config = transformers.GenerationConfig(max_new_tokens=tokens, do_sample=False)
    config.pad_token_id = 1
    net.generation_config = transformers.GenerationConfig()
    with torch.no_grad():
        return list(map(int, net.generate(torch.tensor([prompt]), generation_config=config)[0]))[
            len(prompt) :
        ]


def test_64_tokens_are_pytorchs() -> None:
    for name in QUICK:
        same_tokens(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in MODELS if n not in QUICK])
def test_64_tokens_are_pytorchs_of_all_models(name: str) -> None:
    same_tokens(name)


@pytest.mark.parametrize("bits", [8, 4])
def test_64_tokens_of_quantized_weights_are_pytorchs(bits: int) -> None:
    same_tokens("gpt2", bits)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in MODELS if n != "gpt2"])
@pytest.mark.parametrize("bits", [8, 4])
def test_64_tokens_of_quantized_weights_are_pytorchs_of_all_models(name: str, bits: int) -> None:
    same_tokens(name, bits)


def same_tokens(name: str, bits: int = 32) -> None:
    """Tokens are those of PyTorch with the same weights, in float32 or in so many bits."""
    net = plain = language_model(name)
    if bits != 32:
        pytest.importorskip("torchao")
        from .quantized_language_models import quantized

        net = quantized(plain, bits)
    expected = [likeliest(net, p) for p in PROMPTS]
    assert len(set(expected[0])) > 1  # not one token again and again
    generator = Generator(net, room=80, chunk=4, threads=1, cache=False)
    generated = generator.generate(PROMPTS, TOKENS, stop=())
    assert generated.tokens == expected
    (exe,) = generator.decoder.programs
    made = len(exe._programs) + len(exe._open.programs)
    assert made == 2  # for chunks, and for one token
    if bits != 32 and "million" in name:  # smaller weights are read from a cache, as floats
        assert 2 * exe.plan.weight_bytes < sum(p.numel() for p in plain.parameters()) * 4


def test_batches_share_no_cache() -> None:
    net = language_model("llama")
    generator = Generator(net, room=40, chunk=4, threads=1, cache=False)
    expected = [likeliest(net, p, 9) for p in PROMPTS]
    streams = [generator.stream(p, 9, stop=()) for p in PROMPTS]
    steps = list(zip(*streams, strict=True))
    assert [[step[i].tokens[0] for step in steps] for i in (0, 1)] == expected


def test_what_is_no_language_model() -> None:
    with pytest.raises(ModelError, match="no causal language model"):
        Generator(torch.nn.Linear(3, 4))
    with pytest.raises(UsageError, match="room of 24"):
        Generator(language_model("llama"), room=24).generate(PROMPTS[0], 20)
