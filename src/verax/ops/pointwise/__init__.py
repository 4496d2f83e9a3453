"""Operators that work number by number: arithmetic, comparisons, activations, conversions."""
