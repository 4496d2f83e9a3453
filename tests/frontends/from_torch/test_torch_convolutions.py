"""PyTorch's own samples of convolutions: every one imports, and PyTorch's float32 and float64
answers and our compiled ones are within rounding of the meaning."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch_programs import Call, agree, export, saved, torch

import verax
from verax.frontends.torch import load_torch

SUITES = Path(__file__).parents[4] / "shared" / "suites"
NAME = "opinfo_conv_torch-2.13.0"
CASES = json.loads((SUITES / f"{NAME}.json").read_text()) if SUITES.exists() else []
missing = pytest.mark.skipif(not CASES, reason="../shared/suites is missing")


@missing
def test_the_suite_is_whole() -> None:
    assert len(CASES) == 92


@missing
@pytest.mark.parametrize("case", CASES, ids=lambda c: c["name"])
def test_a_sample_of_pytorchs_own(case: dict[str, Any]) -> None:
    with np.load(SUITES / f"{NAME}.npz") as stored:
        prefix = f"{case['name']}/"
        found = {k.removeprefix(prefix): stored[k] for k in stored.files if k.startswith(prefix)}
    tensors = [torch.tensor(found[k]) for k in ("input", "weight", "bias") if k in found]
    function = getattr(torch.nn.functional, case["op"].rpartition(".")[2])
    module = Call(lambda *xs: function(*xs, *case["extra"], **case["kwargs"]))
    program = export(module, tuple(tensors))
    model = load_torch(saved(program))
    assert model.graph == load_torch(program).graph
    inputs = {k: t.numpy() for k, t in zip(model.inputs, tensors, strict=True)}
    (meaning,) = verax.reference(model, inputs).values()
    wide = found["out64"]
    assert meaning.shape == wide.shape
    terms = math.prod(found["weight"].shape) + 2
    # Each of two float64 sums of `terms` products of float32 numbers.
    bound = 2 * terms * np.finfo(np.float64).eps * np.abs(wide).max() * terms
    assert np.abs(meaning - wide).max() <= bound
    agree(model, inputs, [torch.tensor(found["out"])])


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("unbatched", [False, True])
def test_transposed_convolutions_keep_every_argument(rank: int, unbatched: bool) -> None:
    """Kernels up to 11, groups, dilation and output_padding together, in 1-D, 2-D and 3-D."""
    kernel, size = (11, 3, 2)[:rank], (4, 5, 3)[:rank]
    stride, dilation, padding = (3, 2, 4)[:rank], (1, 3, 2)[:rank], (2, 1, 0)[:rank]
    output_padding = (2, 1, 3)[:rank]
    kind = getattr(torch.nn, f"ConvTranspose{rank}d")
    torch.manual_seed(rank)
    module = kind(6, 4, kernel, stride, padding, output_padding, 2, True, dilation)
    x = torch.randn(*(() if unbatched else (2,)), 6, *size)
    with torch.no_grad():
        want = module(x)
    model = load_torch(saved(export(module, (x,))))
    assert any(n.op.kind == "ConvTranspose" for n in model.graph.nodes)
    (node,) = (n for n in model.graph.nodes if n.op.kind == "ConvTranspose")
    assert node.op.attributes()["output_padding"] == output_padding
    assert len(node.op.attributes()["strides"]) == rank, "1-D stays 1-D"
    agree(model, {next(iter(model.inputs)): x.numpy()}, [want])


@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("padding", ["same", "valid", (1, 2, 0)])
def test_padding_modes_in_three_dimensions(mode: str, padding: Any) -> None:
    torch.manual_seed(3)
    module = torch.nn.Conv3d(
        4, 6, (4, 3, 2), padding=padding, groups=2, dilation=(1, 2, 1), padding_mode=mode
    )
    x = torch.randn(2, 4, 7, 6, 5)
    with torch.no_grad():
        want = module(x)
    model = load_torch(saved(export(module, (x,))))
    agree(model, {next(iter(model.inputs)): x.numpy()}, [want])
