"""A machine can be told to behave as a lesser one, and never as one that it is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from verax.base.errors import UsageError
from verax.base.machine import processor

Tell = Callable[[str | None], None]
ZEN4 = {*processor.TARGETS["avx512bf16"][1]}


@pytest.fixture
def tell(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tell]:
    """Of an x86-64 processor with AVX-512 and VNNI, but AVX-VNNI: what VERAX_TARGET says."""
    monkeypatch.setattr(processor, "_processor_features", lambda: frozenset(ZEN4))
    monkeypatch.setattr(processor.platform, "machine", lambda: "x86_64")

    def say(name: str | None) -> None:
        monkeypatch.delenv(processor.VARIABLE, raising=False)
        if name is not None:
            monkeypatch.setenv(processor.VARIABLE, name)
        processor._features.cache_clear()

    yield say
    processor._features.cache_clear()


@pytest.mark.parametrize(
    ("said", "best"),
    [(None, "avx512bf16"), ("", "avx512bf16"), ("host", "avx512bf16"), ("avx512", "avx512"),
     ("avx512vnni", "avx512vnni"), ("avx2", "avx2")],
)  # fmt: skip
def test_the_best_target_is_the_one_that_is_asked_for(
    tell: Tell, said: str | None, best: str
) -> None:
    tell(said)
    assert processor.best_target() == best
    assert processor.runs_here("avx2")
    assert processor.runs_here("avx512") == best.startswith("avx512")


@pytest.mark.parametrize("said", ["avxvnni", "neon", "aarch64", "pentium"])
def test_what_the_processor_does_not_have_is_refused_by_name(tell: Tell, said: str) -> None:
    tell(said)
    with pytest.raises(UsageError, match=f"'{said}', which VERAX_TARGET asks for") as refused:
        processor.best_target()
    assert refused.value.next_step.endswith(
        "choose one of host, avx512bf16, avx512vnni, avx512, avx2"
    )
