"""Operators that sum along axes: products of matrices, reductions, normalizations, softmax."""
