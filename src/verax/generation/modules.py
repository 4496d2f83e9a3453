"""Causal language models of Hugging Face's transformers, exported with a static cache.

Keys and values are buffers of fixed room, which the program keeps and writes into. Two sizes are
compiled, a chunk of a prompt and a single token; the last chunk is filled up behind the prompt with
tokens that no other sees and whose slots the following ones take.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from verax.base.errors import ModelError, UsageError
from verax.base.option_groups.compile_options import CompilationOptions
from verax.base.option_groups.generation_options import CacheOptions
from verax.base.optional import optional
from verax.compiler.executable import Executable
from verax.compiling import compile
from verax.generation.decoders import Context, Decoder
from verax.loading import load

ROOM, CHUNK = 2048, 64
"""By default."""
EXAMPLE = 3
"""Tokens that the module is exported with; the program takes any number."""


class StaticCache(Decoder):
    """A module with its cache in buffers. One batch at a time has its state in the program; that of
    others is kept as arrays."""

    def __init__(self, net: Any, cache: CacheOptions, options: CompilationOptions) -> None:
        """Raises `ModelError` for a module that is no causal language model of transformers."""
        config: Any = getattr(net, "config", None)
        if hasattr(config, "get_text_config"):
            config = config.get_text_config()
        if config is None or not hasattr(net, "get_output_embeddings"):
            raise ModelError(
                "this is no causal language model of transformers",
                place=type(net).__name__,
                next_step="give an AutoModelForCausalLM, or export the network to ONNX with "
                "past_key_values",
            )
        self._net, self._options = net, options
        self._chunk = cache.chunk or CHUNK
        stated = getattr(config, "max_position_embeddings", None)
        self.room = cache.room or min(stated or ROOM, ROOM)
        self.vocabulary = int(config.vocab_size)
        window = getattr(config, "sliding_window", None)
        if window and self.room > window and getattr(config, "use_sliding_window", True):
            raise UsageError(
                f"the model sees the last {window} tokens, and its cache is to hold {self.room}",
                next_step=f"give room={window} or less",
            )
        ends = getattr(getattr(net, "generation_config", None), "eos_token_id", None)
        self.stop = tuple(ends if isinstance(ends, list) else [] if ends is None else [ends])
        self._programs: dict[int, Executable] = {}
        self._loaded: dict[int, Context] = {}
        self._lock = threading.Lock()

    @property
    def programs(self) -> Sequence[Executable]:
        return list(self._programs.values())

    def chunks(self, context: Context, count: int, chunk: int | None) -> Sequence[int]:
        return [min(self._chunk, count - i) for i in range(0, count, self._chunk)]

    def advance(self, context: Context, tokens: np.ndarray, mask: np.ndarray) -> np.ndarray:
        with self._lock:
            return self._advance(context, tokens, mask)

    def _advance(self, context: Context, tokens: np.ndarray, mask: np.ndarray) -> np.ndarray:
        batch, count = tokens.shape
        exe = self._program(batch)
        self._load(exe, context, batch)
        width = 1 if count == 1 else self._chunk
        seen = context.seen
        full_mask, positions = context.extended(mask)
        visible = np.zeros((batch, self._capacity), np.int64)
        visible[:, : full_mask.shape[1]] = full_mask
        slots = np.arange(seen, seen + width)
        seen_by = np.arange(self._capacity)[None, :] <= slots[:, None]
        extra = ((0, 0), (0, width - count))
        outputs = exe.run(
            {
                "input_ids": np.pad(tokens, extra),
                "position_ids": np.pad(positions, extra, mode="edge"),
                "slots": slots,
                "mask": visible[:, None, None, :].astype(bool) & seen_by[None, None],
                "last": np.array([count - 1]),
            }
        )
        context.mask = full_mask
        return next(iter(outputs.values()))[:, -1]

    @property
    def _capacity(self) -> int:
        """Places of the cache: the last chunk is filled up behind the room."""
        assert self.room is not None
        return self.room + self._chunk

    def _load(self, exe: Executable, context: Context, batch: int) -> None:
        """Have the program's state be that of `context`."""
        owner = self._loaded.get(batch)
        if owner is context:
            return
        former = exe.exchange_state(context.arrays)
        if owner is not None:
            owner.arrays = former
        self._loaded[batch], context.arrays = context, {}

    def _program(self, batch: int) -> Executable:
        """The program for so many sequences at once."""
        if batch not in self._programs:
            exported = _exported(self._net, batch, self._capacity)
            self._programs[batch] = compile(load(exported), options=self._options)
        return self._programs[batch]


def _exported(net: Any, batch: int, slots: int) -> Any:
    """The module's `ExportedProgram`: (input_ids [batch, n], position_ids [batch, n], slots [n] of
    the cache, mask [batch, 1, n, slots], last [1]) -> logits [batch, 1, vocabulary]."""
    torch = optional("torch", "to export a module")
    net = copy.copy(_with_plain_weights(torch, net))  # whoever trains it goes on with its own
    module = _module(torch, net.eval(), batch, slots)
    example = (
        torch.zeros(batch, EXAMPLE, dtype=torch.int64),
        torch.arange(EXAMPLE).repeat(batch, 1),
        torch.arange(EXAMPLE),
        torch.ones(batch, 1, EXAMPLE, slots, dtype=torch.bool),
        torch.tensor([EXAMPLE - 1]),
    )
    count = torch.export.Dim.DYNAMIC
    dims = ({1: count}, {1: count}, {0: count}, {2: count}, None)
    with torch.no_grad():
        return torch.export.export(module, example, dynamic_shapes=dims, strict=False)


def _with_plain_weights(torch: Any, net: Any) -> Any:
    """A copy of `net` that makes its weights of types of their own (torchao's quantized ones) from
    the tensors inside of them; `net` itself where it has none. A program with state cannot be
    taken apart so behind its export."""
    is_wrapped = torch.utils._python_dispatch.is_traceable_wrapper_subclass
    if not any(map(is_wrapped, net.state_dict(keep_vars=True).values())):
        return net
    parametrization = optional(
        "torch._functorch._aot_autograd.subclass_parametrization", "to export quantized weights"
    )
    return parametrization.unwrap_tensor_subclass_parameters(copy.deepcopy(net))


def _module(torch: Any, net: Any, batch: int, slots: int) -> Any:
    """`net` with its cache in buffers."""
    layers = optional("transformers.cache_utils", "to export a language model with its cache")
    executorch = optional("transformers.integrations.executorch", "to export a language model")
    config = net.config.get_text_config()
    cache = layers.StaticCache(config=config, max_cache_len=slots)
    cache.layers = [layers.StaticLayer(slots) for _ in cache.layers]
    heads, features = executorch.get_head_shapes(config)
    cache.early_initialization(batch, heads, features, net.dtype, net.device)

    class WithCache(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = net
            for i, layer in enumerate(cache.layers):
                self.register_buffer(f"keys_{i}", layer.keys, persistent=False)
                self.register_buffer(f"values_{i}", layer.values, persistent=False)
                self.register_buffer(f"count_{i}", layer.cumulative_length, persistent=False)

        def forward(
            self, input_ids: Any, position_ids: Any, slots: Any, mask: Any, last: Any
        ) -> Any:
            for layer in cache.layers:
                layer.cumulative_length.copy_(slots[0])
            answer = self.net(
                input_ids=input_ids,
                position_ids=position_ids,
                attention_mask=mask,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=last,
            )
            return answer.logits

    return WithCache().eval()
