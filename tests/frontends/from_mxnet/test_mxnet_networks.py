"""Networks as Gluon, GluonCV and the Symbol API write them, against MXNet 1.9.1 itself."""

import numpy as np
import pytest
from mxnet_models import read

import verax

HONEST = ("identical", "rounding")
CHOOSES = "center_net"
"""Ranks peaks: what happens to values that are not chosen does not show, so it is undecided."""
QUICK = {"resnet_v2", "symbol_ssd"}


def networks():
    return [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
        for name in read("networks.npz")
    ]


@pytest.mark.parametrize("name", networks())
def test_a_network_means_what_mxnet_answers(name, tmp_path):
    case = read("networks.npz")[name]
    graph = case.load(tmp_path).graph
    assert list(graph.outputs) == list(case.outputs)
    verdict = verax.check(graph, case.outputs, case.inputs)
    if name == CHOOSES:
        assert verdict.kind == "undecided"
        assert all(all(f.plain.allclose.values()) for f in verdict.nodes)
        return
    assert verdict.kind in HONEST


@pytest.mark.slow
@pytest.mark.parametrize("name", read("networks.npz"))
def test_a_compiled_network_gives_its_meaning(name, tmp_path):
    case = read("networks.npz")[name]
    assert verax.check(case.load(tmp_path).graph, "verax:O1", case.inputs).kind in HONEST


@pytest.mark.parametrize("name", ["resnet_v1", "mobilenet", "gluon_ssd", "symbol_ssd"])
def test_the_batch_may_stay_a_symbol(name, tmp_path):
    """Sizes of images decide anchors; how many images there are decides nothing."""
    case = read("networks.npz")[name]
    model = case.load(tmp_path, shapes={"data": (None, *case.inputs["data"].shape[1:])})
    assert model.graph.symbols()
    answers, fixed = (verax.reference(m, case.inputs) for m in (model, case.load(tmp_path)))
    assert all(np.array_equal(answers[k], fixed[k]) for k in case.outputs)
