"""PyTorch 2.13.0: a batch of products of int8 gives int64."""

import torch


def program(x, y):
    return x @ y


x = torch.ones((1, 1, 2), dtype=torch.int8)
y = torch.ones((1, 2, 2), dtype=torch.int8)
given, expected = torch.compile(program)(x, y), program(x, y)
print("given", given.dtype, "should be", expected.dtype)
