"""cond, while_loop, scan and map of PyTorch, against PyTorch's own answers."""

from __future__ import annotations

import importlib
import io
from typing import Any

import numpy as np
from torch_programs import torch

import verax
from verax.frontends.torch import load_torch

higher = importlib.import_module("torch._higher_order_ops")
scan = importlib.import_module("torch._higher_order_ops.scan").scan


class Chosen(torch.nn.Module):
    """By what it computes; a parameter is read by both branches."""

    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.linspace(-1, 2, 5))

    def forward(self, x: Any) -> Any:
        def yes(x: Any) -> Any:
            return torch.relu(x) * self.w, x + 1

        def no(x: Any) -> Any:
            return x - self.w, x * 2

        return torch.cond(x.sum() > 0, yes, no, (x,))


class Within(torch.nn.Module):
    """A choice in a choice, and one by a size, which is decided on reading."""

    def forward(self, x: Any) -> Any:
        def inner(x: Any) -> Any:
            return torch.cond(x.max() > 1, torch.sin, torch.cos, (x,))

        return torch.cond(x.sum() > 0, inner, torch.neg, (x,))


class Counted(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        def more(i: Any, x: Any) -> Any:
            return i < 4

        def body(i: Any, x: Any) -> Any:
            return i + 1, x * 0.5 + i

        return higher.while_loop(more, body, (torch.tensor(0), x))


class Until(torch.nn.Module):
    """How often it runs is decided by what it computes; it hands on two tensors of one type."""

    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.linspace(1.1, 1.9, 5))

    def forward(self, x: Any) -> Any:
        def more(x: Any, y: Any) -> Any:
            return x.abs().max() < 50

        def body(x: Any, y: Any) -> Any:
            return x * self.w + 0.5, y + torch.tanh(x)

        return higher.while_loop(more, body, (x, x - 1))


class Scanned(torch.nn.Module):
    def forward(self, x: Any, h: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = torch.tanh(h + x)
            return h, h * 2

        return scan(step, h, x, dim=0)


class Mapped(torch.nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        return higher.map(lambda row, y: torch.sin(row) + y, x, y)


def drawn(*shapes: tuple[int, ...], seed: int) -> tuple[Any, ...]:
    made = np.random.default_rng(seed)
    return tuple(torch.from_numpy(made.standard_normal(s).astype(np.float32)) for s in shapes)


def agree(module: Any, inputs: tuple[Any, ...], *others: tuple[Any, ...]) -> verax.Model:
    """Of a file too, compiled and by meaning, on other inputs as well."""
    module = module.eval()
    program = torch.export.export(module, inputs, strict=False)
    stored = io.BytesIO()
    torch.export.save(program, stored)
    found = load_torch(stored.getvalue())
    exe = verax.compile(found, opt_level=1, threads=1)
    assert not exe.plan.on_reference
    for given in (inputs, *others):
        wanted = module(*given)
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        feed = {n: x.numpy() for n, x in zip(found.inputs, given, strict=True)}
        for made in (exe.run(feed), verax.reference(found, feed)):
            for array, right in zip(made.values(), wanted, strict=True):
                np.testing.assert_allclose(array, right.detach(), rtol=1e-5, atol=1e-5)
    return found


def kinds(model: Any) -> set[str]:
    return {n.op.kind for n in model.graph.nodes}


def test_cond_by_what_it_computes() -> None:
    (x,) = drawn((3, 5), seed=7101)
    assert "If" in kinds(agree(Chosen(), (x,), (x - 2,), (x + 2,)))


def test_cond_within_cond() -> None:
    (x,) = drawn((3, 5), seed=7102)
    agree(Within(), (x,), (x.abs() * 0.1,), (x.abs() + 1,), (x - 9,))


def test_a_loop_of_known_length_is_unrolled() -> None:
    (x,) = drawn((3, 5), seed=7103)
    assert "Loop" not in kinds(agree(Counted(), (x,)))


def test_a_loop_that_ends_by_what_it_computes() -> None:
    (x,) = drawn((3, 5), seed=7104)
    assert "Loop" in kinds(agree(Until(), (x,), (x * 9,), (x * 99,)))


def test_scan_and_map() -> None:
    x, h = drawn((4, 3, 5), (3, 5), seed=7105)
    agree(Scanned(), (x, h), (-x, h))
    rows, y = drawn((4, 5), (5,), seed=7106)
    agree(Mapped(), (rows, y))
