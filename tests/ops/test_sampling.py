"""GridSample and AffineGrid against ONNX Runtime, PyTorch and rational arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from movement_cases import cases_of, in_onnxruntime, label
from witness import DOUBLE, agree, exactly, meaning

from verax.base.errors import GraphError
from verax.ir.dim import symbol
from verax.ir.operator import Case, Inference
from verax.ir.types import DType, TensorType
from verax.ops.images.sampling import AffineGrid, GridSample

torch = pytest.importorskip("torch", reason="torch is not installed")

PADDING = ("zeros", "border", "reflection")
NAMES = {"linear": "bilinear", "nearest": "nearest", "cubic": "bicubic"}


@pytest.mark.parametrize("case", cases_of("GridSample", "AffineGrid"), ids=label)
def test_onnxruntime_agrees(case: Case) -> None:
    if case.label == "1-D":
        pytest.skip("ONNX Runtime samples images and volumes only")
    if case.op == AffineGrid(align_corners=True) and case.label == "3-D":
        pytest.skip("ONNX Runtime divides by zero on an axis of size 1")
    agree(case.op, case.inputs, in_onnxruntime(case))


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("padding", PADDING)
@pytest.mark.parametrize("mode", NAMES)
def test_images_are_sampled_as_in_pytorch(
    mode: str, padding: str, align_corners: bool, rng: np.random.Generator
) -> None:
    x = rng.standard_normal((2, 3, 4, 5)).astype(np.float32)
    grid = rng.uniform(-2.5, 2.5, (2, 6, 7, 2)).astype(np.float32)
    tensors = torch.tensor(x).double(), torch.tensor(grid).double()
    want = torch.nn.functional.grid_sample(*tensors, NAMES[mode], padding, align_corners)
    op = GridSample(mode=mode, padding_mode=padding, align_corners=align_corners)
    agree(op, (x, grid), [want.numpy()], DOUBLE)


@pytest.mark.parametrize("padding", PADDING)
@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_volumes_are_sampled_as_in_pytorch(
    mode: str, padding: str, rng: np.random.Generator
) -> None:
    x = rng.standard_normal((2, 1, 3, 4, 5)).astype(np.float32)
    grid = rng.uniform(-1.8, 1.8, (2, 2, 6, 7, 3)).astype(np.float32)
    tensors = torch.tensor(x).double(), torch.tensor(grid).double()
    want = torch.nn.functional.grid_sample(*tensors, NAMES[mode], padding, False)
    agree(GridSample(mode=mode, padding_mode=padding), (x, grid), [want.numpy()], DOUBLE)


@pytest.mark.parametrize("padding", PADDING)
@pytest.mark.parametrize("mode", NAMES)
def test_float64_lies_within_its_rounding_of_rational_arithmetic(
    mode: str, padding: str, rng: np.random.Generator
) -> None:
    x = rng.standard_normal((1, 2, 3, 2)).astype(np.float32)
    grid = rng.uniform(-1.7, 1.7, (1, 2, 3, 2)).astype(np.float32)
    op = GridSample(mode=mode, padding_mode=padding)
    agree(op, (x, grid), [exactly(op, x, grid).astype(np.float64)], DOUBLE)


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("size", [(2, 4, 3, 5), (2, 1, 3, 4, 5), (2, 1, 1, 4)])
def test_grids_are_pytorchs(size: tuple, align_corners: bool, rng: np.random.Generator) -> None:
    rank = len(size) - 2
    theta = rng.standard_normal((2, rank, rank + 1)).astype(np.float32)
    want = torch.nn.functional.affine_grid(torch.tensor(theta).double(), list(size), align_corners)
    op = AffineGrid(align_corners=align_corners)
    agree(op, (theta, np.array(size)), [want.numpy()], DOUBLE)


def test_positions_that_are_no_number_or_far_away_are_safe() -> None:
    x = np.arange(1.0, 7.0, dtype=np.float32).reshape(1, 1, 2, 3)
    places = [[np.nan, np.nan], [1e30, 0], [-1e30, 1e30], [0, 0]]
    grid = np.array(places, np.float32).reshape(1, 1, 4, 2)
    for mode in NAMES:
        for padding in PADDING:
            op = GridSample(mode=mode, padding_mode=padding, align_corners=True)
            (y,) = meaning(op, x, grid)
            assert y[0, 0, 0, 0] == 1  # NaN is taken as -1
            assert np.isfinite(y[0, 0, 0, 3])
    (y,) = meaning(GridSample(), x, grid)
    assert (y[0, 0, 0, 1:3] == 0).all()


def test_types_over_symbols() -> None:
    n, h, w = symbol("n"), symbol("h"), symbol("w")
    x, grid = (TensorType(DType.float32, d) for d in ((n, 3, h, 5), (n, 7, w, 2)))
    assert GridSample().infer(Inference((x, grid)))[0].dims == (n, 3, 7, w)
    theta, size = TensorType(DType.float32, (n, 2, 3)), TensorType(DType.int64, (4,))
    known = (None, np.array([n, 3, h, 5], object))
    assert AffineGrid().infer(Inference((theta, size), known))[0].dims == (n, h, 5, 2)


@pytest.mark.parametrize(
    "dims", [((2, 3, 4), (2, 5, 2)), ((2, 3, 4, 5), (3, 6, 7, 2)), ((2, 3, 0, 5), (2, 6, 7, 2))]
)
def test_what_does_not_fit_is_refused(dims: tuple) -> None:
    with pytest.raises(GraphError):
        GridSample().infer(Inference(tuple(TensorType(DType.float32, d) for d in dims)))
