"""`torch.unique` and its kin against PyTorch: how many there are is known when the program runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import verax  # noqa: E402
from verax.base.errors import UnsupportedError  # noqa: E402
from verax.base.option_groups.settings import Settings  # noqa: E402
from verax.compiler.compile import compile  # noqa: E402
from verax.reference import promised  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
INTEGERS = np.random.default_rng(332).integers(-2, 4, (3, 2, 7))
FLOATS = np.random.default_rng(333).choice(
    np.array([0.5, -0.0, 0.0, 3, -1e-40, np.inf], np.float32), (5, 3)
)
ROWS = INTEGERS[:, 0, :2][[0, 1, 1, 0, 2]]
BOTH = {"return_inverse": True, "return_counts": True}
CASES: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
    "values": (torch.unique, INTEGERS),
    "values of floats": (torch.unique, FLOATS),
    "in no order": (lambda x: torch.unique(x, sorted=False), INTEGERS),
    "places and counts": (lambda x: torch.unique(x, **BOTH), INTEGERS),
    "rows": (lambda x: torch.unique(x, dim=0, **BOTH), ROWS),
    "columns": (lambda x: torch.unique(x, dim=-1, return_counts=True), ROWS.T.copy()),
    "runs": (lambda x: torch.unique_consecutive(x, **BOTH), INTEGERS),
    "runs of one": (torch.unique_consecutive, INTEGERS[:1, :1, :1]),
    "used further": (lambda x: torch.unique(x).sum(), INTEGERS),
}


class Calls(torch.nn.Module):
    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


@pytest.mark.parametrize("name", CASES)
def test_what_is_different_is_what_pytorch_keeps(name: str) -> None:
    function, x = CASES[name]
    tensor = torch.from_numpy(x)
    graph = verax.load(Calls(function), inputs=(tensor,)).graph
    want = function(tensor)
    fed = {graph.inputs[0]: x}
    compiled = compile(graph, Settings(opt_level=1, threads=1)).run(fed)
    for found in (verax.reference(graph, fed), promised(graph, fed), compiled):
        for value, expected in zip(
            graph.outputs, want if isinstance(want, tuple) else (want,), strict=True
        ):
            np.testing.assert_array_equal(found[value], expected.numpy())


def test_runs_of_slices_are_refused_by_name() -> None:
    module = Calls(lambda x: torch.unique_consecutive(x, dim=1))
    with pytest.raises(UnsupportedError, match=r"unique_consecutive.*dim.*flattened tensor"):
        verax.load(module, inputs=(torch.from_numpy(INTEGERS),))
