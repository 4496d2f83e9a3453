"""At home in PyTorch: backends of `torch.compile`, and layers of a living module exchanged.

    import verax.torch

    fast = torch.compile(module, backend="verax", options={"opt_level": 3})
    seen = torch.compile(module, backend="verax_judge", options={"inner": "inductor"})
    print(verax.torch.report())
    print(verax.torch.check_gradients(module, module_on_gpu, x, cotangents))

This room needs PyTorch; `import verax` alone does not load it. The backends are known to PyTorch by
the entry points of the installed package; where that is not installed, importing this room makes
them known. Either way each is registered once.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from verax.base.optional import optional
from verax.torch.backend import reset, verax
from verax.torch.custom import operator
from verax.torch.gradient_check import check_gradients
from verax.torch.judging import verax_judge
from verax.torch.options import CompileOptions, JudgeOptions, options_of
from verax.torch.replacements import of_tensors, perturbed, reference
from verax.torch.reporting import GraphReport, Judged, Report, report
from verax.torch.substituted import LayerReport, Sides
from verax.torch.substitution import substitute

__all__ = [
    "CompileOptions",
    "GraphReport",
    "JudgeOptions",
    "Judged",
    "LayerReport",
    "Report",
    "Sides",
    "check_gradients",
    "of_tensors",
    "operator",
    "options_of",
    "perturbed",
    "reference",
    "report",
    "reset",
    "substitute",
]
GROUP = "torch_dynamo_backends"
"""Entry points in which PyTorch looks for backends."""


def _register() -> None:
    registry: Any = optional("torch._dynamo.backends.registry", "to use verax.torch")
    installed = {e.name for e in entry_points(group=GROUP)}
    for backend in (verax, verax_judge):
        name = backend.__name__
        if name not in installed and name not in registry._COMPILER_FNS:
            registry.register_backend(backend, name)


_register()
