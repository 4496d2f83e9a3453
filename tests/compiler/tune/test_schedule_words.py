"""Schedules in short words: the tile, what is not as by default, and what the rule has instead."""

from __future__ import annotations

import dataclasses

import pytest

from verax.compiler.kernels.convolution.schedule import ConvSchedule
from verax.compiler.kernels.gpu.depthwise import StripSchedule
from verax.compiler.kernels.gpu.tiles import TileSchedule
from verax.compiler.kernels.products.attention_spec import AttentionSchedule
from verax.compiler.place.schedule_words import CONVOLUTION, schedule_words
from verax.compiler.tune.lookup import encoded
from verax.records.tuning import BY_RULE, ROLLED_BACK, TUNED, TunedKernel

RULE = ConvSchedule(blocks=2, rows=3, cols=5)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, "tile 3 x 5 x 32"),
        ({"cols": 1}, "tile 3 x 32"),
        ({"rows": 1, "blocks": 4}, "tile 1 x 5 x 64"),
        ({"unroll": 2, "near": 8}, "tile 3 x 5 x 32, unrolled by 2, prefetch 8"),
        ({"near": 0, "ahead": True}, "tile 3 x 5 x 32, no prefetch, next weights to L2"),
        ({"chunk": 7, "spare": 8}, "tile 3 x 5 x 32, 7 rows of tiles an item, 8 lanes left out"),
        (
            {"filters_outer": True, "pass_blocks": 3, "fetch_block": True},
            "tile 3 x 5 x 32, filters outermost, next input to L1, passes of 48 channels",
        ),
    ],
)
def test_what_is_not_as_by_default_is_named(changed: dict[str, int], words: str) -> None:
    schedule = dataclasses.replace(RULE, **changed)
    assert schedule_words(schedule) == schedule_words(encoded(schedule)) == words


def test_every_field_has_words() -> None:
    """And every value other ones, so that no two schedules read alike."""
    assert {f.name for f in dataclasses.fields(ConvSchedule)} == {
        *("blocks", "rows", "cols"),
        *CONVOLUTION,
    }
    texts = [schedule_words(RULE)]
    for field in dataclasses.fields(ConvSchedule):
        value = getattr(RULE, field.name)
        other = not value if isinstance(value, bool) else value + 2
        texts.append(schedule_words(dataclasses.replace(RULE, **{field.name: other})))
    assert len(set(texts)) == len(texts)


def test_beside_the_rule_what_differs_is_named_on_both_sides() -> None:
    found = dataclasses.replace(RULE, rows=4, unroll=2)
    text = "tile 4 x 5 x 32, unrolled by 2; by rule tile 3 x 5 x 32, unrolled by 4"
    assert schedule_words(found, RULE) == text
    assert schedule_words(encoded(found), encoded(RULE)) == text
    prefetching = dataclasses.replace(RULE, filters_outer=True, near=8)
    plain = dataclasses.replace(RULE, filters_outer=True)
    assert schedule_words(plain, prefetching) == (
        "tile 3 x 5 x 32, filters outermost, prefetch 16; by rule prefetch 8"
    )
    assert schedule_words(RULE, RULE) == "tile 3 x 5 x 32"


def test_attention_and_what_no_history_has() -> None:
    heads, rule = AttentionSchedule(6, 2, 3), AttentionSchedule(4, 2, 3)
    assert (
        schedule_words(heads) == schedule_words(encoded(heads)) == "tile 6 x 32, 3 tiles together"
    )
    assert schedule_words(heads, rule) == "tile 6 x 32, 3 tiles together; by rule tile 4 x 32"
    assert schedule_words(StripSchedule(cols=3)) == str(StripSchedule(cols=3))


def test_what_another_version_wrote_is_shown_as_it_is() -> None:
    assert schedule_words(("ConvSchedule", {"rows": 3})) == "tile 3 x 14 x 32"
    assert schedule_words(("ConvSchedule", {"rows": 3, "z": 1})) == "ConvSchedule(rows=3, z=1)"
    assert schedule_words(("Later", {"a": 1, "b": True})) == "Later(a=1, b=True)"
    assert schedule_words(("ConvSchedule", {"rows": "x", "blocks": 2})) == "tile x x 14 x 32"


def test_a_record_says_what_is_taken() -> None:
    kernel = TunedKernel(
        "k", "conv", 2, 0.3, 7.0, 5.0, "tile 3 x 32, prefetch 16", "tile 6 x 32, prefetch 16", TUNED
    )
    assert kernel.finding == "tile 6 x 32, prefetch 16; by rule tile 3 x 32"
    for outcome in (BY_RULE, ROLLED_BACK):
        assert dataclasses.replace(kernel, outcome=outcome).finding == outcome


def test_a_schedule_of_a_gpu_says_itself_what_it_is() -> None:
    schedule = TileSchedule(pixels=128, filters=32, stages=4)
    text = "tile 128x32 by threads of 8x4, 4 stages of 32 terms"
    assert schedule_words(schedule) == str(schedule) == text
    kind, fields = "TileSchedule", dataclasses.asdict(schedule)
    assert schedule_words((kind, fields)) == text
    del fields["stages"]
    assert schedule_words((kind, fields)).startswith("TileSchedule(blocks=1")
