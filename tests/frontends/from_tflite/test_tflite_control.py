"""IF and WHILE against LiteRT's answers (make_control.py)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import verax
from verax.base.errors import ModelError
from verax.frontends.tflite import load_tflite
from verax.frontends.tflite.reader import CONTROL, Bodies

STORED = Path(__file__).with_name("control.npz")
KEPT = {"choice": {"If"}, "until": {"Loop"}, "counted": set(), "nested": {"Loop"}}
"""What only running decides."""


@cache
def stored() -> dict[str, np.ndarray]:
    with np.load(STORED) as file:
        return dict(file)


@pytest.mark.parametrize("name", sorted(KEPT))
def test_it_gives_what_litert_gives(name: str) -> None:
    found = load_tflite(stored()[name].tobytes())
    assert {n.op.kind for n in found.graph.nodes} & {"If", "Loop"} == KEPT[name]
    exe = verax.compile(found, opt_level=1, threads=1)
    assert not exe.plan.on_reference
    x = stored()["x"]
    (given,) = found.inputs
    for number, array in enumerate((x, -x, x * np.float32(0.1) + np.float32(0.2))):
        right = stored()[f"{name}.answer{number}"]
        for made in (exe.run({given: array}), verax.reference(found, {given: array})):
            (answer,) = made.values()
            np.testing.assert_allclose(answer, right, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize(("depth", "graphs"), [(0, 1), (99, None)])
def test_a_subgraph_that_is_not_there_is_damage(
    depth: int, graphs: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A branch that runs what the file lacks, or itself without end."""
    assert set(CONTROL) == {"IF", "WHILE"}

    def made(self: Bodies, given: list, codes: list, buffers: list, level: int = 0) -> None:
        self.graphs = given[:graphs]
        self.codes, self.buffers, self.depth = codes, buffers, depth + level

    monkeypatch.setattr(Bodies, "__init__", made)
    with pytest.raises(ModelError, match="runs the subgraph"):
        load_tflite(stored()["choice"].tobytes())
