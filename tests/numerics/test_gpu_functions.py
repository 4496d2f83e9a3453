"""Stated errors of GPU functions hold for what errs within them and for nothing larger."""

from __future__ import annotations

import math

import numpy as np
import pytest

from verax.numerics.formats import FLOAT32, ulp
from verax.numerics.gpu_functions import GPU_FUNCTIONS, approximations


def test_cudnns_tanh_errs_as_measured() -> None:
    tanh = GPU_FUNCTIONS["cuDNN's tanh in recurrent networks"]
    x = np.array([[-2.0, 0.25, 0.0], [1.0, -0.01, 1.5]])
    y = np.tanh(x)
    assert tanh.is_measured and tanh.is_per_argument
    bound = tanh.bound(x, y)
    # greatest errors found below 1, 1.5 and 2, in 2^-24
    for at, found in (((1, 0), 120), ((1, 2), 130), ((0, 0), 72)):
        assert found * 2.0**-24 <= bound[at] < 3 * found * 2.0**-24
    assert (tanh.sigma(x, y) < bound / 2).all() and bound[0, 2] == FLOAT32.smallest_subnormal


def test_ulps_count_from_the_rounded_result() -> None:
    exp2, y = GPU_FUNCTIONS["ex2.approx.f32"], np.array([0.75, 1.5, 2.0**-130])
    np.testing.assert_allclose(
        exp2.bound(np.log2(y), y), 2.5 * ulp(y, FLOAT32) + 2.0**-149, rtol=1e-12
    )


def test_expf_errs_more_for_larger_arguments() -> None:
    exp = GPU_FUNCTIONS["__expf"]
    x = np.array([0.5, -10.0, 80.0])
    in_ulps = exp.bound(x, np.exp(x)) / ulp(np.exp(x), FLOAT32)
    np.testing.assert_allclose(in_ulps, [2.5, 13.5, 95.5], rtol=1e-6)


def test_logarithms_err_absolutely_about_one() -> None:
    log = GPU_FUNCTIONS["__logf"]
    x = np.array([1.0, 1.9, 3.0])
    bound = log.bound(x, np.log(x))
    assert (bound[:2] >= 2.0**-21.41).all() and (bound[:2] < 2.0**-21.4).all()
    assert bound[2] == 3.5 * ulp(np.log(3.0), FLOAT32) + 2.0**-149


def test_nothing_is_promised_outside_of_the_stated_range() -> None:
    sin = GPU_FUNCTIONS["sin.approx.f32"]
    near, far, beyond = sin.bound([1.0, 100.0, 400.0], np.sin([1.0, 100.0, 400.0]))
    assert near < 2.0**-20 < far < 2.0**-14 and beyond == math.inf
    divide = GPU_FUNCTIONS["__fdividef"]
    assert divide.bound(2.0**127, 1.0) == math.inf and divide.bound(3.0, 1.0) < 1e-6
    assert np.isinf(GPU_FUNCTIONS["lg2.approx.f32"].bound(-1.0, np.float64(0.5)))
    assert sin.bound(np.nan, np.nan) == 0 and divide.bound(0.5, np.inf) == 0


@pytest.mark.parametrize("function", sorted({f.function for f in GPU_FUNCTIONS.values()}))
def test_each_has_a_source_and_a_finite_error_at_one(function: str) -> None:
    found = approximations(function)
    bounds = [float(f.bound(1.0, 1.0)) for f in found]
    assert bounds == sorted(bounds) and bounds[0] > 0 and bounds[-1] < 2.0**-6
    assert all(f.source and f.sigma(1.0, 1.0) < f.bound(1.0, 1.0) for f in found)


def test_tanh_of_the_instruction_is_the_coarsest_of_float32() -> None:
    names = [f.name for f in approximations("tanh") if f.format is FLOAT32]
    assert names[0] == "cuDNN's tanh in recurrent networks" and set(names[1:]) == {
        "tanh.approx.f32",
        "__tanhf",
    }
    assert GPU_FUNCTIONS["tanh.approx.f32"].bound(0.5, 0.5) == 2.0**-12 + 2.0**-149
