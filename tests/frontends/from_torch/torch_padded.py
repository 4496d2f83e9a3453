"""Language models of transformers and batches with padding: what a mask may do to a query at the
beginning, at the end and throughout, a single token, and tokens that are all the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from benchmarks.honest.hugging_face import hugging_face
from benchmarks.honest.zoo_language import COMMON, MADE, ROPE, T5, VOCABULARY

pytest.importorskip("transformers")

SEEDED, BATCH, LENGTH = 17, 3, 7
TAKES = ("input_ids", "attention_mask")
SEQ2SEQ = {
    "vocab_size": VOCABULARY, "d_model": 24, "encoder_layers": 1, "decoder_layers": 1,
    "encoder_attention_heads": 3, "decoder_attention_heads": 3, "encoder_ffn_dim": 40,
    "decoder_ffn_dim": 40, "max_position_embeddings": 32, "pad_token_id": 1, "bos_token_id": 2,
    "eos_token_id": 2, "decoder_start_token_id": 2,
}  # fmt: skip
GPT = {"vocab_size": VOCABULARY, "n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 32}
DENSE = {**ROPE, "head_dim": 8, "pad_token_id": 1}
NEAR = {"sliding_window": 2, "layer_types": ["sliding_attention", "full_attention"]}
"""Windows that end before padding does."""
FAR = {"sliding_window": 64, "layer_types": ["sliding_attention", "full_attention"]}
"""Windows beyond the length."""
MORE: dict[str, tuple[str, Mapping[str, Any]]] = {
    "xlm_roberta": ("XLMRoberta", COMMON),
    "xlm": ("XLM", {"vocab_size": VOCABULARY, "emb_dim": 24, "n_layers": 2, "n_heads": 3}),
    "xlnet": ("XLNet", {"vocab_size": VOCABULARY, "d_model": 24, "n_layer": 2, "n_head": 3,
                        "d_inner": 40}),
    "convbert": ("ConvBert", COMMON | {"embedding_size": 24, "num_attention_heads": 4,
                                       "head_ratio": 2}),
    "rembert": ("RemBert", COMMON | {"input_embedding_size": 16}),
    "ernie": ("Ernie", COMMON),
    "roformer": ("RoFormer", COMMON | {"embedding_size": 24}),
    "megatron_bert": ("MegatronBert", COMMON),
    "data2vec_text": ("Data2VecText", COMMON),
    "layoutlm": ("LayoutLM", COMMON),
    "longformer": ("Longformer", COMMON | {"attention_window": [4, 4], "pad_token_id": 1}),
    "big_bird": ("BigBird", COMMON | {"attention_type": "original_full"}),
    "codegen": ("CodeGen", GPT | {"rotary_dim": 4, "n_head": 4, "n_embd": 32}),
    "gpt_bigcode": ("GPTBigCode", GPT),
    "mpt": ("Mpt", {"vocab_size": VOCABULARY, "d_model": 32, "n_layers": 2, "n_heads": 4,
                    "max_seq_len": 32}),
    "xglm": ("XGLM", {"vocab_size": VOCABULARY, "d_model": 24, "num_layers": 2, "ffn_dim": 40,
                      "attention_heads": 3, "max_position_embeddings": 32}),
    "biogpt": ("BioGpt", COMMON),
    "ctrl": ("CTRL", {"vocab_size": VOCABULARY, "n_embd": 24, "n_layer": 2, "n_head": 3,
                      "dff": 40, "n_positions": 32}),
    "openai_gpt": ("OpenAIGPT", GPT),
    "persimmon": ("Persimmon", {k: v for k, v in ROPE.items() if k != "num_key_value_heads"}),
    "mixtral": ("Mixtral", ROPE | {"num_local_experts": 3, "sliding_window": 3}),
    "gemma3": ("Gemma3Text", DENSE | NEAR),
    "olmo2": ("Olmo2", ROPE | {"pad_token_id": 1}),
    "glm": ("Glm", DENSE | {"partial_rotary_factor": 0.5}),
    "smollm3": ("SmolLM3", ROPE | {"pad_token_id": 1}),
    "helium": ("Helium", DENSE),
    "nemotron": ("Nemotron", ROPE),
    "arcee": ("Arcee", ROPE),
    "gpt_oss": ("GptOss", DENSE | NEAR | {"num_local_experts": 3, "num_experts_per_tok": 2}),
    "exaone4": ("Exaone4", DENSE | NEAR),
    "mistral_near": ("Mistral", ROPE | {"sliding_window": 2}),
    "mistral_far": ("Mistral", ROPE | {"sliding_window": 64}),
    "gemma2_far": ("Gemma2", ROPE | {"head_dim": 8} | FAR),
    "modernbert_far": ("ModernBert", ROPE | {"pad_token_id": 1, "local_attention": 64}),
    "modernbert_near": ("ModernBert", ROPE | {"pad_token_id": 1, "local_attention": 2}),
    "bert_eager": ("Bert", COMMON | {"attn_implementation": "eager"}),
    "llama_eager": ("Llama", ROPE | {"attn_implementation": "eager"}),
}  # fmt: skip
PAIRS: dict[str, str] = {
    "bart": "Bart", "mbart": "MBart", "pegasus": "Pegasus", "marian": "Marian",
    "m2m_100": "M2M100", "blenderbot_small": "BlenderbotSmall",
}  # fmt: skip
"""With an encoder and a decoder, that are given the same words."""


def builders() -> dict[str, Callable[[], Any]]:
    """How each model is built, by name."""
    found = {n: hugging_face(f"{p}Model", o, TAKES) for n, (p, o) in {**MADE, **MORE}.items()}
    both = (*TAKES, "decoder_input_ids", "decoder_attention_mask")
    for name, prefix in PAIRS.items():
        found[name] = _twice(hugging_face(f"{prefix}Model", SEQ2SEQ, both))
    tower = T5 | {"num_heads": 3, "decoder_start_token_id": 0}
    found["t5"] = _twice(hugging_face("T5Model", tower, both))
    found["t5_encoder"] = hugging_face(
        "T5EncoderModel", T5 | {"num_heads": 3}, TAKES, config="T5Config"
    )
    return found


def _twice(build: Callable[[], Any]) -> Callable[[], Any]:
    def made() -> Any:
        import torch

        class Twice(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = build()

            def forward(self, ids: Any, mask: Any) -> Any:
                return self.inner(ids, mask, ids, mask)

        return Twice()

    return made


def batches() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Words and masks [batch, length] by name; all but the last of one shape."""
    g = np.random.default_rng(SEEDED)
    ids = g.integers(3, VOCABULARY, (BATCH, LENGTH))
    right, left, whole = np.ones((3, BATCH, LENGTH), np.int64)
    right[1, 4:] = right[2, 1:] = 0
    left[1, :3] = left[2, :6] = 0
    whole[1] = 0
    same = np.full_like(ids, 5)
    return {
        "right": (ids, right),
        "left": (ids, left),
        "whole": (ids, whole),
        "same": (same, np.ones_like(right)),
        "single": (ids[:2, :1], np.ones((2, 1), np.int64)),
    }
