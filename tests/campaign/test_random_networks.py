"""Random networks: reproducible, asymmetric, alive, and of every common operator."""

from collections import Counter

import numpy as np
import pytest

from verax.campaign.deep_networks import STYLES, deep_network
from verax.campaign.random_networks import Network, random_network
from verax.campaign.random_nodes import EXACTLY
from verax.ir.checker import check
from verax.reference.evaluate import evaluate

SEEDS = range(12)


def networks() -> list[Network]:
    return [random_network(s) for s in SEEDS] + [deep_network(s) for s in SEEDS]


def test_equal_seeds_give_equal_networks() -> None:
    for make in (random_network, deep_network):
        first, second, other = make(3), make(3), make(4)
        assert first.graph == second.graph
        assert (first.inputs["x"] == second.inputs["x"]).all()
        assert first.graph != other.graph


def test_networks_are_valid_and_their_inputs_asymmetric() -> None:
    for network in networks():
        check(network.graph)
        shape = network.inputs["x"].shape
        assert shape[0] > 1 and len(set(shape[1:])) == 3


def test_values_are_finite_and_every_node_leads_to_an_output() -> None:
    for network in networks():
        values = evaluate(network.graph, network.inputs, keep="all")
        assert all(np.isfinite(a).all() for a in values.values())
        read = {v for node in network.graph.nodes for v in node.inputs}
        made = {v for node in network.graph.nodes for v in node.outputs}
        assert made - read == set(network.graph.outputs)


def test_together_they_hold_the_common_operators() -> None:
    found = Counter(n.op.kind for s in range(60) for n in random_network(s).graph.nodes)
    wanted = {"Conv", "ConvTranspose", "BatchNormalization", "MaxPool", "AveragePool", "Resize"}
    wanted |= {"Softmax", "LRN", "Concat", "Slice", "Gemm", "MatMul", "Pad", "Add", "Relu"}
    assert wanted <= set(found)
    assert len(found) > 35


@pytest.mark.parametrize("name", EXACTLY)
def test_a_network_holds_what_it_must(name: str) -> None:
    graph = random_network(5, [name]).graph
    kinds = {n.op.kind for n in graph.nodes}
    mixed = {"GroupedConv", "Unary", "Smooth", "Binary", "Reduce"}
    assert name in mixed or name in kinds


@pytest.mark.parametrize("style", STYLES)
def test_deep_networks_are_deep(style: str) -> None:
    for seed in range(4):
        assert 20 <= len(deep_network(seed, style).graph.nodes) <= 60


def test_attributes_vary() -> None:
    ops = [n.op for s in range(60) for n in random_network(s).graph.nodes]
    convs = [o.attributes() for o in ops if o.kind == "Conv"]
    deconvs = [o.attributes() for o in ops if o.kind == "ConvTranspose"]
    pads = [pair for c in convs if not isinstance(c["pads"], str) for pair in c["pads"]]
    assert {c["groups"] > 1 for c in convs} == {True, False}
    assert any(max(c["dilations"], default=1) > 1 for c in convs)
    assert any(begin != end for begin, end in pads)
    assert any(max(c["output_padding"], default=0) for c in deconvs)
    assert any(o.attributes()["ceil_mode"] for o in ops if o.kind == "MaxPool")
