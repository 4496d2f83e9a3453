"""Writes loops.npz: ML programs with `while_loop` and `cond`, and what PyTorch answers for them.

Run by hand where torch and coremltools are installed; the tests read the file. The modules are
scripts around traced layers, so that branches and loops stay what they are. Each case holds the
bytes of the model and of its weight file, its inputs, and the answers of the module in float64;
inputs and answers are numbered, and several sets of them (`0/`, `1/`, ...) decide differently.
"""

from __future__ import annotations

import sys
from pathlib import Path

import coremltools as ct
import numpy as np
import torch
from make_programs import FLOAT, store
from torch import nn

NEWER = {**FLOAT, "minimum_deployment_target": ct.target.iOS16}


class Cell(nn.Module):
    """Three steps of an LSTM and what feeds it again."""

    def __init__(self):
        super().__init__()
        self.lstm, self.back = nn.LSTM(5, 6), nn.Linear(6, 5)

    def forward(self, x, h, c):
        y, (h, c) = self.lstm(x, (h, c))
        return self.back(y) + x, h, c


class Decoder(nn.Module):
    """An LSTM that runs on what it gave until a bound is reached."""

    def __init__(self):
        super().__init__()
        self.cell = torch.jit.trace(
            Cell(), (torch.rand(3, 2, 5), torch.rand(1, 2, 6), torch.rand(1, 2, 6))
        )

    def forward(self, x, h, c, bound):
        reached = bound - bound
        while bool(reached.sum() < bound.sum()):
            x, h, c = self.cell(x, h, c)
            reached = reached + h.abs().max()
        return x, h, reached


class Counted(nn.Module):
    """A known number of steps."""

    def __init__(self):
        super().__init__()
        self.layer = torch.jit.trace(nn.Linear(5, 5), torch.rand(2, 5))

    def forward(self, x):
        for i in range(4):
            x = torch.tanh(self.layer(x)) + i
        return x


class Chosen(nn.Module):
    """One of two layers."""

    def __init__(self):
        super().__init__()
        self.a = torch.jit.trace(nn.Linear(5, 4), torch.rand(2, 5))
        self.b = torch.jit.trace(nn.Sequential(nn.Linear(5, 4), nn.Sigmoid()), torch.rand(2, 5))

    def forward(self, x):
        if bool(x.sum() > 0):
            y = self.a(x)
        else:
            y = self.b(x)
        return y * 3


class Nested(nn.Module):
    """A branch in a loop."""

    def __init__(self):
        super().__init__()
        self.a = torch.jit.trace(nn.Linear(5, 5), torch.rand(2, 5))
        self.b = torch.jit.trace(nn.Sequential(nn.Linear(5, 5), nn.Tanh()), torch.rand(2, 5))

    def forward(self, x, bound):
        while bool(x.abs().sum() < bound.sum()):
            if bool(x.sum() > 0):
                x = x + self.a(x).abs()
            else:
                x = x - self.b(x).abs() - 0.5
        return x


def cases():
    """(name, module, sets of inputs)."""
    draw = np.random.default_rng(8)

    def drawn(*shape):
        return draw.standard_normal(shape).astype(np.float32)

    state = [drawn(3, 2, 5), drawn(1, 2, 6), drawn(1, 2, 6)]
    yield "decoder", Decoder, [[*state, np.float32([b])] for b in (0.0, 0.9, 2.6)]
    yield "counted", Counted, [[drawn(2, 5)]]
    yield "chosen", Chosen, [[np.abs(drawn(2, 5))], [-np.abs(drawn(2, 5))]]
    one, more = drawn(2, 5), drawn(2, 5)
    far, near = np.float32([40]), np.float32([0])
    yield "nested", Nested, [[np.abs(one), far], [-np.abs(one), far], [more, near]]


def main(target):
    found = {}
    for name, kind, sets in cases():
        torch.manual_seed(11)
        module = torch.jit.script(kind().eval())
        given = [ct.TensorType(f"x{i}", a.shape) for i, a in enumerate(sets[0])]
        store(found, name, ct.convert(module, inputs=given, **NEWER))
        exact = module.double()
        for k, arrays in enumerate(sets):
            answer = exact(*(torch.from_numpy(a).double() for a in arrays))
            for i, array in enumerate(arrays):
                found[f"{name}/{k}/in:x{i}"] = array
            for i, array in enumerate(answer if isinstance(answer, tuple) else (answer,)):
                found[f"{name}/{k}/out:{i}"] = array.detach().numpy()
    np.savez_compressed(target, **found)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).with_name("loops.npz"))
