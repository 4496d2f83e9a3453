"""Language models of Hugging Face's types: two small layers, a small vocabulary, seeded weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.honest.architectures import Architecture
from benchmarks.honest.hugging_face import hugging_face
from benchmarks.honest.inputs import tokens

VOCABULARY, WIDTH, HEADS, LAYERS, INNER = 97, 24, 3, 2, 40
BATCH, LENGTH = 2, 7
COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": INNER,
    "max_position_embeddings": 32,
}
ROPE = {**COMMON, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2}
"""Rotary models need an even width per head."""
FUNNEL = {"vocab_size": VOCABULARY, "d_model": WIDTH, "n_head": HEADS, "d_head": 8} | {
    "d_inner": INNER,
    "block_sizes": [1, 1],
}
FNET = {k: v for k, v in COMMON.items() if k != "num_attention_heads"}
MADE: dict[str, tuple[str, Mapping[str, Any]]] = {
    "bert": ("Bert", COMMON),
    "distilbert": (
        "DistilBert",
        {"vocab_size": VOCABULARY, "dim": WIDTH, "n_layers": LAYERS, "n_heads": HEADS}
        | {"hidden_dim": INNER, "max_position_embeddings": 32},
    ),
    "roberta": ("Roberta", COMMON),
    "albert": ("Albert", COMMON | {"embedding_size": 16}),
    "electra": ("Electra", COMMON | {"embedding_size": 16}),
    "mpnet": ("MPNet", COMMON),
    "deberta": ("Deberta", COMMON | {"pos_att_type": ["c2p", "p2c"], "relative_attention": True}),
    "deberta_v2": (
        "DebertaV2",
        COMMON | {"pos_att_type": ["c2p", "p2c"], "relative_attention": True},
    ),
    "camembert": ("Camembert", COMMON),
    "squeezebert": (
        "SqueezeBert",
        COMMON | {"embedding_size": WIDTH} | {f"{k}_groups": 1 for k in ("q", "k", "v")},
    ),
    "mobilebert": (
        "MobileBert",
        COMMON | {"embedding_size": 16, "intra_bottleneck_size": WIDTH, "true_hidden_size": WIDTH},
    ),
    "nystromformer": ("Nystromformer", COMMON | {"num_landmarks": 7, "segment_means_seq_len": 7}),
    "modernbert": ("ModernBert", ROPE | {"pad_token_id": 1}),
    "gpt2": (
        "GPT2",
        {"vocab_size": VOCABULARY, "n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS}
        | {"n_positions": 32},
    ),
    "opt": (
        "OPT",
        {k: v for k, v in COMMON.items() if k != "intermediate_size"}
        | {"ffn_dim": INNER, "word_embed_proj_dim": WIDTH},
    ),
    "bloom": (
        "Bloom",
        {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "n_layer": LAYERS, "n_head": HEADS},
    ),
    "gpt_neox": ("GPTNeoX", ROPE),
    "gptj": (
        "GPTJ",
        {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": LAYERS, "n_head": 4, "rotary_dim": 4}
        | {"n_positions": 32},
    ),
    "gpt_neo": (
        "GPTNeo",
        {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "num_layers": LAYERS, "num_heads": HEADS}
        | {"attention_types": [[["global", "local"], 1]], "window_size": 4}
        | {"max_position_embeddings": 32},
    ),
    "llama": ("Llama", ROPE),
    "mistral": ("Mistral", ROPE | {"sliding_window": 4}),
    "qwen2": ("Qwen2", ROPE),
    "qwen3": ("Qwen3", ROPE | {"head_dim": 8}),
    "gemma": ("Gemma", ROPE | {"head_dim": 8}),
    "gemma2": ("Gemma2", ROPE | {"head_dim": 8, "sliding_window": 4}),
    "phi": ("Phi", ROPE),
    "phi3": ("Phi3", ROPE | {"pad_token_id": 1}),
    "falcon": (
        "Falcon",
        {k: v for k, v in ROPE.items() if k != "num_key_value_heads"} | {"alibi": False},
    ),
    "stablelm": ("StableLm", ROPE),
    "olmo": ("Olmo", ROPE | {"pad_token_id": 1}),
    "granite": ("Granite", ROPE),
    "cohere": ("Cohere", ROPE),
    "starcoder2": ("Starcoder2", ROPE),
}
"""Name -> prefix of its classes `<prefix>Config` and `<prefix>Model`, and the configuration."""


def _normalised_mean(hidden: Any, ids: Any, mask: Any) -> Any:
    """The mean over the words that count, L2-normalised: a search engine's vectors."""
    import torch

    kept = mask.unsqueeze(-1).to(hidden.dtype)
    mean = (hidden * kept).sum(1) / kept.sum(1).clamp(min=1e-6)
    return torch.nn.functional.normalize(mean, dim=-1)


def _probabilities(logits: Any, ids: Any, mask: Any) -> Any:
    import torch

    return torch.softmax(logits, -1)


T5 = {"vocab_size": VOCABULARY, "d_model": WIDTH, "d_kv": 8, "d_ff": INNER, "num_layers": LAYERS}
MAMBA = {"vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 1, "state_size": 4}


def architectures() -> list[Architecture]:
    """Every language model of this file."""
    words, takes = tokens(VOCABULARY, BATCH, LENGTH), ("input_ids", "attention_mask")
    builders = {n: hugging_face(f"{p}Model", o, takes) for n, (p, o) in MADE.items()}
    builders |= {
        "funnel": hugging_face("FunnelBaseModel", FUNNEL, takes, config="FunnelConfig"),
        "t5_encoder": hugging_face(
            "T5EncoderModel", T5 | {"num_heads": 3}, takes, config="T5Config"
        ),
        "bert_classifier": hugging_face(
            "BertForSequenceClassification",
            COMMON | {"num_labels": 5},
            takes,
            ("logits",),
            change=_probabilities,
        ),
        "sentence_embedding": hugging_face("BertModel", COMMON, takes, change=_normalised_mean),
        "llama_logits": hugging_face("LlamaForCausalLM", ROPE, takes, ("logits",)),
    }
    found = [Architecture(n, "language", "transformers", b, words) for n, b in builders.items()]
    ids = tokens(VOCABULARY, BATCH, 5, mask=False)
    alone = {
        "mamba": hugging_face("MambaModel", MAMBA, ("input_ids",)),
        "fnet": hugging_face("FNetModel", FNET, ("input_ids",)),
    }
    return found + [Architecture(n, "language", "transformers", b, ids) for n, b in alone.items()]
