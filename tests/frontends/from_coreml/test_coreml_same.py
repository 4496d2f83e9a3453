"""Which end SAME pads: both modes of files made here follow the specification, and differ."""

from __future__ import annotations

import numpy as np
import pytest
from coreml_models import conv, deconv, network, same, setting, weights

import verax
from verax.frontends.coreml import load_coreml
from verax.frontends.model import Model
from verax.judge.align.networks import align
from verax.reference.evaluate import evaluate

X = np.random.default_rng(0).standard_normal((2, 3, 8, 7)).astype(np.float32)
TIGHT = 2**10 * np.finfo(np.float64).eps
"""Two float64 sums of at most 27 products of numbers near 1."""


def made(kind: str, heavy: bool) -> tuple[Model, np.ndarray]:
    """A network of one layer with a 3 x 3 kernel and stride 2, and its weights."""
    turned = kind == "deconv"
    w = weights(3, 4, 3, 3) if turned else weights(4, 3, 3, 3)
    fill = setting(
        isDeconvolution=turned, outputChannels=4, kernelChannels=3, kernelSize=(3, 3),
        stride=(2, 2), weights=w, same__asymmetryMode=int(heavy), same=None,
    )  # fmt: skip
    proto = network([("convolution", "c", ["data"], ["y"], fill)], {"data": X.shape}, {"y": ()})
    return load_coreml(proto.SerializeToString()), w


@pytest.mark.parametrize("heavy", [False, True])
@pytest.mark.parametrize("kind", ["conv", "deconv"])
def test_both_asymmetry_modes_follow_the_specification(kind: str, heavy: bool) -> None:
    model, w = made(kind, heavy)
    if kind == "conv":
        pads = [same(n, 3, 2, top_heavy=heavy) for n in (8, 7)]
        want = conv(X, w, 0, (2, 2), pads)
    else:
        crop = [same(2 * n, 3, 2, top_heavy=heavy)[0] for n in (8, 7)]
        want = deconv(X, w, 0, (2, 2), (16, 14), crop)
    (found,) = evaluate(model.graph, {"data": X}).values()
    assert np.abs(found - want).max() < TIGHT
    assert verax.check(model.graph, "verax:O1", {"data": X}).kind in ("identical", "rounding")


@pytest.mark.parametrize("kind", ["conv", "deconv"])
def test_the_asymmetry_modes_differ(kind: str) -> None:
    low, high = (
        next(iter(evaluate(made(kind, heavy)[0].graph, {"data": X}).values()))
        for heavy in (False, True)
    )
    assert np.abs(low - high).max() > 0.1


def test_the_modes_are_told_apart_by_their_pads() -> None:
    (place,) = align(made("deconv", True)[0].graph, made("deconv", False)[0].graph).divergences
    (pads,) = place.attributes
    assert place.proved and (pads.first, pads.second) == ("((1, 0), (1, 0))", "((0, 1), (0, 1))")
