"""Reductions, normalizations and running sums in the canonical order: spec, plan and code."""
