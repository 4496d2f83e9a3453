"""PyTorch: `.pt2` archives of `torch.export`, read without torch; with torch, its objects too."""

from __future__ import annotations

from verax.frontends.torch.importer import load_torch

__all__ = ["load_torch"]
