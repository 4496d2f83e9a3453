"""Modules of Hugging Face's types from tiny configurations, with tensors in and tensors out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def hugging_face(
    model: str,
    options: Mapping[str, Any],
    takes: Sequence[str],
    gives: Sequence[str] = ("last_hidden_state",),
    *,
    config: str = "",
    change: Callable[[Any], Any] | None = None,
    **arguments: Any,
) -> Callable[[], Any]:
    """A builder of the class `model` of transformers under the configuration `config` (by default
    named like it). takes: keyword of each input; gives: fields of its answer; change: of the
    outcome, given the fields and then the inputs; arguments: passed to every call."""

    def build() -> Any:
        import torch
        import transformers

        stem = re.split("For(?=[A-Z])", model)[0].removesuffix("Model")
        made = getattr(transformers, config or f"{stem}Config")(**options)
        if hasattr(made, "use_cache"):
            made.use_cache = False

        class Wrapped(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.model = getattr(transformers, model)(made)

            def forward(self, *inputs: Any) -> Any:
                answer = self.model(**dict(zip(takes, inputs)), **arguments, return_dict=True)
                fields = [answer[name] for name in gives]
                if change is not None:
                    return change(*fields, *inputs)
                return fields[0] if len(fields) == 1 else tuple(fields)

        return Wrapped()

    return build
