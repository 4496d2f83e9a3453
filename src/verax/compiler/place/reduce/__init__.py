"""Reductions and normalisations: rows in stages, groups, extremes, running sums, LRN."""
