"""What backward operators are said to mean is what PyTorch's own compute."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
F = torch.nn.functional
from verax.torch.backward import decompositions  # noqa: E402  (needs torch)


def drawn(*shape: int, seed: int = 3) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape, np.float64))


class Replaced(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc]
    """Runs decompositions in the place of operators, and remembers which."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.met = decompositions(), set()

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if op in self.table:
            self.met.add(str(op))
            return self.table[op](*args, **(kwargs or {}))
        return op(*args, **(kwargs or {}))


def must_be_the_gradients(call: Any, operator: str, *tensors: Any) -> None:
    """Of `call` by all tensors, with and without the table."""
    leaves = [t.clone().requires_grad_() for t in tensors]
    cotangent = drawn(*call(*leaves).shape, seed=11)
    wanted = torch.autograd.grad(call(*leaves), leaves, cotangent)
    with Replaced() as mode:
        given = torch.autograd.grad(call(*leaves), leaves, cotangent)
    assert operator in mode.met
    for a, b in zip(given, wanted, strict=True):
        torch.testing.assert_close(a, b)


CONVOLUTIONS = [
    dict(zip(("stride", "padding", "dilation", "groups"), chosen))
    for chosen in itertools.product((1, (2, 3)), (0, (2, 1)), (1, (1, 2)), (1, 2))
]


@pytest.mark.parametrize("how", CONVOLUTIONS, ids=str)
@pytest.mark.parametrize("turned", [False, True])
def test_gradients_of_convolutions(turned: bool, how: dict[str, Any]) -> None:
    x, groups = drawn(3, 4, 8, 9), how["groups"]
    weight = drawn(4, 6 // groups, 2, 3) if turned else drawn(6, 4 // groups, 2, 3, seed=5)
    call = F.conv_transpose2d if turned else F.conv2d
    must_be_the_gradients(
        lambda x, w, b: call(x, w, b, **how), "aten.convolution_backward.default",
        x, weight, drawn(6, seed=6),
    )  # fmt: skip


def test_gradients_of_other_convolutions() -> None:
    """Depthwise ones, one and three axes, an output_padding as large as the stride."""
    named = "aten.convolution_backward.default"
    must_be_the_gradients(
        lambda x, w: F.conv2d(x, w, stride=2, padding=1, groups=5), named,
        drawn(2, 5, 6, 7), drawn(5, 1, 3, 2),
    )  # fmt: skip
    must_be_the_gradients(lambda x, w: F.conv1d(x, w), named, drawn(2, 3, 9), drawn(4, 3, 2))
    must_be_the_gradients(
        lambda x, w: F.conv3d(x, w, padding=1), named, drawn(2, 3, 4, 3, 5), drawn(2, 3, 2, 3, 1)
    )
    must_be_the_gradients(
        lambda x, w: F.conv_transpose2d(x, w, stride=2, dilation=3, output_padding=2), named,
        drawn(2, 3, 4, 3), drawn(3, 4, 3, 2),
    )  # fmt: skip


@pytest.mark.parametrize("ceil", [False, True])
def test_gradients_of_pools(ceil: bool) -> None:
    x = drawn(2, 3, 9, 8)
    must_be_the_gradients(
        lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=ceil),
        "aten.max_pool2d_with_indices_backward.default", x,
    )  # fmt: skip
    for include, divisor in ((True, None), (False, None), (False, 5)):
        must_be_the_gradients(
            lambda x: F.avg_pool2d(x, (3, 2), 2, 1, ceil, include, divisor),  # noqa: B023
            "aten.avg_pool2d_backward.default", x,
        )  # fmt: skip
    must_be_the_gradients(
        lambda x: F.avg_pool3d(x, 2, ceil_mode=ceil), "aten.avg_pool3d_backward.default",
        drawn(2, 3, 5, 4, 6),
    )  # fmt: skip
    must_be_the_gradients(
        lambda x: F.adaptive_avg_pool2d(x, (4, 3)), "aten._adaptive_avg_pool2d_backward.default", x
    )


@pytest.mark.parametrize("size", [(7, 13), (3, 4)])
def test_gradients_of_resampling(size: tuple[int, int]) -> None:
    x = drawn(2, 3, 5, 6)
    must_be_the_gradients(
        lambda x: F.interpolate(x, size), "aten.upsample_nearest2d_backward.default", x
    )
    for corners in (False, True):
        must_be_the_gradients(
            lambda x: F.interpolate(x, size, mode="bilinear", align_corners=corners),  # noqa: B023
            "aten.upsample_bilinear2d_backward.default", x,
        )  # fmt: skip
    must_be_the_gradients(
        lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear"),
        "aten.upsample_bilinear2d_backward.default", x,
    )  # fmt: skip
