"""How many numbers the machines compute side by side: what kernels and references both count by."""

LANES = 16
"""Interleaved partial results of a row; lanes of a logical vector, on every machine."""
