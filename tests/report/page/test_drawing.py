"""Networks are drawn in layers, without boxes on each other, in drawings of bounded size."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.report.page.networks import residual_network

from verax.records.network import NetworkOutline, OutlinedNode
from verax.report.page.layout import GAP, layered
from verax.report.page.views import LONGEST_LABEL, MAX_BOXES, module_path, shortened, views_of

SIZES = st.lists(
    st.tuples(st.floats(40, 200), st.sampled_from([22.0, 42.0])), min_size=1, max_size=24
)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[tuple[float, float]], list[tuple[int, int]]]:
    sizes = draw(SIZES)
    ends = st.integers(0, len(sizes) - 1)
    return sizes, draw(st.lists(st.tuples(ends, ends), max_size=40))


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_boxes_lie_apart_and_edges_go_down(case: tuple) -> None:
    sizes, edges = case
    layout = layered(sizes, edges)
    assert sorted(itertools.chain(*layout.layers)) == list(range(len(sizes)))
    for a, b in edges:
        if a < b:
            assert layout.centers[a][1] + sizes[a][1] / 2 < layout.centers[b][1] - sizes[b][1] / 2
    for layer in layout.layers:
        for left, right in itertools.pairwise(layer):
            distance = layout.centers[right][0] - layout.centers[left][0]
            assert distance >= (sizes[left][0] + sizes[right][0]) / 2 + GAP - 1e-6
    for (x, y), (w, h) in zip(layout.centers, sizes):
        assert x - w / 2 >= 0 and x + w / 2 <= layout.width
        assert y - h / 2 >= 0 and y + h / 2 <= layout.height


def test_a_chain_is_straight_and_a_branch_is_beside_it() -> None:
    size = (100.0, 42.0)
    layout = layered([size] * 4, [(0, 1), (1, 2), (2, 3), (0, 3)])
    assert [len(layer) for layer in layout.layers] == [1] * 4
    assert len(layout.routes[3]) == 4  # around two boxes
    assert all(abs(layout.routes[3][1][0] - layout.centers[1][0]) > 50 for _ in range(1))
    straight = layered([size] * 3, [(0, 1), (1, 2)])
    assert len({x for x, _ in straight.centers}) == 1


def test_nothing_and_edges_against_the_order() -> None:
    assert layered([], []).centers == ()
    layout = layered([(50.0, 42.0)] * 2, [(1, 0), (0, 0), (0, 1)])
    assert layout.centers[0][1] < layout.centers[1][1] and layout.routes[1] == ()


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("/layer1/layer1.0/conv1/Conv", ("layer1", "layer1.0", "conv1")),
        ("encoder.0.linear", ("encoder", "0")),
        ("conv", ()),
        ("", ()),
        ("a::b/c", ("a", "b")),
    ],
)
def test_modules_by_names(name: str, path: tuple[str, ...]) -> None:
    assert module_path(name) == path


def placed(network: NetworkOutline) -> list[int]:
    return sorted(b.node for view in views_of(network) for b in view.boxes if b.node >= 0)


def test_a_small_network_is_one_drawing() -> None:
    (view,) = views_of(residual_network(5))
    assert len(view.boxes) == 5 * 4 + 2  # with its input and output
    assert [b.kind for b in view.boxes][:1] == ["input"] and view.boxes[-1].kind == "output"


def test_a_large_network_is_collapsed_by_module() -> None:
    network = residual_network(500)
    begin = time.perf_counter()
    views = views_of(network)
    assert time.perf_counter() - begin < 10
    assert len(network.nodes) == 2000 == len(placed(network))
    assert placed(network) == list(range(2000))
    assert all(len(view.boxes) <= 3 * MAX_BOXES for view in views)
    root = views[0]
    modules = [b for b in root.boxes if b.kind == "module"]
    assert len(modules) == 63 and modules[0].label == "stage0" and modules[0].detail == "32 nodes"
    assert (
        views[modules[1].view].path == ("resnet", "stage1") and views[modules[1].view].parent == 0
    )
    ports = [b.full for b in views[modules[1].view].boxes if b.kind == "port"]
    assert ports == ["/stage0/block7/Add_output_0"]


@pytest.mark.parametrize("name", ["node{0}", "one/module/{0}", "m{0}/x/y", ""])
def test_names_that_say_nothing(name: str) -> None:
    nodes = tuple(
        OutlinedNode(name.format(i), "Relu" if i % 3 else "Conv", (f"v{i}",), (f"v{i + 1}",))
        for i in range(1203)
    )
    network = NetworkOutline("chain", ("v0",), ("v1203",), nodes)
    assert placed(network) == list(range(1203))
    assert all(len(view.boxes) <= MAX_BOXES + 2 for view in views_of(network))


def test_long_names_keep_their_ends() -> None:
    text = shortened("a" * 40 + "/conv1")
    assert len(text) == LONGEST_LABEL and text.endswith("/conv1") and text.startswith("aaa")
    assert shortened("short") == "short"
