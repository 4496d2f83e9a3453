"""The backend "verax_judge": planted faults of an inner backend are named, honest ones are not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from verax.base.errors import UsageError
from verax.records.verdict import Kind

torch = pytest.importorskip("torch", reason="torch is not installed")
nn, F = torch.nn, torch.nn.functional
import verax.torch as vt  # noqa: E402  (needs torch)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.compiler.reset()
    vt.reset()
    yield
    torch.compiler.reset()


def drawn(*shape: int, seed: int = 3) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape, np.float32))


class Decoder(nn.Module):
    """A strided convolution, BatchNorm, and the way back with output_padding."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 8, (3, 5), stride=2, padding=(1, 2))
        self.norm = nn.BatchNorm2d(8)
        self.up = nn.ConvTranspose2d(8, 4, 3, stride=2, padding=1, output_padding=1)

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.norm(self.down(x)))
        return torch.sigmoid(self.up(y))


def decoder(seed: int = 5) -> Any:
    torch.manual_seed(seed)
    net = Decoder().eval()
    net.norm.running_var.copy_(drawn(8, seed=seed).abs() * 0.01 + 0.002)
    net.norm.running_mean.copy_(drawn(8, seed=seed + 1))
    return net


def wrapped(change: Callable[[Any], None], inner: str = "eager") -> Callable[..., Any]:
    """An inner backend whose graphs are changed first, as a faulty pass of it would."""

    def broken(graph: Any, arguments: Any) -> Any:
        for node in graph.graph.nodes:
            change(node)
        graph.recompile()
        return torch._dynamo.lookup_backend(inner)(graph, arguments)

    return broken


def called(node: Any, name: str) -> bool:
    return node.op.startswith("call") and getattr(node.target, "__name__", "") == name


def wrong_epsilon(node: Any) -> None:
    if called(node, "batch_norm"):
        node.args = (*node.args[:7], 1e-3)


def dropped_output_padding(node: Any) -> None:
    """The row and column that output_padding adds are there, but not computed."""
    if called(node, "conv_transpose2d"):
        node.args = (*node.args[:5], (0, 0), *node.args[6:])
        graph = node.graph
        with graph.inserting_after(node):
            padded = graph.call_function(F.pad, (node, (0, 1, 0, 1)))
        padded.meta = dict(node.meta)
        node.replace_all_uses_with(padded, delete_user_cb=lambda user: user is not padded)


def swapped_pads(node: Any) -> None:
    """Both ends of each axis are the other's: a roll of what is read."""
    if called(node, "conv2d"):
        graph, args = node.graph, node.args
        with graph.inserting_before(node):
            padded = graph.call_function(F.pad, (args[0], (4, 0, 2, 0)))
        node.args = (padded, *args[1:4], (0, 0), *args[5:])


PLANTED = {
    "wrong epsilon": (wrong_epsilon, "batch_norm", "epsilon", "self.norm"),
    "dropped output_padding": (dropped_output_padding, "conv_transpose2d", "output_padding", "up"),
    "swapped pads": (swapped_pads, "conv2d", "pad", "self.down"),
}


@pytest.mark.slow
@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_fault_of_inductor_is_named(planted: str) -> None:
    must_be_named(planted, "inductor")


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_fault_is_named_with_graph_node_cause_and_line(planted: str) -> None:
    must_be_named(planted, "eager")


def must_be_named(planted: str, inner: str) -> None:
    change, node, cause, line = PLANTED[planted]
    net, x = decoder(), drawn(2, 3, 12, 14)
    seen = torch.compile(net, backend="verax_judge", options={"inner": wrapped(change, inner)})
    with torch.no_grad():
        seen(x)
    (found,) = vt.report().mistakes
    (blame,) = found.verdict.blame
    assert blame.node.startswith(node)
    words = " ".join(e.words + e.hypothesis for e in blame.explanations)
    assert cause in words.replace("eps ", "epsilon ")
    assert any("test_judging.py" in w and line in w for w in found.where)
    assert "graph 0" in str(vt.report()) and "guilty" in str(vt.report())


def test_what_the_inner_backend_gives_is_handed_on_unchanged() -> None:
    net, x = decoder(), drawn(2, 3, 12, 14)
    seen = torch.compile(net, backend="verax_judge", options={"inner": "eager"})
    with torch.no_grad():
        assert torch.equal(seen(x), net(x))
    (found,) = vt.report().verdicts
    assert found.kind in (Kind.rounding, Kind.identical)


