"""Sizes that a file allows for an open dimension are stated, and others are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import verax
from verax.base.errors import UsageError


def test_ranges_of_an_exported_program(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    class Shifted(torch.nn.Module):
        def forward(self, x):
            return torch.relu(x) + 1

    dims = {0: torch.export.Dim("n", min=4, max=9), 2: torch.export.Dim("h", min=5)}
    program = torch.export.export(Shifted(), (torch.zeros(6, 3, 7),), dynamic_shapes=(dims,))
    torch.export.save(program, tmp_path / "net.pt2")
    model = verax.load(tmp_path / "net.pt2")
    (batch, _, height) = (str(d) for d in model.inputs["x"].dims)
    assert model.metadata[f"sizes of {batch}"] == "4 to 9"
    assert model.metadata[f"sizes of {height}"] == "5 and more"
    given = verax.load(tmp_path / "net.pt2", shapes={"x": (9, 3, 500)})
    assert given.inputs["x"].shape == (9, 3, 500)
    for wrong in ({"x": (10, 3, 7)}, {batch: 3}, {"x": (None, 3, 4)}):
        with pytest.raises(UsageError, match="the file allows"):
            verax.load(tmp_path / "net.pt2", shapes=wrong)


def test_enumerated_and_bounded_sizes_of_coreml(tmp_path: Path) -> None:
    pytest.importorskip("coremltools")
    from coremltools.models import datatypes
    from coremltools.models.neural_network import NeuralNetworkBuilder
    from coremltools.models.neural_network import flexible_shape_utils as flexible

    array = datatypes.Array(3, 8, 7)
    builder = NeuralNetworkBuilder([("x", array)], [("y", array)])
    builder.add_activation("a", "RELU", "x", "y")
    for feature in ("x", "y"):
        flexible.add_multiarray_ndshape_enumeration(builder.spec, feature, [(3, 16, 7), (3, 24, 7)])
    path = tmp_path / "net.mlmodel"
    path.write_bytes(builder.spec.SerializeToString())
    model = verax.load(path)
    assert list(model.metadata.values())[-1] == "8 or 16 or 24"
    assert verax.load(path, shapes={"x": (3, 16, 7)}).inputs["x"].shape == (3, 16, 7)
    with pytest.raises(UsageError, match="size 9 is given for axis 1; the file allows 8 or 16"):
        verax.load(path, shapes={"x": (3, 9, 7)})
