"""PyTorch 2.13.0: a softmax over the queries is fused as attention, which is over the keys."""

import torch


def program(x):
    return ((x @ x.mT) / 2.0).softmax(-2) @ x


x = torch.arange(24.0).reshape(1, 2, 3, 4).sin()
given, expected = torch.compile(program)(x), program(x)
print("given", given.flatten()[:4].tolist(), "should be", expected.flatten()[:4].tolist())
