"""Subjects of the campaign: what is planted is made, and nothing else; PyTorch really computes."""

from __future__ import annotations

import numpy as np
import pytest

from verax.campaign import torch_subject
from verax.campaign.placements import FAULTS, find_placement
from verax.campaign.random_networks import random_network
from verax.campaign.subjects import CachedAnswers, FaultyFile, FaultyNumbers, rewritten
from verax.ir.checker import check as check_graph
from verax.ir.cut import cut
from verax.runners.own import ReferenceRunner


def placed(name: str):
    found = find_placement(FAULTS[name], 1, deep=False, in_file=True)
    assert found is not None
    return found, found.network.graph, found.network.inputs


def test_only_what_depends_on_the_guilty_node_changes() -> None:
    found, graph, inputs = placed("bias missing")
    every = [v for n in graph.nodes for v in n.outputs]
    wrong = FaultyNumbers({found.node: found.change}).run(graph, inputs, every)
    honest = FaultyNumbers().run(graph, inputs, every)
    changed = {v for v in every if not np.array_equal(wrong[v], honest[v])}
    (guilty,) = (n for n in graph.nodes if n.name == found.node)
    before = every[: every.index(guilty.outputs[0])]
    assert guilty.outputs[0] in changed
    assert not changed & set(before)


def test_the_file_holds_the_mistake_that_the_numbers_hold() -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    found, graph, inputs = placed("kernel flipped")
    check_graph(rewritten(graph, found.node, found.change))
    file = FaultyFile(found.node, found.change).run(graph, inputs)
    numbers = FaultyNumbers({found.node: found.change}).run(graph, inputs)
    honest = FaultyNumbers().run(graph, inputs)
    (reached, *_) = (v for v in graph.outputs if not np.array_equal(numbers[v], honest[v]))
    near = np.abs(file[reached] - numbers[reached]).max()
    assert near < np.abs(file[reached] - honest[reached]).max() / 100


def test_a_part_without_the_guilty_node_is_honest() -> None:
    places = (find_placement(FAULTS["kernel flipped"], number, deep=True) for number in range(8))
    found = next(p for p in places if p and p.network.graph.nodes[0].name != p.node)
    graph, inputs = found.network.graph, found.network.inputs
    first = graph.nodes[0]
    part = cut(graph, inputs, (first.outputs[0],))
    value = first.outputs[0]
    wrong = FaultyNumbers({found.node: found.change}).run(part, inputs)
    honest = FaultyNumbers().run(graph, inputs, [value])
    assert np.array_equal(wrong[value], honest[value])


def test_a_remembering_subject_asks_once() -> None:
    network = random_network(2)
    subject = ReferenceRunner()
    asked = []
    run = subject.run
    subject.run = lambda *a: asked.append(1) or run(*a)  # type: ignore[method-assign]
    again = CachedAnswers(subject)
    first, second = (again.run(network.graph, network.inputs) for _ in range(2))
    assert len(asked) == 1
    assert all(np.array_equal(first[v], second[v]) for v in first)


@pytest.mark.parametrize("kind", ["Conv", "ConvTranspose", "BatchNormalization", "Gemm", "Add"])
def test_pytorch_computes_the_operator_itself(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    network = random_network(9, [kind])
    left = []
    evaluate_node = torch_subject.evaluate_node

    def recording(node, *rest):
        left.append(node.op.kind)
        return evaluate_node(node, *rest)

    monkeypatch.setattr(torch_subject, "evaluate_node", recording)
    torch_subject.TorchSubject().run(network.graph, network.inputs)
    assert kind not in left
