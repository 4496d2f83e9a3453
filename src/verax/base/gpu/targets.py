"""GPUs as targets: their names."""

from __future__ import annotations

from verax.base.errors import UsageError

EMULATED_GPU = "cuda-emulated"
"""A GPU whose threads run on this processor, one after the other."""
CUDA = "cuda"
"""A card of this machine, by its compute capability; "cuda:1" is the second one."""
GPU_ARCHITECTURES = ("sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
"""NVIDIA's compute capabilities that kernels are made for, the oldest first."""
GPU_TARGETS = (EMULATED_GPU, *GPU_ARCHITECTURES)
"""Those of which code is for a GPU."""


def card_of(target: str) -> int | None:
    """The card that a target names: 1 for "cuda:1", 0 for "cuda"; None for another kind of target.

    Raises `UsageError` for "cuda:" with no number.
    """
    kind, colon, index = target.partition(":")
    if kind != CUDA:
        return None
    if colon and not (index.isascii() and index.isdecimal()):
        raise UsageError(
            f"unknown target {target!r}", next_step="give the number of a card, as in cuda:1"
        )
    return int(index or 0)
