"""The version of the promised arithmetic: what a recipe names so that its bits can be had again."""

ARITHMETIC = 7
"""Raised by whoever changes a bit that an operator promises (its `canonical`, a function of
`numerics.functions`, an order of summation). `tests/numerics/test_arithmetic_version.py` holds the
bits of every operator's cases."""
