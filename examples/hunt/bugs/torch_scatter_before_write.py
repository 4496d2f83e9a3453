"""PyTorch 2.13.0: what slice_scatter copied shows a later write to its input."""

import torch


def program(x):
    v = x.slice_scatter(x[:1], 0, 1, 2)
    x.mul_(2)
    return v, v.softmax(0)


x = torch.arange(6.0).reshape(3, 2)
given, expected = torch.compile(program)(x.clone())[0], program(x.clone())[0]
print("given", given.tolist(), "should be", expected.tolist())
