"""PyTorch 2.13.0: ldexp of a float16 exponent gives float32."""

import torch


def program(x, k):
    return torch.ldexp(k, x)


x, k = torch.arange(3.0).half(), torch.arange(3)
given, expected = torch.compile(program)(x, k), program(x, k)
print("given", given.dtype, "should be", expected.dtype)
