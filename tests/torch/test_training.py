"""Networks trained through the backend "verax" beside the same ones in eager PyTorch: equal losses
to within rounding, weights too, and dropout with the same random numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
nn, F = torch.nn, torch.nn.functional
import verax.torch as vt  # noqa: E402  (needs torch)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.compiler.reset()
    vt.reset()
    yield
    torch.compiler.reset()


class Convolutions(nn.Module):
    """Every kind of convolution and of pool, BatchNorm, resampling, dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.grouped = nn.Conv2d(8, 12, 3, stride=2, groups=2)
        self.depthwise = nn.Conv2d(12, 12, 3, padding=1, groups=12)
        self.turned, self.head = nn.ConvTranspose2d(12, 6, 2, stride=2), nn.Linear(6, 5)
        self.dropout = nn.Dropout(0.3)

    def forward(self, x: Any) -> Any:
        x = F.max_pool2d(F.relu(self.norm(self.first(x))), 2)
        x = self.turned(self.depthwise(F.gelu(self.grouped(x))))
        x = F.interpolate(F.avg_pool2d(x, 2), scale_factor=2)
        return self.head(self.dropout(F.adaptive_avg_pool2d(x, 1).flatten(1)))


class Words(nn.Module):
    """Embedding, a transformer block with dropout, a layer over the words."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(11, 16), nn.Linear(16, 11)
        self.block = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.1, batch_first=True)

    def forward(self, words: Any) -> Any:
        return self.head(self.block(self.table(words)))


def perceptron() -> Any:
    return nn.Sequential(
        nn.Linear(9, 17), nn.LayerNorm(17), nn.SiLU(), nn.Dropout(0.2), nn.Linear(17, 5)
    )


def trained(
    make: Callable[[], Any], x: Any, target: Any, compiled: bool, certify: bool = False
) -> tuple[list[float], Any]:
    """Losses step by step, and the trained network."""
    torch.manual_seed(5)
    net = make()
    call = torch.compile(net, backend="verax", options={"certify": certify}) if compiled else net
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    torch.manual_seed(6)
    losses = []
    for _ in range(5):
        loss = F.cross_entropy(call(x).flatten(0, -2), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, net


@pytest.mark.parametrize("kind", ["convolutions", "perceptron", "words"])
def test_training_follows_eager_training(kind: str) -> None:
    rng = np.random.default_rng(8)
    x = torch.from_numpy(rng.standard_normal((4, 3, 12, 14), np.float32))
    make, given, target = {
        "convolutions": (Convolutions, x, torch.tensor([0, 1, 2, 3])),
        "perceptron": (perceptron, x.flatten()[:36].reshape(4, 9), torch.tensor([4, 1, 0, 3])),
        "words": (Words, torch.from_numpy(rng.integers(0, 11, (2, 7))),
                  torch.from_numpy(rng.integers(0, 11, 14))),
    }[kind]  # fmt: skip
    wanted, same = trained(make, given, target, compiled=False)
    losses, net = trained(make, given, target, compiled=True, certify=kind == "perceptron")
    np.testing.assert_allclose(losses, wanted, rtol=2e-5)
    assert losses[-1] < losses[0]
    for a, b in zip(net.state_dict().values(), same.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, rtol=2e-4, atol=2e-5)
    forward, backward = vt.report()
    assert (forward.kind, backward.kind) == ("forward", "backward")
    for graph in (forward, backward):
        assert graph.programs == 1 and not graph.on_reference and not graph.fallback


def test_weights_that_are_not_trained_stay_constants() -> None:
    torch.manual_seed(5)
    net = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3))
    net[0].requires_grad_(False)
    x, fast = torch.from_numpy(np.eye(4, 5, dtype=np.float32)), torch.compile(net, backend="verax")
    for _ in range(3):
        fast(x).square().sum().backward()
        with torch.no_grad():
            net[2].weight -= 0.1 * net[2].weight.grad
    with torch.no_grad():
        net[0].weight.mul_(2)
    torch.testing.assert_close(fast(x), net(x))
    forward, _ = vt.report()
    assert forward.programs == 2 and forward.weight_changes == 1


def test_gradients_without_kernels_stay_in_eager_pytorch_and_it_says_so() -> None:
    class Sampled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(6, 6)

        def forward(self, x: Any, grid: Any) -> Any:
            return F.grid_sample(self.linear(x), grid, align_corners=False)

    torch.manual_seed(5)
    net = Sampled()
    rng = np.random.default_rng(9)
    x = torch.from_numpy(rng.standard_normal((2, 3, 5, 6), np.float32))
    grid = torch.from_numpy(rng.uniform(-1, 1, (2, 4, 3, 2)).astype(np.float32))
    wanted = torch.autograd.grad(net(x, grid).sum(), net.linear.weight)
    with pytest.warns(UserWarning, match="gradients of graph 1 are computed by eager PyTorch"):
        given = torch.compile(net, backend="verax")(x, grid).sum()
        found = torch.autograd.grad(given, net.linear.weight)
    torch.testing.assert_close(found, wanted)
    forward, backward = vt.report()
    assert "grid_sampler" in backward.fallback and not forward.fallback


def test_random_numbers_are_those_of_eager_pytorch_without_gradients_too() -> None:
    def noisy(x: Any) -> Any:
        return F.dropout(x, 0.4) * torch.rand_like(x) + torch.randn(3, 5)

    x = torch.from_numpy(np.random.default_rng(4).standard_normal((3, 5), np.float32))
    fast = torch.compile(noisy, backend="verax")
    with torch.no_grad():
        for seed in (1, 2, 1):
            torch.manual_seed(seed)
            wanted = noisy(x)
            torch.manual_seed(seed)
            torch.testing.assert_close(fast(x), wanted)
    assert [g.programs for g in vt.report()] == [1]


def test_random_numbers_of_a_computed_distribution_are_refused_with_the_line() -> None:
    def chosen(x: Any) -> Any:
        return torch.bernoulli(torch.sigmoid(x)) + x

    x = torch.from_numpy(np.random.default_rng(4).standard_normal((3, 5), np.float32))
    with torch.no_grad(), pytest.raises(Exception, match=r"distribution(.*\n)*.*in chosen"):
        torch.compile(chosen, backend="verax")(x)
