"""Every row means what LiteRT's reference kernels compute, by our own judge."""

from __future__ import annotations

import numpy as np
import pytest
from tests.frontends.from_tflite.float_cases import float_cases
from tests.frontends.from_tflite.tflite_peer import drawn, litert
from tests.frontends.from_tflite.tflite_writer import Op, T, const, model, one

import verax
from verax.base.errors import ModelError, UnsupportedError
from verax.compiler.compile import compile
from verax.frontends.tflite import load_tflite
from verax.records.verdict import Kind

CASES = dict(float_cases())
REFERENCE_IS_WRONG = {"LOCAL_RESPONSE_NORMALIZATION"}
"""LiteRT's reference kernel leaves the window's last channel out; its optimized one does not."""


@pytest.mark.parametrize("label", CASES)
def test_an_operator_means_what_litert_computes(label: str) -> None:
    loaded = load_tflite(CASES[label])
    inputs = drawn(loaded)
    given = litert(CASES[label], inputs, reference=label not in REFERENCE_IS_WRONG)
    verdict = verax.check(loaded, given, inputs=inputs)
    if verdict.kind is Kind.undecided:  # a nearest pixel is a choice; equal bits need no judge
        for name, want in verax.reference(loaded, inputs).items():
            np.testing.assert_array_equal(given[name], want.astype(given[name].dtype))
    else:
        assert verdict.kind in (Kind.identical, Kind.rounding), verdict.reasons


def test_an_open_batch_is_bound_by_the_input() -> None:
    x = T((1, 5, 4, 3), signature=(-1, 5, 4, 3))
    weights = np.random.default_rng(3).standard_normal((2, 3, 2, 3)).astype(np.float32)
    bias = const(np.array([0.5, -2.0], np.float32))
    made = one("CONV_2D", [x, const(weights), bias], T((1, 3, 2, 2), signature=(-1, 3, 2, 2)),
               stride_h=2, stride_w=2)  # fmt: skip
    loaded = load_tflite(made)
    assert not loaded.inputs["x0"].is_static
    inputs = drawn(loaded, batch=3)
    assert verax.check(loaded, litert(made, inputs), inputs=inputs).kind is Kind.rounding
    assert load_tflite(made, shapes={"x0": (4, 5, 4, 3)}).outputs["y"].shape == (4, 3, 2, 2)


def test_half_precision_weights_are_folded_into_float32() -> None:
    half = const(np.arange(12, dtype=np.float16).reshape(3, 4) / 7)
    tensors = [T((2, 4), name="x"), half, T((3, 4)), T((2, 3), name="y")]
    ops = [Op("DEQUANTIZE", [1], [2], version=2), Op("FULLY_CONNECTED", [0, 2, -1], [3])]
    made = model(tensors, ops, [0], [3])
    loaded = load_tflite(made)
    inputs = drawn(loaded)
    assert [n.op.kind for n in loaded.graph.nodes] == ["Gemm"]
    assert verax.check(loaded, litert(made, inputs), inputs=inputs).kind is Kind.rounding


def test_tensors_without_a_name_of_their_own_get_their_index() -> None:
    tensors = [T((2, 3), name="x"), T((2, 3), name=""), T((2, 3), name="y"), T((2, 3), name="y")]
    ops = [Op("ABS", [0], [1]), Op("NEG", [1], [2]), Op("EXP", [2], [3])]
    loaded = load_tflite(model(tensors, ops, [0], [3]))
    assert [n.outputs[0] for n in loaded.graph.nodes] == ["tensor:1", "y:2", "y:3"]


def test_unsupported_operators_are_listed_at_once() -> None:
    tensors = [T((2, 3), name=n) for n in "abcd"]
    ops = [Op("MULTINOMIAL", [0], [1]), Op("MyOwn", [1], [2]), Op("MULTINOMIAL", [2], [3])]
    with pytest.raises(UnsupportedError, match=r"MULTINOMIAL \(2\), custom::MyOwn \(1\)"):
        load_tflite(model(tensors, ops, [0], [3]))


def test_a_wrong_record_of_a_shape_is_refused() -> None:
    made = one("ABS", [T((2, 3))], T((3, 2)))
    with pytest.raises(ModelError, match="records 'y'"):
        load_tflite(made)


def test_a_result_recorded_as_a_scalar_has_the_operators_sizes() -> None:
    """As in LiteRT, which infers them anew; its element type binds all the same."""
    rng = np.random.default_rng(71)
    x, bias = rng.standard_normal((2, 3)), rng.standard_normal(3)
    tensors = [
        T((2, 3), name="x"),
        const(bias.astype(np.float32)),
        T((), name="h"),
        T((), name="y"),
    ]
    ops = [Op("ADD", [0, 1], [2]), Op("ABS", [2], [3])]
    made = model(tensors, ops, [0], [3])
    loaded, given = load_tflite(made), {"x": x.astype(np.float32)}
    assert loaded.outputs["y"].shape == (2, 3)
    assert np.array_equal(compile(loaded.graph).run(given)["y"], litert(made, given)["y"])
    tensors[2] = T((), "int32", name="h")
    with pytest.raises(ModelError, match="records 'h' as int32"):
        load_tflite(model(tensors, ops, [0], [3]))


@pytest.mark.parametrize("name", ["TANH", "SIGN_BIT"])
def test_activations_that_litert_ignores_are_refused(name: str) -> None:
    made = one("ADD", [T((2, 3)), T((2, 3))], T((2, 3)), fused_activation_function=name)
    with pytest.raises(UnsupportedError, match="fused_activation_function"):
        load_tflite(made)


def test_circles_are_refused() -> None:
    tensors = [T((2, 3), name=n) for n in "xab"]
    ops = [Op("ADD", [0, 2], [1]), Op("NEG", [1], [2])]
    with pytest.raises(ModelError, match="defined nowhere before"):
        load_tflite(model(tensors, ops, [0], [1]))
