"""`Generator`: a language model that continues lists of token ids."""

from __future__ import annotations

import functools
import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Unpack

import numpy as np

from verax.base.errors import InputError, UsageError
from verax.base.option_groups.compile_options import CompilationKeywords, CompilationOptions
from verax.base.option_groups.generation_options import (
    CacheOptions,
    SamplingKeywords,
    SamplingOptions,
)
from verax.base.option_groups.keywords import with_options
from verax.base.option_groups.options import changed
from verax.base.printing import OneLine
from verax.base.tensors import is_from
from verax.generation.caches_in_place import CacheInPlace
from verax.generation.decoders import Context, Decoder, DecoderSignature, GrowingCache, NoCache
from verax.generation.folders import networks
from verax.generation.modules import StaticCache
from verax.generation.sampling import log_probability, next_token

LEVEL = 2
"""By default: products of all lengths have one algorithm then, and one program serves them."""

PREPARING = 4
"""Tokens after which a decoder has made its programs."""

Prompts = Sequence[int] | Sequence[Sequence[int]] | np.ndarray


@dataclass(frozen=True)
class TokenStep:
    """One token for each sequence. tokens: ids, None for a sequence that has ended; logits: that
    they were chosen by, float32 [sequences, vocabulary]."""

    tokens: tuple[int | None, ...]
    logits: np.ndarray = field(repr=False, compare=False)

    @functools.cached_property
    def log_probabilities(self) -> tuple[float, ...]:
        """Of these tokens, by the model alone (temperature 1, all tokens); NaN where there is none.
        Computed when they are first read."""
        return tuple(
            float("nan") if token is None else log_probability(logits, token)
            for token, logits in zip(self.tokens, self.logits, strict=True)
        )


