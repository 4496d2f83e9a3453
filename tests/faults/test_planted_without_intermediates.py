"""Mistakes planted in the ONNX file, located in ONNX Runtime by handing it parts of the file."""

import pytest
from planted import small_network
from test_planted_in_onnx import PLANTED, planted_model, runner

from verax.judge.inputs import draw_inputs
from verax.judge.locate.truncate import locate

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
GRAPH = small_network()


@pytest.mark.parametrize("what", PLANTED)
def test_a_planted_mistake_is_located_by_truncation(what: str) -> None:
    inputs, _ = draw_inputs(GRAPH, 3)
    found = locate(GRAPH, runner(planted_model(*PLANTED[what])), inputs)
    assert [(b.node, b.region) for b in found.blame] == [(PLANTED[what][0], ())]
