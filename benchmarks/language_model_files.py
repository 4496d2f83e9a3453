"""Writes the models of `benchmarks.language_models`: random weights, as each engine reads them.

Folders of GenAI's model builder in float32, float16, 8 and 4 bits, and, where the package `gguf` is
installed, files of llama.cpp with the same weights.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

SEED = 9
VOCABULARY, HEAD = 32_000, 64
CONFIG = {"vocab_size": VOCABULARY, "max_position_embeddings": 8_192, "tie_word_embeddings": False}
CONFIG |= {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
FOLDERS = {"int4": "int4", "int4-level1": "int4", "int8": "int8", "fp16": "fp16", "fp32": "fp32"}
"""Folder -> the builder's precision."""
EXTRA = {"int4-level1": ["accuracy_level=1"]}
"""At level 1 the data of products stay float32."""
GGUF = {"int4": "Q4_0", "int8": "Q8_0", "fp16": "F16", "fp32": "F32"}
"""Folder -> llama.cpp's type of the same size."""


@dataclasses.dataclass(frozen=True)
class Shape:
    """A decoder. kind: of transformers (`<kind>Config`); inner: features between both products of a
    layer; groups: heads of keys."""

    kind: str
    layers: int
    width: int
    inner: int
    groups: int


SHAPES = {
    "24x896": Shape("Qwen2", 24, 896, 4_864, 2),
    "6x512": Shape("Qwen2", 6, 512, 2_752, 2),
    "1b": Shape("Llama", 16, 2_048, 8_192, 8),
}


def make(folder: Path, shape: Shape, wanted: Sequence[str]) -> None:
    """Write random weights, and the folders `wanted` of them, into `folder`."""
    weights = folder / "weights"
    if not weights.exists():
        _save(weights, shape)
    for name in wanted:
        if not (folder / name).exists():
            _build(weights, folder / name)
    if importlib.util.find_spec("gguf"):
        for name in wanted:
            if name in GGUF and not (folder / name / "model.gguf").exists():
                _save_gguf(weights, folder / name / "model.gguf", shape, GGUF[name])


def _save(weights: Path, shape: Shape) -> None:
    import tokenizers
    import torch
    import transformers

    torch.manual_seed(SEED)
    sizes = {"num_hidden_layers": shape.layers, "hidden_size": shape.width}
    sizes |= {"intermediate_size": shape.inner, "num_key_value_heads": shape.groups}
    sizes |= {"num_attention_heads": shape.width // HEAD}
    config = getattr(transformers, f"{shape.kind}Config")(**CONFIG, **sizes)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(weights)
    words = {word: i for i, word in enumerate(_words()[:-1])} | {"?": VOCABULARY - 1}
    own = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="?"))
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=own, unk_token="?", eos_token="?"
    ).save_pretrained(weights)  # the builder wants one


def _words() -> list[str]:
    return [chr(0x4E00 + i) for i in range(VOCABULARY)]


def _build(weights: Path, target: Path) -> None:
    package = importlib.util.find_spec("onnxruntime_genai")
    assert package is not None and package.origin is not None, "pip install onnxruntime-genai"
    builder = Path(package.origin).parent / "models" / "builder.py"
    files = ["-i", weights, "-o", target, "-c", target.parent / "temporary"]
    command = [sys.executable, builder, *files, "-p", FOLDERS[target.name], "-e", "cpu"]
    if target.name in EXTRA:
        command += ["--extra_options", *EXTRA[target.name]]
    subprocess.run([str(c) for c in command], check=True)


def _save_gguf(weights: Path, target: Path, shape: Shape, type_: str) -> None:
    """The same weights for llama.cpp. Rows of Llama's rotated heads keep their order, in which it
    would compute other numbers: it is timed, and its tokens are not compared."""
    import gguf

    kind = gguf.GGMLQuantizationType[type_]
    writer = gguf.GGUFWriter(target, shape.kind.lower())
    writer.add_context_length(CONFIG["max_position_embeddings"])
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.inner)
    writer.add_head_count(shape.width // HEAD)
    writer.add_head_count_kv(shape.groups)
    writer.add_rope_dimension_count(HEAD)
    writer.add_rope_freq_base(10_000.0)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(VOCABULARY)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(_words())
    writer.add_token_scores([0.0] * VOCABULARY)
    writer.add_token_types([gguf.TokenType.NORMAL] * VOCABULARY)
    writer.add_bos_token_id(CONFIG["bos_token_id"])
    writer.add_eos_token_id(CONFIG["eos_token_id"])
    for name, array in _tensors(weights, shape):
        if array.ndim == 1:
            writer.add_tensor(name, array)
        else:
            writer.add_tensor(name, gguf.quants.quantize(array, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _tensors(weights: Path, shape: Shape) -> Iterator[tuple[str, np.ndarray]]:
    """Weights by llama.cpp's names, in float32."""
    import gguf
    from safetensors import safe_open

    architecture = gguf.MODEL_ARCH[shape.kind.upper()]
    names: Any = gguf.get_tensor_name_map(architecture, shape.layers)
    for path in sorted(weights.glob("*.safetensors")):
        with safe_open(path, "pt") as tensors:
            for name in list(tensors.keys()):
                target = names.get_name(name, try_suffixes=(".weight", ".bias"))
                yield target, tensors.get_tensor(name).float().numpy()
