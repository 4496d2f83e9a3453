"""Text made token by token: a static cache of keys and values as the program's state.

Language models of Hugging Face's types with random weights. Each is exported with its static cache
(`TorchExportableModuleWithStaticCache`: buffers that the program writes to), loaded, compiled, and
asked for 64 tokens, each the likeliest after those before it. Beside it, on one thread, eager
PyTorch and torch.compile's inductor run the same module; `generate`, with a cache that grows, says
which tokens are right. The quickest of several sequences counts. Writes a table in Markdown;
`docs/generation.md` is its last one.

    python -m benchmarks.generation                      # all of them, minutes
    python -m benchmarks.generation llama gpt2           # some
    python -m benchmarks.generation --rows rows.json --write docs/generation.md
"""

from __future__ import annotations

import copy
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from benchmarks import rows
from benchmarks.honest.architectures import settle

import verax
import verax.torch

FIRST, TOKENS, PLACES = 5, 64, 72
"""The token that begins, how many follow, how many the cache holds."""
SEED, ROUNDS = 9, 3
WORDS = 97
SMALL = {"vocab_size": WORDS, "hidden_size": 64, "intermediate_size": 112, "num_hidden_layers": 3}
SMALL |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128}
SMALL |= {"pad_token_id": 1, "bos_token_id": None, "eos_token_id": None}
OWN_KEYS = {k: v for k, v in SMALL.items() if k != "num_key_value_heads"}
LARGER = {"vocab_size": 8_000, "hidden_size": 512, "intermediate_size": 1_408}
LARGER |= {"num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 4}
GPT2 = {"vocab_size": WORDS, "n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 128}
GPT2 |= {"bos_token_id": None, "eos_token_id": None}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", SMALL),
    "mistral": ("Mistral", SMALL | {"sliding_window": None}),
    "qwen2": ("Qwen2", SMALL),
    "qwen3": ("Qwen3", SMALL | {"head_dim": 16}),
    "gemma": ("Gemma", SMALL | {"head_dim": 16, "tie_word_embeddings": False}),
    "phi3": ("Phi3", SMALL),
    "olmo": ("Olmo", SMALL),
    "gpt2": ("GPT2", GPT2),
    "gpt_neox": ("GPTNeoX", OWN_KEYS),
    "granite": ("Granite", SMALL),
    "llama, 28 million": ("Llama", SMALL | LARGER),
    "gpt2, 31 million": ("GPT2", GPT2 | {"vocab_size": 10_000, "n_embd": 512, "n_layer": 8}
                         | {"n_head": 8}),
}  # fmt: skip
"""Name -> prefix of the class `<prefix>Config`, and what is away from its defaults."""
HEAD = ("model", "million weights", "tokens", "without kernel", "Verax ms a token", "eager",
        "inductor")  # fmt: skip


@dataclass
class Row:
    """One model. same: tokens that are those of eager PyTorch, up to the first that is not; times:
    milliseconds a token of Verax, eager PyTorch and inductor."""

    name: str
    weights: float = 0.0
    same: int = 0
    different: int = 0
    reference: int = 0
    times: Sequence[float] = (float("nan"),) * 3
    wrong: str = ""

    def cells(self) -> list[str]:
        own, *others = self.times
        said = self.wrong or f"{self.same} of {TOKENS} equal, {self.different} kinds"
        return [self.name, f"{self.weights:.2f}", said, str(self.reference), f"{own:.3f}",
                *(f"{t / own:.1f}x" for t in others)]  # fmt: skip


Step = Callable[[int, int], int]
"""(token, its place) -> the likeliest token behind it."""


def sequence(step: Step, tokens: int = TOKENS) -> list[int]:
    """The first token and those that follow."""
    found = [FIRST]
    for place in range(tokens):
        found.append(step(found[-1], place))
    return found


def language_model(name: str) -> Any:
    """The model in evaluation mode, its weights seeded and of the size that trained ones have."""
    import transformers

    prefix, given = MODELS[name]
    torch.manual_seed(SEED)
    config = getattr(transformers, f"{prefix}Config")(**given)
    net = transformers.AutoModelForCausalLM.from_config(config)
    settle(net, [])
    cache = {"batch_size": 1, "max_cache_len": PLACES}
    net.generation_config = transformers.GenerationConfig(
        use_cache=True, cache_implementation="static", max_length=PLACES, cache_config=cache
    )
    return net.eval()


def with_cache(net: Any) -> Any:
    """The module with its cache in buffers, which torch.export takes."""
    from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

    return TorchExportableModuleWithStaticCache(net, 1, PLACES, "cpu")


def of_module(module: Any) -> Step:
    """A step of a live module."""

    def step(token: int, place: int) -> int:
        with torch.no_grad():
            logits = module(input_ids=torch.tensor([[token]]), cache_position=torch.tensor([place]))
        return int(logits[0, -1].argmax())

    return step


def of_program(exe: Any) -> Step:
    """A step of a compiled program, which keeps the cache itself."""
    name = next(iter(exe.outputs))

    def step(token: int, place: int) -> int:
        given = {"input_ids": np.array([[token]]), "cache_position": np.array([place])}
        return int(exe.run(given)[name][0, -1].argmax())

    return step


def program(name: str) -> tuple[Any, Any]:
    """The model's executable, and the language model that it was made from."""
    net = language_model(name)
    inputs = {"input_ids": torch.tensor([[FIRST]]), "cache_position": torch.tensor([0])}
    with torch.no_grad():
        exported = torch.export.export(with_cache(copy.deepcopy(net)), (), inputs, strict=False)
    return verax.compile(verax.load(exported), threads=1), net


def likeliest(net: Any) -> list[int]:
    """What `generate` gives, with a cache that grows."""
    import transformers

    config = transformers.GenerationConfig(max_new_tokens=TOKENS, do_sample=False)
    config.pad_token_id = 1
    net.generation_config = transformers.GenerationConfig()
    with torch.no_grad():
        return list(map(int, net.generate(torch.tensor([[FIRST]]), generation_config=config)[0]))


def measure(name: str) -> Row:
    """The row of one model."""
    row = Row(name)
    exe, net = program(name)
    row.weights = sum(p.numel() for p in net.parameters()) / 1e6
    row.reference = len(exe.plan.on_reference)
    torch.compiler.reset()
    live = with_cache(copy.deepcopy(net))
    steps = [of_program(exe), of_module(live), of_module(torch.compile(live))]
    best = [float("inf")] * len(steps)
    given: list[list[int]] = []
    for _ in range(ROUNDS + 1):  # the first compiles
        exe.reset()
        given = []
        for i, step in enumerate(steps):
            begin = time.perf_counter()
            given.append(sequence(step))
            best[i] = min(best[i], 1e3 * (time.perf_counter() - begin) / TOKENS)
    row.times = tuple(best)
    right = likeliest(net)
    row.same = next((i for i, (a, b) in enumerate(zip(given[0], right)) if a != b), len(right)) - 1
    row.different = len(set(right))
    if given[0] != given[1] or len(right) != TOKENS + 1:
        row.wrong = "not those of eager PyTorch with the same cache"
    return row


def page(found: Sequence[Row]) -> str:
    """The page."""
    faster = [sum(r.times[0] < r.times[i] for r in found) for i in (1, 2)]
    right = sum(r.same == TOKENS and not r.wrong for r in found)
    lines = [
        "# Text, token by token",
        "",
        "Made by `python -m benchmarks.generation`: language models of random weights, exported "
        "with a static cache of keys and values (buffers that the program writes to: state of the "
        "compiled program), asked for 64 tokens, each the likeliest. *tokens*: how many are those "
        "that `generate` of Hugging Face gives in eager PyTorch, and how many different ones there "
        "are among them. One thread; the others' times as multiples of ours: eager PyTorch and "
        "torch.compile's inductor with the same module and the same cache.",
        "",
        f"**{len(found)} models: the tokens of {right} are PyTorch's; faster than eager PyTorch: "
        f"{faster[0]}, than inductor: {faster[1]}.**",
        "",
        f"PyTorch {torch.__version__}, {platform.machine()}.",
        "",
        *rows.table(HEAD, found),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    return rows.run(
        __doc__, Row, lambda asked: rows.among(MODELS, asked) or list(MODELS), measure, page
    )


if __name__ == "__main__":
    raise SystemExit(main())
