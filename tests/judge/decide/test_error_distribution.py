"""How errors are spread: counted in bins, pictured in channels, kept where somebody collects."""

from __future__ import annotations

import base64
import zlib

import numpy as np
import pytest

import verax
from verax.ir.graph import Builder
from verax.ir.types import TensorType
from verax.judge.decide.error_distribution import (
    CHANNELS,
    PICTURED,
    SIDE,
    bounded,
    collected,
    distribution,
    noted,
)
from verax.numerics import statistics as st
from verax.ops.pointwise.activation import Relu
from verax.ops.sums.linear import MatMul
from verax.records.network import ALLOWED_BIN, BINS, ChannelErrors
from verax.report.page.pictures import edge


def pixels(channel: ChannelErrors) -> np.ndarray:
    raw = zlib.decompress(base64.b64decode(channel.levels))
    return np.frombuffer(raw, np.uint8).reshape(channel.rows, channel.columns)


def test_every_element_is_counted_where_it_belongs() -> None:
    rng = np.random.default_rng(3)
    ratio = np.exp(rng.normal(0, 4, (3, 5, 7, 11))).astype(np.float32)
    ratio[0, 0, 0, :4] = 0, np.inf, np.nan, 1
    result = distribution("v", ratio)
    assert len(result.histogram) == BINS and sum(result.histogram) == ratio.size
    assert result.histogram[0] == 1
    for k in range(2, BINS - 2):
        inside = (ratio >= edge(k)) & (ratio < edge(k + 1))
        assert result.histogram[k] == int(inside.sum())
    assert sum(result.histogram[ALLOWED_BIN:]) == int((ratio >= 1).sum()) + 1  # the NaN


def test_the_worst_channels_are_pictured_at_their_places() -> None:
    ratio = np.full((2, 7, 20, 90), 0.25, np.float32)
    ratio[1, 4, 19, 89] = 8
    ratio[0, 2, 0, 0] = 2
    result = distribution("v", ratio)
    assert [c.index for c in result.channels][:3] == [(), (1, 4), (0, 2)]
    assert len(result.channels) == 1 + CHANNELS and result.axes == "rows: axis 2, columns: axis 3"
    picture = pixels(result.channels[1])
    assert picture.shape == (20, SIDE) and picture[19, -1] == 128 + 18 and picture[0, 0] == 128 - 12
    assert pixels(result.channels[0])[0, 0] == 128 + 6 and result.channels[0].worst == 8


@pytest.mark.parametrize("shape", [(), (1,), (1000,), (2, 40), (3, 1), (5, 6, 70), (2, 1, 3, 4, 5)])
def test_any_shape(shape: tuple[int, ...]) -> None:
    ratio = np.zeros(shape, np.float32)
    ratio[(-1,) * len(shape)] = np.inf
    result = distribution("v", ratio)
    assert result.histogram[0] == ratio.size - 1 and result.histogram[-1] == 1
    for channel in result.channels:
        assert channel.rows <= SIDE and channel.columns <= SIDE
    assert pixels(result.channels[0]).max() == 255


def test_nothing_is_kept_unless_somebody_collects() -> None:
    into: dict = {}
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    noted("a", x, x.astype(np.float64), None)
    with collected(into):
        noted("b", x, x.astype(np.float64), None)
        with collected(None):
            noted("c", x, x.astype(np.float64), None)
        noted("d", x[0], x.astype(np.float64), None)  # of another shape
        sigma = np.full(x.shape, 0.5)
        noted("e", x + st.group_limit(1), x.astype(np.float64), sigma)
        lost = np.array([np.nan, np.inf, -np.inf, np.nan, np.inf, 1], np.float32)
        noted("f", lost, np.array([np.nan, np.inf, -np.inf, 0, 1, np.nan]), np.ones(6))
    assert into.keys() == {"b", "e", "f"}
    assert (into["f"].histogram[0], into["f"].histogram[-1]) == (3, 3)  # the same, and not
    assert into["b"].histogram[0] == 6
    assert into["e"].histogram[ALLOWED_BIN + 2] == 6  # twice what is allowed


def test_a_check_records_the_network_and_where_the_errors_are() -> None:
    b = Builder("small")
    x = b.input("x", TensorType.parse("float32[9, 3]"))
    w = b.constant(np.random.default_rng(5).standard_normal((3, 7)).astype(np.float32), "w")
    graph = b.graph([b.add(Relu(), [b.add(MatMul(), [x, w], ["m"], name="product")], ["y"])])
    weights = graph.constants["w"]

    def subject(a: np.ndarray) -> np.ndarray:
        wrong = np.maximum(a @ weights, 0)
        wrong[:, 5] += 0.5
        return wrong

    inputs = {"x": np.random.default_rng(6).standard_normal((9, 3)).astype(np.float32)}
    verdict = verax.check(graph, subject, inputs)
    assert verdict.network.nodes[0].name == "product"
    assert verdict.network.types["w"] == "float32[3, 7]"
    (errors,) = verdict.errors
    assert errors.value == "y" and errors.shape == (9, 7)
    picture = pixels(errors.channels[0])
    assert (picture[:, 5] > 128).all() and (np.delete(picture, 5, axis=1) < 128).all()


def test_pictures_are_few() -> None:
    b = Builder("deep")
    value = b.input("x", TensorType.parse("float32[4, 5, 6]"))
    for _ in range(PICTURED + 5):
        value = b.add(Relu(), [value])
    graph = b.graph([value])
    verdict = verax.check(graph, "reference", seed=2)
    assert len(verdict.errors) == PICTURED + 5
    assert not any(e.channels for e in verdict.errors), "there is nothing to see"
    half = np.full((3, 4), 0.5, np.float32)
    many = {f.value: distribution(f.value, half) for f in verdict.nodes}
    kept = bounded(many, verdict.nodes, graph.outputs)
    assert sum(bool(e.channels) for e in kept) == PICTURED and kept[-1].channels


def test_an_infinite_number_without_axes_is_noted() -> None:
    """NumPy makes such an array's results numbers, which cannot be written to."""
    into: dict = {}
    with collected(into):
        infinite = np.array(np.inf, np.float32)
        noted("v", infinite, np.array(np.inf), np.array(0.1))
        noted("w", infinite, np.array(2.0), np.array(0.1))
    assert sum(into["v"].histogram) == 1 and into["v"].histogram[0] == 1
    assert sum(into["w"].histogram[ALLOWED_BIN:]) == 1
