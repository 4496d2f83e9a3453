"""Inputs of tests: the same by the same seed, of the shapes and types that were asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verax.base.errors import UsageError
from verax.ir.graph import Builder, Graph
from verax.ir.types import DType, TensorType
from verax.ops.sums.linear import MatMul
from verax.testing.drawn_inputs import draw, has_inputs

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


def product(left: str = "float32[n, 5]") -> Graph:
    builder = Builder("product")
    names = [builder.input("left", TensorType.parse(left)),
             builder.input("right", TensorType.parse("float32[5, 7]"))]  # fmt: skip
    return builder.graph([builder.add(MatMul(), names)])


@given(
    st.dictionaries(
        st.sampled_from("abcd"), st.lists(st.integers(0, 6), max_size=4).map(tuple), min_size=1
    ),
    st.integers(0, 9),
    st.sampled_from([d for d in DType if not d.is_narrow]),
)
def test_a_seed_shapes_and_a_type_decide_the_arrays(
    shapes: dict[str, tuple[int, ...]], seed: int, dtype: DType
) -> None:
    first, again = (draw(None, shapes, seed=seed, dtype=dtype.value) for _ in range(2))
    assert {name: a.shape for name, a in first.items()} == shapes
    assert all(a.dtype == dtype.numpy for a in first.values())
    assert all(np.array_equal(first[n], again[n]) for n in shapes)


def test_inputs_and_seeds_differ_from_one_another() -> None:
    one, two = draw(None, ((3, 50), (3, 50)), seed=1)
    (three, _) = draw(None, ((3, 50), (3, 50)), seed=2)
    assert not np.array_equal(one, two) and not np.array_equal(one, three)


def test_types_go_by_name() -> None:
    drawn = draw(None, {"x": (2, 9), "i": 4}, dtype={"i": "int64"})
    assert drawn["x"].dtype == np.float32 and drawn["i"].dtype == np.int64
    assert drawn["i"].shape == (4,) and 0 <= drawn["i"].min() <= drawn["i"].max() < 10


def test_a_models_inputs_are_of_its_types_and_open_sizes_are_given_by_symbol() -> None:
    drawn = draw(product(), {"n": 4}, seed=3)
    assert {name: a.shape for name, a in drawn.items()} == {"left": (4, 5), "right": (5, 7)}
    ((image),) = draw(str(DIGITS)).values()
    assert image.ndim == 4
    assert has_inputs(product()) and has_inputs(DIGITS)
    assert not has_inputs("MatMul") and not has_inputs(np.matmul)


def test_tensors_have_the_numbers_of_the_arrays() -> None:
    torch = pytest.importorskip("torch")
    for dtype in ("float32", "bfloat16", "int64", "bool", "float8_e4m3fn"):
        (array,) = draw(None, ((3, 5),), seed=2, dtype=dtype)
        (tensor,) = draw(None, ((3, 5),), seed=2, dtype=dtype, library="torch")
        assert tensor.dtype == getattr(torch, dtype)
        assert np.array_equal(tensor.to(torch.float64).numpy(), array.astype(np.float64))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shapes": {}}, "no shapes"),
        ({"shapes": {"a": (3, -1)}}, "no shape"),
        ({"shapes": {"a": (3, True)}}, "no shape"),
        ({"shapes": {"a": (3,)}, "dtype": "float33"}, "no element type"),
        ({"shapes": {"a": (3,)}, "library": "tensorflow"}, "library"),
        ({"shapes": {"a": (3,)}, "seed": -1}, "seed"),
        ({"meaning": product(), "shapes": {"m": 4}}, "leaves no size 'm' open"),
        ({"meaning": product(), "shapes": {"n": -4}}, "no shape"),
        ({"meaning": product(), "shapes": ((3, 5),)}, "shapes of their own"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_what_cannot_be_drawn_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        draw(**arguments)
