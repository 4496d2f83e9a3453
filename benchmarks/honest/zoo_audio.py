"""Audio models of Hugging Face's types: waves or spectra in, hidden states out."""

from __future__ import annotations

from benchmarks.honest.architectures import Architecture
from benchmarks.honest.hugging_face import hugging_face
from benchmarks.honest.inputs import sound, spectrum

SMALL = {
    "hidden_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "conv_dim": (12, 12, 16),
    "conv_kernel": (10, 3, 3),
    "conv_stride": (5, 3, 2),
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 4,
    "num_feat_extract_layers": 3,
    "apply_spec_augment": False,
}
AST = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "num_mel_bins": 24,
    "max_length": 40,
    "patch_size": 8,
    "frequency_stride": 8,
    "time_stride": 8,
}
WHISPER = {
    "vocab_size": 97,
    "d_model": 24,
    "encoder_layers": 2,
    "encoder_attention_heads": 3,
    "encoder_ffn_dim": 40,
    "decoder_layers": 1,
    "decoder_attention_heads": 3,
    "decoder_ffn_dim": 40,
    "num_mel_bins": 20,
    "max_source_positions": 18,
    "pad_token_id": 1,
    "bos_token_id": 2,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
}


def _encoder_of_whisper():  # type: ignore[no-untyped-def]
    import torch
    import transformers
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = WhisperEncoder(transformers.WhisperConfig(**WHISPER))

        def forward(self, features):  # type: ignore[no-untyped-def]
            return self.model(features, return_dict=True).last_hidden_state

    return Encoder()


def architectures() -> list[Architecture]:
    """Every audio model of this file."""
    waves, origin = ("input_values",), "transformers"
    wave = sound(2, 640)
    return [
        Architecture(
            "wav2vec2", "audio", origin, hugging_face("Wav2Vec2Model", SMALL, waves), wave
        ),
        Architecture("hubert", "audio", origin, hugging_face("HubertModel", SMALL, waves), wave),
        Architecture("wavlm", "audio", origin, hugging_face("WavLMModel", SMALL, waves), wave),
        Architecture(
            "sew",
            "audio",
            origin,
            hugging_face("SEWModel", SMALL | {"squeeze_factor": 2}, waves, config="SEWConfig"),
            wave,
        ),
        Architecture("whisper_encoder", "audio", origin, _encoder_of_whisper, spectrum(2, 20, 36)),
        Architecture(
            "ast",
            "audio",
            origin,
            hugging_face("ASTModel", AST, waves, config="ASTConfig"),
            spectrum(2, 40, 24),
        ),
    ]
