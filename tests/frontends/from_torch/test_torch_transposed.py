"""Transposed convolutions in every combination of their arguments, drawn at random."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_programs import torch

import verax
from verax.frontends.common.foreign import ForeignModel, ForeignNode, ForeignValue
from verax.frontends.common.importing import Importer
from verax.frontends.model import Model
from verax.frontends.torch.arguments import Ref
from verax.frontends.torch.table import TABLE
from verax.ir.types import DType
from verax.records.verdict import Kind

MOST = 60_000
"""Products per case, so that a test stays fast."""


@st.composite
def calls(draw: Any) -> dict[str, Any]:
    """Arguments of a transposed convolution whose output is not empty."""
    rank = draw(st.integers(1, 3))
    groups = draw(st.sampled_from([1, 2, 3]))
    kernel = [draw(st.integers(1, 11 if rank > 2 else 7)) for _ in range(rank)]
    size = [draw(st.integers(1, 4)) for _ in range(rank)]
    stride = [draw(st.integers(1, 4)) for _ in range(rank)]
    dilation = [draw(st.integers(1, 3)) for _ in range(rank)]
    extra = [draw(st.integers(0, max(s, d) - 1)) for s, d in zip(stride, dilation)]
    padding = []
    for n, k, s, d, e in zip(size, kernel, stride, dilation, extra):
        whole = (n - 1) * s + d * (k - 1) + e + 1
        padding.append(draw(st.integers(0, min((whole - 1) // 2, d * (k - 1)))))
    return {
        "rank": rank,
        "groups": groups,
        "channels": (groups * draw(st.integers(1, 2)), draw(st.integers(1, 2))),
        "size": size,
        "kernel": kernel,
        "stride": stride,
        "dilation": dilation,
        "output_padding": extra,
        "padding": padding,
        "bias": draw(st.booleans()),
        "unbatched": draw(st.booleans()),
        "plain": draw(st.booleans()),
        "seed": draw(st.integers(0, 99)),
    }


def imported(operator: str, tensors: dict[str, np.ndarray], arguments: dict[str, Any]) -> Model:
    """A program of one node: the first tensor is its input, the others are weights."""
    names = list(tensors)
    refs = {name: Ref(i, name) for i, name in enumerate(names)}
    node = ForeignNode(operator, tuple(names), ("y",), {**refs, **arguments}, "y", "aten")
    x = ForeignValue(names[0], DType.float32, tensors[names[0]].shape)
    weights = {name: tensors[name] for name in names[1:]}
    y = (ForeignValue("y", None, None),)
    foreign = ForeignModel("one", (x,), y, (node,), weights, {}, {}, {"torch": "test"})
    return Importer(foreign, TABLE).run("one", "PyTorch")


@settings(max_examples=16, deadline=None)
@given(calls())
def test_a_combination_means_what_pytorch_computes(call: dict[str, Any]) -> None:
    means_what_pytorch_computes(call)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(calls())
def test_many_combinations_mean_what_pytorch_computes(call: dict[str, Any]) -> None:
    means_what_pytorch_computes(call)


def means_what_pytorch_computes(call: dict[str, Any]) -> None:
    """In 1, 2 and 3 dimensions, kernels to 11, as exported and as decompositions leave it."""
    rank, groups, (channels, per_group) = call["rank"], call["groups"], call["channels"]
    kernel = list(call["kernel"])
    while np.prod(kernel) * np.prod(call["size"]) * channels * per_group > MOST:
        kernel[int(np.argmin(kernel))] = 1
    padding = [min(p, d * (k - 1)) for p, d, k in zip(call["padding"], call["dilation"], kernel)]
    torch.manual_seed(call["seed"])
    batch = () if call["unbatched"] else (2,)
    tensors = {
        "input": torch.randn(*batch, channels, *call["size"]),
        "weight": torch.randn(channels, per_group, *kernel),
    }
    if call["bias"]:
        tensors["bias"] = torch.randn(per_group * groups)
    given = {k: call[k] for k in ("stride", "output_padding", "groups", "dilation")}
    function = getattr(torch.nn.functional, f"conv_transpose{rank}d")
    try:
        want = function(**tensors, **given, padding=padding)
    except RuntimeError:
        return  # nothing would be left of the output
    arguments = {k: tuple(v) if isinstance(v, list) else v for k, v in given.items()}
    arguments["padding"] = tuple(padding)
    operator = f"conv_transpose{rank}d.{'default' if rank == 1 else 'input'}"
    if call["plain"]:
        operator, arguments["transposed"] = "convolution.default", True
    arrays = {k: v.numpy() for k, v in tensors.items()}
    model = imported(operator, arrays, arguments)
    (node,) = (n for n in model.graph.nodes if n.op.kind == "ConvTranspose")
    assert len(node.op.attributes()["strides"]) == rank, "1-D stays 1-D"
    for subject in ({"y": want.numpy()}, "verax:O1"):
        verdict = verax.check(model, subject, {"input": arrays["input"]})
        assert verdict.kind in (Kind.identical, Kind.rounding), verdict.reasons
