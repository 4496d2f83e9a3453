"""Reductions and normalizations: rows in stages, groups, extremes, running sums, LRN."""
