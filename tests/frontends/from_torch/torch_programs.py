"""Small PyTorch programs for the tests, saved as `.pt2` bytes."""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import verax
from verax.frontends.model import Model
from verax.records.verdict import Kind

torch = pytest.importorskip("torch")
RIGHT = (Kind.identical, Kind.rounding)


class Call(torch.nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: Any) -> Any:
        return self.function(*tensors)


def export(module: Any, inputs: tuple[Any, ...], **options: Any) -> Any:
    """The exported program of a module or function at inference."""
    whole = module if isinstance(module, torch.nn.Module) else Call(module)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.export(whole.eval(), inputs, strict=False, **options)


def saved(program: Any) -> bytes:
    """The bytes that `torch.export.save` writes."""
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    return buffer.getvalue()


def arrays(model: Model, tensors: tuple[Any, ...]) -> dict[str, np.ndarray]:
    """Inputs by name, in order."""
    return {k: t.detach().numpy() for k, t in zip(model.inputs, tensors, strict=True)}


def agree(
    model: Model, inputs: Mapping[str, np.ndarray], outputs: list[Any], *, compiled: bool = True
) -> None:
    """PyTorch's outputs and, if `compiled`, our compiled ones are judged against the meaning."""
    given = {k: np.asarray(o.detach()) for k, o in zip(model.outputs, outputs, strict=True)}
    _judged(model, given, inputs, compiled)


def agree_inside(model: Model, program: Any, tensors: tuple[Any, ...]) -> None:
    """As `agree`, each node of PyTorch's program judged by itself: choices (of boxes, of masks)
    that rounding may tip say nothing about what is before them."""
    _judged(model, program, arrays(model, tensors))


def _judged(
    model: Model, pytorch: Any, inputs: Mapping[str, np.ndarray], compiled: bool = True
) -> None:
    verdict = verax.check(model, pytorch, inputs)
    if verdict.kind is Kind.undecided:
        # Floor and the like, or attention to values that are all equal, hide what is before
        # them; everything shown was judged nevertheless.
        assert {f.test for f in verdict.nodes if f.kind is Kind.undecided} == {"power"}
    else:
        assert verdict.kind in RIGHT, verdict.reasons
    if compiled:
        agree_compiled(model, inputs)


def agree_compiled(model: Model, inputs: Mapping[str, np.ndarray]) -> None:
    """What the program is compiled to is judged against the meaning: by its outputs, and where
    these hide what is before them, watched, which compiles it once more."""
    verdict = verax.check(model, "verax:O1", inputs, watch=False)
    if verdict.kind is Kind.undecided:
        verdict = verax.check(model, "verax:O1", inputs)
    assert verdict.kind in RIGHT, verdict.reasons
