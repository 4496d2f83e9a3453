"""What errors name of a module (its path, the line, the type), and what a notebook shows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import verax
from verax.base.errors import UnsupportedError

torch = pytest.importorskip("torch", reason="torch is not installed")
nn = torch.nn
import verax.torch as vt  # noqa: E402  (needs torch)


def drawn(*shape: int) -> Any:
    return torch.from_numpy(np.random.default_rng(8).standard_normal(shape, np.float32))


class Lacking(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.linalg.svdvals(x)


def test_an_error_names_the_module_and_the_line() -> None:
    net = nn.Sequential(nn.Linear(4, 5), nn.Sequential(nn.ReLU(), Lacking()))
    for call in (verax.load, verax.compile):
        with pytest.raises(UnsupportedError) as found:
            call(net, inputs=drawn(2, 4))
        assert "linalg_svdvals" in found.value.cause
        assert "module 1.1, " in found.value.place
        assert "in forward: return torch.linalg.svdvals(x)" in found.value.place


def test_a_notebook_shows_what_happened() -> None:
    net, x = nn.Sequential(nn.Linear(4, 5), nn.ReLU()), drawn(2, 4)
    with vt.substitute(net, {"0": vt.reference}) as run:
        net(x)
    exe = verax.compile(net, x)
    for shown, said in (
        (run, "1 layers exchanged: identical"),
        (vt.report(), "graphs of torch.compile"),
        (exe.plan, "plan of "),
        (exe, "compiled at O"),
        (verax.load(net, inputs=x), "nodes"),
    ):
        assert said in shown._repr_html_()
