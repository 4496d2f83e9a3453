"""Decoders whose products are in 4 and 8 bits: the tokens are ONNX Runtime's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from verax.generation import Generator

from .decoder_models import FEATURES, HEADS, PLACES, Weights, save

onnxruntime = pytest.importorskip("onnxruntime")
quantizer = pytest.importorskip("onnxruntime.quantization.matmul_nbits_quantizer")

PROMPT = [5, 7, 3, 9]
TOKENS = PLACES - len(PROMPT)


def quantized(folder: Path, bits: int, symmetric: bool) -> Path:
    """A decoder whose MatMuls are MatMulNBits, with blocks of 16 and products in float32."""
    model = onnx.load(save(folder / "floats.onnx", Weights.of(23)))
    config = quantizer.DefaultWeightOnlyQuantConfig(
        block_size=16, is_symmetric=symmetric, bits=bits
    )
    made = quantizer.MatMulNBitsQuantizer(model, algo_config=config)
    made.process()
    path = folder / f"bits{bits}.onnx"
    made.model.save_model_to_file(str(path))
    nodes = [n.op_type for n in onnx.load(path).graph.node]
    assert nodes.count("MatMulNBits") == 9
    return path


def continued_by_onnxruntime(path: Path) -> list[int]:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    pasts = [i.name for i in session.get_inputs() if i.name.startswith("past")]
    cache = {n: np.zeros((1, HEADS, 0, FEATURES), np.float32) for n in pasts}
    tokens, ids, seen = [], PROMPT, 0
    while len(tokens) < TOKENS:
        feed = {
            "input_ids": np.array([ids]),
            "position_ids": np.arange(seen, seen + len(ids))[None],
        }
        seen += len(ids)
        feed["attention_mask"] = np.ones((1, seen), np.int64)
        outputs = dict(zip(names, session.run(None, feed | cache), strict=True))
        cache = {n: outputs[n.replace("past_key_values", "present")] for n in pasts}
        ids = [int(outputs["logits"][0, -1].argmax())]
        tokens += ids
    return tokens


@pytest.mark.parametrize(("bits", "symmetric"), [(4, True), (4, False), (8, True)])
def test_every_token_is_onnxruntimes(tmp_path: Path, bits: int, symmetric: bool) -> None:
    path = quantized(tmp_path, bits, symmetric)
    expected = continued_by_onnxruntime(path)
    assert len(set(expected)) > 3
    found = Generator(path, threads=1, cache=False).generate(PROMPT, TOKENS)
    assert found.tokens == [expected]
