"""`HuntedProgram`: a few statements on PyTorch's tensors, as text that runs anywhere.

Its reference is what its export means: on copies of the inputs, with the inputs that it writes to
as further outputs, so that a write that is lost shows.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from verax.base.optional import optional

torch: Any = optional("torch", "to hunt over torch.compile")

LAYOUTS: Mapping[str, str] = {
    "contiguous": "{0}",
    "transposed": "{0}.mT.contiguous().mT",
    "every second": "torch.stack(({0}, {0} * 0), -1)[..., 0]",
    "behind an element": "torch.cat(({0}.flatten()[:1], {0}.flatten()))[1:].view({0}.shape)",
    "expanded": "{0}[..., :1].expand({0}.shape)",
}
"""How an input lies in memory, as an expression of the contiguous tensor. An expanded one repeats
its first column, and nothing may be written to it."""
STATIC, DYNAMIC, SECOND = "static shapes", "dynamic shapes", "second call"
MODES = (STATIC, DYNAMIC, SECOND)
"""How it is compiled: `dynamic=True`, or once called with other numbers before it counts."""


@dataclass(frozen=True)
class HuntedProgram:
    """inputs: contiguous arrays by name; layouts: a key of LAYOUTS by name. lines: statements, in
    order; outputs: names that are returned; written: inputs that the statements write to; mode: one
    of MODES."""

    inputs: Mapping[str, np.ndarray]
    layouts: Mapping[str, str]
    lines: tuple[str, ...]
    outputs: tuple[str, ...]
    written: tuple[str, ...] = ()
    mode: str = STATIC

    @property
    def source(self) -> str:
        """Python: `def program(...)` that returns a tuple."""
        body = "\n".join(f"    {line}" for line in self.lines)
        returned = ", ".join((*self.outputs, *self.written))
        return f"def program({', '.join(self.inputs)}):\n{body}\n    return ({returned},)\n"

    def function(self) -> Any:
        """The program itself. torch.compile reads its code, so that it is compiled here."""
        namespace: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}
        exec(compile(self.source, "<program>", "exec"), namespace)
        return namespace["program"]

    def tensors(self, inputs: Mapping[str, np.ndarray], dtype: Any = None) -> list[Any]:
        """New tensors of `inputs` in their layouts, which nobody shares. dtype: for floating-point
        inputs instead of their own."""
        result = []
        for name in self.inputs:
            tensor = torch.from_numpy(np.array(inputs[name]))
            if dtype is not None and tensor.is_floating_point():
                tensor = tensor.to(dtype)
            layout = LAYOUTS[self.layouts.get(name, "contiguous")].format("x")
            result.append(eval(layout, {"torch": torch, "x": tensor}))
        return result

    def eager(self, inputs: Mapping[str, np.ndarray] | None = None, dtype: Any = None) -> list[Any]:
        """Outputs of PyTorch without a compiler, as tensors."""
        with torch.no_grad():
            return list(self.function()(*self.tensors(inputs or self.inputs, dtype)))

    def module(self) -> Any:
        """What is exported: the program on copies of its inputs."""
        function = self.function()

        class OnCopies(torch.nn.Module):  # type: ignore[misc]
            def forward(self, *arguments: Any) -> Any:
                return function(*(a.clone() for a in arguments))

        return OnCopies().eval()

    def with_lines(self, lines: tuple[str, ...], outputs: tuple[str, ...]) -> HuntedProgram:
        """Other statements on the inputs that they still name."""
        text = " ".join(lines)
        used = [n for n in self.inputs if _names(text, n) or n in outputs or n in self.written]
        return dataclasses.replace(
            self,
            inputs={n: self.inputs[n] for n in used},
            layouts={n: v for n, v in self.layouts.items() if n in used},
            lines=lines,
            outputs=outputs,
        )


def _names(text: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", text) is not None


def array_of(tensor: Any) -> np.ndarray:
    """The numbers of a tensor; bfloat16, which NumPy lacks, as float32."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.float()
    return np.array(tensor.contiguous().numpy())