@dataclass(repr=False)
class Generation(OneLine):
    """Continuations of prompts, prompts excluded.

    tokens, log_probabilities: a list for each sequence. ended: "stop" where the last token is one
    that stops, "length" otherwise. prefill_seconds: until the first tokens were chosen;
    decode_seconds: of all further ones.
    """

    prompt_tokens: int = 0
    tokens: list[list[int]] = field(default_factory=list)
    log_probabilities: list[list[float]] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0

    @property
    def prefill_rate(self) -> float:
        """Tokens of prompts a second."""
        return self.prompt_tokens / self.prefill_seconds if self.prefill_seconds else 0.0

    @property
    def decode_rate(self) -> float:
        """Tokens a second, of all sequences together, without the first of each."""
        count = sum(len(row) - 1 for row in self.tokens if row)
        return count / self.decode_seconds if self.decode_seconds else 0.0

    def to_json(self) -> dict[str, Any]:
        """All of it, with the rates."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "tokens": self.tokens,
            "log_probabilities": self.log_probabilities,
            "ended": self.ended,
            "prefill_seconds": self.prefill_seconds,
            "decode_seconds": self.decode_seconds,
            "prefill_tokens_per_second": self.prefill_rate,
            "decode_tokens_per_second": self.decode_rate,
        }

    def _brief(self) -> str:
        return (
            f"{', '.join(str(len(row)) for row in self.tokens)} tokens after "
            f"{self.prompt_tokens}; {self.prefill_rate:.1f} tokens/s, then {self.decode_rate:.1f}"
        )


class Generator(OneLine):
    """A compiled language model. Sequences that are generated at the same time, by several
    iterators of `stream`, share its weights; threads take turns."""

    @with_options(CompilationOptions)
    def __init__(
        self,
        model: Any,
        *,
        room: int | None = None,
        chunk: int | None = None,
        options: CompilationOptions | None = None,
        **keywords: Unpack[CompilationKeywords],
    ) -> None:
        """model: an ONNX decoder (a file; a folder as Optimum or ONNX Runtime GenAI's model builder
        write it; what `verax.load` gives), with or without a past, or a causal language model of
        Hugging Face's transformers, which is exported with a static cache. room, chunk: as
        `CacheOptions` says. options: how it is compiled, by default at O2 and not in the
        background; keywords: fields of it, which come before `options`.

        Raises `ModelError` for a network that is no language model, and what `load` and `compile`
        raise.
        """
        compilation = changed(
            options or CompilationOptions(opt_level=LEVEL, background=False), keywords
        )
        self.cache_options = CacheOptions(room, chunk)
        self.stop: tuple[int, ...] = ()
        if is_from(model, "torch") or is_from(model, "transformers"):
            self.decoder: Decoder = StaticCache(model, self.cache_options, compilation)
            self.stop = self.decoder.stop
        else:
            read = networks(model)
            signature = DecoderSignature.of(read.main)
            limit = room or read.room
            if signature.has_room and read.first is None and not compilation.certify:
                self.decoder = CacheInPlace(signature, compilation, limit)
            elif signature.pasts:
                self.decoder = GrowingCache(signature, read.first, compilation, read.pads)
            else:
                self.decoder = NoCache(signature, compilation)
            self.decoder.room = limit
            self.stop = read.stop
        self._name = os.fspath(model) if isinstance(model, str | os.PathLike) else ""

    @property
    def vocabulary(self) -> int:
        """Token ids are below this."""
        return self.decoder.vocabulary

    @property
    def room(self) -> int | None:
        """Tokens of prompt and continuation together; None where nothing limits them."""
        return self.decoder.room

    def _brief(self) -> str:
        return f"{self.vocabulary} tokens, room for {self.room or 'any number'}"

    @with_options(SamplingOptions)
    def generate(
        self,
        prompts: Prompts,
        tokens: int = 64,
        *,
        stop: Sequence[int] | None = None,
        on_step: Callable[[TokenStep], None] | None = None,
        sampling: SamplingOptions | None = None,
        **keywords: Unpack[SamplingKeywords],
    ) -> Generation:
        """Continue prompts by so many tokens at most, and say how fast it went.

        prompts: token ids of one sequence, or a list of sequences; of different lengths, they are
        padded on the left. stop: ids after which a sequence ends, which is kept; by default those
        that the model's files name. sampling: how a token is chosen, by default the likeliest;
        keywords: fields of it, which come before `sampling`.

        Raises `UsageError` for an empty prompt, ids that the model does not know, and more tokens
        than there is room for.
        """
        rows = self._prompts(prompts)
        ends = self.stop if stop is None else _ends(stop)
        generation = Generation(
            sum(map(len, rows)), [[] for _ in rows], [[] for _ in rows], ["length"] * len(rows)
        )
        begin = time.perf_counter()
        steps = self.stream(rows, tokens, stop=ends, sampling=changed(
            sampling or SamplingOptions(), keywords
        ))  # fmt: skip
        for index, step in enumerate(steps):
            if on_step is not None:
                on_step(step)
            if not index:
                generation.prefill_seconds = time.perf_counter() - begin
            for row, (token, chance) in enumerate(zip(step.tokens, step.log_probabilities)):
                if token is not None:
                    generation.tokens[row].append(token)
                    generation.log_probabilities[row].append(chance)
                    generation.ended[row] = "stop" if token in ends else "length"
        generation.decode_seconds = time.perf_counter() - begin - generation.prefill_seconds
        return generation

    @with_options(SamplingOptions)
    def stream(
        self,
        prompts: Prompts,
        tokens: int = 64,
        *,
        stop: Sequence[int] | None = None,
        sampling: SamplingOptions | None = None,
        **keywords: Unpack[SamplingKeywords],
    ) -> Iterator[TokenStep]:
        """As `generate`, one `TokenStep` after another, each as soon as its tokens are chosen."""
        rows = self._prompts(prompts)
        options = changed(sampling or SamplingOptions(), keywords)
        longest = max(map(len, rows))
        if not _is_whole(tokens) or tokens < 1:
            raise UsageError(f"{tokens!r} tokens are asked for", next_step="ask for 1 or more")
        if self.room is not None and longest + tokens > self.room:
            raise UsageError(
                f"a prompt of {longest} tokens and {tokens} more do not fit into the model's room "
                f"of {self.room}",
                next_step="ask for fewer, shorten the prompt, or give room=... if the model was "
                "trained for more",
            )
        ends = frozenset(self.stop if stop is None else _ends(stop))
        return self._steps(rows, tokens, ends, options)

    def prepare(self, prompts: Prompts, tokens: int = 64) -> None:
        """Compile what prompts of these sizes and so many further tokens need: a few tokens are
        generated and dropped. Raises what `stream` raises."""
        for _ in itertools.islice(self.stream(prompts, tokens, stop=()), PREPARING):
            pass

    def score(self, tokens: Sequence[int]) -> list[float]:
        """Natural logarithms of the model's probabilities of a sequence's tokens from the second
        on, each after those before it. Raises `UsageError` as `generate` does."""
        (row,) = self._prompts([list(tokens)])
        if len(row) < 2:
            raise UsageError("one token has nothing before it", next_step="give two or more")
        context, scores = self.decoder.begin(1, len(row)), []
        for token, following in itertools.pairwise(row):
            token_ids = np.array([[token]], np.int64)
            logits = self.decoder.advance(context, token_ids, np.ones_like(token_ids))
            scores.append(log_probability(logits[0], following))
        return scores

    def _steps(
        self,
        rows: list[list[int]],
        count: int,
        ends: frozenset[int],
        options: SamplingOptions,
    ) -> Iterator[TokenStep]:
        batches = self._batches(rows, count)
        logits = np.zeros((len(rows), self.vocabulary), np.float32)
        for members, context in batches:
            logits[members] = self._prefilled(context, [rows[m] for m in members])
        running = [True] * len(rows)
        for position in range(count):
            next_tokens = [
                next_token(logits[row], options, row, position) if is_running else None
                for row, is_running in enumerate(running)
            ]
            yield TokenStep(tuple(next_tokens), logits.copy())
            running = [token is not None and token not in ends for token in next_tokens]
            if position == count - 1 or not any(running):
                return
            for members, context in batches:
                if any(running[m] for m in members):
                    token_ids = np.array([[next_tokens[m] or 0] for m in members], np.int64)
                    logits[members] = self.decoder.advance(
                        context, token_ids, np.ones_like(token_ids)
                    )

    def _batches(self, rows: list[list[int]], count: int) -> list[tuple[list[int], Context]]:
        """Which sequences run together: none, if the model takes one; all, if it takes padded ones;
        otherwise those of each length. count: tokens to follow."""
        if self.decoder.lone:
            groups = [[i] for i in range(len(rows))]
        elif self.decoder.pads:
            groups = [list(range(len(rows)))]
        else:
            lengths = dict.fromkeys(map(len, rows))
            groups = [[i for i, row in enumerate(rows) if len(row) == n] for n in lengths]
        return [
            (group, self.decoder.begin(len(group), max(len(rows[i]) for i in group) + count))
            for group in groups
        ]

    def _prefilled(self, context: Context, rows: Sequence[Sequence[int]]) -> np.ndarray:
        """Logits after the prompts, [batch, vocabulary]."""
        longest = max(map(len, rows))
        token_ids, mask = np.zeros((2, len(rows), longest), np.int64)
        for i, row in enumerate(rows):
            token_ids[i, longest - len(row) :], mask[i, longest - len(row) :] = row, 1
        start = 0
        for size in self.decoder.chunks(context, longest, self.cache_options.chunk):
            columns = slice(start, start + size)
            logits = self.decoder.advance(context, token_ids[:, columns], mask[:, columns])
            start += size
        return logits

    def _prompts(self, prompts: Prompts) -> list[list[int]]:
        """Prompts as lists. Raises `UsageError`, or `InputError` for what is no token id."""
        listed = _listed(prompts, "the prompts")
        is_one = not listed or all(map(_is_whole, listed))
        checked = []
        for index, row in enumerate([listed] if is_one else listed):
            ids = _listed(row, f"prompt {index}")
            if not all(map(_is_whole, ids)):
                raise _no_ids(f"prompt {index}")
            strange = [i for i in ids if not 0 <= i < self.vocabulary]
            if strange:
                raise UsageError(
                    f"the model has no token {strange[0]}: it has {self.vocabulary}",
                    place=f"prompt {index}",
                    next_step="use the tokenizer that the model was trained with",
                )
            checked.append([int(i) for i in ids])
        if not checked or not all(checked):
            raise UsageError("a prompt is empty", next_step="begin with the model's first token")
        return checked


def _is_whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _listed(values: Any, location: str) -> list[Any]:
    """The elements of a sequence, an array or a tensor. Raises `InputError` for anything else."""
    values = values.tolist() if hasattr(values, "tolist") else values
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise _no_ids(location)
    return list(values)


def _no_ids(location: str) -> InputError:
    return InputError(
        "a prompt is a list of token ids, whole numbers",
        place=location,
        next_step="tokenize text first, with the model's own tokenizer",
    )


def _ends(stop: Any) -> tuple[int, ...]:
    """Ids that end a sequence. Raises `UsageError` for what is no list of them."""
    ids = list(stop) if isinstance(stop, Iterable) and not isinstance(stop, str | bytes) else [""]
    if not all(map(_is_whole, ids)):
        raise UsageError(f"stop is {stop!r}", next_step="give a list of token ids: stop=[2]")
    return tuple(int(i) for i in ids)
