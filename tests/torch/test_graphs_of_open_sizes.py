"""Graphs with open sizes: Dynamo traces once, and Verax makes one program."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
nn = torch.nn
import verax.torch as vt  # noqa: E402  (needs torch)
from verax.torch import backend, programs  # noqa: E402


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.compiler.reset()
    vt.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch.compiler.reset()


@pytest.fixture
def known_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be left open."""
    monkeypatch.setattr(programs, "open_graph", lambda graph: None)


def drawn(*shape: int) -> Any:
    return torch.from_numpy(np.random.default_rng(3).standard_normal(shape, np.float32))


def graphs_of_dynamo() -> int:
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


def executables() -> list[Any]:
    """Of every graph that is alive."""
    found = [p.executable for graph in backend._live for p in graph._programs.values()]
    return [e for e in found if e is not None]


class Rows(nn.Module):
    """Sizes as results, in a view, as numbers in an expression, and as the length of a range."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 5)

    def forward(self, x: Any) -> Any:
        n, c, h, w = x.shape
        y = self.linear(x.reshape(n, c, h * w).transpose(1, 2))
        return y / h, h * w, torch.arange(h).float() * w


def test_open_sizes_are_traced_once_and_one_program_is_made() -> None:
    torch.manual_seed(2)
    net = Rows().eval()
    fast = torch.compile(net, backend="verax", dynamic=True)
    with torch.no_grad():
        for shape in ((2, 3, 6, 5), (4, 3, 7, 8), (2, 3, 6, 5), (5, 3, 4, 9)):
            given, wanted = fast(drawn(*shape)), net(drawn(*shape))
            torch.testing.assert_close(given[0], wanted[0])
            torch.testing.assert_close(given[2], wanted[2])
            assert given[1] == wanted[1]
    (graph,) = vt.report()
    assert graphs_of_dynamo() == 1 and (graph.runs, graph.programs) == (4, 1)
    assert [len(e._open.programs) for e in executables()] == [1]


def test_an_axis_that_is_marked_dynamic() -> None:
    torch.manual_seed(2)
    net = nn.Sequential(nn.Linear(5, 3), nn.Tanh()).eval()
    fast = torch.compile(net, backend="verax")
    with torch.no_grad():
        for n in (2, 3, 4):
            x = drawn(n, 5)
            torch._dynamo.mark_dynamic(x, 0)
            torch.testing.assert_close(fast(x), net(x))
    assert graphs_of_dynamo() == 1
    assert [g.programs for g in vt.report()] == [1]
    assert [len(e._open.programs) for e in executables()] == [1]


def test_an_integer_among_the_arguments() -> None:
    def repeated(x: Any, times: int) -> Any:
        return x.repeat(times, 1) * times

    fast = torch.compile(repeated, backend="verax", dynamic=True)
    with torch.no_grad():
        for times in (2, 3, 5):
            x = drawn(times + 1, 4)
            torch.testing.assert_close(fast(x, times), repeated(x, times))
    assert graphs_of_dynamo() == 1


def test_training_with_open_sizes_and_dropout() -> None:
    torch.manual_seed(2)
    net = nn.Sequential(nn.Linear(5, 6), nn.Dropout(0.3), nn.ReLU(), nn.Linear(6, 3))
    fast = torch.compile(net, backend="verax", dynamic=True)
    for n in (4, 6, 9, 4):
        found = []
        for call in (fast, net):
            torch.manual_seed(n)
            loss = call(drawn(n, 5)).square().sum()
            found.append(torch.autograd.grad(loss, list(net.parameters())))
        for given, wanted in zip(*found, strict=True):
            torch.testing.assert_close(given, wanted)
    assert graphs_of_dynamo() == 1
    assert [(g.kind, g.programs) for g in vt.report()] == [("forward", 1), ("backward", 1)]
    assert [len(e._open.programs) for e in executables()] == [1, 1]


def test_a_graph_that_decides_by_its_sizes_gets_a_program_for_each() -> None:
    """`contiguous` of one row is the argument itself, of more rows a copy."""

    def rows_of(x: Any) -> Any:
        return x.t().contiguous(), x * 2

    fast = torch.compile(rows_of, backend="verax", dynamic=True)
    with torch.no_grad():
        for m, n in ((4, 3), (5, 2), (6, 7)):
            x = drawn(m, n)
            for given, wanted in zip(fast(x), rows_of(x), strict=True):
                torch.testing.assert_close(given, wanted)
                assert given.stride() == wanted.stride()


def test_two_sizes_that_are_equal_at_first_are_two_sizes() -> None:
    def outer(x: Any, y: Any) -> Any:
        return x[:, None] * y[None]

    fast = torch.compile(outer, backend="verax")
    with torch.no_grad():
        for m, n in ((5, 5), (5, 7), (8, 4), (6, 6)):
            x, y = drawn(m), drawn(n)
            torch._dynamo.mark_dynamic(x, 0)
            torch._dynamo.mark_dynamic(y, 0)
            torch.testing.assert_close(fast(x, y), outer(x, y))


@pytest.mark.usefixtures("known_sizes")
def test_programs_that_made_room_are_counted() -> None:
    torch.manual_seed(2)
    net = nn.Linear(5, 3).eval()
    fast = torch.compile(net, backend="verax", dynamic=True, options={"programs": 2})
    with torch.no_grad():
        for n in (4, 6, 8, 4):
            torch.testing.assert_close(fast(drawn(n, 5)), net(drawn(n, 5)))
    (graph,) = vt.report()
    assert (graph.programs, graph.dropped) == (4, 2)
    assert "4 programs compiled, 2 dropped for other sizes" in str(graph)
