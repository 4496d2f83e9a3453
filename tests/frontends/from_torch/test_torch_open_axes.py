"""Axes of a module's examples that the user leaves open are exported open."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from torch_programs import torch

import verax
from verax.base.errors import InputError, UsageError
from verax.records.verdict import Kind


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(20, 6)

    def forward(self, ids: Any, scale: Any = None) -> Any:
        y = self.linear(ids)
        return y if scale is None else y * scale


def module() -> Scaled:
    torch.manual_seed(33)
    return Scaled().eval()


@pytest.mark.parametrize(
    ("shapes", "ids", "scale"),
    [
        (None, "3, 7, 20", "3, 7, 1"),
        ({"ids": ("batch", "seq", 20), "scale": ("batch", "seq", 1)}, "batch, seq, 20",
         "batch, seq, 1"),
        ({"ids[0]": "batch", "scale[0]": None}, "batch, 7, 20", "batch, 7, 1"),
        ({"ids[-2]": (2, 50), "scale[1]": "n"}, "3, n, 20", "3, n, 1"),
    ],
)  # fmt: skip
def test_open_axes_are_exported_and_named(shapes: Any, ids: str, scale: str) -> None:
    inputs = (torch.zeros(3, 7, 20), torch.zeros(3, 7, 1))
    model = verax.load(module(), inputs=inputs, shapes=shapes)
    assert str(model.inputs["ids"]) == f"float32[{ids}]"
    assert str(model.inputs["scale"]) == f"float32[{scale}]"
    assert all(vars(t) == {} for t in inputs), "the caller's tensors are not marked"


def test_an_exported_open_axis_takes_other_sizes_within_bounds() -> None:
    network = module()
    shapes = {"ids": ("batch", (1, 9), 20)}
    model = verax.load(network, inputs=torch.zeros(3, 7, 20), shapes=shapes)
    exe = verax.compile(network, torch.zeros(3, 7, 20), shapes=shapes, threads=1)
    assert list(map(str, exe.inputs["ids"].dims))[::2] == ["batch", "20"]
    for batch, length in ((2, 5), (4, 9), (1, 3), (1, 1)):
        ids = torch.randn(batch, length, 20)
        assert exe.run({"ids": ids.numpy()}).keys() == model.outputs.keys()
        expected = dict.fromkeys(model.outputs, network(ids).detach().numpy())
        for answer in (expected, exe):
            verdict = verax.check(model, answer, {"ids": ids.numpy()})
            assert verdict.kind in (Kind.identical, Kind.rounding)
    with pytest.raises(InputError, match=r"size 10; \w+ is stated to be 1 to 9"):
        exe.run({"ids": np.zeros((2, 10, 20), np.float32)})


@pytest.mark.parametrize(
    ("shapes", "text"),
    [
        ({"ids": (None, None, 20)}, r"ids\[0\] has to be 3, ids\[1\] has to be 7"),
        ({"ids[2]": None}, r"ids\[2\] has to be 20"),
        ({"idz[1]": None}, "'idz', which is no tensor"),
        ({"batch": None}, "'batch', which is no tensor"),
        ({"ids[5]": None}, "an axis that the example has not"),
        ({"ids[1]": 8}, "8 is given, the file has 7"),
    ],
)
def test_what_cannot_be_open_is_refused_by_name(shapes: Any, text: str) -> None:
    inputs = (torch.zeros(3, 7, 20), torch.zeros(3, 7, 1))
    with pytest.raises(UsageError, match=text):
        verax.load(module(), inputs=inputs, shapes=shapes)
    assert verax.load(module(), inputs=inputs).inputs["ids"].shape == (3, 7, 20)
