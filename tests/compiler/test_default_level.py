"""What users get by default compiles and errs like float32: 16 networks of the zoo."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from benchmarks.default_level import CORE, LIMIT, Row, measured, zoo

ZOO = zoo()


@pytest.mark.parametrize("name", CORE)
def test_a_network_compiles_in_checked_mode_and_errs_as_o1_does(name: str) -> None:
    row = measured(ZOO[name])
    assert not row.failed
    assert row.ratio <= LIMIT, row


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ZOO if name not in CORE])
def test_every_other_network_does(name: str) -> None:
    row = measured(ZOO[name])
    assert row.holds, row


def test_the_zoo_meets_both_fast_algorithms_and_the_rule() -> None:
    """Else it would show nothing."""
    fast: list[str] = []
    for name in ("pointwise", "unet", "cosine attention"):
        fast += measured(ZOO[name]).fast
    assert {"Strassen", "Winograd F(4x4, 3x3)"} <= {*fast}
    assert measured(ZOO["logarithm"]).refused
    assert not Row("wrong", {}, ratio=LIMIT * 2).holds and not Row("x", {}, failed="y").holds
