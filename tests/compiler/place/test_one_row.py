"""Convolutions of signals are computed as columns, so that work is divided along them."""

from __future__ import annotations

import numpy as np
import pytest

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.kernels.convolution.spec import ConvSpec
from verax.compiler.place.calls import KernelCall
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.reference import promised

CASES = {
    "strided": ("Conv", {"strides": (2,), "pads": ((1, 3),)}, (24, 37, 5), (2, 24, 203)),
    "dilated": ("Conv", {"dilations": (3,), "pads": ((6, 6),)}, (19, 33, 5), (2, 19, 91)),
    "groups": ("Conv", {"groups": 3, "pads": ((4, 0),)}, (16, 48, 9), (3, 48, 57)),
    "few channels": ("Conv", {"strides": (3,)}, (3, 21, 7), (2, 3, 88)),
    "transposed": ("ConvTranspose", {"strides": (2,), "output_padding": (1,)}, (21, 18, 5),
                   (2, 21, 39)),
    "one row of an image": ("Conv", {"strides": (1, 2)}, (18, 35, 1, 4), (2, 18, 1, 53)),
}  # fmt: skip
"""Kind, attributes, (channels per group, filters, kernel), input."""


def network(case: str, behind: str) -> Graph:
    kind, attributes, (channels, filters, *kernel), shape = CASES[case]
    rng = np.random.default_rng(sum(map(ord, case)))
    b = Builder("net")
    x = b.input("x", TensorType.parse(f"float32[{', '.join(map(str, shape))}]"))
    first = (channels, filters) if kind == "ConvTranspose" else (filters, channels)
    w = b.constant(rng.standard_normal((*first, *kernel)).astype(np.float32), "w")
    bias = b.constant(rng.standard_normal(filters).astype(np.float32), "bias")
    y = b.add(REGISTRY[kind](kernel_shape=tuple(kernel), **attributes), [x, w, bias])
    if behind == "residual":
        y = b.add(REGISTRY["Add"](), [y, b.input("r", b.types[y])])
    if behind:
        y = b.add(REGISTRY["Gelu" if behind == "gelu" else "Relu"](), [y])
    return b.graph([y])


@pytest.mark.checkered
@pytest.mark.parametrize("behind", ["", "residual", "gelu"])
@pytest.mark.parametrize("case", CASES)
def test_the_promised_bits(case: str, behind: str) -> None:
    graph = network(case, behind)
    rng = np.random.default_rng(71)
    given = {v: rng.standard_normal(graph.types[v].shape, np.float32) for v in graph.inputs}
    (want,) = promised(graph, given).values()
    for threads in (1, 2, 3):
        exe = compile(graph, Settings(opt_level=1, threads=threads))
        assert not exe.plan.on_reference
        assert exe.run(given).popitem()[1].tobytes() == want.tobytes()
    steps = exe.specialized.lowered.steps
    (spec,) = (s.spec for s in steps if isinstance(s, KernelCall) and isinstance(s.spec, ConvSpec))
    assert spec.output[1] == want.shape[-1] and spec.output[2] == 1


def test_images_and_single_channels_stay_as_they_are() -> None:
    """What has rows has them to divide; depthwise kernels walk along a row."""
    for shape, kernel, groups in (((2, 24, 3, 41), (2, 3), 1), ((2, 32, 41), (3,), 32)):
        b = Builder("net")
        x = b.input("x", TensorType.parse(f"float32[{', '.join(map(str, shape))}]"))
        w = np.ones((32, shape[1] // groups, *kernel), np.float32)
        conv = REGISTRY["Conv"](kernel_shape=kernel, groups=groups)
        exe = compile(b.graph([b.add(conv, [x, b.constant(w)])]), Settings(opt_level=1, threads=1))
        found = [s.spec for s in exe.specialized.lowered.steps if isinstance(s, KernelCall)]
        (spec,) = (s for s in found if isinstance(s, ConvSpec))
        assert spec.output[2] == 39
