"""PyTorch 2.13.0: a sum over ones that is rewritten loses its type."""

import torch


def program(x):
    return torch.ones_like(x, dtype=torch.bool).cumsum(0, dtype=torch.float32)


x = torch.arange(3.0)
given, expected = torch.compile(program)(x), program(x)
print("given", given.dtype, "should be", expected.dtype)
