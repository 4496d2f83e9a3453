"""Schedules in short words, for tables and plans: `tile 1 x 20 x 16, unrolled by 2, prefetch 8`.

A schedule is an object, or its type's name and fields as a history holds them; files and JSON keep
that exact form. Named are the tile and whatever is not as by default; beside a rule's schedule,
also what differs from that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from verax.compiler.kernels.convolution.schedule import ConvSchedule
from verax.compiler.kernels.gpu.attention import HeadSchedule
from verax.compiler.kernels.gpu.depthwise import StripSchedule
from verax.compiler.kernels.gpu.grouped import FilterSchedule
from verax.compiler.kernels.gpu.tiles import TileSchedule
from verax.compiler.kernels.products.attention_spec import AttentionSchedule
from verax.compiler.kernels.registry import Schedule
from verax.compiler.kernels.target import LANES
from verax.records.tuning import beside_rule

Encoded = tuple[str, Mapping[str, Any]]
"""A schedule's type by its name, and its fields."""


def schedule_words(schedule: Schedule | Encoded, rule: Schedule | Encoded | None = None) -> str:
    """A schedule in words; with the rule's, what that has in place of what differs, too."""
    words = words_beside(schedule, rule)
    return words if rule is None else beside_rule(words, words_beside(rule, schedule))


def words_beside(schedule: Schedule | Encoded, baseline: Schedule | Encoded | None = None) -> str:
    """A schedule in words. What differs from `baseline` is named even where it is as by default."""
    kind, fields = _encoded(schedule)
    say = WORDS.get(kind)
    if say is None:  # of a GPU, which says itself what it is
        return _of_gpu(kind, fields) if isinstance(schedule, tuple) else str(schedule)
    own = {**DEFAULTS[kind], **fields}
    if set(own) != set(DEFAULTS[kind]):
        return schedule_text(kind, fields)
    usual = {**DEFAULTS[kind]}
    if baseline is not None and (its := _encoded(baseline))[0] == kind:
        usual = {n: v if {**usual, **its[1]}[n] == own[n] else None for n, v in usual.items()}
    named = {name for name, value in own.items() if value != usual[name]}
    return ", ".join(say(own, named))


def _encoded(schedule: Any) -> Encoded:
    if isinstance(schedule, tuple):
        return schedule
    kind = type(schedule).__name__
    return kind, dataclasses.asdict(schedule) if kind in WORDS else {}


def _of_gpu(kind: str, fields: Mapping[str, Any]) -> str:
    """What a GPU's schedule says of itself; the exact form of one that this version does not
    know."""
    schedule_type = ON_GPUS.get(kind)
    names = () if schedule_type is None else (f.name for f in dataclasses.fields(schedule_type))
    if schedule_type is None or set(fields) != set(names):
        return schedule_text(kind, fields)
    return str(schedule_type(**fields))


def schedule_text(kind: str, fields: Mapping[str, Any]) -> str:
    """A schedule's exact form: its type and fields."""
    return f"{kind}({', '.join(f'{name}={value}' for name, value in fields.items())})"


def _convolution(own: Mapping[str, Any], named: set[str]) -> list[str]:
    """Rows, columns and channels of the tile; columns are left out where there is one."""
    sizes = [own["rows"], *([] if own["cols"] == 1 else [own["cols"]]), own["blocks"] * LANES]
    words = [f"tile {' x '.join(map(str, sizes))}"]
    return words + [say(own[name]) for name, say in CONVOLUTION.items() if name in named]


def _attention(own: Mapping[str, Any], named: set[str]) -> list[str]:
    return [f"tile {own['rows']} x {own['blocks'] * LANES}", f"{own['tiles']} tiles together"]


CONVOLUTION: dict[str, Callable[[Any], str]] = {
    "chunk": lambda n: f"{n} row{'' if n == 1 else 's'} of tiles an item",
    "filters_outer": lambda on: "filters outermost" if on else "pixels outermost",
    "unroll": lambda n: f"unrolled by {n}",
    "near": lambda n: f"prefetch {n}" if n else "no prefetch",
    "ahead": lambda on: "next weights to L2" if on else "next weights not to L2",
    "fetch_block": lambda on: "next input to L1" if on else "next input not to L1",
    "pass_blocks": lambda n: f"passes of {n * LANES} channels" if n else "one pass",
    "spare": lambda n: f"{n} lanes left out" if n else "all lanes",
}
"""Fields of a convolution's schedule beside its tile, in words."""
ON_GPUS: dict[str, Any] = {
    t.__name__: t for t in (TileSchedule, StripSchedule, FilterSchedule, HeadSchedule)
}
"""Types of schedules of GPUs that a history may have."""
WORDS: dict[str, Callable[[Mapping[str, Any], set[str]], list[str]]] = {
    ConvSchedule.__name__: _convolution,
    AttentionSchedule.__name__: _attention,
}
DEFAULTS: dict[str, Mapping[str, Any]] = {
    ConvSchedule.__name__: dataclasses.asdict(ConvSchedule()),
    AttentionSchedule.__name__: dict.fromkeys(
        (f.name for f in dataclasses.fields(AttentionSchedule)), 1
    ),
}