class Drawn(nn.Module):
    """An architecture drawn from a seed."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        rng = np.random.default_rng(seed)
        torch.manual_seed(seed)
        channels, parts, size = 3, [], 13
        for _ in range(int(rng.integers(1, 5))):
            new, kernel = int(rng.integers(2, 9)), int(rng.integers(1, 4))
            stride, padding = int(rng.integers(1, 3)), int(rng.integers(0, kernel))
            if size + 2 * padding < kernel:
                break
            size = (size + 2 * padding - kernel) // stride + 1
            parts += [nn.Conv2d(channels, new, kernel, stride, padding)]
            if rng.random() < 0.5:
                parts += [nn.BatchNorm2d(new) if rng.random() < 0.6 else nn.GroupNorm(1, new)]
            parts += [(nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Hardswish)[rng.integers(5)]()]
            channels = new
        self.body = nn.Sequential(*parts)
        self.head = nn.Linear(channels, int(rng.integers(2, 7)))
        self.attends = bool(rng.random() < 0.3)

    def forward(self, x: Any) -> Any:
        y = self.body(x)
        if self.attends:
            tokens = y.flatten(2).transpose(1, 2)
            y = F.scaled_dot_product_attention(tokens, tokens, tokens).mean(1)
        else:
            y = y.mean((2, 3))
        return self.head(y).softmax(-1)


def must_be_silent(seed: int, inner: str) -> None:
    torch.compiler.reset()
    vt.reset()
    net = Drawn(seed).eval()
    options = {"inner": inner, "budget": 1e6}
    with torch.no_grad():
        torch.compile(net, backend="verax_judge", options=options)(drawn(2, 3, 13, 17, seed=seed))
    (graph,) = vt.report()
    assert graph.verdicts, graph.notes
    assert graph.verdicts[0].kind in (Kind.rounding, Kind.identical), str(graph)


@pytest.mark.parametrize("seed", range(12))
def test_honest_graphs_are_not_accused(seed: int) -> None:
    must_be_silent(seed, "eager")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200))
def test_two_hundred_honest_graphs_are_not_accused(seed: int) -> None:
    must_be_silent(1000 + seed, "inductor" if seed % 20 == 0 else "eager")


def test_training_is_judged_forward() -> None:
    net = decoder().train()
    seen = torch.compile(net, backend="verax_judge", options={"inner": "aot_eager"})
    for seed in (3, 4):
        seen(drawn(2, 3, 12, 14, seed=seed)).square().sum().backward()
    kinds = [v.kind for v in vt.report().verdicts]
    assert len(kinds) == 2 and set(kinds) <= {Kind.rounding, Kind.identical}
    assert net.down.weight.grad is not None


def test_what_cannot_be_judged_runs_and_is_counted() -> None:
    def strange(x: Any) -> Any:
        return torch.linalg.eigvalsh(x @ x.T)

    x = drawn(3, 4)
    seen = torch.compile(strange, backend="verax_judge", options={"inner": "eager"})
    with torch.no_grad():
        torch.testing.assert_close(seen(x), strange(x))
    (graph,) = vt.report()
    assert graph.unjudged == 1 and "linalg_eigvalsh" in graph.notes[0]


def test_autocast_is_not_judged_and_that_is_said() -> None:
    seen = torch.compile(nn.Linear(5, 3), backend="verax_judge", options={"inner": "eager"})
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert seen(drawn(2, 5)).dtype == torch.bfloat16
    (graph,) = vt.report()
    assert graph.unjudged == 1 and "autocast is on" in graph.notes[0]


def test_rate_and_budget_bound_what_is_judged() -> None:
    net = nn.Linear(5, 3).eval()
    for options, least, most in (({"rate": 0.3}, 1, 15), ({"budget": 1e-9}, 1, 1)):
        torch.compiler.reset()
        vt.reset()
        chosen = {"inner": "eager", **options}
        seen = torch.compile(net, backend="verax_judge", options=chosen)
        with torch.no_grad():
            for seed in range(20):
                seen(drawn(2, 5, seed=seed))
        (graph,) = vt.report()
        assert least <= len(graph.verdicts) <= most
        assert len(graph.verdicts) + graph.unjudged == graph.runs == 20


def test_options_that_make_no_sense_are_refused() -> None:
    for options in ({"rate": 0}, {"budget": -1.0}, {"inner": 3}, {"iner": "eager"}):
        with pytest.raises(UsageError):
            vt.options_of(vt.JudgeOptions, options, None, "verax_judge")
