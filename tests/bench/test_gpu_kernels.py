"""The page of GPUs' kernels: by operator, without a card."""

from __future__ import annotations

import pytest
from benchmarks.gpu_kernels import ARCHITECTURE, ITEMS, OWN, REFERENCE, kinds_of, main

from verax.compiler.kernels.target import Target


@pytest.mark.parametrize(
    ("operator", "kinds"),
    [("Softmax", {OWN}), ("ScatterElements", {ITEMS, OWN}), ("Unique", {ITEMS, REFERENCE})],
)
def test_what_an_operator_becomes(operator: str, kinds: set[str]) -> None:
    assert kinds_of(operator, Target.cuda(ARCHITECTURE), 3) == kinds


def test_the_page_names_operators_by_their_kernels(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--operators", "Relu", "ScatterElements", "--networks", "--cases", "2"]) == 0
    printed = capsys.readouterr().out
    assert "neighbors** (1): Relu." in printed and "for each work item** (1): Scatter" in printed
