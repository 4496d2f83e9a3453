"""Options of generating tokens, in a group (`base.option_groups.options`)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypedDict

from verax.base.option_groups.options import RESULT, RUNNING, option, require_seed, require_sound


@dataclass(frozen=True)
class SamplingOptions:
    """How the next token is chosen: of `Generator.generate` and `Generator.stream`.

    temperature: logits are divided by it; 0 takes the likeliest token each time. By default 0, and
    1 where top_k, top_p or seed is given. top_k: only so many of the likeliest tokens can be
    chosen; 0 for all. top_p: only the likeliest tokens that together have this probability can be
    chosen, after top_k; 1 for all. seed: of the random numbers (`verax.generation.sampling` says
    which): one seed gives the same tokens on every machine.
    """

    temperature: float | None = option(
        None,
        "Logits are divided by it; 0: the likeliest token each time. By default 0, and 1 with "
        "--top-k, --top-p or --seed.",
        RESULT,
        "--temperature",
        minimum=0,
    )
    top_k: int = option(
        0, "Choose among so many of the likeliest tokens; 0: all.", RESULT, "--top-k", minimum=0
    )
    top_p: float = option(
        1.0, "Choose among the likeliest tokens of this joint probability.", RESULT, "--top-p"
    )
    seed: int | None = option(
        None, "Of the random numbers: the same tokens on every machine.", RESULT, "--seed"
    )

    def __post_init__(self) -> None:
        if self.temperature is not None:
            is_temperature = math.isfinite(self.temperature) and self.temperature >= 0
            require_sound(is_temperature, "temperature", self.temperature, "0 or more")
        require_sound(_is_count(self.top_k, 0), "top_k", self.top_k, "a whole number, 0 or more")
        require_sound(0 < self.top_p <= 1, "top_p", self.top_p, "above 0 and at most 1")
        if self.seed is not None:
            require_seed(self.seed)

    @property
    def divisor(self) -> float:
        """The temperature that holds."""
        if self.temperature is not None:
            return self.temperature
        return 1.0 if self.top_k or self.top_p < 1 or self.seed is not None else 0.0


class SamplingKeywords(TypedDict, total=False):
    """The fields of `SamplingOptions` as keyword arguments."""

    temperature: float | None
    top_k: int
    top_p: float
    seed: int | None


@dataclass(frozen=True)
class CacheOptions:
    """What a generator has room for: of `Generator`.

    room: tokens of prompt and continuation together; None for what the model's files state, or
    2,048 where a module of PyTorch states nothing. Only the cache of a module takes memory for all
    of it at once. chunk: tokens of a prompt that are given to the model at once; None for 512, or
    64 for a module, whose last chunk is filled up.
    """

    room: int | None = option(
        None, "Tokens of prompt and continuation together.", RUNNING, "--room", minimum=1
    )
    chunk: int | None = option(
        None, "Tokens of a prompt that the model takes at once.", RUNNING, "--chunk", minimum=1
    )

    def __post_init__(self) -> None:
        for name in ("room", "chunk"):
            value = getattr(self, name)
            is_sound = value is None or _is_count(value, 1)
            require_sound(is_sound, name, value, "a whole number, 1 or more")


def _is_count(value: object, minimum: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= minimum
