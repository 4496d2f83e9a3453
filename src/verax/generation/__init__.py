"""Text from language models, token by token: token ids in, token ids out.

`generator` is the door; `sampling` chooses the next token, by arithmetic that is the same on every
machine; `decoders` run a model step by step, whatever form its cache has; `folders` find the files
of a model that an exporter wrote; `modules` export a module of PyTorch with its cache. Tokenizers
are the user's.
"""

from verax.base.option_groups.generation_options import CacheOptions, SamplingOptions
from verax.generation.generator import Generation, Generator, TokenStep

__all__ = ["CacheOptions", "Generation", "Generator", "SamplingOptions", "TokenStep"]
